"""Three doors, one engine: an audit with a reference, a fitted test that scores, and a stream say the same."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fairfox
from fairfox.errors import FairfoxError, OptionError
from fairfox.fairtests.fitted import FittedTest
from fairfox.options import AuditOptions
from fairfox.report.files import scores_table
from fairfox.streaming.files import score_files
from fairfox.streaming.sources import ModelSource
from tests.schemas import assert_valid_summary

pytestmark = [pytest.mark.brief, pytest.mark.usefixtures("undrawn")]

SAME = [
    *("score", "effect", "lower", "upper", "flagged", "confident"),
    *("towards", "variable", "abstained", "group_inferred"),
]
COLUMNS = ["income", "debt", "job"]
CODE = '''
import numpy as np

def rule(table):
    """Return the probability of a loan."""
    income, debt, clerk = (np.asarray(table[name]) for name in ("income", "debt", "job"))
    return 1 / (1 + np.exp(-(income - 43 - debt + 3 * (clerk == "clerk")) / 6))

def over(table):
    """Return probabilities that are a rounding error above 1."""
    return np.where(np.asarray(table["income"]) > 40, 1 + 1e-7, 0.5)

def late(table):
    """Return a probability for everyone of the first thousand, and then none."""
    return np.where(np.asarray(table["number"]) > 1000, 1.5, 0.5)

def hole(table):
    """Return no number for everyone."""
    return np.full(len(table["income"]), np.nan)

def letters(table):
    """Return a probability that depends on how a value is written."""
    return np.asarray([1 / (1 + len(str(value))) for value in table["extra"]])

def worth(table):
    """Return an amount of money."""
    return 1000.0 * np.asarray(table["income"])
'''
MODELS: dict[str, Any] = {}
exec(CODE, MODELS)  # the stream reads the same functions from a file


def people(count: int, seed: int) -> pd.DataFrame:
    """Return people whose income, job and debt depend on their sex."""
    rng = np.random.default_rng(seed)
    sex = rng.integers(0, 2, count)
    return pd.DataFrame(
        {
            "sex": np.where(sex == 1, "m", "f"),
            "race": rng.choice(["a", "b", "c"], count, p=[0.5, 0.3, 0.2]),
            "age": np.clip(rng.normal(42, 12, count), 18, 80).round(),
            "income": 40 + 8 * rng.normal(size=count) + 6 * sex,
            "debt": np.exp(rng.normal(size=count) - 0.3 * sex),
            "job": np.where(rng.random(count) < 0.3 + 0.4 * sex, "clerk", "smith"),
            "weight": rng.uniform(0.5, 2.0, count),
            "number": np.arange(count),
            "paid": sex + rng.normal(size=count),
        }
    )


REFERENCE, PEOPLE = people(400, 0), people(150, 1)
PEOPLE.loc[:39, "weight"] = 0.0  # all of the first batch of the stream
MANY = pd.concat([PEOPLE] * 10, ignore_index=True).assign(number=np.arange(1500))
UNKNOWN = PEOPLE.assign(sex=[None if i % 5 == 0 else sex for i, sex in enumerate(PEOPLE["sex"])])
KINDS: dict[str, dict[str, Any]] = {
    "two groups": {"protected": "sex"},
    "unknown values": {"protected": "sex"},
    "a column that is not there": {"protected": "sex"},
    "many classes": {"protected": "race"},
    "every class with every other": {"protected": "race", "options": {"contrasts": "all"}},
    "a number": {"protected": "age"},
    "several variables": {"protected": ["sex", "age"], "weights": "weight"},
    "groups of two variables": {"protected": ["sex", "race"], "options": {"intersections": True, "merge_rare": 0.12}},
    "weights": {"protected": "sex", "weights": "weight"},
    "given": {"protected": "sex", "given": "debt"},
    "a label that is not there": {"protected": "sex", "label": "paid", "given": "age"},
    "a label that some lack": {"protected": "sex", "label": "paid", "given": ["paid"]},
    "aligned": {"protected": "sex", "test": "rank/a"},
    "several aligned": {"protected": ["sex", "race"], "test": "rank/a"},
    "gradients": {"protected": "sex", "test": "faux+ng"},
    "gradients and a step": {"protected": "sex", "test": "faux+ng/s"},
    "networks": {"protected": "sex", "test": "move"},
    "without a direction": {"protected": "sex", "test": "fta"},
    "a category that nobody had": {"protected": "sex", "test": "rank/a"},
    "one refit": {"protected": "race", "options": {"refits": 1}},
    "values": {"protected": "sex"},
    "log-odds": {"protected": "sex", "options": {"output": "logit", "returns": "probability"}},
}
TABLES = {
    "unknown values": UNKNOWN,
    "a column that is not there": PEOPLE.drop(columns="sex"),
    "a category that nobody had": PEOPLE.assign(job=PEOPLE["job"].where(PEOPLE.index % 7 > 0, "pilot")),
    "a label that is not there": PEOPLE.drop(columns="paid"),
    "a label that some lack": PEOPLE.assign(paid=PEOPLE["paid"].where(PEOPLE["number"] % 5 > 0)),
}


def by_stream(
    folder: Path, test: FittedTest, model: str, table: pd.DataFrame, **given: Any
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Return the scores and the summary of a stream over people in two parts and more batches."""
    (folder / "models.py").write_text(CODE)
    fairfox.save_test(test, folder / "test.fox")
    half = len(table) // 2
    for name, rows in (("a", table[:half]), ("b", table[half:])):
        rows.to_parquet(folder / f"{name}.parquet", row_group_size=40)
    source, tables = ModelSource(f"{folder}/models.py:{model}"), [f"{folder}/*.parquet"]
    score_files(folder / "test.fox", source, tables, folder / "out", workers=1, part_rows=60, **given)
    summary = assert_valid_summary((folder / "out/summary.json").read_text())
    return as_frame(pq.read_table(folder / "out/scores.parquet")), summary


