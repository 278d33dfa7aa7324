"""What re-trainings add up to."""

import pytest

EXPERIMENT = "table1_plan"


def part(*values):
    """One re-training: the AP of one test with each architecture."""
    return {
        "entries": [
            {"test": "rank", "target": f"{place}x1", "ap": ap, "rho": ap / 2, "ap_within": ap, "prevalence": 0.4}
            for place, ap in enumerate(values)
        ]
    }


def test_architectures_are_averaged_first_and_then_re_trainings(experiment):
    from settings import SETTINGS

    (found,) = experiment.summaries(SETTINGS[0], "plain", [part(0.2, 0.4), part(0.5, 0.7), part(0.9, 0.9)])
    # 0.3, 0.6, 0.9: mean 0.6, standard deviation 0.3 (its square: (0.09 + 0 + 0.09) / 2)
    assert (found["ap_mean"], found["ap_std"]) == (pytest.approx(0.6), pytest.approx(0.3))
    assert (found["rho_mean"], found["rho_std"]) == (pytest.approx(0.3), pytest.approx(0.15))
    assert (found["setting"], found["test"], found["auxiliary"]) == ("Synthetic-1", "rank", "plain")
    assert (found["prevalence"], found["retrainings"]) == (pytest.approx(0.4), 3)
