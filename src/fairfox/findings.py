"""What the readings of an audit say about each protected variable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from itertools import pairwise

import torch
from torch import Tensor

from fairfox.certainty import Rule
from fairfox.crossfit import Readings
from fairfox.data.contrasts import HIGHER, Contrast
from fairfox.data.dataset import Dataset, Protected, group_name
from fairfox.fairtests.protocol import Measurement
from fairfox.result import Finding, Group

_RANGES = 4  # into which people are put together by a protected number
_SEVERAL = 5  # people who have a number that is told


def find(
    readings: Readings,
    variable: int,
    *,
    predictions: Tensor,
    delta: float | Tensor,
    spread: float,
    merged: dict[str, tuple[str, ...]],
    rule: Rule = Rule(),  # noqa: B008  # frozen
    before: Measurement | None = None,
) -> Finding:
    """Return what was found for one protected variable.

    Args:
        readings: of everyone.
        variable: which protected variable.
        predictions: of everyone (N,).
        delta: above which people are flagged, one for all or one each (N,).
        spread: the standard deviation that a number went up and down.
        merged: rare classes that were put together, by the new name.
        rule: what else decides who is over delta, and whether they are too many.
        before: what was measured before anybody was left out; the list and the verdict are about all of them, since
            those who stay were chosen for how little their re-fits scatter.
    """
    data = readings.people
    p, own = data.protected[variable], data.c[:, variable]
    main = readings.main.of_variable(variable, data)
    share = readings.alignment[variable]
    whole = main if before is None else before.of_variable(variable, data)
    known = rule.certainty(whole, delta, predictions, data.protected)
    sure = known.without(main.abstained)
    words, effects = contrast_words(main, p, spread), effects_of(main, p, own)
    names, place = _own_groups(p, own)
    finding = Finding(
        name=p.name,
        kind=p.kind,
        levels=p.levels,
        contrasts=words,
        effects=effects,
        scores=main.score,
        signed=main.signed,
        interval=sure.interval,
        flags=sure.flags,
        confident_flags=sure.confident_flags,
        abstained=main.abstained,
        towards=_towards(main, p, own, words),
        group=tuple("unknown" if k < 0 else names[k] for k in place.tolist()),
        inferred=readings.inferred[:, variable],
        direct=_known(readings.direct.of_variable(variable, data)),
        total=_known(readings.total.of_variable(variable, data)),
        alignment_share=share.value,
        alignment_error=share.error,
        proxy=readings.proxy[variable],
        quality=readings.quality[variable],
        groups=(),
        parts=p.parts,
        reference=None if p.reference is None else p.levels[p.reference],
        second=None if p.second is None else p.levels[p.second],
        merged=merged,
        is_own=bool(main.contrasts),
        verdict=rule.judge(whole, known, data.weights, p.name),
    )
    weights = torch.ones(len(data), dtype=torch.float64) if data.weights is None else data.weights.double().cpu()
    groups = [_group(finding, name, place == k, predictions, weights) for k, name in enumerate(names)]
    return replace(finding, groups=tuple(groups))


def own_deltas(data: Dataset, delta: float, deltas: Mapping[str, float]) -> float | Tensor:
    """Return everyone's delta (N,): the strictest of those given for groups they belong to, else that for all."""
    if not deltas:
        return delta
    strictest = torch.full((len(data),), torch.inf, dtype=data.x.dtype)
    for v, p in enumerate(data.protected):
        for code, level in enumerate(p.levels):
            members = (data.c[:, v] == code).cpu()
            strictest[members] = strictest[members].clamp(max=deltas.get(group_name(p.name, level), torch.inf))
    return torch.where(strictest.isinf(), delta, strictest)


def contrast_words(found: Measurement, p: Protected, spread: float) -> tuple[str, ...]:
    """Return the contrasts of a variable in words: a class each, or up and down; () where a test knows none."""
    if not found.contrasts or found.signed is None:
        return ()
    return p.levels if p.kind == "binary" else tuple(_word(contrast, p, spread) for contrast in found.contrasts)


def effects_of(found: Measurement, p: Protected, own: Tensor) -> Tensor:
    """Return the value of every contrast of a variable (N, Q), NaN towards the own class."""
    values = found.values
    if not found.contrasts or found.signed is None:
        return values[:, :0]
    if p.kind == "binary":  # one column, towards whichever is the other class
        return torch.where(torch.stack([own == 1, own == 0], dim=1).to(values.device), values, torch.nan)
    return values


