"""The derivative along the true dx/dc."""

from dataclasses import replace

import pytest
import torch
from fused import fused
from populations import linear

from fairfox.benchmark.truth import individual_fairness_score
from fairfox.data.dataset import Dataset, Protected, Truth
from fairfox.errors import DataError, ShapeError
from fairfox.fairtests.faux import LIC


def people(dx_dc: list[list[float]], c: list[int]) -> Dataset:
    data = Dataset.from_arrays(torch.zeros(len(c), 2), c=c)
    return replace(data, truth=Truth(data.x, torch.tensor(dx_dc)[..., None]))


def test_the_score_is_the_gradient_along_the_true_direction_and_its_sign_leads_out_of_the_own_group():
    data = people([[0.5, 0.0], [1.0, 3.0], [0.0, 0.0]], c=[0, 1, 1])
    found = LIC().fit(data).measure(linear(2.0, -1.0), data)
    # 2 * 0.5 upwards, 2 * 1 - 1 * 3 = -1 downwards becomes 1 for who leaves group 1, nothing
    assert found.score.tolist() == [1.0, 1.0, 0.0]
    assert found.effect.tolist() == [1.0, 1.0, 0.0]
    assert found.klass.tolist() == [1, 0, 0]
    assert not found.abstained.any()


def test_a_linear_world_and_a_linear_model_give_the_true_score():
    data = fused(100, bias=0.5, seed=0)  # c moves everyone by dx/dc exactly
    model = linear(0.3, -0.2, 0.5, 0.0, 0.1)
    torch.testing.assert_close(LIC().score(model, data), individual_fairness_score(model, data))


def test_of_several_outputs_the_worst_counts():
    protected = (Protected("sex"), Protected("race", "categorical", ("a", "b", "c")))
    data = Dataset.from_arrays(torch.zeros(1, 2), c=torch.tensor([[1.0, 0.0]]), protected=protected)
    dx_dc = torch.tensor([[[1.0, 0.0, 0.0, 0.5], [0.0, 0.5, 3.0, 0.0]]])  # sex, then race a, b, c
    found = LIC().measure(linear(2.0, -1.0), replace(data, truth=Truth(data.x, dx_dc)))
    # sex -2, race a +0.5 (away from the own), b -3, c +1
    assert found.values[0].tolist() == [-2.0, 0.5, -3.0, 1.0]
    assert found.score.tolist() == [3.0]
    assert (found.variable.item(), found.klass.item()) == (1, 1)


@pytest.mark.parametrize("truth", [None, Truth(torch.zeros(2, 2))], ids=["no truth", "no dx/dc"])
def test_people_whose_truth_is_not_known_are_refused(truth):
    data = replace(Dataset.from_arrays(torch.zeros(2, 2), c=[0, 1]), truth=truth)
    with pytest.raises(DataError, match=r"lic needs the true derivative dx/dc.*use rank"):
        LIC().fit(data).score(linear(1.0, 1.0), data)


def test_a_truth_of_another_shape_is_refused():
    data = Dataset.from_arrays(torch.zeros(2, 2), c=[0, 1])
    with pytest.raises(ShapeError, match=r"The true dx/dc has shape \(2, 2, 3\); expected \(2, 2, 1\)"):
        LIC().score(linear(1.0, 1.0), replace(data, truth=Truth(data.x, torch.zeros(2, 2, 3))))
