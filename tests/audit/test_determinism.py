"""The same audit again: whatever the order of Python's sets and the number of threads, the same scores."""

import json
import os
import subprocess
import sys

import numpy as np

CODE = """
import json, sys, torch, fairfox
from fairfox.benchmark.worlds import LENDING

torch.set_num_threads(int(sys.argv[1]))
table = LENDING.sample(150, seed=0).table
columns = ["income", "debt_ratio", "sector", "contract"]
result = fairfox.audit(
    lambda frame: frame["income"] / 100_000, table, protected=["sex"], label="approved", columns=columns,
    options={"refits": 2},
).record
print(json.dumps(result.scores.double().tolist()))
"""


def test_scores_depend_neither_on_hashes_nor_on_threads():
    found = []
    for seed, threads in (("0", "1"), ("7", "2")):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "OMP_NUM_THREADS": threads}
        done = subprocess.run([sys.executable, "-c", CODE, threads], capture_output=True, check=True, env=environment)
        found.append(json.loads(done.stdout))
    assert max(found[0]) > 0.001
    np.testing.assert_allclose(found[0], found[1], rtol=0, atol=1e-6)
