import numpy as np
import pytest
from sklearn.metrics import log_loss, roc_auc_score, root_mean_squared_error

from fairfox.statistics.performance import performance


@pytest.fixture
def people():
    rng = np.random.default_rng(0)
    y = (rng.random(500) < 0.3).astype(float)
    out = np.round(1 / (1 + np.exp(-rng.normal(size=500) - y)), 2)  # with ties
    return out, y, rng.integers(1, 5, 500).astype(float)


@pytest.mark.parametrize("weighted", [False, True])
def test_values_are_those_of_scikit_learn(people, weighted):
    out, y, weights = people
    counts = weights if weighted else None
    auc, loss = performance(out, y, counts)
    assert (auc.metric, loss.metric) == ("auc", "log_loss")
    assert auc.value == pytest.approx(roc_auc_score(y, out, sample_weight=counts), abs=1e-12)
    assert loss.value == pytest.approx(log_loss(y, out, sample_weight=counts), abs=1e-12)
    (rmse,) = performance(10 * out, y, counts)
    assert rmse.value == pytest.approx(root_mean_squared_error(y, 10 * out, sample_weight=counts), abs=1e-12)


@pytest.mark.parametrize("scale", [1, 10])
def test_intervals_have_the_width_of_a_bootstrap(people, scale):
    out, y, _ = people
    rng = np.random.default_rng(1)
    samples = [rng.integers(0, len(y), len(y)) for _ in range(400)]
    for number, own in enumerate(performance(scale * out, y)):
        drawn = [performance(scale * out[rows], y[rows])[number].value for rows in samples]
        assert (own.upper - own.lower) / 2 / 1.96 == pytest.approx(np.std(drawn), rel=0.15)


def test_a_difference_on_the_same_people_is_surer_than_two_values(people):
    out, y, _ = people
    a, b = performance(out, y)[0], performance(np.clip(out + 0.001, 0, 1), y)[0]
    apart = b.minus(a)
    assert apart.value == pytest.approx(b.value - a.value)
    assert apart.upper - apart.lower < 0.05 * (a.upper - a.lower)


def test_people_without_a_label_do_not_count(people):
    out, y, _ = people
    gone = np.where(np.arange(500) < 100, np.nan, y)
    assert performance(out, gone)[0].value == pytest.approx(performance(out[100:], y[100:])[0].value, abs=1e-12)
    assert performance(out, np.full(500, np.nan)) == ()
    assert [each.metric for each in performance(out, np.ones(500))] == ["log_loss"]  # one class has no AUC
