"""Diagnostics of an audit: what chance gives, and warnings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import scipy
import torch
from torch import Tensor

from fairfox.auxiliary.quality import AuxiliaryQuality, quality_warnings
from fairfox.choices.tests import DIRECT, TestInfo
from fairfox.data.dataset import Dataset, empty_blocks
from fairfox.data.encoding import numbers_as_text
from fairfox.data.table import verb
from fairfox.errors import FairfoxError
from fairfox.fairtests.fitted import has_labels
from fairfox.fairtests.inputs import Inputs
from fairfox.fairtests.protocol import Measurement
from fairfox.fairtests.readings import Readings
from fairfox.gradients.jacobian import jacobian
from fairfox.models.protocol import TargetModel, predict
from fairfox.options import AuditOptions

SHARE = 0.95  # of the people who stay below the delta that chance suggests
_MANY_LACK = 0.1  # share of people without a given value
_SMALL_GROUP = 0.05
_DISAGREE = 0.5  # rank correlation of two refits
_ASKED_AGAIN, _SAME = 20, 1e-3  # people, to see whether a model says the same twice; up to this share of the largest
_PEOPLE = 2000  # whose gradients are looked at
_MANY = 20  # people whose predictions are all 0 or 1: hardly by chance
_STEEP = 100.0  # times the usual gradient


@dataclass(frozen=True)
class Null:
    """Scores and alignment shares of audits with shuffled protected values."""

    scores: Tensor  # (R, N) of R shuffles; NaN for abstained people
    alignment: Tensor  # (R, V) share of each protected variable

    @property
    def delta(self) -> float:
        """The 95 % quantile of scores by chance; NaN where nobody was judged."""
        known = self.scores[~self.scores.isnan()].double()
        return float(known.sort().values[min(int(SHARE * len(known)), len(known) - 1)]) if len(known) else float("nan")

    @property
    def mean_score(self) -> float:
        """The mean score by chance."""
        return float(self.scores.double().nanmean())

    def p_alignment(self, variable: int, share: float) -> float:
        """Return the probability of an alignment share this large by chance, from the shuffles and the real order.

        Example:
            >>> Null(torch.zeros(3, 1), torch.tensor([[0.1], [0.3], [0.2]])).p_alignment(0, 0.25)
            0.5
        """
        larger = int((self.alignment[:, variable] >= share).sum())
        return (1 + larger) / (1 + len(self.alignment))


def shuffled(c: Tensor, seed: int) -> Tensor:
    """Return shuffled protected values (N, V); rows stay together, so variables stay related."""
    return c[torch.randperm(len(c), generator=torch.Generator().manual_seed(seed)).to(c.device)]


# --- warnings ------------------------------------------------------------------------------------------------------


def find_warnings(inputs: Inputs, readings: Readings, *, inferred: Sequence[int], people: int) -> list[str]:
    """Return the warnings of an audit, a sentence each.

    `inferred` counts the people, by protected variable, whose group is inferred.
    """
    data, predictions, options = inputs.data, inputs.predictions, inputs.options
    fitting = data if inputs.protected_values is None else inputs.protected_values
    found = [
        *(
            text
            for v, quality in enumerate(readings.quality)
            for text in group_warnings(fitting, v, quality, inferred[v], people, merged=options.merge_rare is not None)
        ),
        *_spelling_warnings(inputs.encoding.label_values or (), "value", options.label),
        *_model_warnings(inputs.target, data, predictions),
        *(text for quality in readings.quality for text in quality_warnings(quality)),
        *readings.warnings,
        *_given_warnings(data, readings.main, options),
        *_score_warnings(readings, predictions, options.info),
    ]
    if data.ids is not None and len(data) == people and (different := len(set(data.ids))) < people:
        what = f"The ids in '{options.id}' repeat: there are {different:,} for {people:,} people."
        found.append(f"{what} Each row is judged as a person of its own.")
    elif data.ids is None and inputs.encoding.id_column is not None:
        found.append(f"The table has no column '{inputs.encoding.id_column}' of ids; people are named by their row.")
    mistaken = [text for f in data.features if f.name not in options.categorical and (text := numbers_as_text(f))]
    found += [f"{text}: it is read as categories. If these are numbers, correct them." for text in mistaken]
    few = data[:_ASKED_AGAIN]
    with suppress(FairfoxError):  # of an endpoint that has answered its last call
        if not bool(empty_blocks(few).any()) and not inputs.target.differentiable:
            change = predict(inputs.target, few.x) - predictions[: len(few)]
            if float(change.abs().max()) > _SAME * float(predictions.abs().max()):
                found.append("The model predicts differently when asked again: effects are partly its own noise.")
    if data.y is not None and not has_labels(data):
        found.append(f"The label '{options.label}' has fewer than two values here: it tells no outcomes apart.")
    if inputs.described is not None and inputs.described.repaired_with == inputs.hashes["rows_sha256"]:
        found.append("The repair was learnt from these very people, so it looks better than it is; audit it on others.")
    if options.returns is None and inputs.described is None and inputs.target.unit == "value":
        low, high = float(predictions.min()), float(predictions.max())
        found.append(
            f"The model's outputs, from {low:.3g} to {high:.3g}, are taken as values in their own units; if they are "
            "log-odds, say returns='logit' (--returns logit)."
        )
    return found


def _given_warnings(data: Dataset, main: Measurement, options: AuditOptions) -> Iterator[str]:
    """Yield a sentence where a given value is one's own, everyone's, many people's lack, or nobody's of a group."""
    columns = [(f, data.x) for f in data.features] + [(f, data.w) for f in data.covariates if data.w is not None]
    for f, rows in columns:
        if f.name not in options.given or rows is None:
            continue
        if f.kind == "categorical" and len(f.levels) == 1:
            yield f"The given column '{f.name}' has only one value, so giving it changes nothing."
        elif f.name == options.id or (f.decimals == 0 and len(rows[:, f.start].unique()) == len(data) > 2):
            yield f"The given column '{f.name}' has a different value for everyone; if it is an id, do not give it."
        if f.kind == "categorical":
            known = rows[:, f.columns].sum(1) > 0
            lacking = ~known if f.levels[-1] is not None else ~known | (rows[:, f.stop - 1] > 0.5)
        else:
            lacking = rows[:, f.start + 1] > 0.5 if f.has_missing else rows[:, f.start].isnan()
        count = int(lacking.sum())
        if count >= _MANY_LACK * len(data):
            then = "not judged" if f.name == options.label else "compared with each other"
            missing = f"The given column '{f.name}' is missing for {count:,} of {len(data):,} people"
            yield f"{missing}: people who lack it are {then}."
    if main.borrowed is not None and (many := int(main.borrowed.sum())):
        yield (
            f"{many:,} of {len(data):,} people {verb(many, 'has', 'have')} given values that nobody in another group "
            "has: their features move as far as those of people with given values that both groups have."
        )


def group_warnings(
    fitting: Dataset, variable: int, quality: AuxiliaryQuality, inferred: int, people: int, *, merged: bool
) -> Iterator[str]:
    """Yield a sentence where groups to learn from are small, are spelt alike, or are inferred.

    `merged`: rare classes are merged already.
    """
    p, c = fitting.protected[variable], fitting.c[:, variable]
    weights = torch.ones(len(fitting)) if fitting.weights is None else fitting.weights
    total = weights[~c.isnan()].double().sum()
    shares = {level: float(weights[c == code].double().sum() / total) for code, level in enumerate(p.levels)}
    small = [f"'{level}' ({100 * share:.1f} %)" for level, share in shares.items() if share < _SMALL_GROUP]
    if small and len(p.levels) > 2:
        who = "Their members" if p.reference is not None else "Their members, and people compared with them,"
        advice = "" if merged else "; merge rare classes (--merge-rare)"
        yield (
            f"Small groups of '{p.name}' in the fitting rows: {', '.join(small)}. {who} may get a large score by "
            f"chance, or none because so few people do not show what differs{advice}."
        )
    elif small:
        yield f"Small group of '{p.name}' in the fitting rows: {small[0]}; its scores are imprecise."
    yield from () if p.parts else _spelling_warnings(p.levels, "group", p.name)
    if inferred:
        yield (
            f"'{p.name}' is unknown for {inferred:,} of {people:,} people; the most probable value, predicted from the "
            f"other columns ({'AUC' if quality.metric == 'auc' else 'R2'} {quality.value:.2f}), is used instead."
        )


def _spelling_warnings(levels: Sequence[object], what: str, of: str | None) -> Iterator[str]:
    spellings: dict[str, list[str]] = {}
    for level in levels:
        spellings.setdefault(str(level).strip().casefold(), []).append(repr(level))
    for alike in spellings.values():
        if len(alike) > 1:
            differ = f"are separate {what}s of '{of}', although only spaces or capitals differ"
            yield f"{' and '.join(alike)} {differ}; if they are one {what}, correct the table."


def _model_warnings(target: TargetModel, data: Dataset, predictions: Tensor) -> Iterator[str]:
    empty = [f.name for f in data.features if bool(empty_blocks(data, [f]).any())]
    if empty:
        count = f"{int(empty_blocks(data).sum()):,} of {len(data):,} people"
        yield f"{count} are not judged: they have a category that no fitting row has, in {', '.join(empty)}."
    if len(predictions) < 2:
        return
    if float(predictions.max() - predictions.min()) == 0:
        yield f"The model predicts {float(predictions[0]):.4g} for everyone: a constant model treats everyone alike."
    elif len(predictions) >= _MANY and target.unit == "probability" and bool(((predictions * 2 - 1).abs() == 1).all()):
        yield "The model returns only 0 and 1, so a prediction flips or stays; audit its probabilities (predict_proba)."
    if not target.differentiable or float(predictions.std()) == 0:
        return
    # the direct reading and the gradient tests use gradients; the paper names extreme ones as their limit
    size = jacobian(target, data.x[:_PEOPLE])[:, 0].norm(dim=1).double()
    usual, steep = (float(q) for q in torch.quantile(size, torch.tensor([0.5, 0.99], dtype=torch.float64)))
    if usual * 1e6 < float(predictions.std()):
        yield "The model's gradient is nearly zero for most people; gradient tests cannot detect effects there."
    elif steep > _STEEP * usual:
        yield f"The model's gradient is extreme for some people ({steep / usual:.0f} times the median)."


def _score_warnings(readings: Readings, predictions: Tensor, info: TestInfo) -> Iterator[str]:
    main = readings.main
    judged = ~main.abstained.to(main.score.device)
    scores, refits = main.score[judged], main.refits[judged].abs().double().cpu().numpy()
    moving = refits[:, refits.std(0) > 0] if len(refits) > 2 else refits[:, :0]  # a constant has no ranks
    if info.trained and moving.shape[1] > 1:
        lowest = float(np.min(scipy.stats.spearmanr(moving).statistic))
        if lowest < _DISAGREE:
            yield f"Retrained networks disagree on who is most affected (lowest rank correlation {lowest:.2f})."
    zero = float((scores == 0).double().mean()) if len(scores) else 0.0
    if zero > 0.5 and len(predictions) > 1 and float(predictions.std()) > 0:
        yield f"{100 * zero:.0f} % of the scores are exactly zero: for these people the prediction does not change."
    for measured, what in ((readings.direct, "direct reading"), (main if info.base != DIRECT else None, "test")):
        overshoot = None if measured is None else measured.overshoot
        far = 0.0 if overshoot is None else float((overshoot > 0.5).double().mean())
        if far > 0.05:
            yield f"The {what} leaves the range of real categories for {100 * far:.0f} % of people; take it with care."
