"""Odd tables and options, and commands killed at random moments; longer runs: make fuzz, python -m tests.fuzz.kill."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.fuzz.cases import run_case
from tests.fuzz.kill import kill_all

pytestmark = pytest.mark.brief

FIRST, CASES = 30_000, int(os.environ.get("FAIRFOX_FUZZ_CASES", "20"))


@pytest.mark.parametrize("block", range(FIRST, FIRST + CASES, 5))
def test_odd_tables_and_options_end_with_whole_results_or_in_one_sentence(block: int):
    cases = [run_case(seed) for seed in range(block, min(block + 5, FIRST + CASES))]
    faults = [fault for case in cases for fault in case.faults]
    assert not faults, "\n".join([*faults, "again: python -m tests.fuzz.cases --cases 1 --seed N"])
    assert sum(case.counts["fit"] for case in cases) >= 3  # of five; formats without some type have no table


@pytest.mark.slow
def test_a_killed_command_gives_the_same_when_it_is_run_again(tmp_path: Path):
    assert kill_all(["audit", "score"], max(1, CASES // 40), 0, tmp_path) == []
