"""Numbers become sentences that say what they mean."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fairfox.steps import NextSteps, Step, sentence_of

DROP = Step("zip code", "dropped", "re-trained", 0.1, 0.022, 0.78, 0.842, 0.838, 0.03)
REPAIR = Step("income", "repaired", "as it is", 0.1, 0.08, 0.2, None, None, 0.0123)


def test_a_cost_is_said_in_points_of_accuracy_with_its_measure():
    assert sentence_of(DROP, "AUC") == (
        'Dropping "zip code" would take away 78 % of the effect and cost 0.4 points of accuracy (AUC 0.842 to 0.838, '
        "re-trained)."
    )


def test_without_labels_the_change_of_predictions_is_said():
    assert sentence_of(REPAIR, None) == (
        'Repairing "income" would take away 20 % of the effect and change predictions by 0.0123 on average (the model '
        "as it is)."
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"accuracy_after": 0.85}, "and gain 0.8 points of accuracy (AUC 0.842 to 0.850,"),
        ({"accuracy_after": 0.8419}, "and cost no accuracy (AUC 0.842 to 0.842,"),
        ({"share": -0.06}, "would add 6 % to the effect and"),
        ({"share": -0.001}, "would take away 0 % of the effect and"),
        ({"method": "estimated"}, ", estimated)."),
    ],
)
def test_gains_and_growing_effects_are_said_as_such(changes: dict[str, object], said: str):
    assert said in sentence_of(replace(DROP, **changes), "AUC")  # type: ignore[arg-type]


def test_cost_is_what_accuracy_loses():
    assert DROP.cost == pytest.approx(0.004)
    assert REPAIR.cost is None


def test_all_of_it_goes_into_json_with_its_sentence():
    found = NextSteps(0.1, (DROP, REPAIR), DROP, "AUC", None, 100, 50, 1200).as_dict()
    assert found["sentence"] == sentence_of(DROP, "AUC")
    assert found["suggestion"] == found["steps"][0]
    assert found["steps"][0]["cost"] == pytest.approx(0.004)
    assert found["steps"][1]["cost"] is None
    assert (found["people"], found["compared"], found["predictions"], found["retrained_on"]) == (100, 50, 1200, 0)
