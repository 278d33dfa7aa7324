"""Which features give the protected variable away, and through which the effect goes."""

from itertools import permutations

import numpy as np
import pandas as pd
import pytest
import torch
from populations import Function
from torch import nn

from fairfox.auxiliary.linear import LinearMember
from fairfox.auxiliary.model import FixedAuxiliary
from fairfox.auxiliary.quality import proxy_strength
from fairfox.data.dataset import Dataset, Feature, Protected
from fairfox.explain import contributions, effect_by_feature, shapley, sum_by_feature
from fairfox.gradients.integrated import integrated_jacobian
from fairfox.models.torch import TorchModel
from fairfox.pipeline import audit

# One number, a category of three levels, another number
FEATURES = (
    Feature("income", "continuous", 0, 1),
    Feature("job", "categorical", 1, 4, levels=("a", "b", "c")),
    Feature("age", "continuous", 4, 5),
)
NUMBERS = (Feature("a", "continuous", 0, 1), Feature("b", "continuous", 1, 2))
SEX, RACE = Protected("sex"), Protected("race", "categorical", ("a", "b", "c"))


def rows(count=50, columns=5, *, seed=0):
    return torch.randn(count, columns, generator=torch.Generator().manual_seed(seed))


def network(activation=nn.ReLU):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(5, 16), activation(), nn.Linear(16, 1)).eval()


def effect(model, x, mapped):
    with torch.no_grad():
        return (model(mapped) - model(x))[:, 0]


def test_proxy_strength_averages_one_hot_columns_within_their_feature():
    auxiliary = FixedAuxiliary([LinearMember(torch.tensor([[-2.0, 3.0, -1.0, 2.0, 0.5]]), torch.zeros(1))])
    data = Dataset(x=rows(), c=torch.arange(50.0)[:, None] % 2, protected=(SEX,), features=FEATURES)
    torch.testing.assert_close(proxy_strength(auxiliary, data), torch.tensor([2.0, 2.0, 0.5]))  # (3 + 1 + 2) / 3


def test_proxy_strength_is_read_off_the_people_with_c_0():
    # d(x0²) = 2 x0, mean over c = 0: 2 * (1 + 2) / 2; the person with c = 1 does not count
    auxiliary = FixedAuxiliary([Function(lambda x: x[:, :1] ** 2)])
    data = Dataset.from_arrays([[1.0, 0.0], [2.0, 0.0], [50.0, 0.0]], c=[0, 0, 1])
    assert proxy_strength(auxiliary, data).tolist() == [3.0, 0.0]


def test_proxy_strength_averages_members_before_taking_the_size():
    members = [LinearMember(torch.tensor([[sign * 1.0, 1.0]]), torch.zeros(1)) for sign in (1, -1)]
    data = Dataset.from_arrays([[1.0, 0.0], [2.0, 0.0]], c=[0, 1])
    assert proxy_strength(FixedAuxiliary(members), data).tolist() == [0.0, 1.0]


def test_proxy_strength_of_the_second_variable_reads_its_own_outputs():
    weights = torch.tensor([[9.0, 9.0], [1.0, 0.0], [-1.0, 1.0], [0.0, -1.0]])  # sex; race a, b, c
    auxiliary = FixedAuxiliary([LinearMember(weights, torch.zeros(4))])
    data = Dataset.from_arrays(torch.zeros(4, 2), [[0, 0], [1, 1], [0, 2], [1, 0]], protected=[SEX, RACE])
    assert proxy_strength(auxiliary, data, variable=0).tolist() == [9.0, 9.0]
    # |1| + |-1| + |0|
    torch.testing.assert_close(proxy_strength(auxiliary, data, variable=1), torch.tensor([2.0, 2.0]))


def test_proxy_strength_of_a_continuous_variable_is_read_off_everyone():
    auxiliary = FixedAuxiliary([Function(lambda x: x[:, :1] ** 2)])
    data = Dataset.from_arrays([[1.0], [2.0], [6.0]], c=[20.5, 31.0, 47.0])
    assert proxy_strength(auxiliary, data).tolist() == [6.0]  # 2 * (1 + 2 + 6) / 3


def test_a_group_s_displacements_belong_to_one_feature():
    assert sum_by_feature(torch.tensor([[1.0, 2.0, 3.0, 4.0, 5.0]]), FEATURES).tolist() == [[1.0, 9.0, 5.0]]


def test_contributions_of_a_linear_model_by_hand():
    model = Function(lambda x: x @ torch.tensor([[2.0], [-1.0]]))
    found = contributions(model, torch.tensor([[1.0, 1.0]]), torch.tensor([[2.0, 4.0]]), NUMBERS)
    torch.testing.assert_close(found, torch.tensor([[2.0, -3.0]]))


@pytest.mark.parametrize("activation", [nn.ReLU, nn.Tanh])
def test_contributions_sum_to_the_effect(activation):
    model, x, mapped = TorchModel(network(activation)), rows(), rows(seed=1)
    found = contributions(model, x, mapped, FEATURES)
    torch.testing.assert_close(found.sum(1), effect(model, x, mapped), atol=1e-6, rtol=0)