def as_frame(table: pa.Table) -> pd.DataFrame:
    return table.to_pandas(types_mapper={pa.bool_(): pd.BooleanDtype()}.get)


def frame_of(result: fairfox.AuditResult) -> pd.DataFrame:
    return as_frame(scores_table(result.record))


def assert_same(found: pd.DataFrame, expected: pd.DataFrame, within: float = 1e-9) -> None:
    more = [name for name in expected.columns if "[" in name and name in found.columns]
    for name in [*SAME, *more]:
        pd.testing.assert_series_equal(
            found[name], expected[name], rtol=within, atol=within, check_dtype=False, check_names=False
        )


@pytest.mark.parametrize("kind", KINDS)
def test_the_three_doors_agree(kind: str, tmp_path: Path):
    given = {"columns": COLUMNS, **KINDS[kind]}
    more = {"refits": 2, **given.pop("options", {})}
    table, name = TABLES.get(kind, PEOPLE), "worth" if kind == "values" else "rule"
    audited = fairfox.audit(MODELS[name], table, reference=REFERENCE, **given, options=more)
    test = fairfox.fit(REFERENCE, **given, options=more)
    scored = fairfox.score(test, MODELS[name], table)
    assert_same(frame_of(scored), frame_of(audited))
    assert scored.warnings == audited.warnings
    assert scored.verdict == audited.verdict
    for one, other in zip(scored.record.findings, audited.record.findings, strict=True):
        assert one.group == other.group
        assert [group.name for group in one.groups] == [group.name for group in other.groups]
    assert {**scored.settings, "seconds": 0} == {**audited.settings, "seconds": 0}

    frame, summary = by_stream(tmp_path, test, name, table)
    # networks of 32-bit numbers round by the size of what they are given
    assert_same(frame, frame_of(audited), within=1e-5 if kind == "networks" else 1e-9)
    assert (summary["unit"], summary["delta"]) == (audited.record.unit, audited.delta)
    assert summary["warnings"] == list(audited.warnings)
    assert_same_summary(summary, json.loads(audited.to_json()), within=1e-5 if kind == "networks" else 1e-9)
    for finding in audited.record.findings:
        levels = [None if level == "unknown" else level for level in finding.group]
        assert [None if pd.isna(level) else level for level in frame[f"group[{finding.name}]"]] == levels