def _word(contrast: Contrast, p: Protected, spread: float) -> str:
    if not p.is_continuous:
        assert contrast.towards is not None
        return p.levels[contrast.towards]
    if contrast.towards is None:
        return p.name
    return f"{p.name} {'+' if contrast.towards == HIGHER else '-'} {spread:.3g}"


def _towards(main: Measurement, p: Protected, own: Tensor, words: Sequence[str]) -> tuple[str | None, ...]:
    """Return the contrast that counts for each person, in words."""
    if not words:
        return (None,) * len(own)
    places = (main.klass if p.kind == "binary" else main.worst).tolist()
    return tuple(
        None if gone else f"away from {words[k]}" if not p.is_continuous and code == k else words[k]
        for gone, k, code in zip(main.abstained.tolist(), places, own.tolist(), strict=True)
    )


def _known(reading: Measurement) -> Tensor:
    """Return a reading's signed effects (N,), NaN where it abstained."""
    assert reading.signed is not None
    return torch.where(reading.abstained.to(reading.signed.device), torch.nan, reading.signed)


def _own_groups(p: Protected, own: Tensor) -> tuple[tuple[str, ...], Tensor]:
    """Return the names of the groups, and everyone's place among them (N,), -1 where it is unknown.

    The groups of a number are the quarters of the people.
    """
    names, values = p.levels, own.double().cpu()
    known = values[~values.isnan()]
    place = values
    if p.is_continuous and len(known):
        cuts = torch.quantile(known, torch.linspace(0, 1, _RANGES + 1, dtype=torch.float64)[1:-1])
        quarter = torch.bucketize(values.contiguous(), cuts, right=True)
        present = quarter[~values.isnan()].unique()
        names = _ranges([values[(quarter == k) & ~values.isnan()] for k in present])
        place = torch.searchsorted(present, quarter).double()
    return names, torch.where(values.isnan(), -1.0, place).long()


def _ranges(parts: Sequence[Tensor]) -> tuple[str, ...]:
    """Return the ranges of a number in words, from the values in each: open at both ends, so that nobody's extreme
    value is told, and cut at numbers that few people's values are told by."""
    cuts = [_cut(below, above) for below, above in pairwise(parts)]
    if not cuts:
        return ("any",)
    return (f"below {cuts[0]}", *(f"{low} to {high}" for low, high in pairwise(cuts)), f"{cuts[-1]} and above")


def _cut(below: Tensor, above: Tensor) -> str:
    """Return the shortest number that is above all of some values and not above any of others: nobody's value, or one
    that several people have. Of equally short ones that nearest to the middle of the gap."""
    first = above.min()
    low, high = Decimal(float(below.max())), Decimal(float(first))
    shared = int((above == first).sum()) >= _SEVERAL
    place = max(abs(low), abs(high)).adjusted()
    while True:
        step = Decimal(1).scaleb(place)
        for cut in ((low + high) / 2).quantize(step), *([high.quantize(step)] if shared else []):
            if low < cut < high or (shared and cut == high):
                return _plain(cut + 0)  # adding 0 takes the sign from -0
        place -= 1


def _plain(number: Decimal) -> str:
    """Return a number without an exponent, unless it is very long."""
    short = number.normalize()
    return f"{short:f}" if -5 <= short.adjusted() <= 15 else str(short)


def _group(finding: Finding, name: str, members: Tensor, predictions: Tensor, weights: Tensor) -> Group:
    judged = members & ~finding.abstained.cpu()

    def mean(values: Tensor | None, among: Tensor) -> float | None:
        return None if values is None else _weighted_mean(values.double().cpu(), weights, among)

    towards = {word: mean(finding.effects[:, q], judged) for q, word in enumerate(finding.contrasts) if word != name}
    return Group(
        variable=finding.name,
        level=name,
        people=int(members.sum()),
        mean_prediction=_weighted_mean(predictions.double().cpu(), weights, members),
        mean_signed=mean(finding.signed, judged),
        share_flagged=_weighted_mean(finding.flags.double().cpu(), weights, judged),
        share_confident=mean(finding.confident_flags, judged),
        inferred=int((members & finding.inferred).sum()),
        towards={word: value for word, value in towards.items() if value is not None and value == value},
    )


def _weighted_mean(values: Tensor, weights: Tensor, among: Tensor) -> float:
    """Return the mean over some of the people, NaN over nobody; what is NaN does not count."""
    counted = among & ~values.isnan()
    total = float(weights[counted].sum())
    return float((weights * values)[counted].sum()) / total if total > 0 else float("nan")
