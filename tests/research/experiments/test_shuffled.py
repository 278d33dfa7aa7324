"""Shuffled protected columns of raw tables: nobody is to be flagged."""

import json

import pytest

from fairfox.data.catalog import DATASETS
from fairfox.data.files import find_file

GERMAN = DATASETS["german"].files

EXPERIMENT = "shuffled"


def test_people_are_audited_for_groups_that_mean_nothing(experiment, tmp_path):
    if find_file(GERMAN[0]) is None:
        pytest.skip("the table is not on this machine; FAIRFOX_DATA names the folder with the real data sets")
    out = tmp_path / "shuffled.json"
    assert experiment.EXPERIMENT.run(["--quick", "--workers", "1", "--out", str(out)]) == 0
    found = json.loads(out.read_text(encoding="utf-8"))
    assert [one["shuffle"] for one in found["results"]] == [0, 1]
    for one in found["results"]:
        assert one["people"] == 80
        assert one["confident"] <= one["flagged"]
    assert "| German credit | logistic regression | 2 |" in experiment.show(found)


def test_large_tables_must_pass_and_none_may_fail(experiment):
    one = {"table": "adult", "confident": 0, "verdict": "passes"}
    small = one | {"table": "german", "verdict": "cannot tell"}
    assert [bar["holds"] for bar in experiment.bars([one, small])] == [True, True, True]
    assert [bar["holds"] for bar in experiment.bars([one | {"confident": 3, "verdict": "fails"}])] == [False] * 3
