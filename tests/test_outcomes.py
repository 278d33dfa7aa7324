"""Predictions are held against the class that is audited, and estimators get the labels they know."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import roc_auc_score

from fairfox.errors import DataError
from fairfox.models.blackbox import BlackBoxModel
from fairfox.models.output import Output
from fairfox.outcomes import Outcome, labels_as_trained, outcome_of, place_of, weighted_auc

NAN = float("nan")


def model(output: Output) -> BlackBoxModel:
    return BlackBoxModel(lambda x: x, decoder=None, kind="encoded", output=output)


@given(
    st.lists(st.tuples(st.sampled_from([0.1, 0.2, 0.5, 0.9]), st.integers(0, 1), st.integers(1, 5)), min_size=2).filter(
        lambda rows: len({truth for _, truth, _ in rows}) == 2
    )
)
def test_the_auc_is_that_of_scikit_learn_with_ties_and_weights(rows: list[tuple[float, int, int]]):
    out, truth, weights = (np.array(column, dtype=float) for column in zip(*rows, strict=True))
    assert weighted_auc(out, truth, weights) == pytest.approx(roc_auc_score(truth, out, sample_weight=weights))


def test_the_audited_class_is_found_by_name_whatever_its_place():
    y = torch.tensor([0.0, 1.0, NAN, 2.0])
    levels = ("high", "low", "middle")
    found = outcome_of(model(Output("probability", column=0)), y, levels, ["low", "middle", "high"])
    assert found is not None
    assert found.measure == "AUC"
    np.testing.assert_array_equal(found.truth, [0.0, 1.0, NAN, 0.0])  # "low"


def test_without_names_two_classes_are_taken_in_order():
    y = torch.tensor([0.0, 1.0])
    for output, truth in ((Output("probability"), [0.0, 1.0]), (Output("probability", column=0), [1.0, 0.0])):
        found = outcome_of(model(output), y, ("no", "yes"), None)
        assert found is not None
        assert found.truth.tolist() == truth
    assert outcome_of(model(Output("probability")), y, ("a", "b", "c"), None) is None


def test_numbers_are_held_against_values_only():
    y = torch.tensor([1.5, 2.5, 4.0])
    found = outcome_of(model(Output("value")), y, None, None)
    assert found is not None
    assert (found.measure, found.truth.tolist()) == ("R²", [1.5, 2.5, 4.0])
    assert outcome_of(model(Output("probability")), y, None, None) is None
    few = outcome_of(model(Output("value")), torch.tensor([0.0, 2.0, NAN]), (10, 20, 50), None)
    assert few is not None
    np.testing.assert_array_equal(few.truth, [10.0, 50.0, NAN])  # codes mean their levels


def test_no_known_label_is_no_outcome():
    assert outcome_of(model(Output()), None, None, None) is None
    assert outcome_of(model(Output()), torch.tensor([NAN, NAN]), None, None) is None


def test_accuracy_leaves_out_the_unknown_and_is_none_for_one_kind():
    ones = torch.ones(4)
    truth = torch.tensor([0.0, 1.0, 0.0, NAN])
    # of two pairs (0.9 over 0.1, 0.9 over 0.95) one is right
    assert Outcome("AUC", truth).accuracy(torch.tensor([0.1, 0.9, 0.95, 0.0]), ones) == 0.5
    assert Outcome("AUC", torch.tensor([1.0, 1.0, 1.0, NAN])).accuracy(ones, ones) is None
    line = Outcome("R²", torch.tensor([1.0, 2.0, 3.0, 4.0]))
    assert line.accuracy(torch.tensor([-2.0, -4.0, -6.0, -8.0]), ones) == pytest.approx(1.0)
    assert line.accuracy(ones, ones) == 0.0


def test_a_class_is_a_level_by_value_or_by_how_it_is_written():
    assert place_of(np.int64(1), (0.0, 1.0)) == 1
    assert place_of("1", (0, 1)) == 1
    assert place_of("yes", ("no", "maybe")) is None


def test_labels_come_back_in_the_estimators_own_classes():
    x = np.zeros((40, 1))
    classes = np.array([b"n", b"y"]).astype(str)
    named = LogisticRegression().fit(x, np.tile(classes, 20))
    y = torch.tensor([0.0, 1.0]).repeat(20)
    assert labels_as_trained(named, y, ("y", "n")).tolist() == ["y", "n"] * 20  # by name
    assert labels_as_trained(named, y, ("bad", "good")).tolist() == ["n", "y"] * 20  # in order
    number = LinearRegression().fit(x, np.zeros(40))
    assert labels_as_trained(number, y, (5, 7)).tolist() == [5.0, 7.0] * 20
    assert labels_as_trained(number, y + 0.5, None).tolist() == [0.5, 1.5] * 20


def test_labels_an_estimator_does_not_know_or_too_few_are_refused():
    two = LogisticRegression().fit(np.zeros((40, 1)), np.tile([0, 1], 20))
    with pytest.raises(DataError, match="The label holds a, b, c and the model knows 0, 1"):
        labels_as_trained(two, torch.tensor([0.0, 1.0, 2.0]), ("a", "b", "c"))
    with pytest.raises(DataError, match="A class of the label has 1 people; at least 20 are needed"):
        labels_as_trained(two, torch.tensor([0.0, 0.0, 1.0]), (0, 1))
