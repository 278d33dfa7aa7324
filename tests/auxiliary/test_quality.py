"""How well the protected variable is told, against scikit-learn, and what is said about it."""

import math
from dataclasses import replace

import pytest
import torch
from populations import normal
from sklearn.metrics import log_loss, r2_score, roc_auc_score

from fairfox.auxiliary.quality import AuxiliaryQuality, measure_quality, quality_warnings
from fairfox.data.dataset import Protected

RACE = Protected("race", "categorical", ("a", "b", "c"))
AGE = Protected("age", "continuous", ())
SEX = Protected("sex")


def test_quality_of_a_binary_variable_is_scikit_learn_s():
    logit = normal(300, 1)
    c = (logit[:, 0] + normal(300, seed=1) > 0.5).double()
    quality = measure_quality(logit, c, SEX)
    rate = float(c.mean())
    assert (quality.variable, quality.metric, quality.chance, quality.rows) == ("sex", "auc", 0.5, 300)
    assert quality.value == pytest.approx(roc_auc_score(c, logit[:, 0]))
    assert quality.log_loss == pytest.approx(log_loss(c, logit[:, 0].sigmoid()))
    assert quality.chance_log_loss == pytest.approx(log_loss(c, [rate] * 300))


@pytest.mark.parametrize("weighted", [False, True])
def test_quality_of_a_categorical_variable_is_scikit_learn_s_one_against_the_rest(weighted):
    logits, weights = normal(300, 3), normal(300, seed=2).square() if weighted else None
    c = (logits + normal(300, 3, seed=1)).argmax(1).double()
    quality = measure_quality(logits - logits.mean(1, keepdim=True), c, RACE, weights)
    shares = logits.softmax(1).numpy()
    oracle = [roc_auc_score(c == k, shares[:, k], sample_weight=weights) for k in range(3)]
    assert quality.value == pytest.approx(sum(oracle) / 3)
    assert quality.log_loss == pytest.approx(log_loss(c, shares, sample_weight=weights))
    rates = torch.bincount(c.long(), weights=weights).double()
    rates /= rates.sum()
    assert quality.chance_log_loss == pytest.approx(float(-(rates * rates.log()).sum()))
    assert quality.rows == 300


def test_quality_of_a_number_is_r2_of_its_predictions():
    c = 40 + 10 * normal(300)
    out = c + 5 * normal(300, seed=1)
    quality = measure_quality(out[:, None], c, AGE)
    assert (quality.metric, quality.chance, quality.chance_log_loss) == ("r2", 0.0, 1.0)
    assert quality.value == pytest.approx(r2_score(c, out))
    assert quality.log_loss == pytest.approx(float((out - c).square().mean() / c.var(correction=0)))


def test_confident_logits_do_not_overflow():
    c = torch.tensor([0.0, 1.0, 1.0])
    quality = measure_quality(torch.tensor([[-2000.0], [2000.0], [-1000.0]]), c, SEX)
    assert quality.log_loss == pytest.approx(1000 / 3)


def test_people_whose_protected_value_is_unknown_do_not_count():
    logit, c = torch.tensor([[-1.0], [1.0], [-9.0]]), torch.tensor([0.0, 1.0, torch.nan])
    quality = measure_quality(logit, c, SEX)
    assert quality.rows == 2
    assert quality.value == 1.0


def test_a_class_that_is_not_among_the_rows_is_left_out():
    logits, c = normal(200, 3), torch.arange(200).double() % 2
    shares = logits.softmax(1)
    expected = (roc_auc_score(c == 0, shares[:, 0]) + roc_auc_score(c == 1, shares[:, 1])) / 2
    assert measure_quality(logits, c, RACE).value == pytest.approx(expected)


@pytest.mark.parametrize(("protected", "outputs"), [(SEX, 1), (RACE, 3), (AGE, 1)])
@pytest.mark.parametrize("c", [torch.ones(5), torch.full((5,), torch.nan)], ids=["one value", "unknown"])
def test_rows_of_one_group_cannot_tell_how_good_it_is(protected, outputs, c):
    quality = measure_quality(normal(5, outputs), c, protected)
    assert math.isnan(quality.value)
    (warning,) = quality_warnings(quality)
    assert f"fewer than two values of '{protected.name}'" in warning


GOOD = AuxiliaryQuality("sex", "auc", 0.84, 0.5, 0.49, 0.693, 1000)


def test_a_useful_auxiliary_needs_no_warning():
    assert quality_warnings(GOOD) == []
    assert quality_warnings(replace(GOOD, value=0.99)) == []
    assert quality_warnings(replace(GOOD, value=0.56)) == []
    assert quality_warnings(replace(GOOD, metric="r2", value=0.06)) == []


ALMOST = (
    "The features almost determine 'sex' (auxiliary AUC 0.995): people of one group have no counterpart "
    "in the other, so gradient and move scores are extrapolations."
)
HARDLY = (
    "The features hardly predict 'sex' (auxiliary AUC {}, chance 0.5): gradient and move tests have "
    "no direction to follow. rank needs none."
)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"value": 0.9951}, ALMOST),
        *(({"value": value}, HARDLY.format(f"{value:.3f}")) for value in (0.54, 0.5, 0.31)),
        (
            {"variable": "age", "metric": "r2", "value": -0.02},
            HARDLY.replace("sex", "age").replace("AUC {}, chance 0.5", "R2 -0.020"),
        ),
    ],
)
def test_an_auxiliary_that_is_too_good_or_no_better_than_chance_is_warned_about(changes, sentence):
    assert quality_warnings(replace(GOOD, **changes)) == [sentence]
