"""Summaries of people in batches: the numbers of everyone together, worked out by hand or taken from memory."""

import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairfox.streaming.batches import BatchScorer
from fairfox.streaming.summary import (
    ACCURACY,
    SMALLEST,
    add_totals,
    in_words,
    summary_numbers,
    totals_of,
)
from tests.streaming.world import COLUMNS, job_of, lending
from tests.support import fitted_on

DELTA, UNIT = 0.05, "change of the prediction (probability)"
SEX = {"sex": ("f", "m")}
# three judged people with weights 1, 2 and 1, and one about whom nothing can be said
SCORES = {
    "score": [0.1, 0.02, 0.3, None],
    "signed": [0.1, -0.02, 0.3, None],
    "flag": [True, False, True, None],
    "confident": [False, False, True, None],
    "variable": ["sex", "sex", "sex", None],
    "towards": ["m", "f", "m", None],
    "prediction": [0.5, 0.5, 0.2, 0.9],
    "weight": [1.0, 2.0, 1.0, 4.0],
    "group_inferred": [False, True, False, False],
    "abstained": [False, False, False, True],
    "reason": [None, None, None, "why"],
    "group[sex]": ["f", "m", "f", None],
}


def batch(**changes: list) -> pa.RecordBatch:
    types = {
        "confident": pa.bool_(),
        "flag": pa.bool_(),
        "variable": pa.string(),
        "score": pa.float64(),
        "signed": pa.float64(),
    }
    columns = {**SCORES, **changes}
    return pa.RecordBatch.from_pydict({k: pa.array(v, types.get(k)) for k, v in columns.items()})


def test_numbers_are_those_worked_out_by_hand():
    found = summary_numbers(totals_of(batch()), SEX)
    assert found["counts"] == {
        "people": 4, "judged": 3, "flagged": 2, "confident": 1, "abstained": 1, "inferred": 1
    }  # fmt: skip
    assert found["share_flagged"] == 0.5  # weights 1 + 1 of 4
    assert found["share_confident"] == 0.25
    assert found["share_abstained"] == 0.5  # 4 of 8
    assert found["mean_score"] == pytest.approx(0.11)  # (0.1 + 2 * 0.02 + 0.3) / 4
    assert found["mean_signed"] == pytest.approx(0.09)  # (0.1 - 2 * 0.02 + 0.3) / 4
    assert found["mean_prediction"] == pytest.approx(0.6625)  # (0.5 + 1.0 + 0.2 + 3.6) / 8
    assert found["abstained_by_reason"] == {"why": 1}
    sex = found["variables"][0]
    assert sex["counts"] == {"known": 2, "inferred": 1, "unknown": 1, "judged": 3, "flagged": 2, "confident": 1}
    assert sex["worst"] == {"f": 1, "m": 2}
    women, men = sex["groups"]
    assert (women["level"], women["people"], women["share_flagged"], women["share_confident"]) == ("f", 2, 1.0, 0.5)
    assert women["towards"] == {"m": pytest.approx(0.2)}
    assert men["towards"] == {"f": pytest.approx(-0.02)}
    assert (men["mean_prediction"], men["inferred"]) == (0.5, 1)


sizes = st.floats(min_value=-1e6, max_value=1e6).map(lambda v: 0.0 if abs(v) < 1e-6 else v)


def people_with(scores: list[float | None], weights: list[float] | None = None) -> pa.RecordBatch:
    """Return people with these scores, who are otherwise all the same."""
    same = {name: [values[0]] * len(scores) for name, values in SCORES.items()}
    return batch(**{**same, "score": scores, "weight": weights or [1.0] * len(scores)})


@settings(deadline=None, max_examples=40)
@given(st.lists(sizes, min_size=1, max_size=60))
def test_quantiles_are_within_their_bound_of_the_exact_ones_however_people_are_put_into_batches(values: list[float]):
    middle = len(values) // 2
    parts = [totals_of(people_with(part)) for part in (values[:middle], values[middle:]) if part]
    quantiles = summary_numbers(add_totals(parts), SEX)["quantiles"]["score"]
    assert quantiles == summary_numbers(totals_of(people_with(values)), SEX)["quantiles"]["score"]
    for share, found in quantiles.items():
        position = max(math.ceil(float(share) * len(values)), 1) - 1
        near = {sorted(values)[min(max(position + step, 0), len(values) - 1)] for step in (-1, 0, 1)}  # by rounding
        assert any(abs(found - exact) <= ACCURACY * abs(exact) * (1 + 1e-9) for exact in near)


def test_quantiles_count_weights_and_leave_out_what_is_unknown():
    def quantiles(scores: list[float | None], weights: list[float]) -> dict[str, float]:
        return summary_numbers(totals_of(people_with(scores, weights)), SEX)["quantiles"]["score"]

    found = quantiles([1.0, 2.0, None, 3.0], [1.0, 1.0, 9.0, 2.0])
    for share, exact in (("0.25", 1.0), ("0.5", 2.0), ("0.75", 3.0), ("0.99", 3.0)):
        assert found[share] == pytest.approx(exact, rel=ACCURACY)
    assert math.isnan(quantiles([1.0], [0.0])["0.5"])
    assert quantiles([SMALLEST / 2], [1.0])["0.5"] == 0.0
    ends = quantiles([np.inf, 1e308, -np.inf, 2.0], [1.0, 1.0, 1.0, 0.0])
    assert [ends["0.01"], ends["0.99"]] == pytest.approx([-1e298, 1e298], rel=ACCURACY)


def test_without_intervals_nobody_knows_who_is_sure():
    found = summary_numbers(totals_of(batch(confident=[None] * 4)), SEX)
    assert found["counts"]["confident"] is None
    assert found["share_confident"] is None
    assert found["variables"][0]["groups"][0]["share_confident"] is None
    assert not any("confidently" in sentence for sentence in in_words(found, DELTA, UNIT))


def test_words_say_what_the_numbers_do():
    words = in_words(summary_numbers(totals_of(batch()), SEX), DELTA, UNIT)
    assert words[0] == "2 of 3 people (50.0 %) are flagged: the score (change of the prediction) is above 5 points."
    assert words[1] == "1 of them confidently: the whole interval lies beyond 5 points."
    assert words[-1] == "1 person not judged: why."
    away = batch(abstained=[True] * 4, variable=[None] * 4, score=[None] * 4, signed=[None] * 4, flag=[None] * 4)
    assert in_words(summary_numbers(totals_of(away), SEX), DELTA, UNIT) == ["Nobody could be judged."]


def test_totals_of_batches_add_up_to_those_of_everyone(tmp_path: Path):
    people = lending(300)
    fitted = fitted_on(lending(100, seed=0), protected=["sex", "tenure_years"], columns=COLUMNS, refits=2)
    scorer = BatchScorer(job_of(fitted, people, tmp_path))
    whole = totals_of(scorer.score(people.combine_chunks().to_batches()[0], coded=True))
    parts = add_totals(totals_of(scorer.score(part)) for part in people.to_batches(max_chunksize=70))
    keys = ["of", "variable", "group", "towards", "reason", "bucket"]
    parts, expected = (table.sort_by([(name, "ascending") for name in keys]) for table in (parts, add_totals([whole])))
    for name in expected.column_names:
        column = expected[name].to_pylist()
        close = pytest.approx(column, rel=1e-9, abs=1e-12) if name not in keys else column
        assert parts[name].to_pylist() == close, name
