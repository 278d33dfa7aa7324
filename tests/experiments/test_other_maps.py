"""Maps that were tried beside the library's, on people whose counterfactuals are worked by hand."""

import importlib
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fairfox.data.dataset import Dataset, Feature, Protected
from fairfox.errors import OptionError
from fairfox.maps.move import MoveMap
from fairfox.maps.protocol import ManyGroupMap, Mapped, where_to
from fairfox.maps.rank import RankMap
from fairfox.maps.transport import TransportMap
from fairfox.synthetic.graded import WORLDS, draw

EXPERIMENT = "other_maps"
SHIFT = torch.tensor([2.0, -1.0, 0.5])
THREE = Protected("c", "categorical", ("a", "b", "d"))

MAPS = {
    "mean": lambda maps: maps.MeanOf([RankMap(), RankMap()]),
    "near": lambda maps: maps.NearReal(RankMap(), k=1),
    "smoothed": lambda maps: maps.Smoothed(RankMap()),
    "rotated": lambda maps: maps.RotatedRank(),
    "iterated": lambda maps: maps.iterated_rank(rounds=3),
    "sequential": lambda maps: maps.SequentialRank(),
}
every_map = pytest.mark.parametrize("name", MAPS)


@pytest.fixture(scope="module")
def maps(experiment):
    return experiment


class Away:
    """Everyone so much further, but not who is at 0."""

    def __init__(self, by):
        self.by, self.variable = by, 0

    def fit(self, data):
        return self

    def map(self, data, to=None):
        stay = where_to(data, self.variable, to).isnan() | (data.x[:, 0] == 0)
        return Mapped(torch.where(stay[:, None], data.x, data.x + self.by), stay, "at zero")


def correlated(n, seed=0):
    generator = torch.Generator().manual_seed(seed)
    mix = torch.tensor([[1.0, 0.8, 0.0], [0.0, 0.6, 0.3], [0.0, 0.0, 1.0]])
    return torch.randn(n, 3, generator=generator) @ mix


def shifted(n=40):
    """Return the same people in both groups, those of the second a shift away."""
    rows = correlated(n)
    return Dataset.from_arrays(torch.cat([rows, rows + SHIFT]), c=[0] * n + [1] * n)


def with_categories(n=60, seed=1, classes=2):
    """Return a number and a category of three levels, whose shares differ between groups."""
    generator = torch.Generator().manual_seed(seed)
    c = torch.arange(n) % classes
    number = torch.randn(n, 1, generator=generator) + c[:, None]
    level = (torch.rand(n, generator=generator) * 2 + 0.4 * c + 0.3 * (number[:, 0] > 0)).long().clamp(max=2)
    protected = None if classes == 2 else [THREE]
    data = Dataset.from_arrays(torch.cat([number, torch.eye(3)[level]], dim=1), c=c.float(), protected=protected)
    return replace(
        data, features=(Feature("n", "continuous", 0, 1), Feature("k", "categorical", 1, 4, ("u", "v", "w")))
    )


@every_map
def test_where_groups_are_a_shift_apart_everyone_is_shifted(maps, name):
    data = shifted()
    found = MAPS[name](maps).fit(data).map(data)
    expected = data.x + torch.where(data.c == 0, 1.0, -1.0) * SHIFT
    torch.testing.assert_close(found.rows, expected, atol=2e-5, rtol=0)
    assert not found.abstained.any()
    assert found.reason == ""


@every_map
def test_a_shift_is_found_up_to_noise_where_the_groups_are_other_people(maps, name):
    own, other = correlated(1000, seed=1), correlated(1000, seed=2)
    data = Dataset.from_arrays(torch.cat([own, other + SHIFT]), c=[0] * 1000 + [1] * 1000)
    found = MAPS[name](maps).fit(data).map(data)
    ways = found.rows - data.x
    for code, sign in ((0, 1), (1, -1)):
        torch.testing.assert_close(ways[data.c[:, 0] == code].mean(0), sign * SHIFT, atol=0.1, rtol=0)


@every_map
@pytest.mark.parametrize("classes", [2, 3])
def test_categories_stay_shares_and_who_goes_nowhere_keeps_their_row(maps, name, classes):
    data = with_categories(classes=classes)
    one = MAPS[name](maps).fit(data)
    assert isinstance(one, ManyGroupMap)
    people = replace(data, c=data.c.clone())
    people.c[0], people.c[1] = torch.nan, 1.0
    to = (people.c[:, 0] + 1) % classes
    to[1], to[2] = 1.0, torch.nan
    found = one.map(people, to)
    assert found.abstained.nonzero()[:, 0].tolist() == [0, 1, 2]  # unknown, already there, nowhere
    assert found.reason
    assert torch.equal(found.rows[:3], people.x[:3])
    assert (found.rows[:, 1:] >= 0).all()
    torch.testing.assert_close(found.rows[:, 1:].sum(1), torch.ones(len(people)))
    assert (found.rows[3:] != people.x[3:]).any(1).float().mean() > 0.9