def assert_same_summary(found: dict[str, Any], expected: dict[str, Any], within: float) -> None:
    """Fail unless a stream's summary has the verdict and the numbers of an audit's, the list within its error."""
    assert (found["verdict"] is None) == (expected["verdict"] is None)
    if expected["verdict"] is not None:
        one, other = found["verdict"], expected["verdict"]
        assert [one[n] for n in ("word", "judged", "possible", "tipping")] == [
            other[n] for n in ("word", "judged", "possible", "tipping")
        ]
        assert one["mean"] == pytest.approx(other["mean"], abs=max(within, 1e-9))
        assert 0.98 * other["significant"] - 1 <= one["significant"] <= other["significant"]
    listed, exact = found["stream"]["list"], expected["counts"].pop("significant")
    if exact is not None:
        assert listed["listed"] == found["counts"]["significant"]
        assert listed["listed"] <= exact <= listed["at_most"]
    del found["counts"]["significant"]
    assert found["counts"] == expected["counts"]
    for name in ("test", "weighted", "abstained_by_reason"):
        assert found[name] == expected[name], name
    for name in ("share_flagged", "share_confident", "share_abstained", "worst_case"):
        assert found[name] == pytest.approx(expected[name], abs=within), name
    for own, other in zip(found["variables"], expected["variables"], strict=True):
        assert (own["counts"], own["worst"]) == (other["counts"], other["worst"])
        assert own["mean_score"] == pytest.approx(other["mean_score"], abs=within)
        for mine, theirs in zip(own["groups"], other["groups"], strict=True):
            assert [mine[n] for n in ("level", "people", "inferred")] == [
                theirs[n] for n in ("level", "people", "inferred")
            ]
            for name in ("mean_prediction", "mean_effect", "share_flagged", "share_confident", "towards"):
                assert mine[name] == pytest.approx(theirs[name], abs=within), name


def odd_columns(frame: pd.DataFrame) -> dict[str, Any]:
    """Return columns that doors may read in two ways."""
    number, income = frame["number"], frame["income"].round()
    third = number % 3 == 0
    return {
        "numbers around 1e15": 1e15 + income / 8,
        "whole numbers beyond 2^53": 2**60 + number * 2**40,
        "numbers with gaps": income.mask(third),
        "whole numbers with gaps": income.astype("Int64").mask(third),
        "booleans with gaps": (income > 40).astype("boolean").mask(third),
        "text with gaps": frame["job"].mask(third),
        "categories with gaps": frame["job"].astype("category").cat.add_categories(["none"]).mask(third),
        "a category of one batch": frame["job"].mask(number < 40, "rare"),
        "unsigned numbers": (np.uint64(2**64 - 1) - (income > 40).astype(np.uint64)),
        "half floats": income.astype(np.float16),
        "dates": pd.Timestamp("2020-01-01") + pd.to_timedelta(number, "D"),
        "nothing in the people": frame["job"] if len(frame) == len(REFERENCE) else np.nan,
        "numbers instead of text": frame["job"] if len(frame) == len(REFERENCE) else income,
    }


REFUSED_WHEN_FITTED = {
    "feature": {"dates": "holds dates or times"},
    "protected": {"dates": "holds dates or times", "unsigned numbers": "has only one value"},
}


