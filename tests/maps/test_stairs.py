"""Numbers whose values many people share: ranks on a staircase."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fairfox.maps.stairs import Stairs, is_stepped


def test_few_values_or_one_that_stands_out_make_a_staircase():
    many = torch.linspace(0, 1, 300)
    assert is_stepped(torch.arange(300).double() % 15)
    assert not is_stepped(many)
    assert is_stepped(torch.cat([torch.zeros(200), many]))


def test_values_move_to_the_step_that_has_their_rank_under_other_shares():
    stairs = Stairs.of(torch.tensor([0.0, 1.0, 2.0, 2.0]).double())
    own, other = (torch.tensor([shares]).double().repeat(3, 1) for shares in ([0.25, 0.25, 0.5], [0.5, 0.25, 0.25]))
    # middles 1/8, 3/8 and 3/4 of their own; the others' steps end at 1/2, 3/4 and 1
    found = stairs.same_rank(torch.tensor([0.0, 1.0, 2.0]).double(), own, other)
    assert found.tolist() == [0.0, 0.0, 2.0]


def test_many_values_are_cut_into_steps_of_about_equally_many():
    stairs = Stairs.of(torch.arange(1000).double())
    assert len(stairs.size) == 20
    assert int(stairs.size.max() - stairs.size.min()) <= 2
    assert stairs.one_hot(torch.tensor([0.0, 999.0]).double()).argmax(1).tolist() == [0, 19]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(-5, 60), min_size=2, max_size=80), st.integers(0, 1000))
def test_equal_shares_leave_everyone_where_they_are(values: list[int], seed: int):
    numbers = torch.tensor(values).double()
    stairs = Stairs.of(numbers)
    weights = torch.rand(len(numbers), len(stairs.size), generator=torch.Generator().manual_seed(seed)).double() + 0.01
    shares = weights / weights.sum(1, keepdim=True)
    assert torch.equal(stairs.same_rank(numbers, shares, shares), numbers)
