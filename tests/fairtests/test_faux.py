"""fAux and its variants: by hand, against each other, and what must not change them."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from populations import Function, linear
from torch import Tensor

from fairfox.auxiliary.linear import LinearMember
from fairfox.auxiliary.mlp import MLP
from fairfox.auxiliary.model import AuxiliaryMember, AuxiliaryModel, FixedAuxiliary
from fairfox.data.dataset import Dataset, Feature, Protected, project_blocks
from fairfox.errors import OptionError
from fairfox.fairtests.faux import FAux
from fairfox.fairtests.fta import FTA, FTALinear
from fairfox.maps.protocol import FLAT
from fairfox.models.protocol import Output
from fairfox.models.torch import TorchModel

RACE = Protected("race", "categorical", ("a", "b", "c"))
VARIANTS = {
    "faux": {},
    "faux+ng": {"normalise": True},
    "faux+ig": {"normalise": True, "integrated": True},
    "faux+ig by ratio": {"integrated": True},
    "faux/s": {"metric": "covariance"},
    "faux+ng/s": {"normalise": True, "metric": "covariance"},
}
# variances 16/3 and 4/3 shrunk by a tenth: S = diag(5.1333, 1.5333); mean (2, 1)
FOUR = Dataset.from_arrays([[0.0, 0.0], [0.0, 2.0], [4.0, 0.0], [4.0, 2.0]], c=[0, 1, 0, 1])


def faux(*members, **options) -> FAux:
    return FAux(auxiliary=FixedAuxiliary(members), **options)


def individuals(x, c=None):
    c = torch.zeros(len(x)) if c is None else torch.as_tensor(c)
    return Dataset.from_arrays(x, c, protected=[Protected("sex")])


def women_and_men(count=300, *, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(count, 5, generator=generator)
    c = (x[:, 0] + x[:, 1] * x[:, 2] + torch.randn(count, generator=generator) > 0).float()
    return Dataset.from_arrays(x.to(dtype), c)


def curve(x: Tensor) -> Tensor:
    return torch.sigmoid(x[:, :1] - 0.5 * x[:, 1:2] * x[:, 3:4] + 0.2)


def quick(**options):
    return AuxiliaryModel(refits=2, width=16, max_epochs=4, **options)


# By hand


def test_score_of_two_linear_models_is_their_projected_gradient():
    scores = faux(linear(3.0, 4.0)).score(linear(2.0, 1.0), individuals(torch.zeros(3, 2)))
    torch.testing.assert_close(scores, torch.full((3,), 0.4))  # (2, 1) . (3, 4) / 25


def test_normalised_score_of_two_linear_models_is_their_cosine():
    scores = faux(linear(3.0, 4.0), normalise=True).score(linear(2.0, 1.0), individuals(torch.zeros(3, 2)))
    torch.testing.assert_close(scores, torch.full((3,), 10 / (5 * 5**0.5)))


def test_scores_in_the_covariance_by_hand():
    # g S a = 30.8 + 6.1333, a S a = 46.2 + 24.5333, g S g = 20.5333 + 1.5333
    test = faux(linear(3.0, 4.0), metric="covariance").fit(FOUR)
    torch.testing.assert_close(test.score(linear(2.0, 1.0), FOUR), torch.full((4,), 36.93333 / 70.73333))
    test = faux(linear(3.0, 4.0), metric="covariance", normalise=True).fit(FOUR)
    expected = 36.93333 / (22.06667 * 70.73333) ** 0.5
    torch.testing.assert_close(test.score(linear(2.0, 1.0), FOUR), torch.full((4,), expected))


@pytest.mark.parametrize(
    ("baseline", "path"),
    [("zero", (1.0, 3.0)), ("mean", (-1.0, 2.0)), (torch.tensor([0.0, 1.0]), (1.0, 2.0))],
    ids=["zero", "mean", "a row"],
)
def test_integrated_scores_of_linear_models_by_hand(baseline, path):
    # integrated gradients of a linear model: the path from the baseline to (1, 3), times its weights
    target, auxiliary = np.array(path) * (2.0, 1.0), np.array(path) * (3.0, 4.0)
    inner = float(target @ auxiliary)
    person = individuals(torch.tensor([[1.0, 3.0]]))
    options = {"integrated": True, "baseline": baseline}
    ratio = faux(linear(3.0, 4.0), **options).fit(FOUR).score(linear(2.0, 1.0), person)
    assert ratio.item() == pytest.approx(abs(inner) / float(auxiliary @ auxiliary), rel=1e-5)
    cosine = faux(linear(3.0, 4.0), normalise=True, **options).fit(FOUR).score(linear(2.0, 1.0), person)
    lengths = float(np.linalg.norm(target) * np.linalg.norm(auxiliary))
    assert cosine.item() == pytest.approx(abs(inner) / lengths, rel=1e-5)


def test_an_unknown_baseline_is_refused():
    with pytest.raises(OptionError, match="The baseline is 'median'; expected 'mean', 'zero' or a row"):
        faux(linear(3.0, 4.0), integrated=True, baseline="median").fit(FOUR).score(linear(2.0, 1.0), FOUR)


@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)
def test_the_own_class_1_flips_the_sign(options):
    # both models rise with the first column: class 0 would gain as class 1, class 1 would lose as class 0
    test = faux(linear(3.0, 4.0), **options).fit(FOUR)
    measured = test.measure(linear(2.0, 1.0), individuals(torch.ones(2, 2), [0.0, 1.0]))
    assert measured.effect[0] > 0
    torch.testing.assert_close(measured.effect[1], -measured.effect[0])
    torch.testing.assert_close(measured.score, measured.effect.abs())
    assert measured.klass.tolist() == [1, 0]


def test_every_class_has_its_own_slope():
    # J = I - 1/3 is its own pseudo-inverse: the slopes of (3, 0, 0) are (2, -1, -1), the own class's turned round
    member = LinearMember(torch.eye(3) - 1 / 3, torch.zeros(3))
    data = Dataset.from_arrays(torch.zeros(3, 3), [0.0, 1.0, 2.0], protected=[RACE])
    measured = faux(member).fit(data).measure(linear(3.0, 0.0, 0.0), data)
    torch.testing.assert_close(measured.effect, torch.tensor([-2.0, 2.0, 2.0]))
    assert measured.klass.tolist() == [0, 0, 0]


def test_several_variables_count_by_the_worst_of_them():
    # orthogonal gradients (2, 0) and (0, 4): slopes 3/2 and 1/4 of the target's (3, 1)
    member = LinearMember(torch.tensor([[2.0, 0.0], [0.0, 4.0]]), torch.zeros(2))
    data = Dataset.from_arrays(torch.zeros(2, 2), [[0.0, 1.0], [1.0, 0.0]])
    measured = faux(member).fit(data).measure(linear(3.0, 1.0), data)
    torch.testing.assert_close(measured.effect, torch.tensor([1.5, -1.5]))
    assert measured.variable.tolist() == [0, 0]
    measured = faux(member).fit(data).measure(linear(0.1, 4.0), data)
    torch.testing.assert_close(measured.effect, torch.tensor([-1.0, 1.0]))
    assert measured.variable.tolist() == [1, 1]
    assert measured.klass.tolist() == [0, 1]


def test_a_crossing_is_solved_alone():
    # its gradients are those of the variables it crosses: with them in one solve neither could move without the other
    sex, old = Protected("sex"), Protected("old")
    both = Protected("sex x old", "categorical", ("a", "b"), parts=("sex", "old"))
    data = Dataset.from_arrays(torch.zeros(2, 2), [[0.0, 1.0, 0.0], [1.0, 0.0, 1.0]], protected=[sex, old, both])
    member = LinearMember(torch.tensor([[2.0, 0.0], [0.0, 4.0], [-1.0, -1.0], [1.0, 1.0]]), torch.zeros(4))
    measured = faux(member).fit(data).measure(linear(3.0, 1.0), data)
    # 3 / 2, 1 / 4, and for the centred pair -z/2, z/2 of z = (2, 2): (3, 1) . (2, 2) / 8 = 1 per unit of z
    torch.testing.assert_close(measured.values[0], torch.tensor([1.5, -0.25, 1.0, 1.0]))


def test_a_variable_whose_auxiliary_is_flat_does_not_count_and_the_others_do():
    member = LinearMember(torch.tensor([[2.0, 0.0], [0.0, 0.0]]), torch.zeros(2))
    data = Dataset.from_arrays(torch.zeros(2, 2), [[0.0, 1.0], [1.0, 0.0]])
    measured = faux(member).fit(data).measure(linear(3.0, 9.0), data)
    torch.testing.assert_close(measured.effect, torch.tensor([1.5, -1.5]))
    assert measured.values[:, 1].isnan().all()
    assert measured.of_variable(1, data).abstained.all()


# Plain networks


def network(inputs, outputs=1, *, width=10, seed=0, dtype=torch.float64):
    return MLP(inputs, outputs, width=width, depth=2, seed=seed).to(dtype).member(0)


def paired(features, protected, dtype):
    """Return people, a target, two auxiliaries, and the same auxiliaries that hide what they are made of."""
    x = torch.randn(60, features, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    c = torch.arange(60).remainder(max(len(protected.levels), 2)).to(dtype)
    mask = torch.arange(features) != 1
    raw = protected.outputs if len(protected.levels) != 2 else 1
    nets = [network(features, raw, width=16, seed=seed, dtype=dtype) for seed in (1, 2)]
    members = [AuxiliaryMember.of(net, mask, (protected,)) for net in nets]
    model = TorchModel(network(features, dtype=dtype), output=Output("logit"))
    data = Dataset.from_arrays(x.to(dtype), c, protected=(protected,))
    return data, model, FixedAuxiliary(members), FixedAuxiliary([Function(member) for member in members])


CASES = {"one output": Protected("sex"), "three classes": RACE}


@pytest.mark.parametrize("features", [3, 12, 40])  # fewer than units, fewer than both networks' units, more
@pytest.mark.parametrize("protected", CASES.values(), ids=CASES)
@pytest.mark.parametrize("metric", ["identity", "covariance"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_plain_networks_are_measured_as_models_that_cannot_be_looked_into(features, protected, metric, dtype):
    data, model, plain, hidden = paired(features, protected, dtype)
    error = {"rtol": 1e-9, "atol": 1e-11} if dtype == torch.float64 else {"rtol": 1e-4, "atol": 1e-5}
    for normalise in (False, True):
        options = {"metric": metric, "normalise": normalise}
        found = FAux(auxiliary=plain, batch_size=17, **options).fit(data).measure(model, data)
        expected = FAux(auxiliary=hidden, **options).fit(data).measure(Function(model), data)
        torch.testing.assert_close(found.refits, expected.refits, **error)
        torch.testing.assert_close(found.score, expected.score, **error)
        assert torch.equal(found.abstained, expected.abstained)


def test_flat_auxiliaries_are_seen_without_gradients():
    data, model, plain, hidden = paired(20, Protected("sex"), torch.float64)
    far = data.x.clone()
    far[:10] = -1e6  # where the target's probability stands still
    with torch.no_grad():
        for member in plain.members:
            member.net[0].weight[:, 0] = -1.0  # those with a large first column have no active unit
            member.net[0].weight[:, 2:] = 0.0
    far[10:20, 0] = 1e3
    people = replace(data, x=far)
    for normalise in (False, True):
        found = FAux(auxiliary=plain, normalise=normalise).measure(model, people)
        expected = FAux(auxiliary=hidden, normalise=normalise).measure(Function(model), people)
        torch.testing.assert_close(found.score, expected.score, rtol=1e-9, atol=1e-12)
        assert torch.equal(found.abstained, expected.abstained)
        assert expected.abstained[10:20].all()


# Black boxes


def test_the_step_that_is_given_is_taken_and_none_is_looked_for(monkeypatch):
    data = women_and_men(50)
    auxiliary = FixedAuxiliary([linear(1.0, 0.0, 0.0, 0.0, 0.0)])
    model = Function(lambda x: x[:, :1] ** 3, differentiable=False)
    monkeypatch.setattr("fairfox.fairtests.faux.suited_step", None)
    steep = 3 * data.x[:, 0] ** 2 + 0.25  # ((x + h)^3 - (x - h)^3) / 2 h = 3 x^2 + h^2, with h = 0.5
    for test in (FAux(auxiliary=auxiliary), FTA(), FTALinear(auxiliary=auxiliary)):
        torch.testing.assert_close(test.fit(data).measure(model, data, step=0.5).score, steep)
    along = FAux(auxiliary=auxiliary, normalise=True).fit(data).measure(model, data, step=0.5).score
    torch.testing.assert_close(along, torch.ones(len(data)))


@pytest.mark.parametrize("name", ["faux", "faux/s", "faux+ng", "faux+ng/s"])
def test_a_black_box_scores_as_the_same_function_seen_through(name):
    data = women_and_men(dtype=torch.float64)
    test = FAux(auxiliary=FixedAuxiliary(quick().fit(data).members), **VARIANTS[name]).fit(data)
    expected = test.measure(Function(curve), data).effect
    found = test.measure(Function(lambda x: curve(x.detach()), differentiable=False), data).effect
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


def test_a_black_box_needs_two_predictions_per_refit():
    calls = []
    target = Function(lambda x: (calls.append(len(x)), curve(x.detach()))[1], differentiable=False)
    faux(linear(1.0, 0.0, 0.0, 0.0, 0.0), linear(0.0, 1.0, 0.0, 0.0, 0.0)).score(target, women_and_men(30))
    assert calls[2:] == [30] * 4  # after two calls that try the step


@pytest.mark.parametrize("name", ["faux", "faux/s", "faux+ng"])
def test_one_hot_blocks_of_a_black_box_score_as_if_seen_through(name):
    features = (Feature("income", "continuous", 0, 1), Feature("job", "categorical", 1, 4, levels=("a", "b", "c")))
    generator = torch.Generator().manual_seed(0)
    job = torch.randint(3, (200,), generator=generator)
    x = torch.cat([torch.randn(200, 1, generator=generator), torch.eye(3)[job]], dim=1).double()
    data = Dataset(x=x, c=(job > 0).double()[:, None], protected=(Protected("sex"),), features=features)
    worth = torch.tensor([[0.5], [0.1], [-0.3], [0.2]], dtype=torch.float64)

    def rule(rows):
        return project_blocks(rows, features) @ worth

    member = Function(lambda rows: torch.tanh(rows @ torch.tensor([[0.3], [-1.0], [0.5], [0.4]], dtype=torch.float64)))
    test = faux(member, **VARIANTS[name]).fit(data)
    expected = test.measure(Function(rule), data).effect
    black_box = Function(lambda rows: rule(rows.detach()), differentiable=False, blocks=(slice(1, 4),))
    torch.testing.assert_close(test.measure(black_box, data).effect, expected, atol=1e-8, rtol=1e-6)
    assert expected.abs().max() > 0.05


# People about whom nothing can be said


@pytest.mark.parametrize(
    ("name", "differentiable"),
    [(name, True) for name in VARIANTS] + [(name, False) for name in VARIANTS if "ig" not in name],
)
def test_where_the_auxiliary_is_flat_people_are_abstained(name, differentiable):
    member = Function(lambda x: torch.relu(x[:, :1]))  # flat below zero
    x = torch.tensor([[1.0, 2.0], [-1.0, 2.0], [3.0, 0.0]])
    low = Dataset.from_arrays(FOUR.x - torch.tensor([7.0, 1.0]), FOUR.c)  # the mean is (-5, 0): flat there
    test = faux(member, **VARIANTS[name]).fit(low)
    target = Function(lambda x: x.sum(1, keepdim=True), differentiable=differentiable)
    measured = test.measure(target, individuals(x, [0.0, 1.0, 0.0]))
    assert measured.abstained.tolist() == [False, True, False]
    assert measured.reasons == (None, FLAT, None)
    assert measured.score[1] == 0
    assert (measured.score[::2] > 0).all()


# Doors


@pytest.mark.parametrize("steps", [0, -3, 2.5, True, "many"])
def test_steps_that_are_no_number_of_steps_are_refused(steps):
    with pytest.raises(OptionError, match="expected a whole number of at least 1"):
        FAux(steps=steps)
