from __future__ import annotations

from pathlib import Path

import pytest
from populations import people

pytest.register_assert_rewrite("tests.hostile.refusal")  # so that it also checks under python -O


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with people.csv, and another folder above it."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    people().to_csv("people.csv", index=False)
    return tmp_path / "work"
