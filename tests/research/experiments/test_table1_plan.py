"""What re-trainings and draws add up to."""

import pytest

EXPERIMENT = "table1_plan"


def retraining(ap):
    return {"rank": {"ap": ap, "rho": ap / 2, "prevalence": 0.4, "fair": 2 * ap}}


def test_re_trainings_are_averaged_first_and_then_draws(experiment):
    draws = [[retraining(0.2), retraining(0.4)], [retraining(0.5), retraining(0.7)], [retraining(0.9)] * 2]
    (found,) = experiment.summaries("Synthetic-1", "plain", draws)
    # 0.3, 0.6, 0.9: mean 0.6, standard deviation 0.3 (its square: (0.09 + 0 + 0.09) / 2)
    assert (found["ap_mean"], found["ap_std"]) == (pytest.approx(0.6), pytest.approx(0.3))
    assert (found["rho_mean"], found["rho_std"]) == (pytest.approx(0.3), pytest.approx(0.15))
    assert found["ap_draws"] == pytest.approx([0.3, 0.6, 0.9])
    # inside the draws: 0.2 / √2, 0.2 / √2, 0
    assert found["ap_retrainings"] == pytest.approx(2 * 0.2 / 2**0.5 / 3, rel=1e-3)
    assert (found["setting"], found["test"], found["auxiliary"]) == ("Synthetic-1", "rank", "plain")
    assert (found["prevalence"], found["fair"]) == (pytest.approx(0.4), pytest.approx(1.2))


def test_a_test_that_learns_nothing_may_be_measured_once_a_draw(experiment):
    draws = [[retraining(0.2) | {"lic": retraining(0.9)["rank"]}, retraining(0.4)]]
    _, lic = experiment.summaries("Synthetic-1", "none", draws)
    assert (lic["ap_mean"], lic["ap_std"], lic["ap_retrainings"]) == (pytest.approx(0.9), 0.0, 0.0)
