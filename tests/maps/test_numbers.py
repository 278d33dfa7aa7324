"""The rank map along a protected number: the same conditional quantiles elsewhere."""

import numpy as np
import pytest
import torch
from populations import block, one_hot
from scipy.interpolate import CubicSpline
from scipy.stats import spearmanr
from torch import Tensor

from fairfox.data.dataset import Dataset, Feature, Protected
from fairfox.maps.conditional import natural_spline
from fairfox.maps.protocol import OFF_RANGE, UNKNOWN
from fairfox.maps.rank import RankMap

NAN = float("nan")
AGE = Protected("age", "continuous", ())


def mapped(data: Dataset, fitting: Dataset | None = None) -> Tensor:
    return RankMap().fit(data if fitting is None else fitting).map(data).rows


def everyone_to(data: Dataset, value: float) -> Tensor:
    return torch.full((len(data),), value, dtype=data.x.dtype)


def aged(x: Tensor, c: Tensor, **fields: object) -> Dataset:
    return Dataset(
        x=x if x.ndim > 1 else x[:, None],
        c=c[:, None],
        protected=(AGE,),
        features=fields.get("features", (Feature("x", "continuous", 0, 1),)),  # type: ignore[arg-type]
    )


def normal(n: int, *, seed: int = 0) -> tuple[Tensor, Tensor]:
    rng = np.random.default_rng(seed)
    return torch.as_tensor(rng.normal(40, 10, n)), torch.as_tensor(rng.normal(size=n))


WORLDS = {
    "additive": lambda c, e: 0.8 * c + e,
    "bent": lambda c, e: 0.5 * c**2 + e,
    "fanning out": lambda c, e: c + torch.exp(0.3 * c) * e,
    "multiplied": lambda c, e: torch.exp(0.3 * c + 0.3 * e),
}


@pytest.mark.parametrize("world", WORLDS)
def test_everyone_keeps_their_noise_at_another_value_of_a_number(world: str):
    c, e = normal(8000)
    sd = c.std(correction=0)
    z = (c - c.mean()) / sd
    data = aged(WORLDS[world](z, e), c)
    fitted = RankMap().fit(data)
    for to in (1.0, -1.0):
        out = fitted.map(data, everyone_to(data, to))
        kept, truth = ~out.abstained, WORLDS[world](z + to, e)
        error = (out.rows[:, 0] - truth)[kept]
        assert float(kept.double().mean()) > 0.98
        assert float(error.square().mean().sqrt()) < 0.2  # the noise has sd 1, and the truth moves by 0.4 to 1
        assert abs(float(error.mean())) < 0.05


def test_a_value_that_many_people_share_stays_what_it_is():
    # nine in ten have no gain whatever their age: the mean depends on age, the value at the median does not
    c, e = normal(6000)
    gain = torch.where(e > 1.28, c * e, 0.0)
    out = RankMap().fit(aged(gain, c)).map(aged(gain, c), torch.ones(6000).double())
    none = (gain == 0) & ~out.abstained
    assert float((out.rows[none, 0] == 0).double().mean()) > 0.95


def test_a_number_with_two_values_ranks_people_as_the_groups_do():
    rng = np.random.default_rng(0)
    c = torch.as_tensor(rng.random(3000) < 0.3).double()
    e = torch.as_tensor(rng.normal(size=(3000, 2)))
    job = one_hot((torch.as_tensor(rng.random(3000)) < 0.2 + 0.5 * c).long(), 2)
    numbers = torch.stack([c + (1 + c) * e[:, 0], torch.exp(0.5 * e[:, 1] + 0.4 * c)], dim=1)
    x = torch.cat([numbers, job], dim=1)
    features = (Feature("x0", "continuous", 0, 1), Feature("x1", "continuous", 1, 2), block("job", "ab", start=2))
    weights = torch.tensor([0.5, 1.0, 0.8, -0.3]).double()
    groups = Dataset(x=x, c=c[:, None], protected=(Protected("c"),), features=features)
    number = aged(x, c, features=features)
    effect = (mapped(groups) - x) @ weights
    out = RankMap().fit(number).map(number, torch.where(c > 0, -1.0, 1.0).double())
    assert not out.abstained.any()
    found = (out.rows - x) @ weights
    assert spearmanr(found.abs(), effect.abs()).statistic > 0.98
    assert float((found - effect).abs().median()) < 0.05  # between two values nobody is near: all of the way


