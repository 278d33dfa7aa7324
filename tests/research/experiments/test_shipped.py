"""Committed results are those of the shipped defaults."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fairfox.choices.tests import FAIR_TESTS
from fairfox.maps.move import MoveMap
from fairfox.options import AuditOptions

EXPERIMENT = "shipped"
RESULTS = Path(__file__).parents[3] / "experiments" / "results"
FILES = [path for path in sorted(RESULTS.glob("*.json")) if not path.stem.endswith(("-quick", "-only"))]


def faults(experiment, found):
    """Return what is wrong with a results file."""
    shipped = experiment.defaults_hash.__wrapped__()
    if "defaults" not in found or "code" not in found:
        return ["it has no hashes: run the experiment"]
    return [] if found["defaults"] == shipped else [f"it was made with defaults {found['defaults']}, not {shipped}"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_committed_result_was_made_with_the_shipped_defaults(experiment, path):
    assert faults(experiment, json.loads(path.read_text(encoding="utf-8"))) == []


def of_an_option(monkeypatch):
    monkeypatch.setattr(AuditOptions.__dataclass_fields__["persistence"], "default", 0.8)


def of_a_delta(monkeypatch):
    monkeypatch.setitem(FAIR_TESTS, "rank", replace(FAIR_TESTS["rank"], delta=0.06))


def of_a_setting(monkeypatch):
    monkeypatch.setitem(MoveMap.__init__.__kwdefaults__, "steps", 9)


@pytest.mark.parametrize("change", [of_an_option, of_a_delta, of_a_setting])
def test_a_change_of_one_default_makes_stored_results_fail(experiment, monkeypatch, change):
    found = {"defaults": experiment.defaults_hash(), "code": experiment.code_hash()}
    assert faults(experiment, found) == []
    change(monkeypatch)
    (fault,) = faults(experiment, found)
    assert fault.startswith(f"it was made with defaults {found['defaults']}, not ")


def test_a_results_file_says_which_defaults_it_was_made_with(experiment):
    found = {"experiment": "table1", "defaults": experiment.defaults_hash(), "code": "c0de"}
    assert "the shipped ones" in experiment.provenance(found)
    assert "**not the shipped ones**" in experiment.provenance(found | {"defaults": "other"})


def test_the_hash_of_the_code_follows_the_code(experiment, tmp_path, monkeypatch):
    (tmp_path / "a.py").write_text("x = 1\n")
    monkeypatch.setattr(experiment, "CODE", tmp_path)
    first = experiment.code_hash.__wrapped__()
    assert experiment.code_hash.__wrapped__() == first
    (tmp_path / "report").mkdir()
    (tmp_path / "report/text.txt").write_text("PASS\n")  # no code
    assert experiment.code_hash.__wrapped__() == first
    (tmp_path / "a.py").write_text("x = 2\n")
    assert experiment.code_hash.__wrapped__() != first


def test_results_take_at_most_a_megabyte_and_a_half():
    assert sum(path.stat().st_size for path in RESULTS.iterdir() if path.suffix in (".json", ".svg", ".png")) <= 1.5e6
