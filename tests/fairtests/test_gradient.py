"""Tests that read gradients share them."""

import pytest
import torch
from torch import Tensor

from fairfox.auxiliary.linear import LinearMember
from fairfox.auxiliary.model import FixedAuxiliary
from fairfox.data.dataset import Dataset
from fairfox.fairtests.faux import FAux
from fairfox.fairtests.fta import FTA, FTALinear
from fairfox.fairtests.gradient import measure_together


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
