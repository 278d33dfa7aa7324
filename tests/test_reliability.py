"""Doubt, whom to leave out, and distance from real people: by hand, against brute force, and what must not matter."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from populations import individuals

from fairfox.auxiliary.linear import LinearMember
from fairfox.errors import OptionError, ShapeError
from fairfox.fairtests.registry import make_test
from fairfox.reliability import distance, doubt, most_doubtful, spread

refits_of_people = st.lists(
    st.lists(st.floats(-1.0, 1.0, width=32), min_size=3, max_size=3), min_size=1, max_size=12
).map(lambda rows: torch.tensor(rows, dtype=torch.float64))


def rows_of(seed, n=60, columns=3):
    return torch.randn(n, columns, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_doubt_is_the_spread_over_spread_effect_and_delta():
    # 0.1 and 0.3: mean 0.2, standard deviation 0.2 / √2; -0.3 and -0.1 the same; 0.2 twice: no spread
    refits = torch.tensor([[0.1, 0.3], [-0.3, -0.1], [0.2, 0.2]], dtype=torch.float64)
    s = 0.2 / math.sqrt(2)
    torch.testing.assert_close(spread(refits), torch.tensor([s, s, 0.0], dtype=torch.float64))
    expected = s / (s + 0.2 + 0.05)
    torch.testing.assert_close(doubt(refits, 0.05), torch.tensor([expected, expected, 0.0], dtype=torch.float64))


def test_a_large_effect_with_a_little_spread_is_less_doubtful_than_a_small_one_with_the_same():
    large, small, tiny = doubt(torch.tensor([[0.5, 0.52], [0.05, 0.07], [0.0005, 0.0007]]), 0.05).tolist()
    assert large < small
    assert tiny < small  # next to nothing, and sure to be next to nothing


def test_who_is_abstained_from_is_as_doubtful_as_can_be():
    found = doubt(torch.zeros(3, 5), 0.05, abstained=torch.tensor([False, True, False]))
    assert found.tolist() == [0.0, 1.0, 0.0]


@given(refits_of_people, st.floats(0.01, 1.0), st.floats(0.01, 100.0))
@settings(deadline=None, max_examples=50)
def test_doubt_lies_from_0_to_1_and_does_not_depend_on_units_signs_or_the_other_people(refits, delta, unit):
    found = doubt(refits, delta)
    assert bool(((found >= 0) & (found < 1)).all())
    torch.testing.assert_close(doubt(refits * unit, delta * unit), found)
    torch.testing.assert_close(doubt(-refits, delta), found)
    torch.testing.assert_close(doubt(refits[:1], delta), found[:1])
    torch.testing.assert_close(doubt(refits.flip(0), delta), found.flip(0))


def test_doubt_needs_two_refits_and_a_delta():
    with pytest.raises(ShapeError, match=r"shape \(4, 1\); doubt needs at least two re-fits"):
        doubt(torch.zeros(4, 1), 0.05)
    with pytest.raises(OptionError, match="delta is 0"):
        doubt(torch.zeros(4, 2), 0)


def test_the_most_doubtful_are_left_out_and_equal_doubts_share_one_fate():
    doubts = torch.tensor([0.3, 0.1, 0.5, 0.2, 0.3])
    assert most_doubtful(doubts, 0.0).tolist() == [False] * 5
    assert most_doubtful(doubts, 0.19).tolist() == [False] * 5  # less than one person
    assert most_doubtful(doubts, 0.2).tolist() == [False, False, True, False, False]
    assert most_doubtful(doubts, 0.4).tolist() == [False, False, True, False, False]  # not one of the two with 0.3
    assert most_doubtful(doubts, 0.6).tolist() == [True, False, True, False, True]


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=30, unique=True), st.integers(0, 9))
@settings(deadline=None, max_examples=50)
def test_without_ties_exactly_the_share_is_left_out(values, tenths):
    doubts = torch.tensor(values, dtype=torch.float64)
    out = most_doubtful(doubts, tenths / 10)
    assert int(out.sum()) == tenths * len(values) // 10
    if bool(out.any()):
        assert doubts[out].min() > doubts[~out].max()


@pytest.mark.parametrize("share", [-0.1, 1.0, float("nan")])
def test_a_share_to_abstain_from_is_from_0_to_below_1(share):
    with pytest.raises(OptionError, match="share to abstain from"):
        most_doubtful(torch.zeros(3), share)


def test_distance_is_that_to_real_people_over_that_among_them():
    # Women at 0, 1, 3: their nearest other is 1, 1 and 2 away, 4/3 on average. Men at 10, 10: no distance between them.
    people = torch.tensor([[0.0], [1.0], [3.0], [10.0], [10.0]])
    groups = torch.tensor([0.0, 0.0, 0.0, 1.0, 1.0])
    rows = torch.tensor([[5.0], [1.0], [10.0], [9.0], [2.0], [2.0]])
    to = torch.tensor([0.0, 0.0, 1.0, 1.0, math.nan, 2.0])
    found = distance(rows, to, people, groups, nearest=1)
    expected = torch.tensor([2.0 / (4 / 3), 0.0, 0.0, math.inf, math.nan, math.nan])
    torch.testing.assert_close(found, expected, equal_nan=True)


def test_distance_is_what_sorting_all_distances_gives():
    people, rows = rows_of(0), rows_of(1, n=7) * 3
    groups = torch.arange(60) % 2
    to = torch.arange(7) % 2
    found = distance(rows, to.double(), people, groups.double(), nearest=4).numpy()

    def mean_of_nearest(row, real):
        return np.sort(np.linalg.norm(real - row, axis=1))[:4].mean()

    for row, group, value in zip(rows.numpy(), to.tolist(), found, strict=True):
        real = people[groups == group].numpy()
        among = np.mean([mean_of_nearest(one, np.delete(real, i, axis=0)) for i, one in enumerate(real)])
        assert value == pytest.approx(mean_of_nearest(row, real) / among)


@given(st.integers(1, 70), st.floats(0.1, 10.0), st.integers(0, 5))
@settings(deadline=None, max_examples=20)
def test_distance_depends_neither_on_blocks_nor_on_units_nor_on_the_order_of_rows(block, unit, seed):
    people, rows = rows_of(seed), rows_of(seed + 10, n=30)
    groups, to = (torch.arange(60) % 2).double(), (torch.arange(30) % 2).double()
    found = distance(rows, to, people, groups)
    torch.testing.assert_close(distance(rows, to, people, groups, block=block), found)
    torch.testing.assert_close(distance(unit * rows, to, unit * people, groups), found)
    torch.testing.assert_close(distance(rows.flip(0), to.flip(0), people, groups), found.flip(0))


def test_real_people_are_one_away_from_each_other_and_a_row_off_the_data_is_far():
    people, fresh = rows_of(0, n=400), rows_of(1, n=400)
    none = torch.zeros(400, dtype=torch.float64)
    assert float(distance(fresh, none, people, none).mean()) == pytest.approx(1.0, abs=0.1)
    off = torch.full((1, 3), 8.0, dtype=torch.float64)
    assert float(distance(off, none[:1], people, none)) > 10


def test_a_draw_of_the_people_is_enough_and_leaves_the_generator_alone():
    people, fresh = rows_of(0, n=2000).float(), rows_of(1, n=300).float()
    real, to = torch.zeros(2000), torch.zeros(300)
    before = torch.random.get_rng_state()
    few, again = (distance(fresh, to, people, real, sampled=500, seed=3) for _ in range(2))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.equal(few, again)
    assert few.dtype == torch.float32
    every = distance(fresh, to, people, real, sampled=2000)
    assert float(torch.corrcoef(torch.stack([few, every]))[0, 1]) > 0.95


def test_distance_says_which_shapes_it_expects():
    with pytest.raises(ShapeError, match=r"\(2, 3\), \(2,\), \(4, 2\), \(4,\); expected"):
        distance(torch.zeros(2, 3), torch.zeros(2), torch.zeros(4, 2), torch.zeros(4))


def test_what_a_fairness_test_measured_has_a_doubt_and_a_distance_for_everyone():
    groups = torch.arange(200) % 2
    data = individuals(rows_of(0, n=200) + groups[:, None], c=groups)
    model = LinearMember(torch.full((1, 3), 0.1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64))
    measured = make_test("rank", refits=5).fit(data).measure(model, data)
    doubts = doubt(measured.refits, 0.05, abstained=measured.abstained)
    assert 0.0 < float(doubts.min()) < float(doubts.max()) < 0.5  # everyone's effect, 0.3, is sure
    assert int(most_doubtful(doubts, 0.1).sum()) == 20
    far = distance(measured.counterfactual, measured.klass.to(data.x), data.x, data.c[:, 0])
    assert float(far.mean()) == pytest.approx(1.0, abs=0.15)  # ranks stay inside the other group's values
    assert float(far.max()) < 4
