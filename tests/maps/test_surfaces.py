"""How values depend on columns: the least-squares surface, as bent as it needs to be."""

import numpy as np
import pytest
import torch
from populations import block, one_hot
from sklearn.linear_model import LinearRegression
from torch import Tensor

from fairfox.data.dataset import Feature
from fairfox.maps.surfaces import Bent, Own, Surfaces, Terms, bending_terms, fewest_people

NUMBERS = [Feature("a", "continuous", 0, 1), Feature("b", "continuous", 1, 2)]


def drawn(n: int = 1000, columns: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    """Return rows, two groups in turn, and noise."""
    gen = torch.Generator().manual_seed(0)
    x, noise = (torch.randn(n, k, generator=gen, dtype=torch.float64) for k in (columns, 1))
    return x, (torch.arange(n) % 2).double(), noise


def fitted(values: Tensor, x: Tensor, c: Tensor, features: list[Feature] = NUMBERS) -> Surfaces:
    return Surfaces.of(values, x, c, bending_terms(Own.of(c, 2), features, x), [1] * values.shape[1])


def test_straight_terms_give_scikit_learn_s_regression_with_a_level_for_each_group():
    x, c, noise = drawn()
    values = 2 * x[:, :1] - x[:, 1:] + c[:, None] + noise
    found = fitted(values, x, c)
    design = np.column_stack([x.numpy(), c.numpy()])
    expected = LinearRegression().fit(design, values.numpy()).predict(design)
    np.testing.assert_allclose(found(x, c).numpy(), expected, atol=1e-8)
    assert [(len(t.columns.knots[0]), t.together, t.apart) for t in found.terms] == [(2, False, False)]


@pytest.mark.parametrize("shape", ["bent", "together", "apart"])
def test_terms_are_added_where_the_values_need_them_and_only_for_those_that_do(shape: str):
    x, c, noise = drawn(3000)
    a, b = x[:, :1], x[:, 1:]
    truth = {"bent": torch.sin(2 * a), "together": a * b, "apart": a * c[:, None]}[shape]
    found = fitted(torch.cat([truth, a], dim=1) + 0.3 * noise, x, c)
    assert float((found(x, c)[:, :1] - truth).abs().mean()) < 0.08
    assert float((found(x, c)[:, 1:] - a).abs().mean()) < 0.03
    chosen = found.terms[-1]
    assert {"bent": len(chosen.columns.knots[0]) > 2, "together": chosen.together, "apart": chosen.apart}[shape]
    assert len(found.terms) == 2


def test_the_columns_of_a_block_have_the_same_terms_and_sum_to_one():
    x, c, _ = drawn(2000)
    share = torch.sigmoid(2 * x[:, 0])
    level = (torch.rand(2000, generator=torch.Generator().manual_seed(1)) < share).long()
    found = Surfaces.of(one_hot(level, 2), x, c, bending_terms(Own.of(c, 2), NUMBERS, x), [2])
    assert len(found.terms) == 1
    torch.testing.assert_close(found(x, c).sum(1), torch.ones(2000, dtype=torch.float64))
    assert float((found(x, c)[:, 1] - share).abs().mean()) < 0.05


def test_of_columns_that_depend_on_each_other_any_solution_will_do():
    level = torch.arange(300) % 3
    c = (torch.arange(300) % 2).double()
    values = torch.tensor([1.0, 2.0, 5.0], dtype=torch.float64)[level][:, None]
    x = one_hot(level, 3)
    found = fitted(values, x, c, [block("job", "abc")])
    torch.testing.assert_close(found(x, c), values)


def test_few_people_get_straight_lines_only():
    x, c, _ = drawn(40)
    found = fitted(torch.sin(3 * x[:, :1]), x, c)
    assert [len(t.columns.knots[0]) for t in found.terms] == [2]


def test_a_number_lifts_by_a_spline_and_tilts_by_a_line():
    c = torch.linspace(-2, 2, 50, dtype=torch.float64)
    own = Own.of(c, 0)
    assert own.level(c).shape == (50, 4)
    assert torch.equal(own.tilt(c), c[:, None])
    classes = Own.of(c, 3)
    assert classes.level(torch.tensor([0.0, 2.0])).tolist() == [[1, 0, 0], [1, 0, 1]]


def test_terms_without_columns_are_those_of_the_group_alone():
    x, c, _ = drawn(10)
    terms = Terms(Own.of(c, 2), Bent.of(NUMBERS, x))
    assert torch.equal(terms.flattened()(x, c), torch.stack([torch.ones(10).double(), c], dim=1))
    assert fewest_people(terms) == 8  # two groups and two columns, twice


def test_columns_know_their_places():
    x, _, _ = drawn(10, 3)
    bent = Bent.of([Feature("c", "continuous", 2, 3)], x)
    assert bent.among(3).tolist() == [False, False, True]
    assert Bent.of([], x)(x).shape == (10, 0)
