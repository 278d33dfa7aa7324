"""Tests that read gradients share them."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from fairfox.auxiliary.linear import LinearMember
from fairfox.auxiliary.mlp import MLP
from fairfox.auxiliary.model import AuxiliaryMember, FixedAuxiliary
from fairfox.data.dataset import Dataset, Protected
from fairfox.fairtests.faux import FAux, block_rows, measure_together, score_together
from fairfox.fairtests.fta import FTA, FTALinear
from fairfox.gradients.jacobian import autograd_jacobian
from fairfox.gradients.relu import Pairing, relu_network
from fairfox.models.protocol import Output
from fairfox.models.torch import TorchModel


class Counted:
    """A model that counts how many rows it was asked about."""

    differentiable = True

    def __init__(self, function) -> None:
        self.function, self.rows = function, 0

    def __call__(self, x: Tensor) -> Tensor:
        self.rows += len(x)
        return self.function(x)


def people(count=50):
    x = torch.randn(count, 3, generator=torch.Generator().manual_seed(0))
    return Dataset.from_arrays(x, (x[:, 0] > 0).float())


def target():
    return Counted(lambda x: torch.sigmoid(x[:, :1] * x[:, 1:2] - x[:, 2:3]))


def members():
    return [Counted(lambda x, k=k: torch.tanh(x[:, :1] + k * x[:, 1:2] ** 2)) for k in (0.5, 1.0)]


def three_tests(data):
    auxiliary = FixedAuxiliary(members())
    straight = FixedAuxiliary([LinearMember(torch.tensor([[1.0, 2.0, 0.0]]), torch.zeros(1))])
    tests = [FAux(auxiliary=auxiliary), FAux(auxiliary=auxiliary, normalise=True), FTA(), FTALinear(auxiliary=straight)]
    return auxiliary, [test.fit(data) for test in tests]


@pytest.mark.parametrize("batch_size", [7, 50, 4096])
def test_together_they_measure_what_each_measures_alone(batch_size):
    data = people()
    _, tests = three_tests(data)
    together = measure_together(tests, target(), data, batch_size=batch_size)
    for test, measured in zip(tests, together, strict=True):
        alone = test.measure(target(), data)
        torch.testing.assert_close(measured.score, alone.score, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(measured.refits, alone.refits, rtol=1e-6, atol=1e-6)
        assert (measured.signed is None) == (alone.signed is None)


def test_gradients_are_formed_once_for_all_tests():
    data, model = people(), target()
    auxiliary, tests = three_tests(data)
    measure_together(tests, model, data, batch_size=16)
    assert model.rows == 50
    assert [member.rows for member in auxiliary.members] == [50, 50]


def test_tests_with_different_auxiliaries_do_not_mix_them():
    data = people(4)
    first, second = (
        FAux(auxiliary=FixedAuxiliary([LinearMember(torch.tensor([weights]), torch.zeros(1))]))
        for weights in ([1.0, 0.0, 0.0], [0.0, 2.0, 0.0])
    )
    rule = LinearMember(torch.tensor([[3.0, 5.0, 0.0]]), torch.zeros(1))
    one, two = measure_together([first, second], rule, data)
    assert one.score.tolist() == [3.0] * 4
    assert two.score.tolist() == [2.5] * 4  # 5 / 2


def test_one_flat_refit_is_enough_to_abstain():
    data = people(4)
    flat = Counted(lambda x: torch.relu(x[:, :1] - 100))
    test = FAux(auxiliary=FixedAuxiliary([Counted(lambda x: x[:, :1]), flat]))
    (measured,) = measure_together([test], target(), data)
    assert measured.abstained.all()
    assert not measured.score.any()


class Unsplit:
    """A model that hides what it is made of: gradients of it are formed."""

    differentiable = True

    def __init__(self, model) -> None:
        self.model = model

    def __call__(self, x: Tensor) -> Tensor:
        return self.model(x)


def network(inputs, outputs=1, *, width=10, depth=2, seed=0, dtype=torch.float64):
    return MLP(inputs, outputs, width=width, depth=depth, seed=seed).to(dtype).member(0)


def crowd(features, protected, dtype):
    x = torch.randn(60, features, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    c = torch.arange(60).remainder(max(len(protected.levels), 2)).to(dtype)
    return Dataset.from_arrays(x.to(dtype), c, protected=(protected,))


def paired(features, protected, dtype):
    """Return a target, two auxiliaries, and the same that hide what they are made of."""
    data = crowd(features, protected, dtype)
    mask = torch.arange(features) != 1
    raw = protected.outputs if len(protected.levels) != 2 else 1
    nets = [network(features, raw, width=16, seed=seed, dtype=dtype) for seed in (1, 2)]
    members = [AuxiliaryMember(net, mask, (protected,)) for net in nets]
    model = TorchModel(network(features, dtype=dtype), output=Output("logit"))
    return data, model, FixedAuxiliary(members), FixedAuxiliary([Unsplit(member) for member in members])


CASES = {
    "one output": Protected("sex"),
    "a number": Protected("age", "continuous", ()),
    "three classes": Protected("race", "categorical", ("a", "b", "c")),
}


@pytest.mark.parametrize("features", [3, 12, 40])  # fewer than units, fewer than both networks' units, more
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize("metric", ["identity", "covariance"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_plain_networks_are_measured_as_models_that_cannot_be_looked_into(features, case, metric, dtype):
    data, model, plain, hidden = paired(features, case, dtype)

    def tests(auxiliary):
        both = [FAux(auxiliary=auxiliary, metric=metric, normalise=each).fit(data) for each in (False, True)]
        return [*both, FTA()] if metric == "identity" else both

    fast, slow = tests(plain), tests(hidden)
    error = {"rtol": 1e-9, "atol": 1e-11} if dtype == torch.float64 else {"rtol": 1e-4, "atol": 1e-5}
    expected = measure_together(slow, Unsplit(model), data)
    for found, wanted in zip(measure_together(fast, model, data, batch_size=17), expected, strict=True):
        torch.testing.assert_close(found.refits, wanted.refits, **error)
        torch.testing.assert_close(found.score, wanted.score, **error)
        assert torch.equal(found.abstained, wanted.abstained)
    for found, wanted in zip(score_together(fast, model, data), expected, strict=True):
        torch.testing.assert_close(found, wanted.score, **error)


def test_flat_auxiliaries_and_flat_targets_are_seen_without_gradients():
    data, model, plain, hidden = paired(20, Protected("sex"), torch.float64)
    far = data.x.clone()
    far[:10] = -1e6  # where the target's probability stands still
    with torch.no_grad():
        for member in plain.members:
            member.net[0].weight[:, 0] = -1.0  # those with a large first column have no active unit
            member.net[0].weight[:, 2:] = 0.0
    far[10:20, 0] = 1e3
    people = replace(data, x=far)
    fast, slow = ([FAux(auxiliary=aux, normalise=n) for n in (False, True)] + [FTA()] for aux in (plain, hidden))
    expected = measure_together(slow, Unsplit(model), people)
    for found, wanted in zip(measure_together(fast, model, people), expected, strict=True):
        torch.testing.assert_close(found.score, wanted.score, rtol=1e-9, atol=1e-12)
        assert torch.equal(found.abstained, wanted.abstained)
    assert expected[0].abstained[10:20].all()
    assert not expected[2].score[:10].any()


def test_no_gradient_as_long_as_x_is_formed_for_plain_networks(monkeypatch):
    data, model, plain, _ = paired(20, Protected("sex"), torch.float32)
    test = FAux(auxiliary=plain)
    usual = autograd_jacobian(model, data.x)[:, 0].abs().amax(1) > 0  # a few have no active unit
    alive = data[usual & ~test.measure(model, data).abstained]
    monkeypatch.setattr("fairfox.fairtests.faux.jacobian", None)
    assert len(test.score(model, alive)) == len(alive) > 30


def test_blocks_are_smaller_for_wide_networks_and_never_larger_than_asked_for():
    wide, narrow = (
        Pairing(relu_network(TorchModel(network(4, width=width, dtype=torch.float32)), 4), []) for width in (512, 4)
    )
    x = torch.zeros(1, 4)
    assert block_rows(x, narrow, 4096) == 4096
    assert block_rows(x, wide, 4096) == 1024
    assert block_rows(x, wide, 100) == 100


def test_blocks_on_a_gpu_keep_it_busy_within_two_gigabytes():
    wide, narrow = (
        Pairing(relu_network(TorchModel(network(4, width=width, dtype=torch.float32)), 4), []) for width in (512, 4)
    )
    x = torch.zeros(1, 4, device="meta")  # nothing is read of it but its shape
    assert block_rows(x, narrow, 4096) == 1 << 20
    assert block_rows(x, narrow, 1 << 21) == 1 << 21
    assert block_rows(x, wide, 4096) == block_rows(x, wide, 1 << 21) == 1 << 17  # 4 (4 + 2 (2 * 512 + 1)) bytes a row
    assert block_rows(torch.zeros(1, 4000, device="meta"), narrow, 1 << 21) == 1 << 17  # 4 (4000 + 2 (2 * 4 + 1))


def test_the_step_that_is_given_is_taken_and_none_is_looked_for(monkeypatch):
    data, edge = people(), LinearMember(torch.tensor([[1.0, 0.0, 0.0]]), torch.zeros(1))
    model = Counted(lambda x: x[:, :1] ** 3)
    model.differentiable = False
    monkeypatch.setattr("fairfox.fairtests.faux.suited_step", None)
    monkeypatch.setattr("fairfox.fairtests.faux.suited_step", None)
    steep = 3 * data.x[:, 0] ** 2 + 0.25  # ((x + h)^3 - (x - h)^3) / 2 h = 3 x^2 + h^2, with h = 0.5
    auxiliary = FixedAuxiliary([edge])
    for test in (FAux(auxiliary=auxiliary), FTA(), FTALinear(auxiliary=auxiliary)):
        torch.testing.assert_close(test.fit(data).measure(model, data, step=0.5).score, steep)
    along = FAux(auxiliary=auxiliary, normalise=True).fit(data).measure(model, data, step=0.5).score
    torch.testing.assert_close(along, torch.ones(len(data)))
