"""What can be done about an effect, in numbers and in words."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

Way = Literal["dropped", "repaired"]
Method = Literal["re-trained", "estimated", "as it is"]


@dataclass(frozen=True)
class Step:
    """One thing that could be done about one feature, and what it would do."""

    feature: str
    way: Way
    method: Method  # of finding out; a feature is repaired for the model "as it is"
    before: float  # mean |effect|, of the same model or, re-trained, of one trained alike with all features
    after: float
    share: float  # of the effect that goes away; below 0 it grows
    accuracy_before: float | None  # on people with a label, re-trained where possible; None without labels
    accuracy_after: float | None
    change: float  # mean |change| of the predictions

    @property
    def cost(self) -> float | None:
        """The accuracy that is lost; below 0 it is gained."""
        if self.accuracy_before is None or self.accuracy_after is None:
            return None
        return self.accuracy_before - self.accuracy_after


@dataclass(frozen=True)
class NextSteps:
    """What can be done about an effect, feature by feature, and what is suggested."""

    effect: float  # mean |effect| of the model on the people asked about
    steps: tuple[Step, ...]  # two for each candidate, the largest share first
    suggestion: Step | None  # None where nothing lowers the effect by a twentieth
    measure: Literal["AUC", "R²"] | None  # of accuracy; None without labels
    train_fair: str | None  # a sentence, where hiding the protected variables from all features fits better
    people: int  # asked about
    compared: int  # of them, on both sides: the effects are theirs
    predictions: int  # that the audited model was asked for, about
    retrained_on: int = 0  # people, half of them at a time
    not_retrained: str | None = None  # why an estimator was not trained again

    @property
    def sentence(self) -> str:
        """The suggestion in plain words."""
        if self.suggestion is None:
            return "No single feature lowers the effect noticeably when it is dropped or repaired."
        return sentence_of(self.suggestion, self.measure)

    def as_dict(self) -> dict[str, Any]:
        """Return all of it as plain values, for JSON."""
        steps = [{**asdict(step), "cost": step.cost} for step in self.steps]
        chosen = None if self.suggestion is None else steps[self.steps.index(self.suggestion)]
        return {**asdict(self), "steps": steps, "suggestion": chosen, "sentence": self.sentence}


def sentence_of(step: Step, measure: str | None) -> str:
    """Return one step in plain words: what goes away, what it costs, and how that was found out.

    Example:
        >>> step = Step("zip code", "dropped", "re-trained", 0.1, 0.022, 0.78, 0.842, 0.838, 0.03)
        >>> sentence_of(step, "AUC")
        'Dropping "zip code" would take away 78 % of the effect and cost 0.4 points of accuracy (AUC 0.842 to 0.838,
        re-trained).'
    """
    doing = {"dropped": "Dropping", "repaired": "Repairing"}[step.way]
    found = "the model as it is" if step.method == "as it is" else step.method
    percent = round(100 * step.share)
    moves = f"take away {percent} % of" if percent >= 0 else f"add {-percent} % to"
    start = f'{doing} "{step.feature}" would {moves} the effect and'
    if step.cost is None:
        return f"{start} change predictions by {step.change:.3g} on average ({found})."
    points = round(100 * step.cost, 1) + 0.0
    what = "cost no accuracy" if points == 0 else f"{'cost' if points > 0 else 'gain'} {abs(points)} points of accuracy"
    return f"{start} {what} ({measure} {step.accuracy_before:.3f} to {step.accuracy_after:.3f}, {found})."
