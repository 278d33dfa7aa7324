"""Unfair Map, against a gradient flow written out in NumPy."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from populations import linear
from scipy.stats import norm
from torch import nn

from fairfox.auxiliary.linear import LinearAuxiliary
from fairfox.auxiliary.model import FixedAuxiliary
from fairfox.data.dataset import Dataset, Protected
from fairfox.errors import DataError, OptionError
from fairfox.fairtests.unfair_map import NOT_FINITE, UNLABELLED, UnfairMap, cross_entropy
from fairfox.models.protocol import Output
from fairfox.models.torch import TorchModel

NAN = float("nan")


def crowd(n: int = 200, features: int = 2, *, seed: int = 0) -> Dataset:
    """Return people whose group x1 decides (the first column) alone, and their labels by all columns."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, features))
    c = (x[:, 0] + 0.5 * rng.normal(size=n) > 0).astype(float)
    y = (x.sum(1) + rng.normal(size=n) > 0).astype(float)
    return Dataset.from_arrays(x, c, y)


def logistic(*weights: float) -> TorchModel:
    return TorchModel(lambda x: x @ torch.tensor(weights, dtype=x.dtype)[:, None], output=Output("logit"))


def network(*last: nn.Module, features: int = 3, kind: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        net = nn.Sequential(nn.Linear(features, 6), kind(), nn.Linear(6, 5), kind(), nn.Linear(5, 1), *last)
    for layer in net:
        if isinstance(layer, nn.Linear):
            layer.weight.data *= 2
    return net.double().eval().requires_grad_(False)


def known(*weights: float, **options: Any) -> UnfairMap:
    """Return the test whose protected direction is this one."""
    return UnfairMap(auxiliary=FixedAuxiliary([linear(*weights)]), **options)


# --- the flow ------------------------------------------------------------------------------------------------------


def sigmoid(z: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-z))


def own_loss(p: np.ndarray, y: np.ndarray) -> np.ndarray:
    return -np.where(y == 1, np.log(p), np.log(1 - p))


