"""Shuffled protected columns of raw tables: nobody is to be flagged."""

import json

import pytest

from fairfox.data.catalog import GERMAN
from fairfox.data.files import find_file

EXPERIMENT = "shuffled"


def test_people_are_audited_for_groups_that_mean_nothing_with_and_without_the_gate(experiment, tmp_path):
    if find_file(GERMAN[0]) is None:
        pytest.skip("the table is not on this machine; FAIRFOX_DATA names the folder with the real data sets")
    out = tmp_path / "shuffled.json"
    assert experiment.EXPERIMENT.run(["--quick", "--workers", "1", "--out", str(out)]) == 0
    found = json.loads(out.read_text(encoding="utf-8"))
    assert [one["shuffle"] for one in found["results"]] == [0, 1]
    for one in found["results"]:
        assert one["gate"]["people"] == one["no gate"]["people"] == 80
        assert one["gate"]["confident"] <= one["gate"]["flagged"] <= one["no gate"]["flagged"]
        assert len(one["gate"]["still"]) > 0 == len(one["no gate"]["still"])
    (bar,) = found["bars"]
    assert bar["holds"] is (bar["value"] >= experiment.LEAST)
    assert "| German credit | logistic regression | 2 |" in experiment.show(found)