def test_nobody_goes_where_nobody_is():
    c, e = torch.linspace(0, 1, 101).double(), torch.zeros(101).double()
    data = aged(c + e, c)  # uniform: sd 0.2915
    out = RankMap().fit(data).map(data, everyone_to(data, 1.0))
    assert out.abstained.tolist() == (c + 0.2915 > 1).tolist()
    assert out.reason == "nobody to compare with has a protected value that high or low"
    assert torch.equal(out.rows[out.abstained], data.x[out.abstained])
    unknown = aged(torch.tensor([0.5]).double(), torch.tensor([NAN]).double())
    alone = RankMap().fit(data).map(unknown, torch.ones(1).double())
    assert alone.abstained.tolist() == [True]
    assert alone.reason == "protected value unknown"


def test_everyone_has_their_own_reason_whoever_else_is_there():
    c, e = torch.linspace(0, 1, 101).double(), torch.zeros(101).double()
    fitted = RankMap().fit(aged(c + e, c))
    both = aged(torch.tensor([0.5, 1.0]).double(), torch.tensor([NAN, 1.0]).double())
    out = fitted.map(both, torch.ones(2).double())
    reasons = {words: who.tolist() for words, who in out.reasons.items() if who.any()}
    assert reasons == {UNKNOWN: [True, False], OFF_RANGE: [False, True]}


def test_missing_numbers_stay_missing_and_teach_nothing():
    c, e = normal(2000)
    x = torch.stack([0.1 * c + 0.01 * e, (e > 1).double()], dim=1)
    x[:, 0] = torch.where(e > 1, 0.0, x[:, 0])
    data = aged(x, c, features=(Feature("x", "continuous", 0, 2),))
    out = RankMap().fit(data).map(data, everyone_to(data, 1.0))
    missing, kept = x[:, 1] > 0.5, ~out.abstained
    assert torch.equal(out.rows[missing], x[missing])
    moved = (out.rows - x)[kept & ~missing]
    error = (moved[:, 0] - 0.1 * c.std(correction=0)).abs()
    assert float(error.quantile(0.95)) < 0.03
    shown = x[~missing, 0].unique()
    assert float(error.max()) < float((shown[1:] - shown[:-1]).max())  # nobody there is nearer
    assert torch.equal(moved[:, 1], torch.zeros(len(moved)).double())


def test_a_column_that_everyone_lacks_is_left_alone():
    c, _ = normal(100)
    x = torch.tensor([[0.0, 1.0]]).double().repeat(100, 1)
    data = aged(x, c, features=(Feature("x", "continuous", 0, 2),))
    assert torch.equal(RankMap().fit(data).map(data, everyone_to(data, 1.0)).rows, x)


def test_categories_follow_their_shares_along_a_number():
    # the share of a is 0.5 + 0.1 z: of those who are not a, (0.1 / (0.5 - 0.1 z)) become a one sd higher
    rng = np.random.default_rng(0)
    z = torch.as_tensor(rng.uniform(-1.732, 1.732, 20_000))
    a = torch.as_tensor(rng.random(20_000)) < 0.5 + 0.1 * z
    data = aged(one_hot((~a).long(), 2), z, features=(block("job", "ab"),))
    out = RankMap().fit(data).map(data, everyone_to(data, 1.0))
    kept = ~out.abstained
    torch.testing.assert_close(out.rows.sum(1), torch.ones(20_000).double())
    assert float(out.rows[kept & a, 0].mean()) > 0.99  # who is a stays a
    expected = 0.1 / (0.5 - 0.1 * z[kept & ~a])
    assert float((out.rows[kept & ~a, 0] - expected).abs().mean()) < 0.03


def test_a_spline_is_the_natural_spline_through_its_knots():
    knots = torch.tensor([-2.0, -0.5, 0.3, 1.0, 2.5]).double()
    values = torch.tensor([1.0, -1.0, 0.5, 2.0, 0.0]).double()

    def basis(x: Tensor) -> Tensor:
        return torch.cat([torch.ones_like(x)[:, None], natural_spline(x, knots)], dim=1)

    weights = torch.linalg.solve(basis(knots), values)
    inside = torch.linspace(-2, 2.5, 50).double()
    expected = CubicSpline(knots, values, bc_type="natural")(inside)
    np.testing.assert_allclose(basis(inside) @ weights, expected, atol=1e-10)
    beyond = basis(torch.tensor([3.0, 4.0, 5.0]).double()) @ weights
    torch.testing.assert_close(beyond[2] - beyond[1], beyond[1] - beyond[0])  # a straight line