@every_map
def test_a_number_is_refused(maps, name):
    age = Protected("age", "continuous", ())
    data = Dataset.from_arrays([[0.0], [1.0], [2.0]], c=[1.0, 2.0, 3.0], protected=[age])
    with pytest.raises(OptionError, match="'age' is a number"):
        MAPS[name](maps).fit(data)


@every_map
def test_missing_numbers_stay_missing(maps, name):
    x = torch.cat([correlated(30)[:, :1] + 1, torch.zeros(30, 1), correlated(30, seed=3)[:, :1]], dim=1)
    x[:4, :2] = torch.tensor([0.0, 1.0])
    features = (Feature("m", "continuous", 0, 2), Feature("n", "continuous", 2, 3))
    data = replace(Dataset.from_arrays(x, c=[0, 1] * 15), features=features)
    found = MAPS[name](maps).fit(data).map(data)
    assert torch.equal(found.rows[:, 1], data.x[:, 1])
    assert torch.equal(found.rows[:4, 0], data.x[:4, 0])
    assert found.rows.isfinite().all()


def test_the_mean_of_maps_leaves_out_whom_one_of_them_leaves_out(maps):
    data = Dataset.from_arrays([[0.0], [1.0], [5.0], [7.0]], c=[0, 0, 1, 1])
    found = maps.MeanOf([RankMap(), Away(1.0)]).fit(data).map(data)
    assert found.rows[:, 0].tolist() == [0.0, 4.5, 3.0, 4.5]  # rank: 5, 7, 0, 1; away: 0 (stays), 2, 6, 8
    assert found.abstained.tolist() == [True, False, False, False]
    assert found.reason == "at zero"


def test_the_nearest_real_people_are_those_of_the_other_group(maps):
    data = Dataset.from_arrays([[0.0], [1.0], [5.0], [7.0], [100.0]], c=[0, 0, 1, 1, 1])
    found = maps.NearReal(Away(4.5), k=2).fit(data).map(data)
    # 1 -> 5.5, between 5 and 7; from the other group all end up beside 0 and 1
    assert found.rows[:, 0].tolist() == pytest.approx([0.0, 6.0, 0.5, 0.5, 0.5])
    assert found.abstained.tolist() == [True, False, False, False, False]


def test_near_is_meant_in_standard_deviations(maps):
    rows = [[0.0, 0.0], [0.0, 0.0], [-1000.0, -3.0], [1000.0, 0.0], [0.0, 3.0]]
    data = Dataset.from_arrays(rows, c=[0, 0, 0, 1, 1])  # deviations of 632 and 1.90
    people = Dataset.from_arrays([[600.0, 2.5]], c=[0], protected=data.protected)
    # 400 from the one and 600 from the other as they are, but sqrt(0.63² + 1.32²) = 1.46 and sqrt(0.95² + 0.26²) = 0.98
    found = maps.NearReal(Away(0.0), k=1).fit(data).map(people)
    torch.testing.assert_close(found.rows, torch.tensor([[0.0, 3.0]]))


def test_smoothing_takes_the_mean_way_of_people_alike(maps):
    data = Dataset.from_arrays([[0.0], [1.0], [10.0], [1.0], [4.0], [10.0]], c=[0, 0, 0, 1, 1, 1])
    # by rank 0 -> 1, 1 -> 4, 10 -> 10: ways 1, 3, 0, and back -1, -3, 0
    found = maps.Smoothed(RankMap(), k=2).fit(data).map(data)
    assert found.rows[:, 0].tolist() == [2.0, 3.0, 11.5, -1.0, 2.0, 8.5]
    people = Dataset.from_arrays([[0.6], [9.0]], c=[0, 0], protected=data.protected)
    assert maps.Smoothed(RankMap(), k=1).fit(data).map(people).rows[:, 0].tolist() == pytest.approx([3.6, 9.0])


def test_columns_by_their_ranks_are_those_of_the_rank_map(maps):
    data = draw(WORLDS["additive"].at(1.0), 300, 100, seed=1)
    groups = [data.fitting.x[data.fitting.c[:, 0] == code] for code in (0, 1)]
    people = data.people[data.people.c[:, 0] == 0]
    expected = RankMap().fit(data.fitting).map(people).rows
    torch.testing.assert_close(maps.same_rank(people.x, *groups), expected, atol=0, rtol=0)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(-3, 3), min_size=1, max_size=9), st.lists(st.integers(-3, 3), min_size=1, max_size=9))
def test_ties_have_their_mid_rank(own, other):
    maps = importlib.import_module("other_maps")
    data = Dataset.from_arrays([[float(v)] for v in (*own, *other)], c=[0] * len(own) + [1] * len(other))
    groups = data.x[: len(own)], data.x[len(own) :]
    expected = RankMap().fit(replace(data, protected=(Protected("c"),))).map(data).rows[: len(own)]
    assert torch.equal(maps.same_rank(groups[0], *groups), expected)


def test_without_a_rotation_and_along_the_columns_ranks_are_those_of_the_rank_map(maps):
    data = draw(WORLDS["additive"].at(1.0), 300, 100, seed=1)
    still = maps.RotatedRank(lambda centred: [torch.eye(centred.shape[1])]).fit(data.fitting).map(data.people)
    expected = RankMap().fit(data.fitting).map(data.people).rows
    torch.testing.assert_close(still.rows, expected, atol=0.05, rtol=0)  # a number's rank may differ by a rounding