@pytest.mark.parametrize("role", ["feature", "protected"])
@pytest.mark.parametrize("kind", odd_columns(REFERENCE))
def test_odd_columns_have_one_score_or_one_refusal_in_memory_and_in_a_stream(kind: str, role: str, tmp_path: Path):
    learnt, table = (frame.assign(extra=odd_columns(frame)[kind]) for frame in (REFERENCE, PEOPLE))
    given = {"protected": "sex", "columns": ["extra", "income"]} if role == "feature" else {"protected": "extra"}
    name = "letters" if role == "feature" else "rule"
    for frame, path in ((learnt, "learnt.pq"), (table, "all.pq")):
        frame.to_parquet(tmp_path / path)
    asked = {"columns": COLUMNS, "weights": "weight", **given, "options": {"refits": 2}}
    if kind in REFUSED_WHEN_FITTED[role]:
        with pytest.raises(FairfoxError, match=REFUSED_WHEN_FITTED[role][kind]):
            fairfox.fit(tmp_path / "learnt.pq", **asked)
        return
    test = fairfox.fit(tmp_path / "learnt.pq", **asked)
    if kind == "numbers instead of text":
        for door in (fairfox.score, partial(by_stream, tmp_path)):
            with pytest.raises(FairfoxError, match=r"Column 'extra' holds .* here|The protected column 'extra' holds"):
                door(test, name if door is not fairfox.score else MODELS[name], table)
        return
    scored = fairfox.score(test, MODELS[name], tmp_path / "all.pq")
    frame, summary = by_stream(tmp_path, test, name, table)
    assert_same(frame, frame_of(scored), within=1e-6)
    assert summary["verdict"]["word"] == scored.verdict.word


def test_lists_that_no_test_reads_are_no_trouble_in_memory_or_in_a_stream(tmp_path: Path):
    test = fairfox.fit(REFERENCE, protected="sex", columns=COLUMNS, options={"refits": 1})
    listed = PEOPLE.assign(visits=[[1, 2]] * len(PEOPLE))
    scored = fairfox.score(test, MODELS["rule"], pa.Table.from_pandas(listed))
    frame, _ = by_stream(tmp_path, test, "rule", listed)
    assert_same(frame, frame_of(scored), within=1e-6)


NUMBERED = {"protected": "sex", "columns": ["number", *COLUMNS]}


@pytest.fixture(scope="module")
def numbered() -> FittedTest:
    return fairfox.fit(REFERENCE, **NUMBERED, options={"refits": 1})


@pytest.mark.parametrize("door", ["audit", "score", "stream"])
@pytest.mark.parametrize(
    ("model", "options", "table", "message"),
    [
        ("late", {}, MANY, "say what they are with returns="),
        ("rule", {"returns": "odds"}, MANY, "returns is 'odds'"),
        ("hole", {}, MANY, "NaN or infinity"),
        ("rule", {}, MANY.drop(columns="debt"), "no column 'debt'"),
        ("rule", {}, MANY.assign(debt="much"), "debt"),
        ("rule", {}, MANY.assign(sex="x"), "x"),
        ("rule", {}, MANY[:0], "no rows"),
    ],
)
def test_the_doors_refuse_alike(
    door: str,
    model: str,
    options: dict[str, Any],
    table: pd.DataFrame,
    message: str,
    numbered: FittedTest,
    tmp_path: Path,
):
    with pytest.raises(FairfoxError, match=message):  # noqa: PT012  # one of three calls
        if door == "audit":
            fairfox.audit(MODELS[model], table, reference=REFERENCE, **NUMBERED, options={"refits": 1, **options})
        elif door == "score":
            fairfox.score(numbered, MODELS[model], table, options=options)
        else:
            by_stream(tmp_path, numbered, model, table, options=options)


def test_what_says_nothing_is_refused_by_fit_and_score():
    with pytest.raises(OptionError, match="max_flagged says nothing about a fit; leave it out"):
        fairfox.fit(None, protected="sex", options={"max_flagged": 0.1})
    with pytest.raises(OptionError, match="null fits a test for each shuffle, so"):
        AuditOptions(protected="sex").scoring({"null": 3})


