"""fairfox's types as the mypy of a user's project sees them: the package is installed, and nothing else is set."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = """
import pandas as pd
import torch
import fairfox
from fairfox.testing import assert_individually_fair

def gate(people: pd.DataFrame, model: torch.nn.Module) -> bool:
    result = fairfox.audit(model, people, protected="sex", label="approved", delta={"": 0.1, "Female": 0.03})
    reveal_type(result.verdict.passed)
    reveal_type(result.summary())
    test = fairfox.fit(people, protected="sex", options={"refits": 10})
    reveal_type(fairfox.score(test, model, people))
    assert_individually_fair(model, people, protected="sex", delta=0.1)
    return result.verdict.passed is not False
"""


@pytest.mark.slow
def test_a_project_that_uses_fairfox_is_checked_strictly_and_a_wrong_call_is_found(tmp_path: Path):
    (tmp_path / "gate.py").write_text(PROJECT)
    (tmp_path / "wrong.py").write_text("import fairfox\nfairfox.audit(None, 'people.csv', protected='sex', seed='0')\n")
    files = ["gate.py", "wrong.py"]
    lenient = ["--ignore-missing-imports", "--disable-error-code=import-untyped"]
    command = [sys.executable, "-m", "mypy", "--strict", *lenient, *files]
    done = subprocess.run(command, cwd=tmp_path, text=True, capture_output=True)
    lines = done.stdout.splitlines()
    assert [line for line in lines if "gate.py" in line and " error:" in line] == [], done.stdout
    revealed = [line.partition("Revealed type is ")[2].strip('"') for line in lines if "Revealed type" in line]
    assert revealed == ["bool | None", "str", "fairfox.result.AuditResult"]
    (found,) = (line for line in lines if "wrong.py" in line and " error:" in line)
    assert 'Argument "seed" to "audit" has incompatible type "str"' in found
