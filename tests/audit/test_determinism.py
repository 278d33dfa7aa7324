"""The same audit again: whatever the order of Python's sets and the number of threads, the same scores."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch

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


def test_scores_depend_neither_on_hashes_nor_on_threads(capsys: pytest.CaptureFixture[str]):
    threads = torch.get_num_threads()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["here", "1"])
        exec(CODE, {})
    torch.set_num_threads(threads)
    here = json.loads(capsys.readouterr().out)
    environment = {**os.environ, "PYTHONHASHSEED": "7", "OMP_NUM_THREADS": "2"}
    done = subprocess.run([sys.executable, "-c", CODE, "2"], capture_output=True, check=True, env=environment)
    assert max(here) > 0.001
    np.testing.assert_allclose(json.loads(done.stdout), here, rtol=0, atol=1e-6)
