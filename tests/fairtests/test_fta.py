"""Fairness through awareness, by hand."""

import numpy as np
import pytest
import torch
from populations import Function
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from fairfox.auxiliary.linear import LinearAuxiliary, LinearMember
from fairfox.auxiliary.model import FixedAuxiliary
from fairfox.data.dataset import Dataset, Protected
from fairfox.errors import OptionError
from fairfox.fairtests.fta import FTA, FTALinear

RACE = Protected("race", "categorical", ("a", "b", "c"))


def linear(*rows) -> LinearMember:
    return LinearMember(torch.tensor(rows), torch.zeros(len(rows)))


def people(count=100, features=3):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(count, features, dtype=torch.float64, generator=generator)
    noise = torch.randn(count, dtype=torch.float64, generator=generator)
    return Dataset.from_arrays(x, (x[:, 0] - x[:, 1] + noise > 0).double())


def curve(x: Tensor) -> Tensor:
    return torch.sigmoid(x[:, :1] * x[:, 1:2] - x[:, 2:3])


@pytest.mark.parametrize(("order", "expected"), [(1.0, 7.0), (2.0, 5.0), (float("inf"), 4.0)])
def test_score_is_the_norm_of_the_gradient(order, expected):
    data = Dataset.from_arrays(torch.zeros(2, 2), c=[0, 1])
    measured = FTA(order=order).fit(data).measure(linear([3.0, -4.0]), data)
    assert measured.score.tolist() == [expected, expected]
    assert measured.effect is None
    assert not measured.abstained.any()


@pytest.mark.parametrize("test", [FTA(), FTALinear()], ids=["fta", "fta+linear"])
def test_a_black_box_scores_as_the_same_function_seen_through(test):
    data = people()
    test.fit(data)
    expected = test.score(Function(curve), data)
    found = test.score(Function(lambda x: curve(x.detach()), differentiable=False), data)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(("form", "expected"), [("projection", 2.0), ("weighted", (1.44 + 0.64) ** 0.5)])
def test_score_of_a_linear_auxiliary_by_hand(form, expected):
    # unit coefficients (0.6, 0.8), gradient (2, 1): 1.2 + 0.8, or the length of (1.2, 0.8)
    data = Dataset.from_arrays(torch.zeros(2, 2), c=[0, 1])
    test = FTALinear(auxiliary=FixedAuxiliary([linear([3.0, 4.0])]), form=form).fit(data)
    torch.testing.assert_close(test.score(linear([2.0, 1.0]), data), torch.full((2,), expected))
    assert test.measure(linear([2.0, 1.0]), data).effect is None


@pytest.mark.parametrize(("form", "expected", "klass"), [("projection", 5.0, -1), ("weighted", 5 / 2**0.5, 0)])
def test_score_of_several_classes_by_hand(form, expected, klass):
    # coefficients span the first two features; unit rows (1, ±1, 0) / sqrt 2 weigh both alike, (1, 0, 0) only one
    data = Dataset.from_arrays(torch.zeros(3, 3), [0.0, 1.0, 2.0], protected=[RACE])
    auxiliary = FixedAuxiliary([linear([7.0, 7.0, 0.0], [0.1, -0.1, 0.0], [2.0, 0.0, 0.0])])
    found = FTALinear(auxiliary=auxiliary, form=form).fit(data).measure(linear([3.0, 4.0, 12.0]), data)
    torch.testing.assert_close(found.score, torch.full((3,), expected))
    assert found.klass.tolist() == [klass] * 3


def test_each_variable_has_a_subspace_of_its_own():
    data = Dataset.from_arrays(torch.zeros(2, 3), [[0.0, 1.0], [1.0, 0.0]])
    auxiliary = FixedAuxiliary([linear([2.0, 0.0, 0.0], [0.0, 9.0, 0.0])])
    found = FTALinear(auxiliary=auxiliary).fit(data).measure(linear([3.0, 4.0, 12.0]), data)
    assert found.values.tolist() == [[3.0, 4.0], [3.0, 4.0]]
    assert found.variable.tolist() == [1, 1]


def test_projection_follows_scikit_learn_s_coefficients():
    data = people()
    found = FTALinear(auxiliary=LinearAuxiliary()).fit(data).score(Function(curve), data)
    coefficients = LogisticRegression(max_iter=1000).fit(data.x.numpy(), data.c[:, 0].numpy()).coef_[0]
    gradient = torch.func.vmap(torch.func.grad(lambda row: curve(row[None])[0, 0]))(data.x).numpy()
    expected = np.abs(gradient @ coefficients) / np.linalg.norm(coefficients)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


# --- with epsilon --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("order", "expected"), [(1.0, 2.0), (2.0, 2.5), (float("inf"), 3.5)])
def test_with_epsilon_a_linear_model_changes_by_epsilon_times_the_dual_norm(order, expected):
    # half of the largest entry, the length and the sum of (3, -4)
    data = Dataset.from_arrays(torch.zeros(2, 2), c=[0, 1])
    measured = FTA(order=order, epsilon=0.5).fit(data).measure(linear([3.0, -4.0]), data)
    torch.testing.assert_close(measured.score, torch.full((2,), expected))
    assert measured.effect is None
    assert measured.contrasts == ()
    assert not measured.abstained.any()


def test_epsilon_and_order_are_checked():
    data = people(10)
    box = Function(lambda x: curve(x.detach()), differentiable=False)
    with pytest.raises(OptionError, match="fta with epsilon needs a differentiable model; leave epsilon"):
        FTA(epsilon=0.5).score(box, data)
    for epsilon in (0.0, -1.0, float("nan"), float("inf"), "abc", True):
        with pytest.raises(OptionError, match=f"epsilon is {epsilon!r}; expected a number above 0"):
            FTA(epsilon=epsilon)
    with pytest.raises(OptionError, match="order is 3; expected 1, 2 or inf"):
        FTA(order=3)
    with pytest.raises(OptionError, match="steps is 0; expected a whole number of at least 1"):
        FTA(epsilon=1.0, steps=0)
    with pytest.raises(OptionError, match="steps is None; expected a whole number of at least 1"):
        FTA(epsilon=0.5, steps=None)
    with pytest.raises(OptionError, match="restarts is -1; expected a whole number of at least 0"):
        FTA(epsilon=1.0, restarts=-1)
