import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from fairfox.comparison import compare
from fairfox.errors import DataError, FileError, OptionError
from fairfox.report.files import StoredAudit, read_audit, scores_table, stored_audit
from fairfox.result import AuditResult
from tests.report.helpers import SETTINGS, named_audit
from tests.support import PEOPLE, example_result

IDS = np.array([f"p{k}" for k in range(PEOPLE)])


def audited(**changes: Any) -> AuditResult:
    """Return an audit of forty people with names, two of them abstained."""
    return AuditResult(named_audit(**changes))


def write(result: AuditResult, folder: Path) -> None:
    """Write what is read of an audit."""
    result.to_json(folder / "summary.json")
    result.to_parquet(folder / "scores.parquet")


def in_memory(result: AuditResult) -> StoredAudit:
    return stored_audit("the result", json.loads(result.to_json()), scores_table(result.record), named=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(audited(), tmp_path / "first")
    return tmp_path


def test_an_audit_is_read_from_its_folder_as_from_its_result(folder: Path):
    read, given = read_audit(folder / "first"), in_memory(audited())
    assert read.ids == given.ids == tuple(IDS[:-2])  # who was judged
    for name in ("scores", "errors", "flagged"):
        assert getattr(read.people, name).tolist() == getattr(given.people, name).tolist()
    assert read.people.scores == pytest.approx(audited().record.scores[:-2].numpy())
    assert (read.people.delta, read.people.refits, read.people.folds) == (0.05, 5, 5)
    assert (read.people.errors > 0).all()
    assert read.options == given.options
    assert read.options["set of protected variables"] == ["sex"]


def test_the_same_audit_is_not_worse_and_one_with_larger_effects_is(folder: Path):
    write(audited(times=3.0), folder / "second")
    again = compare(folder / "first", folder / "first", margin=0.05)
    assert (again.word, again.pair.paired, again.pair.people) == ("not worse", True, (38, 38))
    assert compare(folder / "first", folder / "first").word == "cannot tell"  # the maps may be off by a tenth of delta
    worse = compare(folder / "first", folder / "second")
    assert worse.word == "worse"
    assert worse.pair.difference.value == pytest.approx(2 * float(audited().record.scores[:-2].mean()), rel=1e-5)
    assert compare(folder / "second", folder / "first").word == "not worse"
    assert compare(folder / "first", folder / "second", margin=1.0).word == "not worse"  # so much does not count


HASHES = {"rows_sha256": "ab" * 32, "predictions_sha256": "cd" * 32}


@pytest.mark.parametrize("changes", [{}, {"settings": {**SETTINGS, **HASHES, "refits": 1}, "interval": None}])
def test_an_audit_is_not_worse_than_itself_and_that_is_said(tmp_path: Path, changes: dict[str, Any]):
    write(audited(**{"settings": {**SETTINGS, **HASHES}, **changes}), tmp_path)
    found = compare(tmp_path, tmp_path, margin=0.0)
    found.write(tmp_path / "out")
    assert (found.word, found.pair.paired, found.pair.people, found.pair.p_value) == ("not worse", True, (38, 38), 1.0)
    assert (found.pair.difference.lower, found.pair.difference.upper, found.pair.bound) == (0.0, 0.0, 0.0)
    assert found.pair.means[0] == found.pair.means[1] == pytest.approx(float(audited().record.scores[:-2].mean()))
    assert found.pair.shares == pytest.approx((23 / 38, 23 / 38))
    assert found.reason == (
        "Both are the same audit: the mean size of the effect of 38 people is 6.1 points, and there is no difference."
    )
    assert found.reason in (tmp_path / "out/summary.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "second",
    [
        audited(settings={**SETTINGS, **HASHES}, times=1.0001),
        audited(settings={**SETTINGS, **HASHES, "rows_sha256": "ef" * 32}),
        audited(settings={**SETTINGS, "rows_sha256": HASHES["rows_sha256"]}),
        audited(),
    ],
    ids=["other scores", "other rows", "predictions unknown", "nothing known"],
)
def test_audits_that_may_be_of_other_people_or_models_are_not_taken_for_one(second: AuditResult):
    found = compare(audited(settings={**SETTINGS, **HASHES}), second)
    start = "The mean size of the effect of the same 38 people went from 6.1 points to 6.1 points (95 % interval of "
    assert found.reason.startswith(start)
    assert found.word == "cannot tell"
    assert found.pair.difference.error > 0


def test_audits_of_another_label_or_of_other_people_and_columns_are_refused():
    def of(label: str, *columns: str, **changes: Any) -> AuditResult:
        return audited(settings={**SETTINGS, "label": label, "columns": columns}, **changes)

    with pytest.raises(OptionError, match="The label is paid in the result and income in the result"):
        compare(of("paid", "job"), of("income", "job"))
    with pytest.raises(OptionError, match=r"The columns of .* mostly differ; compare audits of similar tables"):
        compare(of("paid", "debt", "job"), of("paid", "age", ids=None))
    assert compare(of("paid", "debt", "job"), of("paid", "age")).pair.people == (38, 38)  # the same people


def test_people_are_found_by_their_ids_in_any_order():
    turned = audited(ids=IDS[::-1])
    assert compare(audited(), audited()).pair.difference.value == 0.0
    found = compare(audited(), turned)
    assert found.pair.paired
    assert found.pair.people == (36, 36)  # the last two of one are the first two of the other
    assert found.pair.difference.lower < found.pair.difference.upper  # different scores of the same people


@pytest.mark.parametrize("ids", [np.arange(100, 100 + PEOPLE), np.zeros(PEOPLE, dtype=int)], ids=["others", "no names"])
def test_other_people_and_people_without_names_are_two_samples(ids):
    found = compare(audited(), audited(ids=ids))
    assert not found.pair.paired
    assert found.word == "cannot tell"  # of so few people


def test_row_numbers_are_no_names(tmp_path: Path):
    write(audited(ids=None, settings={**SETTINGS, "id": None}), tmp_path / "first")  # as the command writes it
    write(audited(ids=np.arange(PEOPLE), settings={**SETTINGS, "id": None}), tmp_path / "second")  # with --sample
    for one, two in ((tmp_path / "first", tmp_path / "first"), (tmp_path / "first", tmp_path / "second")):
        assert not compare(one, two).pair.paired
    assert not compare(audited(ids=None), audited(ids=None)).pair.paired
    assert not compare(audited(), audited(ids=None)).pair.paired
    missing = np.array([None, *IDS[1:]], dtype=object)
    assert not compare(audited(ids=missing), audited(ids=missing)).pair.paired


def test_one_refit_leaves_open_whether_it_is_worse():
    once = {"settings": {**SETTINGS, "refits": 1}, "interval": None}
    found = compare(audited(**once), audited(times=3.0, **once))
    assert found.word == "cannot tell"
    assert found.reason.endswith("cannot show how certain the maps are; set refits=5 (--refits 5) in both audits.")
    assert (found.pair.share_difference, found.pair.share_p_value) == (None, None)
    assert compare(audited(), audited(times=3.0, **once)).word == "cannot tell"
    unfitted = {**once, "test": "unawareness"}  # learns nothing
    assert compare(audited(**unfitted), audited(times=3.0, **unfitted)).word == "worse"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"delta": 0.1}, "The delta is 0.05 in the result and 0.1 in the result"),
        ({"test": "move"}, "The test is rank in the result and move"),
        ({"unit": "cosine"}, "The unit is change of the prediction"),
        ({"settings": {**SETTINGS, "decision_threshold": 0.5}}, "The decision threshold is none in .* and 0.5 in"),
        (
            {"findings": (replace(example_result().findings[0], name="race"),)},
            "protected variables is sex in .* and race in",
        ),
        ({"deltas": {"sex=Female": 0.03}}, "deltas of single groups is none in .* and sex=Female: 0.03 in"),
        ({"settings": {**SETTINGS, "given": ["job", "age"]}}, "given columns is none in .* and age, job in"),
        ({"settings": {**SETTINGS, "hold_others": True}}, "setting hold_others is False in .* and True in"),
        ({"settings": {**SETTINGS, "intersections": True}}, "setting intersections is False in .* and True in"),
        ({"settings": {**SETTINGS, "merge_rare": 0.1}}, "setting merge_rare is none in .* and 0.1 in"),
        ({"settings": {**SETTINGS, "settings": {"steps": "5"}}}, "settings of the test is none in .* and steps: 5 in"),
        ({"settings": {**SETTINGS, "positive": "yes"}}, r"audited class \(positive\) is none in .* and yes in"),
        ({"settings": {**SETTINGS, "output": "logit"}}, "audited output is none in .* and logit in"),
        (
            {"findings": (replace(example_result().findings[0], reference="Male"),)},
            "reference group is none in .* and sex: Male in",
        ),
    ],
)
def test_audits_with_other_options_are_refused(change, message):
    with pytest.raises(OptionError, match=message):
        compare(audited(), audited(**change))


