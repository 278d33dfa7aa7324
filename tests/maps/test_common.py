"""Displacements that few people share count less; the oracle is NumPy's singular value decomposition."""

import numpy as np
import pytest
import torch

from fairfox.data.dataset import Dataset, Feature, Protected
from fairfox.errors import OptionError
from fairfox.fairtests.registry import make_test
from fairfox.maps.rank import RankMap


def people(n=400, seed=0, columns=4):
    """Return two groups that differ by a shift of two columns and in the spread of a third."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, columns, generator=generator, dtype=torch.float64)
    c = (torch.rand(n, generator=generator) < 0.4).double()
    x[:, 0] += 2 * c
    x[:, 1] -= c
    x[:, 2] *= 1 + c
    return Dataset.from_arrays(x, c)


def shares(n=300, seed=1):
    """Return people with a number that may be missing, a category of three levels, and a constant."""
    generator = torch.Generator().manual_seed(seed)
    c = (torch.arange(n) % 2).double()
    missing = (torch.rand(n, generator=generator) < 0.2).double()
    number = torch.where(missing > 0, 0.0, torch.randn(n, generator=generator).double() + c)
    level = (torch.rand(n, generator=generator) * 2 + c * 0.8).floor().long().clamp(max=2)
    x = torch.cat([number[:, None], missing[:, None], torch.nn.functional.one_hot(level, 3), torch.ones(n, 1)], dim=1)
    features = (
        Feature("income", "continuous", 0, 2),
        Feature("job", "categorical", 2, 5, ("a", "b", "c")),
        Feature("same", "continuous", 5, 6),
    )
    return Dataset(x.double(), c[:, None], (Protected("c"),), features)


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
def test_the_mean_stays_and_directions_beside_it_count_by_their_singular_values(power):
    data, new = people(), people(seed=5)
    plain = RankMap(shared=0.0).fit(data)
    found = RankMap(shared=power).fit(data).map(new).rows
    spread = data.x.numpy().std(0)
    ways = (plain.map(data).rows - data.x).numpy() / spread
    _, size, directions = np.linalg.svd(ways, full_matrices=False)
    own = (plain.map(new).rows - new.x).numpy() / spread
    for group in (0, 1):
        among = new.c[:, 0].numpy() == group
        mean = ways[data.c[:, 0].numpy() == group].mean(0)
        own[among] = mean + (own[among] - mean) @ directions.T * (size / size[0]) ** power @ directions
    np.testing.assert_allclose(found.numpy(), new.x.numpy() + own * spread, atol=1e-9)


def test_without_it_every_number_takes_a_value_of_the_other_group():
    data = people()
    for j, mapped in enumerate(RankMap(shared=0.0).fit(data).map(data).rows.T):
        for group in (0, 1):
            among = data.c[:, 0] == group
            assert bool((mapped[among] >= data.x[~among, j].min()).all())
            assert bool((mapped[among] <= data.x[~among, j].max()).all())


def test_the_mean_of_a_group_goes_as_far_as_without_it():
    data = people()
    plain, shrunk = (RankMap(shared=power).fit(data).map(data).rows for power in (0.0, 1.0))
    for group in (0, 1):
        among = data.c[:, 0] == group
        torch.testing.assert_close(shrunk[among].mean(0), plain[among].mean(0))
    assert float((shrunk - plain).abs().max()) > 0.1


def test_columns_in_other_units_are_mapped_to_the_same_people():
    data = people()
    units, zero = torch.tensor([1e3, 0.01, 1.0, 7.0]).double(), torch.tensor([5.0, 0.0, -2.0, 1.0]).double()
    scaled = Dataset.from_arrays(data.x * units + zero, data.c[:, 0])
    once = RankMap().fit(data).map(data).rows * units + zero
    torch.testing.assert_close(RankMap().fit(scaled).map(scaled).rows, once)


def test_categories_go_as_they_go_without_it():
    data = shares()
    plain, shrunk = (RankMap(shared=power).fit(data).map(data).rows for power in (0.0, 1.0))
    assert torch.equal(shrunk[:, 2:5], plain[:, 2:5])


def test_a_shift_that_all_share_stays_whole():
    x = torch.arange(40, dtype=torch.float64).reshape(20, 2)
    shift = torch.tensor([3.0, -1.0], dtype=torch.float64)
    data = Dataset.from_arrays(torch.cat([x, x + shift]), torch.arange(2).repeat_interleave(20).double())
    found = RankMap(shared=1.0).fit(data).map(data).rows
    torch.testing.assert_close(found, torch.cat([x + shift, x]))


def test_columns_that_do_not_move_stay_exactly():
    data = people()
    x = data.x.clone()
    x[:, 3] = 2.0
    data = Dataset.from_arrays(x, data.c[:, 0])
    assert torch.equal(RankMap(shared=1.0).fit(data).map(data).rows[:, 3], x[:, 3])


def test_categories_stay_shares_and_what_is_missing_stays_missing():
    data = shares()
    found = RankMap(shared=1.0).fit(data).map(data).rows
    torch.testing.assert_close(found[:, 2:5].sum(1), torch.ones(len(data), dtype=torch.float64))
    assert bool((found[:, 2:5] >= 0).all())
    gone = data.x[:, 1] == 1
    assert torch.equal(found[gone, :2], data.x[gone, :2])
    assert not torch.equal(found[~gone, 0], data.x[~gone, 0])


def test_withheld_columns_take_the_other_groups_value_whole():
    data = people()
    x = torch.cat([data.x, data.c], dim=1)
    withheld = torch.tensor([False] * 4 + [True])
    features = tuple(Feature(f"x{j}", "continuous", j, j + 1) for j in range(5))
    data = Dataset(x, data.c, data.protected, features, withheld=withheld)
    found = RankMap(shared=1.0).fit(data).map(data).rows
    assert torch.equal(found[:, 4], 1 - data.c[:, 0])


@pytest.mark.parametrize("kind", ["classes", "number"])
def test_many_classes_and_numbers_go_the_same_ways_shrunk(kind):
    data = people(columns=3)
    generator = torch.Generator().manual_seed(3)
    if kind == "classes":
        c = torch.randint(3, (len(data),), generator=generator).double()
        to, p = (c + 1) % 3, Protected("c", "categorical", ("a", "b", "c"))
    else:
        c = torch.randn(len(data), generator=generator).double()
        to, p = torch.ones_like(c), Protected("c", "continuous", ())
    spread = torch.stack([torch.ones_like(c), torch.ones_like(c), 1 + 0.3 * c.abs()], dim=1)
    data = Dataset.from_arrays(data.x * spread + c[:, None], c, protected=[p])
    plain, shrunk = (RankMap(shared=power).fit(data).map(data, to) for power in (0.0, 1.0))
    assert torch.equal(plain.abstained, shrunk.abstained)
    assert torch.equal(shrunk.rows[shrunk.abstained], data.x[shrunk.abstained])
    before, after = ((one.rows - data.x).norm() for one in (plain, shrunk))
    assert 0.5 * before < after < before


def test_the_order_of_the_people_does_not_matter():
    data = people()
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(7))
    once = RankMap(shared=1.0).fit(data).map(data).rows[order]
    torch.testing.assert_close(RankMap(shared=1.0).fit(data[order]).map(data[order]).rows, once)


def test_it_is_a_setting_of_the_rank_test():
    data = people()
    test = make_test("rank", refits=1, options={"shared": 1.0}).fit(data)
    assert test.fitted[0][0].shared == 1.0
    with pytest.raises(OptionError, match=r"shared of the rank map is -1\.0; give a number of at least 0"):
        RankMap(shared=-1.0)
