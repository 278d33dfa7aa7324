"""The rank map: the same rank in another group, feature by feature."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from populations import block, individuals, normal, one_hot
from scipy.stats import ks_2samp
from torch import Tensor

from fairfox.data.dataset import Dataset, Feature, Protected
from fairfox.errors import DataError
from fairfox.maps import protocol
from fairfox.maps.protocol import fit_maps
from fairfox.maps.rank import RankMap
from fairfox.maps.ranks import Ranks, couple_rows, maximal_coupling

NAN = float("nan")
RACE = Protected("race", "categorical", ("a", "b", "c"))
AGE = Protected("age", "continuous", ())


def mapped(data: Dataset, fitting: Dataset | None = None) -> Tensor:
    return RankMap().fit(data if fitting is None else fitting).map(data).rows


def column(values: list[float], c: list[float]) -> Dataset:
    return individuals(torch.tensor(values, dtype=torch.float64)[:, None], c=c)


def test_a_counterfactual_number_is_always_one_that_the_other_group_shows():
    generator = torch.Generator().manual_seed(0)
    x, c = torch.randn(300, 3, generator=generator), (torch.arange(300) % 3 == 0).float()
    x[:, 0] += 2 * c
    x[:, 1] *= 1 + c
    data = individuals(x, c=c)
    for fitted in (RankMap().fit(data), *fit_maps(RankMap(), data, 3, seed=0)[0]):
        rows = fitted.map(data).rows
        for group in (0, 1):
            for j in range(3):
                assert set(rows[c == group, j].tolist()) <= set(x[c != group, j].tolist())


def test_groups_of_other_sizes_are_matched_by_mid_rank():
    # mid-ranks of two people: 1/4 and 3/4; of the four others the 2nd and the 4th begin there: places 1 and 3
    data = column([1, 2, 10, 20, 30, 40], [0, 0, 1, 1, 1, 1])
    # mid-ranks of four people: 1/8, 3/8, 5/8, 7/8; of two others: places 0, 0, 1, 1
    assert mapped(data)[:, 0].tolist() == [20, 40, 1, 1, 2, 2]


def test_ties_share_their_mid_rank():
    # the three 5s take ranks 0 to 3 of four, mid-rank 1.5: place 1 of four
    data = column([5, 5, 5, 9, 10, 20, 30, 40], [0, 0, 0, 0, 1, 1, 1, 1])
    assert mapped(data)[:4, 0].tolist() == [20, 20, 20, 40]


def test_people_who_were_not_fitted_on_are_placed_between_and_beyond_the_others():
    fitting = column([1, 2, 3, 10, 20, 30], [0, 0, 0, 1, 1, 1])
    new = column([0, 1.5, 2.5, 99], [0, 0, 0, 0])
    assert mapped(new, fitting)[:, 0].tolist() == [10, 20, 30, 30]


SORTED = st.lists(st.integers(-50, 50), min_size=1, max_size=12)


@settings(deadline=None, max_examples=60)
@given(own=SORTED, other=SORTED, gaps=st.lists(st.floats(0.01, 5), min_size=101, max_size=101))
def test_any_rescaling_that_keeps_the_order_rescales_the_mapped_rows(
    own: list[int], other: list[int], gaps: list[float]
):
    c = [0.0] * len(own) + [1.0] * len(other)
    before = torch.tensor([*own, *other])
    rescaled = torch.tensor(gaps, dtype=torch.float64).cumsum(0)  # a strictly increasing function of -50 .. 50
    plain, scaled = (mapped(individuals(x[:, None], c=c))[:, 0] for x in (before.double(), rescaled[before + 50]))
    assert torch.equal(scaled, rescaled[plain.long() + 50])


@settings(deadline=None, max_examples=40)
@given(values=SORTED, times=st.integers(1, 4))
def test_groups_that_do_not_differ_are_left_alone(values: list[int], times: int):
    own = torch.tensor(values, dtype=torch.float64)
    x = torch.cat([own, own.repeat(times)])[:, None]
    data = individuals(x, c=[0.0] * len(own) + [1.0] * (len(own) * times))
    assert torch.equal(mapped(data), x)


def test_the_other_groups_distribution_is_reproduced():
    generator = torch.Generator().manual_seed(0)
    first = torch.randn(5000, 2, generator=generator, dtype=torch.float64)
    second = torch.stack([first[:, 0].exp(), 3 * torch.randn(5000, generator=generator).double() + 1], dim=1).flip(0)
    data = individuals(torch.cat([first, second]), c=[0.0] * 5000 + [1.0] * 5000)
    half = torch.arange(10_000) % 2 == 0
    fresh = mapped(data[~half], data[half])  # nobody is mapped by a fit that saw them
    c = data.c[~half, 0]
    for j in range(2):
        assert ks_2samp(mapped(data)[:5000, j], second[:, j]).statistic < 0.03
        assert ks_2samp(mapped(data)[5000:, j], first[:, j]).statistic < 0.03
        assert ks_2samp(fresh[c == 0, j], second[:, j]).statistic < 0.03


def test_categories_keep_their_share_and_move_as_little_as_possible():
    own, other = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.2, 0.4, 0.4])
    # a stays with 0.2 / 0.5, and the 0.6 that leave go to b and c in proportion to their gains 0.1 and 0.2
    expected = torch.tensor([[0.4, 0.2, 0.4], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    torch.testing.assert_close(maximal_coupling(own, other), expected)


SHARES = st.lists(st.floats(0, 1), min_size=4, max_size=4).filter(lambda s: sum(s) > 0.1)


def test_a_category_nobody_knows_stays_empty():
    x = one_hot([0, 1, 1, 0], 2)
    x[3] = 0.0
    data = individuals(x, features=(block("job", "ab"),))
    assert torch.equal(mapped(data)[3], torch.zeros(2).double())


def test_a_missing_number_stays_missing_and_is_no_one_elses_value():
    age = Feature("age", "continuous", 0, 2)
    x = torch.tensor([[1.0, 0], [2.0, 0], [0.0, 1], [10.0, 0], [20.0, 0], [0.0, 1]]).double()
    data = individuals(x, c=[0, 0, 0, 1, 1, 1], features=(age,))
    assert mapped(data).tolist() == [[10, 0], [20, 0], [0, 1], [1, 0], [2, 0], [0, 1]]


def test_where_one_group_has_no_value_the_others_keep_theirs():
    age = Feature("age", "continuous", 0, 2)
    x = torch.tensor([[1.0, 0], [2.0, 0], [0.0, 1], [0.0, 1]]).double()
    data = individuals(x, c=[0, 0, 1, 1], features=(age,))
    assert torch.equal(mapped(data), x)


def test_a_missing_category_is_a_category():
    job = Feature("job", "categorical", 0, 2, ("a", None))
    data = individuals(one_hot([0, 0, 1, 1], 2), c=[0, 0, 1, 1], features=(job,))
    assert torch.equal(mapped(data), one_hot([1, 1, 0, 0], 2))


def test_only_the_chosen_columns_are_mapped():
    data = individuals(torch.tensor([[1.0, 5.0], [2.0, 6.0]]))
    assert RankMap(only=torch.tensor([False, True])).fit(data).map(data).rows.tolist() == [[1, 6], [2, 5]]


def classes(n: int = 600, *, seed: int = 0) -> Dataset:
    """Return people of three classes with a number that some lack, a number with ties, and a category."""
    rng = np.random.default_rng(seed)
    c = rng.integers(3, size=n)
    lacking = rng.random(n) < 0.1
    income = np.where(lacking, 0.0, rng.normal(c, 1 + c))
    job = one_hot(np.where(rng.random(n) < 0.3 * c, 0, rng.integers(1, 4, size=n)).tolist(), 4)
    x = torch.cat([torch.as_tensor(np.stack([income, lacking, rng.poisson(2 + c)], axis=1)).double(), job], dim=1)
    features = (
        Feature("income", "continuous", 0, 2),
        Feature("children", "continuous", 2, 3),
        block("job", "abcd", start=3),
    )
    return Dataset(x=x, c=torch.as_tensor(c).double()[:, None], protected=(RACE,), features=features)


def everyone_to(data: Dataset, value: float) -> Tensor:
    return torch.full((len(data),), value, dtype=data.x.dtype)


def test_every_class_is_mapped_to_every_other_by_hand():
    x = torch.tensor([[1.0, 1, 0], [2.0, 1, 0], [10.0, 0, 1], [20.0, 1, 0], [30.0, 0, 1], [40.0, 0, 1], [7.0, 0, 1]])
    features = (Feature("income", "continuous", 0, 1), block("job", "ab", start=1))
    c = torch.tensor([0.0, 0, 1, 1, 1, 1, 2])[:, None]
    data = Dataset(x=x, c=c, protected=(RACE,), features=features)
    fitted = RankMap().fit(data)
    # mid-ranks of class 0: 1/4, 3/4: places 1 and 3 of class 1; a has share 1 there, 1/4 here: three in four leave
    # the one of class 2 has mid-rank 1/2: place 2 of class 1; b has share 1 there, 3/4 here: one in four leaves
    to_b = fitted.map(data, everyone_to(data, 1.0))
    assert to_b.rows.tolist() == [
        [20, 0.25, 0.75], [40, 0.25, 0.75], *x[2:6].tolist(), [30, 0.25, 0.75],
    ]  # fmt: skip
    assert to_b.abstained.tolist() == [False, False, True, True, True, True, False]
    # class 1 has mid-ranks 1/8, 3/8, 5/8, 7/8: all at the only place of class 2, where all are b
    to_c = fitted.map(data, everyone_to(data, 2.0))
    assert to_c.rows[:6].tolist() == [[7, 0, 1]] * 6
    assert to_c.abstained.tolist() == [False] * 6 + [True]


def test_destinations_of_ones_own_are_those_of_all():
    data = classes()
    fitted = RankMap().fit(data)
    to = torch.as_tensor(np.random.default_rng(1).choice([0, 1, 2, NAN], size=len(data)))
    mixed = fitted.map(data, to)
    for k in range(3):
        out, goes = fitted.map(data, everyone_to(data, float(k))), to == k
        assert torch.equal(mixed.rows[goes], out.rows[goes])
        assert torch.equal(mixed.abstained[goes], out.abstained[goes])
    stays = to.isnan() | (to == data.c[:, 0])
    assert torch.equal(mixed.abstained, stays)
    assert torch.equal(mixed.rows[stays], data.x[stays])


@settings(deadline=None, max_examples=5)
@given(seed=st.integers(0, 100))
def test_the_order_of_rows_does_not_matter_for_many_classes_and_numbers(seed: int):
    order = torch.randperm(200, generator=torch.Generator().manual_seed(seed))
    many = classes(200, seed=seed)
    noise = torch.as_tensor(np.random.default_rng(seed).normal(size=(200, 1)))
    number = Dataset(x=many.x, c=many.x[:, 2:3] + noise, protected=(AGE,), features=many.features)
    for data in (many, number):
        to = everyone_to(data, 1.0)
        fitted, shuffled = RankMap().fit(data), RankMap().fit(data[order])
        torch.testing.assert_close(shuffled.map(data, to).rows, fitted.map(data, to).rows, atol=1e-9, rtol=0)
        whole = fitted.map(data, to).rows
        parts = [fitted.map(data[rows], to[rows]).rows for rows in order.split(64)]
        torch.testing.assert_close(torch.cat(parts), whole[order], atol=1e-9, rtol=0)


def two_variables(second: Protected, n: int = 6000, *, own: Protected | None = None, seed: int = 0) -> Dataset:
    """Return people whose first protected variable goes along with the second, and the second alone moves x."""
    rng = np.random.default_rng(seed)
    c2 = rng.normal(size=n) if second.is_continuous else (rng.random(n) < 0.5).astype(float)
    push = c2 if second.is_continuous else 2 * c2 - 1
    c1 = push + rng.normal(size=n)
    first = own or Protected("sex", "binary", ("f", "m"))
    if not first.is_continuous:
        c1 = (c1 > 0).astype(float)
    x = np.stack([2 * push + rng.normal(size=n), -push + 0.5 * rng.normal(size=n)], axis=1)
    features = tuple(Feature(f"x{j}", "continuous", j, j + 1) for j in range(2))
    return Dataset(
        x=torch.as_tensor(x),
        c=torch.as_tensor(np.stack([c1, c2], axis=1)),
        protected=(first, second),
        features=features,
    )


SECONDS = {"a class": Protected("race", "binary", ("a", "b")), "a number": AGE}


@pytest.mark.parametrize("second", SECONDS)
@pytest.mark.parametrize("own", [None, Protected("hours", "continuous", ())], ids=["group", "number"])
def test_a_variable_without_an_effect_of_its_own_moves_nobody_when_others_are_held(second: str, own: Protected | None):
    data = two_variables(SECONDS[second], own=own)
    to = None if own is None else everyone_to(data, 1.0)
    size = []
    for hold_others in (False, True):
        out = RankMap(hold_others=hold_others).fit(data).map(data, to)
        kept = ~out.abstained
        assert float(kept.double().mean()) > 0.6
        effect = ((out.rows - data.x) @ torch.tensor([1.0, -1.0]).double())[kept]
        size.append(float(effect.abs().mean()))
    assert size[1] <= size[0] / 5


def test_held_people_are_mapped_among_those_who_share_the_other_value():
    data = two_variables(SECONDS["a class"], 800)
    held = RankMap(hold_others=True).fit(data).map(data)
    for k in (0, 1):
        same = data.c[:, 1] == k
        alone = data[same]
        assert torch.equal(held.rows[same], RankMap().fit(alone).map(alone).rows)


@pytest.mark.parametrize("own", [None, AGE], ids=["group", "number"])
def test_who_shares_the_other_values_with_few_is_compared_by_what_the_others_show(own: Protected | None):
    data = two_variables(SECONDS["a class"], 4000, own=own)
    first = ((data.c[:, 0] > 0) & (data.c[:, 1] == 0)).nonzero()[:, 0]
    kept = torch.ones(4000, dtype=torch.bool)
    kept[first[9:]] = False
    few = data[kept]
    out = RankMap(hold_others=True).fit(few).map(few, None if own is None else everyone_to(few, -1.0))
    alone = (few.c[:, 0] > 0) & (few.c[:, 1] == 0)
    assert int(alone.sum()) == 9
    assert not out.abstained[alone].any()
    assert float((out.rows - few.x)[alone].abs().median()) < 0.3  # the variable has no effect of its own


def test_the_column_of_a_variable_that_is_held_stays():
    rng = np.random.default_rng(0)
    race = torch.as_tensor(rng.integers(2, size=600))
    sex = torch.where(torch.as_tensor(rng.random(600)) < 0.8, race, 1 - race)  # one tells the other
    x = torch.cat([one_hot(sex, 2), one_hot(race, 2), torch.as_tensor(rng.normal(size=(600, 1)))], dim=1)
    features = (block("sex", "fm"), block("race", "ab", start=2), Feature("income", "continuous", 4, 5))
    data = Dataset(
        x=x,
        c=torch.stack([sex, race], dim=1).double(),
        protected=(Protected("sex", "binary", ("f", "m")), Protected("race", "binary", ("a", "b"))),
        features=features,
        withheld=torch.tensor([True] * 4 + [False]),
    )
    held, free = (RankMap(hold_others=hold).fit(data).map(data).rows for hold in (True, False))
    for rows in (held, free):
        assert torch.equal(rows[:, :2], one_hot(1 - sex, 2))
    assert torch.equal(held[:, 2:4], x[:, 2:4])
    assert float((free[:, 2:4] - x[:, 2:4]).abs().mean()) > 0.3


def test_who_has_an_unknown_value_among_those_held_is_abstained():
    data = two_variables(SECONDS["a number"], 2000)
    data.c[:5, 1] = NAN
    out = RankMap(hold_others=True).fit(data).map(data)
    assert out.abstained[:5].all()
    assert not out.abstained[5:].any()
    assert not RankMap().fit(data).map(data).abstained.any()


def test_a_map_that_is_fitted_again_forgets_what_it_was_fitted_on():
    first, second = two_variables(SECONDS["a class"], 400), two_variables(SECONDS["a class"], 300, own=AGE, seed=1)
    again = RankMap(gate=True).fit(first).fit(second).map(second, everyone_to(second, 1.0))
    once = RankMap(gate=True).fit(second).map(second, everyone_to(second, 1.0))
    assert torch.equal(again.rows, once.rows)


def test_nobody_is_mapped_where_there_is_nobody():
    data = two_variables(SECONDS["a class"], 400)
    empty = data[torch.arange(0)]
    for fitted in (RankMap(), RankMap(hold_others=True), RankMap(given=("x0",), gate=True)):
        out = fitted.fit(data).map(empty)
        assert (out.rows.shape, out.abstained.shape, out.reason) == ((0, 2), (0,), "")
    with pytest.raises(DataError, match="Nobody in the fitting rows belongs to 'f'"):
        RankMap().fit(empty)


def test_nothing_is_held_for_a_crossing_or_for_one_variable_alone():
    data = two_variables(SECONDS["a class"], 400)
    both = 2 * data.c[:, :1] + data.c[:, 1:]
    crossing = Protected("sex x race", "categorical", ("fa", "fb", "ma", "mb"), parts=("sex", "race"))
    crossed = Dataset(
        x=data.x, c=torch.cat([data.c, both], dim=1), protected=(*data.protected, crossing), features=data.features
    )
    to = everyone_to(data, 3.0)
    plain, held = (RankMap(variable=2, hold_others=h).fit(crossed).map(crossed, to).rows for h in (False, True))
    assert torch.equal(plain, held)
    sex = RankMap(hold_others=True).fit(crossed).map(crossed).rows  # the crossing is not held
    assert torch.equal(sex, RankMap(hold_others=True).fit(data).map(data).rows)
    alone = individuals(data.x, c=data.c[:, 0])
    assert torch.equal(RankMap(hold_others=True).fit(alone).map(alone).rows, RankMap().fit(alone).map(alone).rows)


@settings(deadline=None, max_examples=60)
@given(own=SHARES, other=SHARES)
def test_a_maximal_coupling_is_a_coupling_with_the_least_movement(own: list[float], other: list[float]):
    p, q = (torch.tensor(s, dtype=torch.float64) / sum(s) for s in (own, other))
    coupling = maximal_coupling(p, q)
    assert float(coupling.min()) >= 0
    torch.testing.assert_close(coupling.sum(1), torch.ones(4).double())
    torch.testing.assert_close(p @ coupling, q, atol=1e-12, rtol=0)
    stays = (p * coupling.diagonal()).sum()
    torch.testing.assert_close(1 - stays, (p - q).abs().sum() / 2, atol=1e-12, rtol=0)  # total variation


def test_ranks_are_exact():
    rng = np.random.default_rng(0)
    own, other, x = (torch.as_tensor(rng.integers(20, size=n)).double() for n in (77, 31, 200))
    # the mid-rank m of n values is a whole or a half number: place m * 31 / 77, rounded down, in exact fractions
    twice = [int((own < v).sum() + (own <= v).sum()) for v in x]
    places = [min(t * 31 // (2 * 77), 30) for t in twice]
    assert Ranks.of(own).same_rank(x, Ranks.of(other)).tolist() == other.sort().values[places].tolist()


@settings(deadline=None, max_examples=40)
@given(own=SHARES, other=SHARES)
def test_coupled_rows_agree_with_the_maximal_coupling(own: list[float], other: list[float]):
    p, q = (torch.tensor(s, dtype=torch.float64) / sum(s) for s in (own, other))
    rows = torch.cat([torch.eye(4).double(), torch.full((1, 4), 0.25).double(), torch.zeros(1, 4).double()])
    out = couple_rows(rows, p.expand(6, 4), q.expand(6, 4))
    torch.testing.assert_close(out, rows @ maximal_coupling(p, q), atol=1e-12, rtol=0)


# --- many people ---------------------------------------------------------------------------------------------------


def test_a_map_of_many_people_learns_from_some_of_each_class_and_is_nearly_the_same(monkeypatch: pytest.MonkeyPatch):
    group = (torch.arange(60_000) % 20 == 0).long()  # one of twenty
    x = normal(60_000, 1) + group[:, None]
    data = individuals(x, group)
    whole = fit_maps(RankMap(), data, 1, seed=0)[0][0]
    monkeypatch.setattr(protocol, "_MOST_PEOPLE", 20_000)
    (some,) = fit_maps(RankMap(), data, 1, seed=0)[0]
    sizes = [each.ranks[0].twice[-1].item() // 2 for each in some.ranks.groups]
    assert sizes == [4096, 3000]  # evenly spaced of 20,000; and everyone
    gap = (some.map(data).rows - whole.map(data).rows).abs()
    assert float(gap.mean()) < 0.02  # of a standard deviation
