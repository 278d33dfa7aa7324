import numpy as np
import pytest
import torch
from test_case import PEOPLE, by_income, case_of

from fairfox.assembly import counterfactual_rows, delta_of, reliability_of
from fairfox.runs import run_tests


def test_the_delta_that_was_given_counts_before_the_tests_own():
    assert delta_of(case_of(by_income, delta=0.2)) == 0.2
    assert delta_of(case_of(by_income)) == 0.05


def test_the_delta_of_a_value_is_a_share_of_its_usual_range():
    case = case_of(lambda table: 1000 * by_income(table), returns="value")
    low, high = np.quantile(case.predictions.numpy(), [0.01, 0.99])
    assert delta_of(case) == pytest.approx(0.05 * (high - low))


def test_a_score_that_is_no_change_of_the_prediction_has_the_tests_own_delta_whatever_the_unit():
    one, other = (case_of(model, test="faux+ng", returns="value") for model in (by_income, lambda t: 9 * by_income(t)))
    assert delta_of(one) == delta_of(other)


def test_a_test_that_moves_nobody_has_the_people_of_the_total_reading():
    moved, unmoved = (
        run_tests(case_of(by_income, test=test, refits=1, folds=2), [], lambda text, done: None)
        for test in ("rank", "faux")
    )
    assert unmoved.main.counterfactual is None
    assert torch.equal(counterfactual_rows(unmoved), unmoved.total.counterfactual)
    assert torch.equal(counterfactual_rows(moved), moved.main.counterfactual)


def test_people_are_held_against_the_rows_that_were_learnt_from():
    known = case_of(by_income, reference=PEOPLE[:30], refits=2, abstain=0.1)
    trust = reliability_of(known, run_tests(known, [], lambda text, done: None))
    assert trust.real is known.known
    assert (trust.share, trust.delta) == (0.1, 0.05)
