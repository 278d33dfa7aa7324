from typing import Any

import numpy as np
import pytest
import torch
from populations import block, individuals, one_hot
from torch import Tensor

from fairfox.data.dataset import Dataset, Feature, Protected
from fairfox.maps.mechanisms import Cause, Linear, Node, design, fit_mechanism

NUMBER = (Feature("debt", "continuous", 0, 2), Feature("age", "continuous", 2, 3))


def rows(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_a_line_is_the_least_squares_one():
    parents, child = rows(40, 3), rows(40, 2, seed=1)
    expected = np.linalg.lstsq(np.column_stack([parents, np.ones(40)]), child.numpy())[0]
    line = Linear.of(parents, child, None)
    np.testing.assert_allclose(torch.cat([line.coefficients, line.level[None]]), expected, atol=1e-12)


def test_a_weight_counts_as_so_many_people():
    parents, child, times = rows(20, 2), rows(20, 1, seed=1), torch.arange(20) % 3
    weighted = Linear.of(parents, child, times)
    repeated = Linear.of(parents.repeat_interleave(times, 0), child.repeat_interleave(times, 0), None)
    torch.testing.assert_close(weighted.coefficients, repeated.coefficients)
    torch.testing.assert_close(weighted.level, repeated.level)


def test_parents_that_depend_on_each_other_are_no_trouble():
    job = one_hot([0, 1, 2, 0, 1, 2], 3)
    child = torch.tensor([[1.0], [5.0], [9.0], [3.0], [7.0], [11.0]]).double()
    # the mean of each job: (1 + 3) / 2, (5 + 7) / 2, (9 + 11) / 2
    assert Linear.of(job, child, None)(torch.eye(3).double())[:, 0].tolist() == pytest.approx([2, 6, 10])


def test_linear_shares_sum_to_one():
    parents, job = rows(50, 2), one_hot(torch.arange(50) % 3, 3)
    torch.testing.assert_close(Linear.of(parents, job, None)(rows(9, 2, seed=2)).sum(1), torch.ones(9).double())


def test_boosted_trees_follow_a_bend():
    parents = rows(1500, 1)
    bent = fit_mechanism("boosted", parents, parents.abs(), categorical=False, weights=None, seed=0)
    at = torch.tensor([[-1.0], [0.0], [1.0]]).double()
    torch.testing.assert_close(bent(at), at.abs(), atol=0.1, rtol=0)


def test_boosted_shares_know_categories_that_nobody_has():
    parents = rows(600, 1)
    code = torch.where(parents[:, 0] > 0, 3, 1)
    found = fit_mechanism("boosted", parents, one_hot(code, 4), categorical=True, weights=None, seed=0)
    shares = found(torch.tensor([[-1.0], [1.0]]).double())
    torch.testing.assert_close(shares, one_hot([1, 3], 4), atol=0.05, rtol=0)
    assert shares[:, [0, 2]].abs().max() == 0
    single = fit_mechanism("boosted", parents, one_hot([2] * 600, 4), categorical=True, weights=None, seed=0)
    assert torch.equal(single(parents[:2]), one_hot([2, 2], 4))


def test_boosted_trees_count_weights():
    parents = torch.zeros(60, 1).double()
    child = torch.arange(60).double()[:, None]
    weights = (child[:, 0] >= 30).double()
    found = fit_mechanism("boosted", parents, child, categorical=False, weights=weights, seed=0)
    assert float(found(parents[:1])) == pytest.approx(44.5)  # the mean of 30 to 59


def test_parents_are_columns_of_classes_numbers_and_features():
    data = Dataset(
        x=torch.tensor([[0.5, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, 1.0]]),
        c=torch.tensor([[2.0, 10.0], [0.0, 30.0]]),
        protected=(Protected("race", "categorical", ("a", "b", "c")), Protected("age", "continuous", ())),
        features=(Feature("debt", "continuous", 0, 2), block("job", "ab", start=2)),
    )
    parents = [Cause.of(data, 0), Cause.of(data, 1), *data.features]
    # race but the first class; age - 20 in its standard deviation 10; debt and its flag; job
    assert design(parents, data.x, data.c).tolist() == [[0, 1, -1, 0.5, 0, 1, 0], [0, 0, 1, 0, 1, 0, 1]]


def test_a_node_keeps_the_noise_and_what_is_missing():
    # debt, is it missing, age; without the missing one debt is age plus 1 or minus 1
    x = torch.tensor([[1.0, 0, 0], [-1, 0, 0], [2, 0, 1], [0, 0, 1], [0, 1, 1]]).double()
    data = individuals(x, features=NUMBER)
    node = Node.of(NUMBER[0], [NUMBER[1]], data, 0, "linear", 0)
    new = x.clone()
    new[:, 2] += 10
    assert node.follow(x, data.c, new, data.c)[:, 0].tolist() == pytest.approx([11, 9, 12, 10, 0])
    assert node.columns == slice(0, 1)
    assert node.explained == pytest.approx(0.2)  # variance 1/4 of the line in 5/4


def test_the_noise_of_groups_is_compared():
    noise = torch.tensor([1.0, -1.0]).repeat(20).double()
    own = torch.arange(40) // 20
    data = individuals((noise * (1 + 2 * own) + own)[:, None], c=own)  # three times as far in the second group
    node = Node.of(data.features[0], [Cause.of(data, 0)], data, 0, "linear", 0)
    assert node.unevenness == pytest.approx(3.0)


@pytest.mark.parametrize("kind", ["linear", "boosted"])
def test_a_distribution_over_categories_gives_the_mean_over_it(kind: Any):
    job = one_hot(torch.arange(90) % 3, 3)
    pay = torch.tensor([1.0, 4.0, 10.0]).double()[torch.arange(90) % 3]
    features = (block("job", "abc"), Feature("pay", "continuous", 3, 4))
    data = individuals(torch.cat([job, pay[:, None]], dim=1), features=features)
    node = Node.of(features[1], [features[0]], data, 0, kind, 0)
    mixed = torch.tensor([[0.5, 0.5, 0.0, 0.0], [0.2, 0.3, 0.5, 0.0], [0.0, 0.0, 1.0, 0.0]]).double()
    # 1/2 + 4/2; 0.2 + 1.2 + 5; 10
    assert node.expected(mixed, data.c[:3])[:, 0].tolist() == pytest.approx([2.5, 6.4, 10], abs=0.01)
