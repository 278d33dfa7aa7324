"""Doubtful but usable: what a reader of an audit must know about its data, its model and its fits."""

from __future__ import annotations

from itertools import combinations

import torch
from torch import Tensor

from fairfox.auxiliary.quality import quality_warnings
from fairfox.crossfit import DIRECT, Readings
from fairfox.data.dataset import Dataset
from fairfox.evaluation import spearman
from fairfox.fairtests.protocol import Measurement
from fairfox.gradients.jacobian import jacobian
from fairfox.models.protocol import Model
from fairfox.reliability import FAR

TRAINED = ("move", "move-direct", "faux", "faux+ng", "faux+ig", "fliptest")  # the tests that train networks
_SMALL_GROUP = 0.05
_DISAGREE = 0.5  # rank correlation of two re-fits
_PEOPLE = 2000  # whose gradients are looked at
_STEEP = 100.0  # times the usual gradient


def find_doubts(
    target: Model,
    data: Dataset,
    reference: Dataset | None,
    predictions: Tensor,
    readings: Readings,
    test: str,
    *,
    distance: Tensor | None = None,
) -> list[str]:
    """Return the warnings of an audit, a sentence each; with distances (N,) also how many rows look like nobody."""
    main = readings.main
    return [
        *(text for v in range(len(data.protected)) for text in _about_groups(data, reference, readings, v)),
        *_about_categories(data),
        *_about_predictions(predictions),
        *_about_gradients(target, data.x[:_PEOPLE], predictions),
        *(text for quality in readings.quality for text in quality_warnings(quality)),
        *readings.doubts,
        *_about_refits(main, test),
        *_about_scores(main, predictions),
        *_about_range(readings.direct, "direct reading"),
        *(_about_range(main, "test") if test.partition("/")[0] != DIRECT else []),
        *([] if distance is None else about_distance(distance)),
    ]


def _about_groups(data: Dataset, reference: Dataset | None, readings: Readings, variable: int) -> list[str]:
    out = []
    p, fitting = data.protected[variable], data if reference is None else reference
    weights = torch.ones(len(fitting)) if fitting.weights is None else fitting.weights
    known = ~fitting.c[:, variable].isnan()
    shares = {
        level: float(weights[fitting.c[:, variable] == code].double().sum() / weights[known].double().sum())
        for code, level in enumerate(p.levels)
    }
    small = [f"'{level}' ({share:.1%})" for level, share in shares.items() if share < _SMALL_GROUP]
    if small and len(p.levels) > 2:
        out.append(
            f"Small groups of '{p.name}' in the fitting rows: {', '.join(small)}. Who is compared with them may get a "
            "large score by chance; put rare classes together (--merge-rare) or compare with one large group "
            "(--reference-group)."
        )
    elif small:
        out.append(f"Small group of '{p.name}' in the fitting rows: {small[0]}; readings are coarse.")
    inferred = int(readings.inferred[:, variable].sum())
    if inferred:
        told = f"'{p.name}' is unknown for {inferred} of {len(data)} people: the most probable value, as the other "
        told += "columns tell it, takes its place"
        quality = readings.quality[variable]
        out.append(f"{told} ({'AUC' if quality.metric == 'auc' else 'R2'} {quality.value:.2f}).")
    return out


def _about_categories(data: Dataset) -> list[str]:
    blocks = [f for f in data.features if f.kind == "categorical"]
    empty = [f.name for f in blocks if bool((data.x[:, f.columns].sum(1) == 0).any())]
    if not empty:
        return []
    return [f"Categories unknown to the fitting rows in: {', '.join(empty)}; those people keep them."]


def _about_predictions(predictions: Tensor) -> list[str]:
    if len(predictions) > 1 and float(predictions.max() - predictions.min()) == 0:
        return [f"The model predicts {float(predictions[0]):.4g} for everyone: a constant model treats all alike."]
    return []


def _about_gradients(target: Model, x: Tensor, predictions: Tensor) -> list[str]:
    """Gradients are read by the direct reading and the gradient tests; the paper names extreme ones as their limit."""
    if not target.differentiable or len(predictions) < 2 or float(predictions.std()) == 0:
        return []
    size = jacobian(target, x)[:, 0].norm(dim=1).double()
    usual, steep = (float(q) for q in torch.quantile(size, torch.tensor([0.5, 0.99], dtype=torch.float64)))
    if usual * 1e6 < float(predictions.std()):
        return ["The model is flat where most people stand: gradient tests see nothing there."]
    if steep > _STEEP * usual:
        return [f"The model's gradient is extreme for some people ({steep / usual:.0f} times the usual)."]
    return []


def _about_refits(main: Measurement, test: str) -> list[str]:
    refits = main.refits[~main.abstained.to(main.refits.device)].abs().double().cpu()
    trained = test.split("/")[0] in TRAINED
    if not trained or refits.shape[1] < 2 or len(refits) < 3 or float(refits.std()) == 0:
        return []
    lowest = min(spearman(refits[:, i], refits[:, j]) for i, j in combinations(range(refits.shape[1]), 2))
    if lowest < _DISAGREE:
        return [f"Re-trained networks disagree on who is affected most (lowest rank correlation {lowest:.2f})."]
    return []


def _about_scores(main: Measurement, predictions: Tensor) -> list[str]:
    judged = main.score[~main.abstained.to(main.score.device)]
    zero = float((judged == 0).double().mean()) if len(judged) else 0.0
    if zero > 0.5 and len(predictions) > 1 and float(predictions.std()) > 0:
        return [f"{zero:.0%} of the scores are exactly zero: the model does not react to the moves of this test."]
    return []


def _about_range(measured: Measurement, name: str) -> list[str]:
    if measured.overshoot is None:
        return []
    far = float((measured.overshoot > 0.5).double().mean())
    if far > 0.05:
        return [f"The {name} leaves the range of real categories for {far:.0%} of people: read it with care."]
    return []


def about_distance(distance: Tensor) -> list[str]:
    """Return how many people are far from anyone real as their map tells it, from distances (N,), NaN where unknown."""
    far = int((distance > FAR).sum())
    if not far:
        return []
    told = int((~distance.isnan()).sum())
    return [
        f"The counterfactual of {far:,} of {told:,} people looks like nobody real: it is more than {FAR:g} times as "
        "far from real people as these are from each other; read these scores with care."
    ]
