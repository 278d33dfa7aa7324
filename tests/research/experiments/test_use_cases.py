"""The paper's two use cases as the examples tell them."""

import json

import pytest

from fairfox.data.catalog import COMPAS as COMPAS
from fairfox.data.catalog import GERMAN as GERMAN
from fairfox.data.files import find_file
from fairfox.errors import FileError

EXPERIMENT = "use_cases"


def test_both_cases_are_told_in_words_and_numbers(experiment, tmp_path):
    if any(find_file(file) is None for file in (*COMPAS, *GERMAN)):
        pytest.skip("the tables are not on this machine; FAIRFOX_DATA names the folder with the real data sets")
    out = tmp_path / "cases.json"
    assert experiment.EXPERIMENT.run(["--quick", "--workers", "1", "--out", str(out)]) == 0
    found = json.loads(out.read_text(encoding="utf-8"))
    assert found["not_run"] == {}
    assert all(case["text"] in experiment.show(found) for case in found["cases"].values())
    policing, credit = (found["cases"][name]["found"] for name in ("policing", "credit"))
    assert "the model does not take" in policing["unawareness"]
    assert len(policing["models"]) == 3
    assert credit["agreement"].keys() == {"sex", "age<25"}
    assert credit["through"].keys() <= {"sex=female", "sex=male", "age<25", "not age<25"}
    sections = [make(found) for make in experiment.SECTIONS.values()]
    assert policing["summary"] in sections[0]
    assert f"| accuracy | {credit['models']['without sex and age']['accuracy']:.3f} |" in sections[1]


def test_a_case_without_its_table_is_not_run(experiment, monkeypatch):
    class Example:
        def __init__(self, name):
            self.name = name

        def people(self):
            if self.name == "policing":
                raise FileError("it is not on this machine")

    monkeypatch.setattr(experiment, "load_example", Example)
    assert [job.name for job in experiment.jobs(experiment.FULL, 0)] == ["credit"]
    found = {"cases": {}, "not_run": experiment.lacking(experiment.FULL)}
    assert found["not_run"] == {"policing": "not run: file not available"}
    assert experiment.show(found) == "policing: not run: file not available"
    assert [make(found) for make in experiment.SECTIONS.values()] == ["not run: file not available"] * 2
    only = experiment.EXPERIMENT.narrow(experiment.FULL, ["policing"])
    with pytest.raises(SystemExit, match="it is not on this machine"):  # nothing is left to run
        experiment.jobs(only, 0)