def test_a_folder_without_an_audit_is_refused(tmp_path: Path):
    with pytest.raises(FileError, match=r"no file '.*summary.json'; give a folder that `fairfox audit` wrote"):
        read_audit(tmp_path)


def test_damaged_files_are_refused(folder: Path):
    first = folder / "first"
    summary = first / "summary.json"
    whole = summary.read_text()
    summary.write_text(whole[:50])
    with pytest.raises(FileError, match="cannot be read"):
        read_audit(first)
    summary.write_text(json.dumps({k: v for k, v in json.loads(whole).items() if k != "delta"}))
    with pytest.raises(FileError, match="does not hold 'delta'"):
        read_audit(first)
    summary.write_text(whole)
    pq.write_table(pq.read_table(first / "scores.parquet").drop_columns("sampling_upper"), first / "scores.parquet")
    with pytest.raises(FileError, match=r"does not hold .*sampling_upper"):
        read_audit(first)


def spoil(folder: Path, keys: list[str], value: object) -> None:
    """Put another value into the summary of an audit; the whole of it where no keys are given."""
    summary = folder / "summary.json"
    fields = json.loads(summary.read_text())
    inner = fields
    for key in keys[:-1]:
        inner = inner[key]
    if keys:
        inner[keys[-1]] = value
    summary.write_text(json.dumps(fields if keys else value))


