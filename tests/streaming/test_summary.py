"""Summaries of people in batches: the numbers of everyone together, worked out by hand or taken from memory."""

from pathlib import Path

import pyarrow as pa
import pytest
import torch

from fairfox.errors import OptionError
from fairfox.findings import Tally
from fairfox.statistics.multiplicity import benjamini_hochberg
from fairfox.statistics.verdict import Counted
from fairfox.streaming.batches import BatchScorer
from fairfox.streaming.summary import TOTALS, add_totals, streamed_of, summarise, totals_of
from tests.streaming.world import COLUMNS, job_of, lending
from tests.support import fitted_on

SEX = {"sex": ("f", "m")}
# three judged people with weights 1, 2 and 1, and one about whom nothing can be said
SCORES = {
    "score": [0.1, 0.02, 0.3, None],
    "effect": [0.1, -0.02, 0.3, None],
    "flagged": [True, False, True, None],
    "confident": [False, False, True, None],
    "possible": [True, False, True, None],
    "p_value": [0.04, 1.0, 0.001, None],
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
        "possible": pa.bool_(),
        "p_value": pa.float64(),
        "flagged": pa.bool_(),
        "variable": pa.string(),
        "score": pa.float64(),
        "effect": pa.float64(),
    }
    columns = {**SCORES, **changes}
    return pa.RecordBatch.from_pydict({k: pa.array(v, types.get(k)) for k, v in columns.items()})


def test_numbers_are_those_worked_out_by_hand():
    found = streamed_of(totals_of(batch()), SEX, 0.1)
    assert found.tally == Tally(
        people=4,
        judged=3,
        flagged=2,
        confident=1,
        inferred=1,
        share_flagged=0.5,  # weights 1 + 1 of 4
        share_confident=0.25,
        mean_score=pytest.approx(0.11),  # (0.1 + 2 * 0.02 + 0.3) / 4
    )
    assert found.share_abstained == 0.5  # 4 of 8
    assert (found.abstained_by_reason, found.worst_case) == ({"why": 1}, {"sex": 1.0})
    sex = found.variables["sex"]
    assert (sex.tally.unknown, sex.tally.judged, sex.tally.attained) == (1, 3, {"f": 1, "m": 2})
    women, men = sex.groups
    assert (women.name, women.people, women.share_flagged, women.share_confident) == ("sex=f", 2, 1.0, 0.5)
    assert women.towards == {"m": pytest.approx(0.2)}
    assert men.towards == {"f": pytest.approx(-0.02)}
    assert (men.mean_prediction, men.inferred) == (0.5, 1)


def test_what_a_verdict_needs_is_counted_for_everyone_and_each_group():
    sex = streamed_of(totals_of(batch()), SEX, 0.1).variables["sex"]
    # of three p-values .001, .04 and 1 at a rate of .1 the first two are on the list: .04 <= .1 * 2 / 3
    assert sex.counted["sex"] == Counted(
        judged=3,
        significant=2,
        possible=2,
        share_significant=0.5,
        share_possible=0.5,
        equal=pytest.approx(16 / 6),  # (1 + 2 + 1)^2 / (1 + 4 + 1)
        mean=pytest.approx(0.11),
        share=0.5,
    )
    women, men = (
        (each.judged, each.significant, each.possible, each.share_significant, each.equal)
        for each in (sex.counted["sex=f"], sex.counted["sex=m"])
    )
    assert (women, men) == ((2, 2, 2, 1.0, 2.0), (1, 0, 0, 0.0, 1.0))


def test_a_list_from_a_histogram_is_within_its_bounds_of_the_exact_one_however_people_are_put_into_batches():
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        p = torch.rand(3_000, generator=generator, dtype=torch.float64)
        p[:900] = p[:900] ** 6  # some are small
        same = {name: [values[0]] * 1_500 for name, values in SCORES.items()}
        parts = [totals_of(batch(**{**same, "p_value": part.tolist()})) for part in p.split(1_500)]
        found = streamed_of(add_totals(parts), SEX, 0.1)
        exact = benjamini_hochberg(p, 0.1)
        end = found.threshold
        assert end.listed == int((p <= end.p).sum())
        assert bool((exact | (p > end.p)).all())  # nobody is on it who is not on the exact one
        assert end.listed <= int(exact.sum()) <= end.at_most
        assert end.at_most - end.listed <= 40
        assert found.variables["sex"].counted["sex"].significant == end.listed


def test_without_intervals_nobody_knows_who_is_sure():
    nothing = dict.fromkeys(("confident", "possible", "p_value"), [None] * 4)
    found = streamed_of(totals_of(batch(**nothing)), SEX, 0.1)
    assert (found.tally.confident, found.tally.share_confident, found.threshold) == (None, None, None)
    assert found.variables["sex"].groups[0].share_confident is None
    assert found.variables["sex"].counted == {}


def test_totals_of_batches_add_up_to_those_of_everyone(tmp_path: Path):
    people = lending(300)
    fitted = fitted_on(lending(100, seed=0), protected=["sex", "tenure_years"], columns=COLUMNS, refits=2)
    scorer = BatchScorer(job_of(fitted, people, tmp_path))
    whole = totals_of(scorer.score(people.combine_chunks().to_batches()[0]))
    parts = add_totals(totals_of(scorer.score(part)) for part in people.to_batches(max_chunksize=70))
    keys = ["of", "variable", "group", "towards", "reason", "bucket"]
    parts, expected = (table.sort_by([(name, "ascending") for name in keys]) for table in (parts, add_totals([whole])))
    for name in expected.column_names:
        column = expected[name].to_pylist()
        close = pytest.approx(column, rel=1e-9, abs=1e-12) if name not in keys else column
        assert parts[name].to_pylist() == close, name


def test_the_delta_of_values_is_that_of_the_scores():
    people, totals = lending(300), TOTALS.empty_table()
    test = fitted_on(people, protected="sex", columns=COLUMNS, refits=2)
    with pytest.raises(OptionError, match="score and sum up with the same delta="):
        summarise(totals, test, lambda table: table["income"], lambda columns, share: people.select([*columns]))
