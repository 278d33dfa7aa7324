"""Ranks that persist in part: what draws make of ranks and categories, worked by hand and along every map."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import pytest
import torch
from populations import block, individuals, linear, normal, one_hot
from torch import Tensor

from fairfox.data.dataset import Dataset, Feature, Protected
from fairfox.fairtests import effect
from fairfox.fairtests.effect import Effect
from fairfox.maps.graph import GraphMap
from fairfox.maps.rank import RankMap
from fairfox.maps.ranks import ColumnDraw, DrawTable, Ranks, maximal_coupling

KEPT = 0.9
Z95 = 1.6448536  # of a standard normal number


def column_draws(persistence: float, count: int) -> ColumnDraw:
    table = DrawTable.of(count, 1, seed=0)
    kept = torch.full((count,), persistence, dtype=torch.float64)
    return ColumnDraw(kept, table.normal[:, 0, 0], table.uniform[:, 0, 0])


# --- ranks and categories ------------------------------------------------------------------------------------------


def test_a_rank_that_persists_stays_and_one_that_does_not_is_the_draw_alone():
    u = torch.linspace(0.01, 0.99, 50, dtype=torch.float64)
    torch.testing.assert_close(column_draws(1.0, 50).rank(u), u)
    nothing = column_draws(0.0, 50)
    torch.testing.assert_close(nothing.rank(u), nothing.rank(u.flip(0)))
    torch.testing.assert_close(nothing.rank(u), torch.special.ndtr(nothing.normal))


def test_ranks_have_the_correlation_of_a_gaussian_copula_and_stay_uniform():
    draw = column_draws(KEPT, 20_000)
    u = torch.special.ndtr(normal(20_000))
    z = torch.special.ndtri(draw.rank(u))
    assert float(torch.corrcoef(torch.stack([torch.special.ndtri(u), z]))[0, 1]) == pytest.approx(KEPT, abs=0.01)
    assert (float(z.mean()), float(z.std())) == pytest.approx((0.0, 1.0), abs=0.02)


@pytest.mark.parametrize("persistence", [1.0, 0.6, 0.0])
def test_a_category_is_one_draw_from_the_coupling_mixed_with_the_group_s_shares(persistence: float):
    own, other = torch.tensor([0.5, 0.3, 0.2]).double(), torch.tensor([0.2, 0.3, 0.5]).double()
    coupled = maximal_coupling(own, other)[0]  # of category 0: 0.4 stay, 0.6 become category 2
    torch.testing.assert_close(coupled, torch.tensor([0.4, 0.0, 0.6]).double())
    draw = column_draws(persistence, 10_000)
    drawn = draw.category(coupled.expand(10_000, 3), other)
    assert set(drawn.sum(1).tolist()) == {1.0}
    assert set(drawn.unique().tolist()) == {0.0, 1.0}
    expected = persistence * coupled + (1 - persistence) * other
    torch.testing.assert_close(drawn.mean(0), expected, atol=2e-4, rtol=0)  # as even as 10,000 draws can be


def test_a_category_that_is_missing_stays_missing():
    drawn = column_draws(0.5, 4).category(torch.zeros(4, 2).double(), torch.tensor([0.5, 0.5]).double())
    assert not bool(drawn.any())


SHAPES = {
    "normal": lambda z: z,
    "skewed": lambda z: (2 * z).exp(),
    "ties": lambda z: (3 * z).round(),
    "a spike": lambda z: z.clamp(min=0.5),
}


@pytest.mark.parametrize("people", [300, 20_000])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("persistence", [1.0, 0.99, 0.9, 0.0])
def test_draws_from_tables_are_those_of_the_formula(shape: str, people: int, persistence: float):
    made = SHAPES[shape]
    own, other = Ranks.of(made(normal(people))), Ranks.of(made(normal(people, seed=1) + 0.5))
    x = made(normal(500, seed=2))[:, None]
    draws = DrawTable.of(20, 1, seed=0).draws(x, range(20), [persistence])
    found = own.drawn(own.grid.position(x[:, 0]), other, draws, 0)  # (20, 500)
    exact = own.same_rank(x[:, 0].repeat(20), other, draw=draws[0]).view(20, 500)
    assert bool(torch.isin(found, other.ordered).all())
    if persistence == 1:
        assert torch.equal(found, exact)
    else:  # of the scatter of a person's draws
        ranks = [torch.searchsorted(other.ordered, each.contiguous()).double() / people for each in (found, exact)]
        assert float((ranks[0] - ranks[1]).abs().mean()) < 0.02 * float(ranks[1].std(0).mean())
        assert float((found - exact).abs().mean()) < 0.03 * float(exact.std(0).mean())
        assert abs(float((found - exact).mean())) < 0.01 * float(exact.std(0).mean())


# --- a closed form -------------------------------------------------------------------------------------------------


def test_deviations_of_one_gaussian_feature_have_the_closed_form():
    # groups N(0, 1) and N(1.5, 1), f(x) = x: a draw is 1.5 + κ z + √(1 - κ²) e, less the 1.5 + z where ranks persist
    people = 60_000
    group = torch.arange(people) % 2
    fitting = individuals((normal(people) + 1.5 * group)[:, None], group)
    z = torch.tensor([-1.4, -0.7, 0.0, 0.7, 1.4]).double()
    judged = individuals(z[:, None], torch.zeros(5))
    test, model = Effect(map=RankMap(), refits=5).fit(fitting), linear(1.0)
    measured = test.measure(model, judged, rows=False)
    (found,) = test.deviations(model, judged, measured, judged.x[:, 0], [KEPT], 20_000)
    spread = (1 - KEPT**2) ** 0.5
    width = 2 * Z95 * spread
    for share, end in ((0.05, -Z95), (0.95, Z95)):
        quantile = found[:, :, 0].quantile(share, dim=0)
        torch.testing.assert_close(quantile, (KEPT - 1) * z + end * spread, atol=0.03 * width, rtol=0)


def test_the_same_draws_are_everyone_s_however_many_are_judged_at_once(monkeypatch: pytest.MonkeyPatch):
    data, model = individuals(normal(60, 2) + torch.arange(60)[:, None] % 2), linear(1.0, 2.0)
    test, here = Effect(map=RankMap(), refits=2).fit(data), data.x @ torch.tensor([1.0, 2.0]).double()

    def drawn(rows: Tensor) -> Tensor:
        some = data[rows]
        measured = test.measure(model, some, rows=False)
        return torch.stack(test.deviations(model, some, measured, here[rows], [0.9, 0.5], 8))

    whole = drawn(torch.arange(60))
    assert whole.shape == (2, 8, 60, 1)
    torch.testing.assert_close(drawn(torch.tensor([7, 3, 50])), whole[:, :, [7, 3, 50]])
    monkeypatch.setattr(effect, "_AT_ONCE", 1)
    torch.testing.assert_close(drawn(torch.arange(60)), whole)


# --- along every map -----------------------------------------------------------------------------------------------

INCOME, SHOE, JOB, AGE = (
    Feature("income", "continuous", 0, 1),
    Feature("shoe", "continuous", 1, 2),
    block("job", ["clerk", "nurse"], start=2),
    Feature("age", "continuous", 4, 5),
)


def workers(people: int = 3000) -> Dataset:
    """Return people: sex and job act on income, age on income too; shoe is nobody's doing."""
    noise = normal(people, 4)
    sex = torch.arange(people) % 2
    job = (noise[:, 3] + 0.5 * sex > 0).long()
    age = 40 + 10 * noise[:, 2]
    income = noise[:, 0] + 1.5 * sex + job + 0.05 * age
    x = torch.cat([income[:, None], noise[:, 1:2], one_hot(job, 2), age[:, None]], dim=1)
    return individuals(x, sex, features=(INCOME, SHOE, JOB, AGE))


