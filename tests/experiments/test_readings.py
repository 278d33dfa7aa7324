"""What is told of two targets' scores, by hand and by other people's code."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

EXPERIMENT = "readings"
FEW = st.one_of(st.sampled_from([-1.0, 0.0, 0.5, 2.0]), st.just(np.nan), st.floats(-3, 3))  # ties, nobody, anything


def mean(values):
    return float(values.mean())


@given(left=st.lists(FEW, min_size=1, max_size=20), right=st.lists(FEW, min_size=1, max_size=20))
def test_auc_is_that_of_scikit_learn_among_those_who_have_a_score(experiment, left, right):
    left, right = np.array(left), np.array(right)
    found = experiment.auc_above(left, right)
    known = [side[~np.isnan(side)] for side in (left, right)]
    if not all(map(len, known)):
        assert found is None
        return
    labels = np.repeat([1, 0], [len(side) for side in known])
    assert found == pytest.approx(roc_auc_score(labels, np.concatenate(known)))
    assert experiment.auc_above(right, left) == pytest.approx(1 - found)


def test_auc_counts_ties_half(experiment):
    # of six pairs one is above (2 over 1) and one is tied (1 with 1)
    assert experiment.auc_above(np.array([2.0, 1.0, 0.0]), np.array([1.0, 3.0])) == pytest.approx((1 + 0.5) / 6)
    same = np.array([0.3, 0.3, 0.7, np.nan])
    assert experiment.auc_above(same, same) == 0.5


def test_paired_share_is_of_those_above_zero_and_half_of_those_at_it(experiment):
    assert experiment.paired_share(np.array([3.0, -0.1, 0.0, 0.2])) == (2 + 0.5) / 4
    assert experiment.paired_share(np.zeros(3)) == 0.5
    assert experiment.paired_share(np.array([-1.0, -2.0])) == 0.0


def test_a_box_has_its_quantiles_of_those_who_have_a_score(experiment):
    values = np.append(np.arange(101.0), np.nan)
    assert experiment.box(values[::-1]) == pytest.approx([5, 25, 50, 75, 95])
    assert experiment.box(np.full(3, np.nan)) is None


def test_replicates_are_the_number_of_people_drawn_with_replacement(experiment):
    values = np.array([1.0, np.nan, 5.0, 9.0])
    found = experiment.resampled(mean, values, draws=40, seed=3)
    assert found["value"] == 5.0
    assert len(found["replicates"]) == 40
    possible = {(a + b + c) / 3 for a in (1, 5, 9) for b in (1, 5, 9) for c in (1, 5, 9)}
    assert {round(one, 9) for one in found["replicates"]} <= {round(one, 9) for one in possible}
    assert len(set(found["replicates"])) > 3


def test_the_same_seed_draws_the_same_people_whatever_is_asked_of_them(experiment):
    values = np.array([0.0, 1.0, 4.0, 9.0, 16.0])
    once, again = (experiment.resampled(mean, v, draws=20, seed=7)["replicates"] for v in (values, -2 * values))
    assert again == pytest.approx([-2 * one for one in once])
    assert experiment.resampled(mean, values, draws=20, seed=8)["replicates"] != once


def test_where_nobody_has_a_value_there_is_no_number(experiment):
    nobody = experiment.resampled(mean, np.array([np.nan, np.nan]), draws=5, seed=0)
    assert nobody == {"value": None, "replicates": []}
    assert experiment.resampled(mean, np.array([]), draws=5, seed=0) == nobody
    assert experiment.with_interval([nobody, nobody]) is None


def test_an_interval_is_of_the_mean_over_runs_draw_by_draw(experiment):
    runs = [{"value": 1.0, "replicates": [0.0, 2.0]}, {"value": 4.0, "replicates": [2.0, 6.0]}]
    # means of the replicates: 1 and 4; between them the 2.5% and the 97.5% quantile
    assert experiment.with_interval(runs) == pytest.approx([2.5, 1.075, 3.925])
    nobody = {"value": None, "replicates": []}
    assert experiment.with_interval([nobody, *runs]) == experiment.with_interval(runs)
    assert experiment.with_interval(runs[:1]) == pytest.approx([1.0, 0.05, 1.95])


def test_numbers_are_written_with_five_digits(experiment):
    assert [experiment.rounded(v) for v in (0.123456789, -1234.5678, 0.0, 3e-9)] == [0.12346, -1234.6, 0.0, 3e-9]
