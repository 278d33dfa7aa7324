"""How well the protected variable is predicted on held-out rows, against chance, and what that means."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from fairfox.data.dataset import Protected

TOO_GOOD = 0.99
NEAR_CHANCE = 0.55


@dataclass(frozen=True)
class AuxiliaryQuality:
    """How well the protected variable is predicted from the features on held-out rows, against chance."""

    variable: str
    metric: str  # "auc" or "r2"
    value: float
    chance: float
    log_loss: float
    chance_log_loss: float
    rows: int


def measure_quality(outputs: Tensor, c: Tensor, protected: Protected) -> AuxiliaryQuality:
    """Return AUC and log-loss of a head's outputs (N, K) on rows that its auxiliary has not seen (R2 for numbers).

    With more than two classes the AUC is the mean of each class against the rest. It is NaN where the rows show
    fewer than two groups.
    """
    from sklearn.metrics import r2_score, roc_auc_score

    known = ~c.isnan()
    out, truth = outputs[known].double().numpy(force=True), c[known].double().numpy(force=True)
    if len(np.unique(truth)) < 2:
        metric, chance = ("r2", 0.0) if protected.kind == "continuous" else ("auc", 0.5)
        return AuxiliaryQuality(protected.name, metric, math.nan, chance, math.nan, math.nan, len(truth))
    if protected.kind == "continuous":
        truth = (truth - truth.mean()) / truth.std()
        value, squared = float(r2_score(truth, out[:, 0])), float(((truth - out[:, 0]) ** 2).mean())
        return AuxiliaryQuality(protected.name, "r2", value, 0.0, squared, 1.0, len(truth))
    classes = truth.astype(int)
    logits = np.column_stack([np.zeros(len(out)), out[:, 0]]) if protected.kind == "binary" else out
    log_share = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
    loss = float(-log_share[np.arange(len(classes)), classes].mean())
    rates = np.bincount(classes, minlength=logits.shape[1]) / len(classes)
    chance = float(-(rates[rates > 0] * np.log(rates[rates > 0])).sum())
    score = np.exp(log_share)
    auc = np.mean([roc_auc_score(classes == k, score[:, k]) for k in np.unique(classes)])  # a class may be absent
    return AuxiliaryQuality(protected.name, "auc", float(auc), 0.5, loss, chance, len(classes))


def quality_warnings(quality: AuxiliaryQuality) -> list[str]:
    """Return what a reader must know about an auxiliary that is too good or no better than chance."""
    name, value = quality.variable, quality.value
    if math.isnan(value):
        return [
            f"The rows show fewer than two values of '{name}': how well the features tell it could not be measured."
        ]
    if quality.metric == "auc" and value > TOO_GOOD:
        return [
            f"'{name}' is almost a function of the features (auxiliary AUC {value:.3f}): people of one group have no "
            "counterpart in the other, so that gradient and move readings are extrapolations."
        ]
    if quality.metric == "auc" and value < NEAR_CHANCE:
        return [
            f"The features hardly tell '{name}' (auxiliary AUC {value:.3f}, chance 0.5): gradient and move readings "
            "have no direction to follow."
        ]
    if quality.metric == "r2" and value < NEAR_CHANCE - 0.5:
        return [f"The features hardly tell '{name}' (auxiliary R2 {value:.3f}): there is no direction to follow."]
    return []
