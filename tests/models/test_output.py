import math

import pytest
import torch

from fairfox.errors import ModelError, OptionError
from fairfox.models.output import Output, class_index, settle_output

HALF = torch.tensor([[0.5], [0.25]])
THREE = torch.tensor([[0.2, 0.5, 0.3], [0.1, 0.1, 0.8]])


def test_a_logit_becomes_a_probability_and_back():
    logits = torch.tensor([[0.0], [math.log(3)]])
    torch.testing.assert_close(Output("logit", "probability")(logits), torch.tensor([[0.5], [0.75]]))
    torch.testing.assert_close(Output("probability", "logit")(torch.tensor([[0.5], [0.75]])), logits)


def test_what_is_wanted_already_stays_as_it_is():
    for output in (Output("probability"), Output("logit", "logit"), Output("value"), Output("value", "logit")):
        assert torch.equal(output(HALF), HALF)


def test_certain_probabilities_have_a_finite_logit():
    assert torch.isfinite(Output("probability", "logit")(torch.tensor([[0.0], [1.0]]))).all()


def test_the_audited_class_is_picked():
    assert torch.equal(Output("probability", column=2)(THREE), THREE[:, 2:])


def test_several_logits_are_the_audited_class_against_the_others():
    logits = THREE.log() + 5.0
    torch.testing.assert_close(Output("logit", "probability", 1)(logits), THREE[:, 1:2])
    torch.testing.assert_close(Output("logit", "logit", 1)(logits), torch.logit(THREE[:, 1:2]))


def test_one_column_belongs_to_class_one_and_class_zero_is_its_opposite():
    assert torch.equal(Output("probability", column=1)(HALF), HALF)
    assert torch.equal(Output("probability", column=0)(HALF), 1 - HALF)
    assert torch.equal(Output("logit", "logit", 0)(HALF), -HALF)


def test_flat_outputs_become_a_column():
    assert Output()(torch.zeros(4)).shape == (4, 1)


def test_several_columns_without_a_choice_are_refused():
    with pytest.raises(OptionError, match="returned 3 columns; say which is audited with positive=<column number>"):
        Output("probability")(THREE)


def test_the_unit_is_what_is_audited():
    assert Output("logit", "probability").unit == "probability"
    assert Output("probability", "logit").unit == "logit"
    assert Output("value", "logit").unit == "value"


@pytest.mark.parametrize(
    ("raw", "returns"),
    [
        (HALF, "probability"),
        (torch.tensor([0.0, 1.0]), "probability"),
        (torch.tensor([[0.5], [1.5]]), "value"),
        (torch.tensor([[-0.1]]), "value"),
        (torch.tensor([[0.5], [float("nan")]]), "probability"),  # the NaN is named when predictions are asked for
    ],
)
def test_numbers_within_zero_and_one_are_taken_as_probabilities(raw: torch.Tensor, returns: str):
    assert settle_output(raw, returns=None, wanted="probability") == Output(returns)  # type: ignore[arg-type]


def test_what_is_told_is_not_guessed():
    assert settle_output(HALF, returns="logit", wanted="probability").returns == "logit"


def test_two_columns_audit_the_second_unless_told():
    two = torch.tensor([[0.4, 0.6]])
    assert settle_output(two, returns=None, wanted="probability").column == 1
    assert settle_output(two, returns=None, wanted="probability", positive=0).column == 0
    assert settle_output(two, returns=None, wanted="probability", positive="yes", classes=["yes", "no"]).column == 0


def test_a_class_of_three_must_be_chosen():
    with pytest.raises(OptionError, match=r"The model has 3 classes \(a, b, c\); say which is audited with positive="):
        settle_output(THREE, returns=None, wanted="probability", classes=["a", "b", "c"])
    assert settle_output(THREE, returns=None, wanted="probability", positive="c", classes=["a", "b", "c"]).column == 2


def test_one_column_of_a_two_class_model_knows_both_classes():
    for positive, column in ((None, None), ("no", 0), ("yes", 1)):
        settled = settle_output(HALF, returns="logit", wanted="logit", positive=positive, classes=["no", "yes"])
        assert settled.column == column
    assert settle_output(HALF, returns=None, wanted="probability", positive=0).column == 0


@pytest.mark.parametrize(
    ("raw", "options", "message"),
    [
        (torch.tensor([[1.0, 2.0]]), {}, "returned 2 columns that are not probabilities; say what they are"),
        (torch.tensor([[0.5, 0.6]]), {}, "returned 2 columns that are not probabilities"),
        (
            torch.tensor([[-2.0], [3.5]]),
            {"returns": "probability"},
            "returned numbers from -2 to 3.5; probabilities lie within 0 and 1",
        ),
        (HALF, {"positive": "maybe"}, "'maybe' is not a class of the model; its classes are: 0, 1"),
        (HALF * 9, {"positive": 1}, "The model returns values, not classes; leave out positive='1'"),
    ],
)
def test_outputs_that_cannot_be_settled_are_refused(raw: torch.Tensor, options: dict[str, object], message: str):
    with pytest.raises(OptionError, match=message):
        settle_output(raw, **({"returns": None, "wanted": "probability"} | options))  # type: ignore[arg-type]


def test_no_column_is_refused():
    with pytest.raises(ModelError, match="returned no column; it must return one prediction per individual"):
        settle_output(torch.zeros(3, 0), returns=None, wanted="probability")


def test_classes_are_found_by_value_or_by_what_was_typed():
    assert class_index(1, [0, 1, 2]) == 1
    assert class_index("1", [0, 1, 2]) == 1
    assert class_index(None, ["no", "yes"]) == 1
    with pytest.raises(OptionError, match="'x' is not a class of the model; its classes are: a, b"):
        class_index("x", ["a", "b"])
