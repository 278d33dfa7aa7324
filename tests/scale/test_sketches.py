import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairfox.fitting import fit_test
from fairfox.scale.batches import BatchScorer
from fairfox.scale.sketches import ACCURACY, SMALLEST, histogram, merge, quantile, sketch_of
from tests.scale.world import COLUMNS, job_of, lending

sizes = st.floats(min_value=-1e6, max_value=1e6).map(lambda v: 0.0 if abs(v) < 1e-6 else v)


@given(st.lists(sizes, min_size=1, max_size=60), st.floats(min_value=0, max_value=1))
def test_a_quantile_is_within_its_bound_of_the_exact_one(values: list[float], share: float):
    found = quantile(histogram(np.array(values), np.ones(len(values))), share)
    place = max(math.ceil(share * len(values)), 1) - 1
    near = {sorted(values)[min(max(place + step, 0), len(values) - 1)] for step in (-1, 0, 1)}  # rounding of the share
    assert any(abs(found - exact) <= ACCURACY * abs(exact) * (1 + 1e-9) for exact in near)


@given(st.lists(st.lists(sizes, max_size=20), min_size=1, max_size=5))
def test_merged_histograms_are_those_of_everyone_together(parts: list[list[float]]):
    together = [value for part in parts for value in part]
    merged = merge([histogram(np.array(part, dtype=float), np.ones(len(part))) for part in parts])
    assert merged == histogram(np.array(together, dtype=float), np.ones(len(together)))


def test_quantiles_count_weights_and_leave_out_what_is_unknown():
    buckets = histogram(np.array([1.0, 2.0, np.nan, 3.0]), np.array([1.0, 1.0, 9.0, 2.0]))
    assert sum(buckets.values()) == 4
    for share, exact in ((0.25, 1.0), (0.5, 2.0), (0.51, 3.0), (1.0, 3.0)):
        assert quantile(buckets, share) == pytest.approx(exact, rel=ACCURACY)
    assert math.isnan(quantile({}, 0.5))
    assert quantile(histogram(np.array([SMALLEST / 2]), np.ones(1)), 0.5) == 0.0


def test_what_is_infinite_is_in_the_last_bucket_and_nobody_without_weight_is_lost():
    values = np.array([np.inf, 1e308, -np.inf, 2.0, 2.0])
    buckets = histogram(values, np.array([1.0, 1.0, 1.0, 0.0, 0.0]))
    assert len(buckets) == 3
    assert sorted(buckets.values()) == [0.0, 1.0, 2.0]
    assert quantile(buckets, 1.0) == pytest.approx(1e298, rel=ACCURACY)
    assert quantile(buckets, 0.0) == pytest.approx(-1e298, rel=ACCURACY)


def test_sums_are_added_key_by_key_and_sketches_are_left_as_they_were():
    one, two = {"n": 1, "by": {"a": 1.5}}, {"n": 2, "by": {"a": 1.0, "b": 3}}
    assert merge([one, two, {}]) == {"n": 3, "by": {"a": 2.5, "b": 3}}
    assert one == {"n": 1, "by": {"a": 1.5}}


def test_the_sketch_of_scores_is_the_sum_of_those_of_batches(tmp_path: Path):
    people = lending(300)
    fitted = fit_test(lending(100, seed=0), protected=["sex", "tenure_years"], columns=COLUMNS, refits=2)
    scorer = BatchScorer(job_of(fitted, people, tmp_path))
    batches = [scorer.score(batch) for batch in people.to_batches(max_chunksize=70)]
    whole = sketch_of(pa.Table.from_batches(batches).combine_chunks().to_batches()[0])
    parts = merge(map(sketch_of, batches))
    assert _flat(parts) == pytest.approx(_flat(whole), rel=1e-12)
    assert whole["people"] == 300
    assert whole["variables"]["sex"]["groups"]["Male"]["people"] == people["sex"].to_pylist().count("Male")


def test_classes_that_nobody_here_has_are_left_out_whatever_the_batch(tmp_path: Path):
    people = lending(200)
    fitted = fit_test(people, protected="sex", columns=COLUMNS, refits=1)
    scorer = BatchScorer(job_of(fitted, people, tmp_path))
    (women,) = people.filter(pc.equal(people["sex"], "Female")).combine_chunks().to_batches()
    coded = sketch_of(scorer.coded(women))
    assert coded == sketch_of(scorer.score(women))
    assert list(coded["variables"]["sex"]["groups"]) == ["Female"]


def _flat(sketch: dict, prefix: str = "") -> dict[str, float]:
    out: dict[str, float] = {}
    for key, value in sketch.items():
        out |= _flat(value, f"{prefix}/{key}") if isinstance(value, dict) else {f"{prefix}/{key}": value}
    return out
