import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from populations import one_hot
from torch import Tensor

from fairfox.data.dataset import COMBINATIONS, expand_blocks

BLOCKS = (slice(1, 4), slice(4, 6))  # a continuous column, three categories, two categories


def people(shares: list[list[float]]) -> Tensor:
    return torch.tensor(shares, dtype=torch.float64)


def mean_of(values: Tensor, weights: Tensor, owner: Tensor, n: int) -> Tensor:
    return torch.zeros(n, dtype=torch.float64).index_add(0, owner, values * weights)


def random_shares(n: int, blocks: int, levels: int, *, seed: int = 0) -> tuple[Tensor, tuple[slice, ...]]:
    draws = torch.rand(n, blocks, levels, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    shares = draws / draws.sum(2, keepdim=True)
    return shares.reshape(n, -1), tuple(slice(b * levels, (b + 1) * levels) for b in range(blocks))


def test_all_combinations_come_with_their_probability():
    rows, weights, owner = expand_blocks(people([[9.0, 0.5, 0.5, 0.0, 0.25, 0.75]]), BLOCKS, seed=0)
    found = {tuple(row.tolist()): weight for row, weight in zip(rows[:, 1:], weights.tolist(), strict=True)}
    assert found == {
        (1, 0, 0, 1, 0): 0.125,
        (1, 0, 0, 0, 1): 0.375,
        (0, 1, 0, 1, 0): 0.125,
        (0, 1, 0, 0, 1): 0.375,
    }
    assert rows[:, 0].tolist() == [9.0] * 4
    assert owner.tolist() == [0] * 4


def test_whole_categories_are_one_row_of_weight_one():
    x = torch.cat([torch.zeros(3, 1).double(), one_hot([0, 1, 2], 3), one_hot([0, 1, 0], 2)], dim=1)
    rows, weights, owner = expand_blocks(x, BLOCKS, seed=0)
    assert torch.equal(rows, x)
    assert weights.tolist() == [1.0] * 3
    assert owner.tolist() == [0, 1, 2]


def test_a_category_nobody_knows_stays_empty_and_counts_once():
    rows, weights, owner = expand_blocks(people([[0.0, 0.0, 0.0, 0.0, 0.5, 0.5]]), BLOCKS, seed=0)
    assert torch.equal(rows[:, 1:4], torch.zeros(2, 3).double())
    assert weights.tolist() == [0.5, 0.5]
    assert owner.tolist() == [0, 0]


@settings(deadline=None, max_examples=25)
@given(blocks=st.integers(1, 4), levels=st.integers(1, 6), seed=st.integers(0, 9))
def test_weights_sum_to_one_and_rows_hold_whole_categories(blocks: int, levels: int, seed: int):
    x, places = random_shares(4, blocks, levels, seed=seed)
    rows, weights, owner = expand_blocks(x, places, seed=seed)
    torch.testing.assert_close(mean_of(torch.ones_like(weights), weights, owner, 4), torch.ones(4).double())
    assert set(rows.unique().tolist()) <= {0.0, 1.0}
    for place in places:
        assert torch.equal(rows[:, place].sum(1), torch.ones(len(rows)).double())
    assert len(rows) == 4 * min(levels**blocks, COMBINATIONS)


@pytest.mark.parametrize(("blocks", "levels"), [(1, 32), (5, 2), (2, 5), (3, 3)])
def test_the_mean_of_a_linear_rule_is_exact_up_to_32_combinations(blocks: int, levels: int):
    x, places = random_shares(6, blocks, levels)
    weight = torch.randn(x.shape[1], generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    rows, weights, owner = expand_blocks(x, places, seed=0)
    torch.testing.assert_close(mean_of(rows @ weight, weights, owner, 6), x @ weight)


def test_beyond_32_combinations_everyone_gets_32_equal_draws():
    x, places = random_shares(3, 6, 3)
    rows, weights, owner = expand_blocks(x, places, seed=0)
    assert torch.bincount(owner).tolist() == [COMBINATIONS] * 3
    assert set(weights.tolist()) == {1 / COMBINATIONS}
    shares = rows[owner == 0].mean(0)
    assert float((shares - x[0]).abs().max()) <= 1.5 / COMBINATIONS  # evenly spread draws


def test_draws_depend_neither_on_the_order_nor_on_the_batch():
    x, places = random_shares(5, 6, 3)
    rows, _, owner = expand_blocks(x, places, seed=0)
    alone, _, _ = expand_blocks(x[3:4], places, seed=0)
    assert torch.equal(alone, rows[owner == 3])
    turned, _, turned_owner = expand_blocks(x.flip(0), places, seed=0)
    assert torch.equal(turned[turned_owner == 1], rows[owner == 3])


def test_no_category_without_a_share_is_ever_drawn():
    x, places = random_shares(50, 6, 4, seed=3)
    x[:, 3] = 0.0
    x[:, :3] /= x[:, :3].sum(1, keepdim=True)
    rows, _, _ = expand_blocks(x.float(), places, seed=0)
    assert float(rows[:, 3].max()) == 0.0
