import pytest
import torch
from populations import linear
from torch import nn

from fairfox.maps.walks import Way, advance, follow, plain_network


@pytest.mark.parametrize("steps", [1, 3])
def test_a_line_is_followed_to_its_end_by_what_may_move(steps: int):
    x = torch.tensor([[9.0, 9.0], [1.0, 1.0]]).double()
    way = Way(torch.tensor([1]), (0, 1), torch.tensor([9.0]).double(), torch.zeros(2).double())
    free, second = torch.tensor([False, False]), torch.tensor([False, True])
    options = {"metric": None, "steps": steps, "batch_size": 10}
    rows, lost = follow(way, x, linear(3.0, 4.0), still=free, **options)
    torch.testing.assert_close(rows, torch.tensor([[1.24, 1.32]]).double())  # 2 more is 2 / 25 times the slope
    rows, _ = follow(way, x, linear(3.0, 4.0), still=second, **options)
    torch.testing.assert_close(rows, torch.tensor([[1 + 2 / 3, 1.0]]).double())
    assert lost.tolist() == [False]
    assert follow(way, x, linear(0.0, 4.0), still=second, **options)[1].tolist() == [True]


def test_slopes_too_small_to_be_squared_still_point_somewhere():
    x = torch.zeros(2, 2)
    lost = advance(x, torch.tensor([[1e-12, 0.0], [0.0, 2.0]]), torch.tensor([1e-12, 4.0]))
    torch.testing.assert_close(x, torch.tensor([[1.0, 0.0], [0.0, 2.0]]))  # by / slope
    assert lost.tolist() == [False, False]


def test_what_is_no_plain_network_is_not_taken_for_one():
    assert plain_network(linear(1.0)) is None
    assert plain_network(nn.Linear(2, 1)) is None
