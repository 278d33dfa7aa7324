import pytest
import torch
from populations import linear
from torch import Tensor

from fairfox.errors import ModelError, ShapeError
from fairfox.models.protocol import Model, predict, row_blocks


class Returning:
    """A model that returns what it is told and notes how many rows each call had."""

    def __init__(self, function, *, differentiable: bool = True) -> None:
        self.function = function
        self.differentiable = differentiable
        self.calls: list[int] = []

    def __call__(self, x: Tensor) -> Tensor:
        self.calls.append(len(x))
        return self.function(x)


def test_blocks_cover_all_rows_once():
    assert list(row_blocks(5, 2)) == [slice(0, 2), slice(2, 4), slice(4, 5)]
    assert list(row_blocks(0, 2)) == []


def test_anything_that_is_called_and_says_whether_it_is_differentiable_is_a_model():
    assert isinstance(linear(1.0), Model)
    assert not isinstance(torch.nn.Linear(1, 1), Model)


def test_predictions_come_in_blocks_and_do_not_depend_on_them():
    x = torch.randn(10, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    model = Returning(linear(2.0, -1.0))
    torch.testing.assert_close(predict(model, x, batch_size=4), 2 * x[:, 0] - x[:, 1])
    assert model.calls == [4, 4, 2]


def test_a_black_box_gets_all_rows_at_once():
    model = Returning(lambda x: x[:, :1], differentiable=False)
    predict(model, torch.zeros(10, 2), batch_size=4)
    assert model.calls == [10]


def test_predictions_carry_no_gradient():
    assert not predict(linear(1.0), torch.zeros(2, 1).double().requires_grad_()).requires_grad


def test_nobody_gets_no_prediction():
    assert predict(linear(1.0), torch.zeros(0, 1)).shape == (0,)


def test_one_number_each_is_enough():
    assert predict(Returning(lambda x: x[:, 0]), torch.ones(3, 1)).tolist() == [1.0] * 3


def test_nan_is_refused_with_the_row_it_came_from():
    model = Returning(lambda x: torch.where(x == 7, torch.nan, x))
    with pytest.raises(
        ModelError, match=r"NaN or infinity for 1 of 2 individuals \(first: row 7\); .* finite prediction"
    ):
        predict(model, torch.arange(10.0)[:, None], batch_size=2)
    with pytest.raises(ModelError, match="NaN or infinity for 3 of 3"):
        predict(Returning(lambda x: x / 0), torch.ones(3, 1))


def test_another_number_of_predictions_is_refused():
    with pytest.raises(ShapeError, match="returned 2 predictions for 3 individuals; return one each, in order"):
        predict(Returning(lambda x: x[1:]), torch.zeros(3, 1))


def test_several_columns_are_refused():
    with pytest.raises(ShapeError, match=r"returned 2 columns; say which class is audited \(positive=...\)"):
        predict(Returning(lambda x: x), torch.zeros(3, 2))
