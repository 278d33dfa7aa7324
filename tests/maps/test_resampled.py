from dataclasses import replace

import pytest
import torch

from fairfox.data.dataset import Dataset, Feature, Protected
from fairfox.maps.protocol import fit_maps
from fairfox.maps.rank import RankMap
from fairfox.maps.resampled import fit_resampled, forget

SEX = Protected("sex", "binary", ("F", "M"))


def people(n: int, *, seed: int = 0, dtype: torch.dtype = torch.float32) -> Dataset:
    """Return people with a number, a number with ties, one that is missing for some, and a category of three."""
    generator = torch.Generator().manual_seed(seed)
    c = (torch.rand(n, generator=generator) < 0.4).float()
    plain = torch.randn(n, generator=generator) + c
    tied = torch.randint(0, 5, (n,), generator=generator).float() + c
    missing = (torch.rand(n, generator=generator) < 0.2).float()
    some = torch.where(missing > 0, 0.0, torch.randn(n, generator=generator) - c)
    level = (torch.rand(n, generator=generator) * 2 + c).long()
    x = torch.cat([torch.stack([plain, tied, some, missing], 1), torch.eye(3)[level]], dim=1).to(dtype)
    features = (
        Feature("plain", "continuous", 0, 1),
        Feature("tied", "continuous", 1, 2),
        Feature("some", "continuous", 2, 4),
        Feature("level", "categorical", 4, 7, ("a", "b", "c")),
    )
    return replace(Dataset.from_arrays(x, c.to(dtype), protected=[SEX]), features=features)


def numbers_only(data: Dataset) -> Dataset:
    return Dataset.from_arrays(data.x[:, :3], data.c, protected=data.protected)


def same(prototype: RankMap, fitting: Dataset, new: Dataset, refits: int = 3) -> None:
    slow = fit_maps(prototype, fitting, refits, seed=5)
    fast = fit_resampled(prototype, fitting, refits, seed=5)
    assert [len(maps) for maps in fast] == [len(maps) for maps in slow]
    for expected, found in zip(slow, fast, strict=True):
        for one, other in zip(expected, found, strict=True):
            a, b = one.map(new), other.map(new)
            torch.testing.assert_close(b.rows, a.rows, rtol=1e-6, atol=1e-6)
            assert torch.equal(a.abstained, b.abstained)
            assert a.reason == b.reason


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_maps_are_those_that_are_fitted_one_by_one(dtype):
    same(RankMap(), people(300, dtype=dtype), people(200, seed=1, dtype=dtype))
    same(RankMap(), numbers_only(people(300)), numbers_only(people(200, seed=1)))


def test_every_number_is_exactly_the_same():
    fitting, new = numbers_only(people(400)), numbers_only(people(300, seed=2))
    slow, fast = (fit(RankMap(), fitting, 4, seed=1)[0] for fit in (fit_maps, fit_resampled))
    for one, other in zip(slow, fast, strict=True):
        assert torch.equal(one.map(new).rows, other.map(new).rows)


def test_weighted_people_are_drawn_by_their_weights():
    data = people(300)
    weights = torch.rand(300, generator=torch.Generator().manual_seed(3)) + 0.1
    same(RankMap(), replace(data, weights=weights), people(100, seed=1))


def test_several_variables_and_unknown_values():
    data = people(300)
    other = (torch.arange(300) % 2).float()
    other[:7] = torch.nan
    both = replace(data, c=torch.stack([data.c[:, 0], other], 1), protected=(SEX, Protected("old")))
    same(RankMap(), both, both)


def test_columns_that_are_not_mapped_stay():
    only = torch.tensor([True, False, False, False, True, True, True])
    data = people(200)
    same(RankMap(only=only), data, data)
    rows = fit_resampled(RankMap(only=only), data, 2, seed=0)[0][0].map(data).rows
    assert torch.equal(rows[:, 1:4], data.x[:, 1:4])


def test_a_number_that_a_group_never_shows_is_left_to_the_maps_fitted_one_by_one():
    data = people(200)
    x = data.x.clone()
    x[data.c[:, 0] == 0, 3] = 1.0
    same(RankMap(), replace(data, x=x), replace(data, x=x))


@pytest.mark.parametrize("prototype", [RankMap(legitimate=("plain",)), RankMap(hold_others=True)])
def test_what_is_held_or_legitimate_is_left_to_the_maps_fitted_one_by_one(prototype):
    data = people(300)
    same(prototype, data, data)


def test_people_may_change_between_calls_and_be_forgotten():
    data, others = people(200), people(150, seed=4)
    (maps,) = fit_resampled(RankMap(), data, 2, seed=0)
    first = maps[0].map(data).rows
    second = maps[1].map(others).rows
    assert torch.equal(maps[0].map(data).rows, first)
    forget(maps)
    assert torch.equal(maps[1].map(others).rows, second)
    way = next(iter(maps[0].fitted[0].pairs.values()))
    assert way.places.asked is not None
    forget(maps)
    assert way.places.asked is None