def test_contributions_of_a_smooth_model_are_integrated_gradients_from_x_to_the_counterfactual():
    model, x, mapped = TorchModel(network(nn.Tanh)), rows(), rows(seed=1)
    plain = integrated_jacobian(model, mapped, baseline=x, steps=64)[:, 0]
    torch.testing.assert_close(
        contributions(model, x, mapped, FEATURES), sum_by_feature(plain, FEATURES), atol=1e-5, rtol=0
    )


def test_a_feature_that_does_not_move_contributes_nothing():
    model, x, mapped = TorchModel(network()), rows(), rows(seed=1)
    mapped[:, 0] = x[:, 0]
    assert not contributions(model, x, mapped, FEATURES)[:, 0].any()
    assert not contributions(model, x, x, FEATURES).any()


def test_where_the_model_is_flat_all_the_way_what_moved_carries_the_effect():
    # a step between x and x': autograd sees no slope anywhere; b moved three times as far as a
    model = Function(lambda x: (x.sum(1, keepdim=True) > 1).float() + 0 * x[:, :1])
    found = contributions(model, torch.zeros(2, 2), torch.tensor([[1.0, 3.0], [0.0, 2.0]]), NUMBERS)
    torch.testing.assert_close(found, torch.tensor([[0.25, 0.75], [0.0, 1.0]]))


@pytest.mark.parametrize(("order", "expected"), [([0, 1], [0.0, 3.0]), ([1, 0], [3.0, 0.0])])
def test_in_one_order_the_last_feature_gets_the_whole_interaction(order, expected):
    model = Function(lambda x: x[:, :1] * x[:, 1:], differentiable=False)
    found = shapley(model, torch.zeros(1, 2), torch.tensor([[[1.0, 3.0]]]), NUMBERS, orders=[order])
    assert found.tolist() == [[expected]]


def test_shapley_values_of_an_additive_black_box_are_its_terms():
    worth = torch.tensor([[2.0], [0.0], [1.0], [5.0], [-1.0]])
    model = Function(lambda x: x @ worth, differentiable=False)
    x, mapped = torch.tensor([[0.0, 1, 0, 0, 3]]), torch.tensor([[1.0, 0, 0, 1, 1]])
    for order in permutations(range(3)):
        found = shapley(model, x, mapped[None], FEATURES, orders=[order])
        torch.testing.assert_close(found, torch.tensor([[[2.0, 5.0, 2.0]]]))


def test_explaining_leaves_the_rows_and_the_global_generator_alone():
    model = Function(network(), differentiable=False)
    x, mapped = rows(), rows(seed=1)
    before, state = x.clone(), torch.get_rng_state()
    effect_by_feature(model, x, mapped[None], FEATURES, by_gradients=False)
    assert torch.equal(x, before)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("differentiable", [True, False])
def test_effects_by_feature_sum_to_the_mean_effect_of_the_refits(differentiable):
    model, x = Function(network(), differentiable=differentiable), rows()
    mapped = torch.stack([rows(seed=seed) for seed in (1, 2, 3)])
    found = effect_by_feature(model, x, mapped, FEATURES, by_gradients=differentiable)
    assert found.shape == (50, 3)
    expected = torch.stack([effect(model, x, one) for one in mapped]).mean(0)
    torch.testing.assert_close(found.sum(1), expected, atol=1e-5, rtol=0)


def test_effects_by_feature_pick_gradients_or_predictions():
    x, mapped = torch.zeros(1, 2), torch.tensor([[[1.0, 3.0]]] * 2)

    def step_times(x):
        return (x[:, :1] > 0.5).float() * x[:, 1:]

    seen_through = effect_by_feature(Function(step_times), x, mapped, NUMBERS, by_gradients=True)
    assert seen_through[0, 0] == 0  # autograd sees no slope in a
    opaque = effect_by_feature(Function(step_times), x, mapped, NUMBERS, by_gradients=False)
    assert opaque.tolist() == [[1.5, 1.5]]  # two re-fits, an order and its reverse: half the interaction each


def test_what_ties_share_out_is_explained_by_the_column_that_has_them():
    # most have no gain: those would keep it at their middle rank, and yet part of them would have one
    rng = np.random.default_rng(0)
    man = np.arange(800) % 2
    gain = np.where(rng.random(800) < np.where(man, 0.4, 0.7), 0.0, rng.exponential(1, 800))
    table = pd.DataFrame({"gain": gain, "income": rng.normal(0, 1, 800) + man, "sex": np.where(man, "m", "f")})
    net = nn.Sequential(nn.Linear(2, 1))
    with torch.no_grad():
        net[0].weight.copy_(torch.tensor([[1.0, 0.0]]))
    result = audit(net, table, protected="sex", options={"refits": 2, "folds": 2}).record
    effect = result.features.effect
    assert effect.total["income"] == pytest.approx(0, abs=1e-6)
    known = ~effect.per_person.isnan().any(1)
    torch.testing.assert_close(effect.per_person[known].sum(1), result.effect[known].double(), atol=1e-9, rtol=0)