def test_too_few_people_to_learn_from_are_refused_by_audit_and_fit():
    few = pd.concat([REFERENCE[REFERENCE["sex"] == "f"], REFERENCE[REFERENCE["sex"] == "m"][:1]])
    given, message = {"protected": "sex", "columns": COLUMNS}, "'m' of 'sex' has only 1 person to learn from"
    with pytest.raises(FairfoxError, match=message):
        fairfox.audit(MODELS["rule"], PEOPLE, reference=few, **given)
    with pytest.raises(FairfoxError, match=message):
        fairfox.fit(few, **given)


@pytest.mark.parametrize("heavy", [1e15, 1e149])
def test_weights_that_leave_one_person_to_learn_from_are_refused_by_audit_and_fit(heavy: float):
    given: dict[str, Any] = {"protected": "sex", "columns": COLUMNS, "weights": "weight", "options": {"refits": 1}}
    uneven = REFERENCE.assign(weight=np.where(REFERENCE["number"] == 7, heavy, 1.0))
    message = r"By the weights 'weight', \d+ people to learn from count as 1; at least 2 are needed"
    with pytest.raises(FairfoxError, match=message):
        fairfox.fit(uneven, **given)
    with pytest.raises(FairfoxError, match=message):
        fairfox.audit(MODELS["rule"], uneven, **given)


def test_a_probability_a_rounding_error_above_one_is_a_probability_at_every_door(tmp_path: Path):
    given = {"protected": "sex", "columns": COLUMNS, "options": {"refits": 1}}
    audited = fairfox.audit(MODELS["over"], PEOPLE, reference=REFERENCE, **given)
    test = fairfox.fit(REFERENCE, **given)
    scored = fairfox.score(test, MODELS["over"], PEOPLE)
    frame, summary = by_stream(tmp_path, test, "over", PEOPLE)
    assert audited.record.effect_unit == scored.record.effect_unit == "probability"
    assert summary["unit"] == audited.record.unit
    assert float(audited.predictions.max()) == float(scored.predictions.max()) == frame["prediction"].max() == 1.0


def test_a_table_without_the_ids_of_the_fit_is_scored_with_a_warning():
    given: dict[str, Any] = {"protected": "sex", "columns": COLUMNS, "options": {"refits": 1, "id": "number"}}
    scored = fairfox.score(fairfox.fit(REFERENCE, **given), MODELS["rule"], PEOPLE.drop(columns="number"))
    assert "The table has no column 'number' of ids; people are named by their row." in scored.warnings


@pytest.mark.parametrize("door", ["audit", "move", "reference", "fit"])
def test_with_ids_scores_do_not_depend_on_the_order_of_rows(door: str):
    tables = [people(count, seed).assign(name=[f"p{k}" for k in range(count)]) for seed, count in enumerate((120, 150))]
    asked: dict[str, Any] = {"protected": "sex", "columns": COLUMNS, "options": {"id": "name", "refits": 2}}

    def scores(seed: int) -> np.ndarray:
        """Return everyone's score in the order of the first table, both tables having been shuffled."""
        table, learnt = (each.sample(frac=1.0, random_state=seed) for each in tables)
        if door == "fit":
            result = fairfox.score(fairfox.fit(learnt, **asked), MODELS["rule"], table)
        elif door == "reference":
            result = fairfox.audit(MODELS["rule"], table, reference=learnt, **asked)
        else:
            result = fairfox.audit(MODELS["rule"], table, test="move" if door == "move" else "rank", **asked)
        return result.people.set_index("row_id")["score"][tables[0]["name"]].to_numpy()

    first = scores(0)
    assert first.max() > 0.01
    np.testing.assert_allclose(scores(1), first, rtol=0, atol=1e-6)
