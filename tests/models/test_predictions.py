import math

import pytest
import torch
from populations import Function, linear
from torch import Tensor

from fairfox.errors import ModelError, OptionError, ShapeError
from fairfox.models.protocol import Model, Output, check_predictions, detect_output, predict, predict_once

HALF = torch.tensor([[0.5], [0.25]])
THREE = torch.tensor([[0.2, 0.5, 0.3], [0.1, 0.1, 0.8]])


def test_a_logit_becomes_a_probability_and_back():
    logits = torch.tensor([[0.0], [math.log(3)]])
    torch.testing.assert_close(Output("logit", "probability")(logits), torch.tensor([[0.5], [0.75]]))
    torch.testing.assert_close(Output("probability", "logit")(torch.tensor([[0.5], [0.75]])), logits)


def test_certain_probabilities_have_a_finite_logit():
    assert torch.isfinite(Output("probability", "logit")(torch.tensor([[0.0], [1.0]]))).all()


def test_several_logits_are_the_audited_class_against_the_others():
    logits = THREE.log() + 5.0
    torch.testing.assert_close(Output("logit", "probability", 1)(logits), THREE[:, 1:2])
    torch.testing.assert_close(Output("logit", "logit", 1)(logits), torch.logit(THREE[:, 1:2]))


def test_one_column_belongs_to_class_one_and_class_zero_is_its_opposite():
    assert torch.equal(Output("probability", column=1)(HALF), HALF)
    assert torch.equal(Output("probability", column=0)(HALF), 1 - HALF)
    assert torch.equal(Output("logit", "logit", 0)(HALF), -HALF)


def test_several_columns_without_a_choice_are_refused():
    with pytest.raises(OptionError, match="returned 3 columns; choose one with positive=<column number>"):
        Output("probability")(THREE)


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
    assert detect_output(raw, returns=None, wanted="probability") == Output(returns)  # type: ignore[arg-type]


def test_two_columns_audit_the_second_by_default():
    two = torch.tensor([[0.4, 0.6]])
    assert detect_output(two, returns=None, wanted="probability").column == 1
    assert detect_output(two, returns=None, wanted="probability", positive=0).column == 0
    assert detect_output(two, returns=None, wanted="probability", positive="yes", classes=["yes", "no"]).column == 0


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
def test_ambiguous_outputs_are_refused(raw: torch.Tensor, options: dict[str, object], message: str):
    with pytest.raises(OptionError, match=message):
        detect_output(raw, **({"returns": None, "wanted": "probability"} | options))  # type: ignore[arg-type]


# --- probabilities -------------------------------------------------------------------------------------------------


def test_probabilities_may_leave_their_bounds_by_rounding_and_are_clipped():
    off = torch.tensor([-1e-7, 0.5, 1 + 1e-7], dtype=torch.float64)
    assert check_predictions(off, "probability").tolist() == [0.0, 0.5, 1.0]
    assert detect_output(off, returns=None, wanted="probability") == Output("probability")
    assert torch.equal(check_predictions(off, "value"), off)


@pytest.mark.parametrize("far", [-1e-5, 1 + 1e-5])
def test_numbers_beyond_that_are_no_probabilities(far: float):
    with pytest.raises(OptionError, match=r"returned numbers from .* to .*; probabilities lie within 0 and 1: say"):
        check_predictions(torch.tensor([0.5, far], dtype=torch.float64), "probability")
    assert detect_output(torch.tensor([0.5, far]).double(), returns=None, wanted="probability") == Output("value")


# --- predict ----------------------------------------------------------------------------------------------------------


def test_anything_that_is_called_and_says_whether_it_is_differentiable_is_a_model():
    assert isinstance(linear(1.0), Model)
    assert not isinstance(torch.nn.Linear(1, 1), Model)


def test_predictions_come_in_blocks_and_do_not_depend_on_them():
    x = torch.randn(10, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    model = Function(linear(2.0, -1.0))
    torch.testing.assert_close(predict(model, x, batch_size=4), 2 * x[:, 0] - x[:, 1])
    assert model.calls == [4, 4, 2]


def test_a_black_box_gets_all_rows_at_once():
    model = Function(lambda x: x[:, :1], differentiable=False)
    predict(model, torch.zeros(10, 2), batch_size=4)
    assert model.calls == [10]


def test_nan_is_refused_with_the_row_it_came_from():
    model = Function(lambda x: torch.where(x == 7, torch.nan, x))
    with pytest.raises(
        ModelError, match=r"NaN or infinity for 1 of 2 individuals \(first: row 7\); .* finite prediction"
    ):
        predict(model, torch.arange(10.0)[:, None], batch_size=2)
    with pytest.raises(ModelError, match="NaN or infinity for 3 of 3"):
        predict(Function(lambda x: x / 0), torch.ones(3, 1))
    for large, dtype, most in ((1e200, torch.float64, r"1e\+150"), (1e25, torch.float32, r"1.8e\+19")):
        with pytest.raises(ModelError, match=rf"returned numbers above {most} for 1 of 3 .*first: row 1"):
            predict(Function(lambda x, large=large: x * large), torch.tensor([[0.0], [1.0], [0.0]], dtype=dtype))


def test_another_number_of_predictions_is_refused():
    with pytest.raises(ModelError, match="returned 2 predictions for 3 individuals; return one row each, in order"):
        predict(Function(lambda x: x[1:]), torch.zeros(3, 1))


def test_several_columns_are_refused():
    with pytest.raises(ShapeError, match=r"returned 2 columns; choose the audited class \(positive=...\)"):
        predict(Function(lambda x: x), torch.zeros(3, 2))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equal_rows_are_predicted_once(dtype: torch.dtype):
    rows = torch.randn(50, 3, generator=torch.Generator().manual_seed(0)).to(dtype)
    rows[0] = rows[0, 0]  # (a, a, a), and below (a, b, c) and (c, b, a): other rows with the same values
    rows[1] = rows[2].flip(0)
    x = rows[torch.randint(50, (2_000,), generator=torch.Generator().manual_seed(1))]
    seen: list[Tensor] = []
    model = Function(lambda x: seen.append(x) or x.sum(1, keepdim=True))
    found = predict_once(model, x, batch_size=7)
    asked = torch.cat(seen)
    assert len(asked) == len(x.unique(dim=0)) == len(asked.unique(dim=0))
    torch.testing.assert_close(found, x.sum(1))
    assert predict_once(model, x[:0], batch_size=7).shape == (0,)
