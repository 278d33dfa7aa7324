import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from fairfox.earlier import drift, read_earlier
from fairfox.errors import DataError, FileError, OptionError
from fairfox.result import AuditResult
from tests.support import PEOPLE, example_result

SETTINGS = {
    "seed": 0,
    "refits": 5,
    "folds": 5,
    "rows": PEOPLE,
    "columns": ["income", "job", "age"],
    "reference_rows": None,
}


def audited(*, times: float = 1.0, **changes) -> AuditResult:
    """Return an audit of forty people, two of them abstained, whose effects are so many times as large."""
    result = example_result(settings=SETTINGS)
    scores = times * result.scores
    moved = {"scores": scores, "signed": times * result.signed, "flags": (scores > result.delta) & ~result.abstained}
    return replace(result, **moved, **changes)


def write(result: AuditResult, folder: Path) -> None:
    """Write what is read of an audit."""
    result.to_json(folder / "summary.json")
    result.to_parquet(folder / "scores.parquet")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(audited(), tmp_path / "first")
    return tmp_path


def test_an_audit_is_read_from_its_folder_as_from_its_result(folder: Path):
    read, given = read_earlier(folder / "first"), read_earlier(audited())
    assert read.ids == given.ids == tuple(range(PEOPLE - 2))  # who was judged
    for name in ("scores", "errors", "flags"):
        assert getattr(read.people, name).tolist() == getattr(given.people, name).tolist()
    assert read.people.scores == pytest.approx(audited().scores[:-2].numpy())
    assert (read.people.delta, read.people.refits, read.people.folds) == (0.05, 5, 5)
    assert (read.people.errors > 0).all()
    assert read.variables == ["sex"]


def test_the_same_audit_is_not_worse_and_one_with_larger_effects_is(folder: Path):
    write(audited(times=3.0), folder / "second")
    again = drift(folder / "first", folder / "first")
    assert (again.word, again.paired, again.people) == ("not worse", True, (38, 38))
    worse = drift(folder / "first", folder / "second")
    assert worse.word == "worse"
    assert worse.difference.value == pytest.approx(2 * float(audited().scores[:-2].mean()), rel=1e-5)
    assert drift(folder / "second", folder / "first").word == "not worse"
    assert drift(folder / "first", folder / "second", margin=1.0).word == "not worse"  # so much does not count


def test_people_are_found_by_their_ids_in_any_order():
    ids = np.array([f"p{k}" for k in range(PEOPLE)])
    turned = replace(audited(), ids=ids[::-1])
    assert drift(audited(ids=ids), audited(ids=ids)).difference.value == 0.0
    found = drift(audited(ids=ids), turned)
    assert found.paired
    assert found.people == (36, 36)  # the last two of one are the first two of the other
    assert found.difference.lower < found.difference.upper  # different scores of the same people


@pytest.mark.parametrize("ids", [np.arange(100, 100 + PEOPLE), np.zeros(PEOPLE, dtype=int)], ids=["others", "no names"])
def test_other_people_and_people_without_names_are_two_samples(ids):
    found = drift(audited(), audited(ids=ids))
    assert not found.paired
    assert found.word == "cannot tell"  # of so few people


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"delta": 0.1}, "The delta is 0.05 in the result and 0.1 in the result"),
        ({"test": "move"}, "The test is rank in the result and move"),
        ({"unit": "cosine"}, "The unit is change of the prediction"),
        ({"settings": {**SETTINGS, "decision_threshold": 0.5}}, "The decision threshold is None in .* and 0.5 in"),
        ({"findings": (replace(example_result().findings[0], name="race"),)}, "sex is protected in .* and race in"),
    ],
)
def test_audits_of_other_questions_are_refused(change, message):
    with pytest.raises(OptionError, match=message):
        drift(audited(), audited(**change))


def test_a_negative_margin_is_refused():
    with pytest.raises(OptionError, match="margin is -1"):
        drift(audited(), audited(), margin=-1.0)


def test_a_folder_without_an_audit_is_refused(tmp_path: Path):
    with pytest.raises(FileError, match=r"no file '.*summary.json'; give a folder that `fairfox audit` wrote"):
        read_earlier(tmp_path)


def test_damaged_files_are_refused(folder: Path):
    first = folder / "first"
    summary = first / "summary.json"
    whole = summary.read_text()
    summary.write_text(whole[:50])
    with pytest.raises(FileError, match="cannot be read"):
        read_earlier(first)
    summary.write_text(json.dumps({k: v for k, v in json.loads(whole).items() if k != "delta"}))
    with pytest.raises(FileError, match="does not hold 'delta'"):
        read_earlier(first)
    summary.write_text(whole)
    pq.write_table(pq.read_table(first / "scores.parquet").drop_columns("upper"), first / "scores.parquet")
    with pytest.raises(FileError, match=r"does not hold .*upper"):
        read_earlier(first)


def test_an_audit_that_judged_nobody_is_refused():
    result = audited()
    with pytest.raises(DataError, match="Nobody is judged"):
        read_earlier(replace(result, abstained=~result.abstained | result.abstained))


def test_weights_that_are_not_written_are_refused():
    weighted = audited(weights=audited().scores + 1)
    with pytest.raises(OptionError, match="have weights"):
        drift(weighted, weighted)
