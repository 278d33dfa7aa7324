"""Labels: what predictions are held against, and what an estimator is trained on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from fairfox.data.columns import level_key, same_text
from fairfox.data.dataset import Level
from fairfox.errors import DataError
from fairfox.models.protocol import Model

FEWEST = 20  # people of a class, for a new training


@dataclass(frozen=True)
class Outcome:
    """What a prediction is held against (N,): 1 for the audited class and 0 for others, or a number; NaN unknown."""

    measure: Literal["AUC", "R²"]
    truth: Tensor

    def of(self, rows: Tensor) -> Outcome:
        """Return that of some of the people."""
        return Outcome(self.measure, self.truth[rows])

    def accuracy(self, predictions: Tensor, weights: Tensor) -> float | None:
        """Return the AUC, or the squared correlation; None where all known labels are the same."""
        known = (~self.truth.isnan() & (weights.cpu() > 0)).numpy()
        truth, out, weight = (t.cpu().double().numpy()[known] for t in (self.truth, predictions, weights))
        if len(np.unique(truth)) < 2:
            return None
        if self.measure == "AUC":
            return weighted_auc(out, truth, weight)
        if np.ptp(out) == 0:
            return 0.0
        spread = np.cov(truth, out, aweights=weight)
        return float(spread[0, 1] ** 2 / (spread[0, 0] * spread[1, 1]))


def weighted_auc(out: np.ndarray, truth: np.ndarray, weights: np.ndarray) -> float:
    """Return how often a prediction of a true one (truth 1) is above that of a false one (0); ties count one half."""
    place = np.unique(out, return_inverse=True)[1]
    true, false = (np.bincount(place, weights * kind) for kind in (truth, 1 - truth))
    below = np.cumsum(false) - false / 2
    return float(true @ below / (true.sum() * false.sum()))


def outcome_of(
    target: Model, y: Tensor | None, levels: Sequence[Level] | None, classes: Sequence[object] | None
) -> Outcome | None:
    """Return what predictions are held against; None where no label y says whether they are right.

    `levels` are what codes in y stand for, `classes` what the model knows, in the order of its outputs.
    """
    if y is None or bool(y.isnan().all()):
        return None
    y, output = y.detach().cpu().double(), getattr(target, "output", None)
    known, values = list(levels or range(2)), getattr(output, "unit", "value") == "value"
    if levels is None and not bool(((y == 0) | (y == 1) | y.isnan()).all()):
        return Outcome("R²", y) if values else None
    if values and len(known) > 2 and all(isinstance(level, int | float) for level in known):
        numbers = torch.tensor([float(level) for level in known if level is not None], dtype=torch.float64)
        return Outcome("R²", torch.where(y.isnan(), y, numbers[y.nan_to_num().long()]))
    picked = getattr(output, "column", None)
    column = 1 if picked is None else int(picked)
    place: int | None = column if len(known) == 2 else None
    if classes is not None and column < len(classes):
        found = place_of(classes[column], known)
        place = column if found is None and len(classes) == len(known) else found
    return None if place is None else Outcome("AUC", torch.where(y.isnan(), y, (y == place).double()))


def place_of(value: object, levels: Sequence[Level]) -> int | None:
    """Return which level a class is, None where it is none: by what it is, else by how it is written."""
    same = [j for j, level in enumerate(levels) if level_key(level) == level_key(value)]
    alike = [j for j, level in enumerate(levels) if same_text(level, str(value))]
    return next(iter([*same, *alike]), None)


def labels_as_trained(estimator: Any, y: Tensor, levels: Sequence[Level] | None) -> np.ndarray:
    """Return labels y (N,), codes of levels where there are any, as the estimator was given them.

    Its classes are found among the levels, else both are taken in order where they are as many.
    """
    from sklearn.base import is_classifier

    codes = y.double().numpy(force=True)
    if not is_classifier(estimator):
        return codes if levels is None else np.asarray([float(v) for v in levels if v is not None])[codes.astype(int)]
    classes, known = list(estimator.classes_), list(levels or range(2))
    places = [place_of(name, known) for name in classes]
    if None in places and len(classes) == len(known):
        places = list(range(len(known)))
    found = {place: j for j, place in enumerate(places)}
    if not set(codes.astype(int).tolist()) <= set(found):
        raise DataError(
            f"The label holds {', '.join(map(str, known))} and the model knows {', '.join(map(str, classes))}; "
            "give the label that it was trained on"
        )
    labels = np.asarray(estimator.classes_)[[found[int(code)] for code in codes]]
    least = min(int((labels == name).sum()) for name in classes)
    if least < FEWEST:
        raise DataError(f"A class of the label has {least} people; at least {FEWEST} are needed to train again")
    return labels