def test_rotations_and_sequences_take_over_the_other_groups_correlation(maps):
    rows = torch.randn(2000, 2, generator=torch.Generator().manual_seed(0))
    wide, narrow = rows[:1000] * torch.tensor([3.0, 1.0]), rows[1000:] * torch.tensor([1.0, 3.0])
    turn = torch.tensor([[1.0, 1.0], [-1.0, 1.0]]) / 2**0.5
    data = Dataset.from_arrays(torch.cat([wide, narrow]) @ turn, c=[0] * 1000 + [1] * 1000)

    def correlation(mapped):
        return float(torch.corrcoef(mapped.rows[:1000].T)[0, 1])

    goal = float(torch.corrcoef(data.x[1000:].T)[0, 1])
    assert goal == pytest.approx(-0.8, abs=0.05)  # (1 - 9) / (1 + 9)
    assert correlation(RankMap().fit(data).map(data)) == pytest.approx(0.8, abs=0.05)  # each column alone: kept
    assert correlation(maps.iterated_rank().fit(data).map(data)) == pytest.approx(goal, abs=0.1)
    assert correlation(maps.SequentialRank().fit(data).map(data)) == pytest.approx(goal, abs=0.1)


def test_rotations_come_from_their_seed(maps):
    before = torch.random.get_rng_state()
    first, again, other = ([*maps.random_axes(2, seed)(torch.zeros(1, 4))] for seed in (1, 1, 2))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.equal(torch.stack(first), torch.stack(again))
    assert not torch.equal(first[0], other[0])
    assert not torch.equal(first[0], first[1])
    torch.testing.assert_close(first[0] @ first[0].T, torch.eye(4))


def test_what_follows_from_an_earlier_feature_follows_where_that_one_went(maps):
    # the second column is twice the first in one group, three times the first and one more in the other
    first = torch.linspace(-1, 1, 41)
    low, high = torch.stack([first, 2 * first], dim=1), torch.stack([first + 5, 3 * (first + 5) + 1], dim=1)
    data = Dataset.from_arrays(torch.cat([low, high]), c=[0] * 41 + [1] * 41)
    found = maps.SequentialRank(ridge=1e-9).fit(data).map(data).rows
    torch.testing.assert_close(found, torch.cat([high, low]), atol=1e-3, rtol=0)


def test_categories_follow_the_shares_where_earlier_features_went(maps):
    # in both groups everyone above the middle has "v" and everyone below "u": the number decides, whatever the group
    number = torch.tensor([-1.0, 1.0]).repeat(20)
    number[:10] = 1.0  # three quarters of the first group are above
    level = torch.stack([number < 0, number > 0], dim=1).float()
    group = torch.tensor([0.0, 1.0]).repeat_interleave(20)
    features = (Feature("n", "continuous", 0, 1), Feature("k", "categorical", 1, 3, ("u", "v")))
    data = replace(Dataset.from_arrays(torch.cat([number[:, None], level], dim=1), c=group), features=features)
    found = maps.SequentialRank(ridge=1e-9).fit(data).map(data).rows
    assert torch.equal(found[:, 1] > 0.5, found[:, 0] < 0)


def test_fewer_people_are_taken_by_lot_from_each_group(maps):
    data = shifted(200)
    one = maps.RotatedRank(most=50, seed=3).fit(data)
    assert [len(group) for group in one.groups] == [50, 50]
    again = maps.RotatedRank(most=50, seed=3).fit(data)
    assert all(torch.equal(a, b) for a, b in zip(one.groups, again.groups, strict=True))
    way = (one.map(data).rows - data.x)[:200].mean(0)
    torch.testing.assert_close(way, SHIFT, atol=0.6, rtol=0)


def test_the_batches_name_every_map_and_option_and_wait_to_be_asked_for(maps):
    methods = importlib.import_module("beyond_methods")
    drawn = draw(WORLDS["three classes"].at(1.0), 300, 60, seed=1)
    assert {"variants", "iterated", "moves"} < set(methods.ON_ITS_OWN)
    made = methods.BATCHES["variants"] | methods.BATCHES["iterated"]
    assert len(made) == 7
    del made["rank and move"]  # needs an auxiliary
    for name, make in made.items():
        ground = type("On", (), {"fitting": drawn.fitting, "seed": 0})()
        one = make(ground, methods.Effort(paired=100))
        mapped = one.map(drawn.people, (drawn.people.c[:, 0] + 1) % 3)
        assert mapped.rows.isfinite().all(), name
        assert not mapped.abstained.any(), name


def test_means_of_the_maps_that_are_compared_are_means(maps):
    data = with_categories()
    parts = [RankMap(), MoveMap(metric="identity"), TransportMap()]
    found = maps.MeanOf(parts).fit(data).map(data)
    each = torch.stack([one.map(data).rows for one in parts])
    known = ~found.abstained
    torch.testing.assert_close(found.rows[known], each.mean(0)[known])