def by_age(people: int = 3000) -> Dataset:
    """Return people whose age, a protected number, acts on their income and not on their shoes."""
    noise = normal(people, 3)
    x = torch.stack([noise[:, 0] + noise[:, 2], noise[:, 1]], dim=1)
    age = Protected("age", "continuous", ())
    return Dataset(x=x, c=noise[:, 2:], protected=(age,), features=(INCOME, SHOE))


def destinations(data: Dataset) -> Tensor | None:
    return torch.ones(len(data)).double() if data.protected[0].is_continuous else None


def drawn_rows(found: RankMap | GraphMap, data: Dataset, persistence: float, count: int = 20) -> Tensor:
    """Return draws of everyone's row (count, N, D)."""
    table, to = DrawTable.of(count, data.x.shape[1], seed=0), destinations(data)
    return torch.stack([found.map(data, to, draws=table.draws(data.x, [k], [persistence])).rows for k in range(count)])


MAPS = {
    "strata": (RankMap(given=("job",), gate=True), workers),
    "regression": (RankMap(given=("age",), gate=True), workers),
    "number": (RankMap(gate=True), by_age),
    "graph": (GraphMap({"income": ["sex", "job", "age"]}), workers),
}


@cache
def fitted(name: str) -> tuple[RankMap | GraphMap, Dataset]:
    made, make = MAPS[name]
    return made.fit(make()), make()


@pytest.mark.parametrize("name", MAPS)
def test_a_hair_less_than_exactly_is_nearly_exactly_and_less_moves_further(name: str):
    found, data = fitted(name)
    exact = found.map(data, destinations(data)).rows[:, 0]
    off = [(drawn_rows(found, data, kept)[:, :, 0] - exact) for kept in (0.999, 0.9, 0.5)]
    assert abs(float(off[0].mean())) < 0.02
    assert float(off[0].mean(0).abs().mean()) < 0.05  # of everyone
    sizes = [float(each.abs().mean()) for each in off]
    assert all(less < more for less, more in pairwise(sizes))
    assert sizes[0] < 0.1


@pytest.mark.parametrize("name", MAPS)
def test_draws_stay_within_what_is_shown_and_closed_and_given_features_stay(name: str):
    found, data = fitted(name)
    rows = drawn_rows(found, data, 0.5, count=8)
    assert torch.equal(rows[:, :, 1], data.x[:, 1].expand(8, -1))  # shoe: no evidence, or nothing acts on it
    if name != "number":
        held = {"strata": slice(2, 4), "regression": slice(4, 5), "graph": slice(2, 5)}[name]
        assert torch.equal(rows[:, :, held], data.x[:, held].expand(8, -1, -1))
    sex = data.c[:, 0]
    for group in (0, 1):
        own = torch.ones_like(sex, dtype=torch.bool) if name == "number" else sex == group
        shown = data.x[own if name == "number" else ~own, 0]
        assert bool(torch.isin(rows[:, own, 0], shown).all())
