"""The pytest plugin in projects of its own, each run by another pytest."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from page_blocks import blocks, commands, differences

from fairfox.benchmark.worlds import LENDING
from fairfox.cli.pytest_plugin import Fairfox, folder_name

ELSEWHERE = """
import pytest

@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # reports go to where pytest was started all the same
"""
HEAVY = "{'torch', 'numpy', 'pandas', 'sklearn', 'scipy', 'pyarrow', 'altair'} & set(sys.modules)"


def run_pytest(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    env = {**os.environ, "COLUMNS": "120"}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


def test_the_biased_model_of_the_page_fails_with_the_message_and_the_fair_one_passes(tmp_path: Path):
    (tmp_path / "demo-report").mkdir()
    pyarrow.csv.write_csv(LENDING.sample(500, seed=1).table, tmp_path / "demo-report" / "people.csv")
    test, shell, message = blocks("docs/how_to/pytest.md")
    (tmp_path / str(test.file)).write_text(test.text)
    (tmp_path / "conftest.py").write_text(ELSEWHERE)
    (((command, *arguments), _),) = commands(shell.text)
    assert command == "pytest"
    done = run_pytest(tmp_path, *arguments)
    assert done.returncode == 1, done.stderr
    assert re.search(r"\b1 failed, 1 passed\b", done.stdout), done.stdout
    said = [line[1:].strip() for line in done.stdout.splitlines() if line.startswith("E ")]
    assert differences(message.text.splitlines(), done.stdout) == []
    assert any("Mostly through income" in line for line in said)
    assert "testing.py" not in done.stdout  # the test's own line is shown, nothing of ours
    assert "pytest_plugin.py" not in done.stdout
    folder = tmp_path / "reports" / folder_name("test_loans.py::test_loans_do_not_depend_on_sex")
    assert said[-1].startswith(f"Written: {folder}")
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]  # nothing of the test that passed
    assert (folder / "report.html").is_file()


def by_income(table: Any) -> np.ndarray:
    return 1 / (1 + np.exp(-np.asarray(table["income"])))


def test_every_check_of_a_test_has_a_report_of_its_own(tmp_path: Path):
    income = np.random.default_rng(0).normal(0, 1, 200) + np.tile([0, 2], 100)
    people = pa.table({"sex": ["f", "m"] * 100, "income": income})
    quick = {"protected": "sex", "options": {"refits": 2, "folds": 2}}
    here = Fairfox(tmp_path / "a test")
    assert len(here.audit(by_income, people, **quick)) == 200
    for _ in range(2):
        with pytest.raises(AssertionError, match="The model fails"):
            here.assert_individually_fair(by_income, people, max_flagged=0.1, **quick)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a test", "a test-2"]


def test_a_suite_that_does_not_use_it_imports_nothing_heavy(tmp_path: Path):
    used = "def test_with_the_fixture(fairfox):\n    assert callable(fairfox.audit)\n"
    loaded = "assert 'fairfox.cli.pytest_plugin' in sys.modules"
    last = f"def test_nothing_was_imported():\n    {loaded}\n    assert not {HEAVY}\n"
    (tmp_path / "test_light.py").write_text(f"import sys\nimport fairfox.testing\n\n{used}\n{last}")
    done = run_pytest(tmp_path, "-p", "no:hypothesispytest", "-q")
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout


def test_pytest_finds_the_plugin_under_the_name_of_the_package():
    (found,) = entry_points(group="pytest11", name="fairfox")
    assert found.value == "fairfox.cli.pytest_plugin"


@pytest.mark.parametrize("other", ["a/b.py::t", "a-b.py::t", "a/b.py::t[é]", "a/b.py::t[" + "x" * 300 + "]"])
def test_tests_have_folders_of_their_own_whatever_they_are_called(other: str):
    name = folder_name(other)
    assert re.fullmatch(r"[\w.-]{1,120}", name, re.ASCII)
    assert name != folder_name("a/b-py::t")