def flow_of_a_network(data: Dataset, net: nn.Sequential, basis: np.ndarray) -> np.ndarray:
    first, second, last = ((layer.weight.numpy(), layer.bias.numpy()) for layer in net if isinstance(layer, nn.Linear))
    start, y = data.x.numpy(), data.y.numpy()
    outside = np.eye(start.shape[1]) - basis @ basis.T

    def layers(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        a = x @ first[0].T + first[1]
        b = np.maximum(a, 0) @ second[0].T + second[1]
        return a, b, sigmoid(np.maximum(b, 0) @ last[0].T + last[1])[:, 0]

    x = start.copy()
    for _ in range(200):
        a, b, p = layers(x)
        back = (p - y)[:, None] * last[0]  # by b after its ReLU
        back = ((back * (b > 0)) @ second[0] * (a > 0)) @ first[0]
        x = x + 0.01 * (back - 50 * 2 * (x - start) @ outside)
    return own_loss(layers(x)[2], y) / own_loss(layers(start)[2], y)


@pytest.mark.parametrize("kind", ["logit", "probability", "function", "module"])
def test_a_network_agrees_with_the_flow_written_out(kind: str):
    data, net = crowd(60, 3), network()
    target = {
        "logit": TorchModel(net, output=Output("logit")),
        "probability": TorchModel(network(nn.Sigmoid())),
        "function": TorchModel(lambda x: torch.sigmoid(net(x))),
        "module": TorchModel(nn.Sequential(net, nn.Sigmoid())),
    }[kind]
    test = UnfairMap(auxiliary=LinearAuxiliary()).fit(data)
    expected = flow_of_a_network(data, net, test.bases[0].numpy())
    assert expected.std() > 0.01
    np.testing.assert_allclose(test.score(target, data), expected, atol=1e-4, rtol=1e-4)


def test_a_logit_is_audited_as_the_probability_behind_it():
    data = crowd(50, 3)
    test = UnfairMap().fit(data)
    plain, asked = (TorchModel(network(), output=Output("logit", wanted)) for wanted in ("probability", "logit"))
    assert torch.equal(test.score(plain, data), test.score(asked, data))


# --- the verdict ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fitted", [False, True], ids=["axis given", "axis fitted"])
def test_the_bound_is_one_without_the_sensitive_axis_and_grows_strictly_with_its_weight(fitted: bool):
    data = crowd(2000)
    test = (UnfairMap(auxiliary=LinearAuxiliary()) if fitted else known(1.0, 0.0)).fit(data)
    bounds = []
    for weight in (0.0, 0.25, 0.5, 1.0, 1.5):
        target = logistic(weight, 1.0)
        bounds.append(test.verdict(test.measure(target, data), data)["bound"])
    assert bounds[0] == pytest.approx(1.0, abs=0.02)
    assert (np.diff(bounds) > 0).all()
    assert bounds[-1] > 1.25


def test_the_verdict_by_hand():
    data = crowd(5)
    test = known(1.0, 0.0).fit(data)
    measured = test.measure(logistic(1.0, 1.0), data)
    away = torch.tensor([False, False, False, False, True])
    measured = replace(measured, score=torch.tensor([1.0, 2.0, 3.0, 2.0, 0.0]), abstained=away)
    verdict = test.verdict(measured, data)
    error = 0.5**0.5 / 2  # the four lie 1, 0, 1 and 0 from their mean 2
    assert verdict["mean"] == 2.0
    assert verdict["bound"] == pytest.approx(2.0 - 1.645 * error)
    assert verdict["p_value"] == pytest.approx(norm.sf(0.75 / error))
    assert verdict["non_finite"] == 1.0


def test_weighted_rows_count_as_the_people_they_stand_for():
    data = crowd(4)
    test = known(1.0, 0.0).fit(data)
    measured = replace(test.measure(logistic(1.0, 1.0), data), score=torch.tensor([1.0, 2.0, 3.0, 4.0]))
    weighted = test.verdict(measured, replace(data, weights=torch.tensor([0.0, 2.0, 2.0, 0.0])))
    halves = replace(measured, score=measured.score[1:3], abstained=measured.abstained[1:3])
    assert weighted == pytest.approx(test.verdict(halves, data[1:3]))


def test_losses_that_are_zero_or_infinite_are_abstained_and_counted():
    data = replace(crowd(4), x=torch.tensor([[1.0, 0.0], [50.0, 0.0], [50.0, 0.0], [-1.0, 0.0]]))
    data = replace(data, c=data.c.float(), y=torch.tensor([1.0, 1.0, 0.0, 0.0]))  # 50: p rounds to 1 in float32
    test = known(1.0, 0.0).fit(data)
    measured = test.measure(TorchModel(lambda x: torch.sigmoid(x[:, :1])), data)
    assert measured.reasons == (None, NOT_FINITE, NOT_FINITE, None)
    assert measured.score[1:3].tolist() == [0.0, 0.0]
    verdict = test.verdict(measured, data)
    assert verdict["non_finite"] == 2.0
    assert verdict["mean"] == pytest.approx(float(measured.score[[0, 3]].mean()))
    unit = nn.Linear(2, 1, bias=False).requires_grad_(False)
    unit.weight[:] = torch.tensor([[1.0, 0.0]])
    for finer in (logistic(1.0, 0.0), TorchModel(nn.Sequential(unit, nn.Sigmoid()))):  # have logits, and need not round
        found = test.measure(finer, data)
        assert not found.abstained.any()
        torch.testing.assert_close(found.score[[0, 3]], measured.score[[0, 3]])


# --- people and groups ---------------------------------------------------------------------------------------------


def test_many_classes_numbers_and_several_variables_span_one_subspace():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(300, 6, generator=generator).double()
    race = Protected("race", "categorical", ("a", "b", "c"))
    age = Protected("age", "continuous", ())
    c = torch.stack([(x[:, 0] > 0).double() + (x[:, 1] > 0), 30 + 10 * x[:, 2]], dim=1)
    data = Dataset.from_arrays(x, c, (x[:, 5] > 0).double(), protected=[race, age])
    test = UnfairMap(auxiliary=LinearAuxiliary()).fit(data)
    assert test.bases[0].shape == (6, 3)  # three centred classes have two directions, the number one
    torch.testing.assert_close(test.bases[0].T @ test.bases[0], torch.eye(3).double())
    own, foreign = (test.score(logistic(*weights), data).mean() for weights in ([0, 0, 1, 0, 0, 0], [0, 0, 0, 0, 1, 0]))
    assert own > 1.5
    assert foreign == pytest.approx(1.0, abs=0.1)


def test_the_protected_column_itself_moves_freely_where_the_target_takes_it():
    data = replace(crowd(200), withheld=torch.tensor([True, False]))
    test = UnfairMap(auxiliary=LinearAuxiliary()).fit(data)
    assert test.score(logistic(1.0, 0.0), data).mean() > 1.5


def test_the_audited_class_decides_which_label_is_right():
    data, rule = crowd(50), logistic(1.0, 0.5)
    opposite = TorchModel(rule.module, output=Output("logit", column=0))  # audits class 0
    test = known(1.0, 0.0).fit(data)
    torch.testing.assert_close(test.score(opposite, data), test.score(rule, data))


def test_people_without_a_label_are_abstained_and_not_counted_as_non_finite():
    data = crowd(10)
    expected = known(1.0, 0.0).fit(data).score(logistic(1.0, 1.0), data)
    y = data.y.clone()
    y[3] = NAN
    some = replace(data, y=y)
    test = known(1.0, 0.0).fit(some)
    measured = test.measure(logistic(1.0, 1.0), some)
    assert measured.reasons[3] == UNLABELLED
    assert test.verdict(measured, some)["non_finite"] == 0.0
    others = torch.arange(10) != 3
    torch.testing.assert_close(measured.score[others], expected[others])


def test_the_loss_by_hand():
    y = torch.tensor([1.0, 0.0, 1.0, 0.0])
    p = torch.tensor([0.5, 0.5, 1e-30, 1e-10])
    expected = torch.tensor([np.log(2), np.log(2), 30 * np.log(10), 1e-10]).float()
    torch.testing.assert_close(cross_entropy(p, y), expected, rtol=1e-6, atol=0)
    z = torch.tensor([0.0, 0.0, -60.0, -20.0])
    torch.testing.assert_close(
        cross_entropy(z, y, logits=True), torch.tensor([np.log(2), np.log(2), 60.0, 2.0611537e-9]).float()
    )


# --- doors ---------------------------------------------------------------------------------------------------------


def test_what_cannot_be_measured_is_refused_in_a_sentence():
    data = crowd(20)
    test = known(1.0, 0.0).fit(data)
    with pytest.raises(DataError, match=r"these people have none; name the column \(label, --label\)"):
        test.score(logistic(1.0, 1.0), replace(data, y=None))
    with pytest.raises(DataError, match="needs labels 0 and 1, but one of them is 2; give a column of 0 and 1"):
        test.score(logistic(1.0, 1.0), replace(data, y=2 * data.y))
    with pytest.raises(OptionError, match="unfair_map needs probabilities, but the model returned -5 to -5"):
        test.score(TorchModel(lambda x: 0 * x[:, :1] - 5), data)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"weight": 0.0}, "weight is 0.0; expected a number above 0"),
        ({"rate": NAN}, "rate is nan; expected a number above 0"),
        *(({"tolerated": t}, f"tolerated is {t}; expected a number above 0") for t in (NAN, float("inf"), -1.0)),
        ({"steps": 0}, "steps is 0; expected a whole number of at least 1"),
        ({"rate": 0.1}, "weight x rate is 5, but the attack diverges above 1; give a smaller rate"),
    ],
)
def test_settings_that_make_no_sense_are_refused(options: dict[str, Any], says: str):
    with pytest.raises(OptionError, match=says):
        known(1.0, 0.0, **options)