DAMAGES = [
    (["delta"], "abc"),
    (["delta"], float("nan")),
    (["settings", "refits"], 2.5),
    (["settings", "refits"], 10**400),
    (["settings", "folds"], 0),
    (["settings"], [1]),
    (["variables"], ["sex"]),
    ([], [1, 2]),
]


@pytest.mark.parametrize(("keys", "value"), DAMAGES)
def test_a_summary_that_no_audit_writes_is_refused_in_one_sentence(folder: Path, keys, value):
    spoil(folder / "first", keys, value)
    with pytest.raises(FileError, match=r"make it anew with `fairfox audit`$") as caught:
        read_audit(folder / "first")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("score", ["many"] * PEOPLE),
        ("score", [float("nan")] * PEOPLE),
        ("flagged", [None] * PEOPLE),
        ("row_id", [[1]] * PEOPLE),
    ],
)
def test_scores_that_no_audit_writes_are_refused_in_one_sentence(folder: Path, column, values):
    path = folder / "first" / "scores.parquet"
    table = pq.read_table(path)
    pq.write_table(table.set_column(table.column_names.index(column), column, pa.array(values)), path)
    with pytest.raises(FileError, match="is not what audits write") as caught:
        read_audit(folder / "first")
    assert "\n" not in str(caught.value)


def test_an_audit_that_judged_nobody_is_refused():
    with pytest.raises(DataError, match="Nobody is judged"):
        in_memory(audited(abstained=torch.ones(PEOPLE, dtype=torch.bool)))


def test_weights_that_are_not_written_are_refused():
    weighted = audited(weights=audited().record.scores + 1)
    with pytest.raises(OptionError, match="have weights"):
        compare(weighted, weighted)


def test_an_audit_of_an_older_format_is_refused_with_what_to_run_again(folder: Path):
    spoil(folder / "first", ["format"], 1)
    with pytest.raises(FileError, match=r"has format 1 and this fairfox reads format 2; run `fairfox audit` again"):
        compare(folder / "first", folder / "first")


def test_models_and_their_options_need_a_table(folder: Path):
    with pytest.raises(OptionError, match="protected is an option for new audits, which need a table"):
        compare(folder / "first", folder / "first", protected="sex")
    with pytest.raises(OptionError, match="A function is not a stored audit; give two folders"):
        compare(write, folder / "first")
