"""How well features predict the protected variable on held-out rows, and which ones reveal it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fairfox.auxiliary.model import Auxiliary
from fairfox.auxiliary.training import centre_and_spread
from fairfox.data.dataset import Dataset, Protected
from fairfox.gradients.jacobian import jacobian

TOO_GOOD = 0.99
NEAR_CHANCE = 0.55


@dataclass(frozen=True)
class AuxiliaryQuality:
    """How well the features predict the protected variable on held-out rows, compared with chance."""

    variable: str
    metric: str  # "auc" or "r2"
    value: float
    chance: float
    log_loss: float
    chance_log_loss: float
    rows: int


def measure_quality(
    outputs: Tensor, c: Tensor, protected: Protected, weights: Tensor | None = None
) -> AuxiliaryQuality:
    """Return AUC and log-loss of a head's outputs (N, K) on held-out rows.

    For a number it is R2 and the squared error, of predictions in the number's own units.
    With more than two classes the AUC is the mean of each class against the rest. It is NaN where the rows have
    fewer than two groups.
    """
    known = ~c.isnan() if weights is None else ~c.isnan() & (weights > 0).to(c.device)
    out, truth = (part[known].double().numpy(force=True) for part in (outputs, c))
    counts = np.ones(len(truth)) if weights is None else weights.to(c.device)[known].double().numpy(force=True)
    metric, chance = ("r2", 0.0) if protected.is_continuous else ("auc", 0.5)
    if len(np.unique(truth)) < 2:
        value, loss, chance_loss = math.nan, math.nan, math.nan
    elif protected.is_continuous:
        from sklearn.metrics import r2_score

        value = float(r2_score(truth, out[:, 0], sample_weight=counts))
        loss, chance_loss = 1.0 - value, 1.0  # in variances of the truth
    else:
        logits = np.column_stack([np.zeros(len(out)), out[:, 0]]) if protected.kind == "binary" else out
        value, loss, chance_loss = _classification(logits, truth.astype(int), counts)
    return AuxiliaryQuality(protected.name, metric, value, chance, loss, chance_loss, len(truth))


def predicted_values(auxiliary: Auxiliary, x: Tensor, known: Dataset) -> Tensor:
    """Return the auxiliary's outputs (n, K), averaged over its members; numbers in their own units."""
    with torch.no_grad():
        out = torch.stack([member(x) for member in auxiliary.members]).mean(0)
    for v, own in enumerate(out.split([p.outputs for p in known.protected], dim=1)):
        if known.protected[v].is_continuous:
            mean, spread = centre_and_spread(known.c[:, v], known.weights)
            own.copy_(mean + spread * own)
    return out


def measure_qualities(outputs: Tensor, rows: Dataset) -> tuple[AuxiliaryQuality, ...]:
    """Return how well outputs (n, K) predict each protected variable of these people."""
    sizes = [p.outputs for p in rows.protected]
    heads = zip(outputs.split(sizes, dim=1), rows.c.unbind(1), rows.protected, strict=True)
    return tuple(measure_quality(*head, weights=rows.weights) for head in heads)


def _classification(logits: np.ndarray, classes: np.ndarray, counts: np.ndarray) -> tuple[float, float, float]:
    """Return the mean AUC of each class that is there against the rest, the log-loss and that of the class shares."""
    from sklearn.metrics import roc_auc_score

    log_share = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
    loss = float(-np.average(log_share[np.arange(len(classes)), classes], weights=counts))
    rates = np.bincount(classes, weights=counts) / counts.sum()
    chance_loss = float(-(rates[rates > 0] * np.log(rates[rates > 0])).sum())
    score = np.exp(log_share)
    auc = [roc_auc_score(classes == k, score[:, k], sample_weight=counts) for k in np.unique(classes)]
    return float(np.mean(auc)), loss, chance_loss


def quality_warnings(quality: AuxiliaryQuality) -> list[str]:
    """Return warnings about an auxiliary that is too good or no better than chance."""
    name, value = quality.variable, quality.value
    if math.isnan(value):
        return [
            f"The rows have fewer than two values of '{name}': how well the features predict it could not be measured."
        ]
    if quality.metric == "auc" and value > TOO_GOOD:
        return [
            f"The features almost determine '{name}' (auxiliary AUC {value:.3f}): people of one group have no "
            "counterpart in the other, so gradient and move scores are extrapolations."
        ]
    if value < {"auc": NEAR_CHANCE, "r2": NEAR_CHANCE - 0.5}.get(quality.metric, -math.inf):
        shown = f"AUC {value:.3f}, chance 0.5" if quality.metric == "auc" else f"R2 {value:.3f}"
        return [
            f"The features hardly predict '{name}' (auxiliary {shown}): gradient and move tests have no direction to "
            "follow. rank needs none."
        ]
    return []


def proxy_strength(auxiliary: Auxiliary, data: Dataset, *, variable: int = 0, batch_size: int = 4096) -> Tensor:
    """Return per original feature (F,) the paper's transparency: |mean over c = 0 of the auxiliary's gradient|.

    One-hot columns are averaged within their feature, classes summed within their variable; for more than two
    classes, and for a number, the mean is over everyone.
    """
    p = data.protected[variable]
    rows = data[data.c[:, variable] == 0] if len(p.levels) == 2 else data
    first = sum(before.outputs for before in data.protected[:variable])
    own = slice(first, first + p.outputs)
    means = [jacobian(member, rows.x, batch_size=batch_size)[:, own].mean(0) for member in auxiliary.members]
    size = torch.stack(means).mean(0).abs().sum(0)  # (D,)
    return torch.stack([size[f.columns].mean() for f in data.features])
