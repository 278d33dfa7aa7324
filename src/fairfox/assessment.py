"""How findings are made: readings become a finding for each protected variable, with its groups, gaps and verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import isnan
from typing import Any

import torch
from torch import Tensor

from fairfox.auxiliary.training import centre_and_spread
from fairfox.choices.tests import TOTAL
from fairfox.data.contrasts import HIGHER, Contrast
from fairfox.data.dataset import Dataset, Protected, group_name
from fairfox.data.protected import NumberGroups
from fairfox.data.table import is_level
from fairfox.errors import FairfoxError
from fairfox.explain import common_cause
from fairfox.fairtests.inputs import Inputs
from fairfox.fairtests.protocol import Measurement
from fairfox.fairtests.readings import Readings
from fairfox.findings import RATES, UNKNOWN, AuditRecord, Finding, GapParts, Group, Streamed, StreamedVariable
from fairfox.maps.check import MapCheck, Support, check_map, gap_between, gaps_given
from fairfox.models.protocol import Output
from fairfox.options import EVERYONE
from fairfox.report.sentences import over_words
from fairfox.statistics.diagnostics import Null
from fairfox.statistics.groups import (
    Certainty,
    Decisions,
    Rule,
    delta_for,
    group_mean,
    is_bounded,
    own_deltas,
    people_weights,
    score_unit,
)
from fairfox.statistics.performance import Performance, performance
from fairfox.statistics.verdict import ALLOWED, Counted, Gap, Point, Verdict, family_verdict, held_back

FEWEST = 5  # people of an intersection that rates are given of


@dataclass(frozen=True)
class Limits:
    """What effects and shares of people are compared with."""

    delta: float
    by_group: dict[str, float]  # deltas of single groups, by their full names
    everyones: float | Tensor  # delta of each person (N,), where groups have their own
    shares: dict[str, float]  # largest shares of flagged people, by the full names of groups; "" is everyone
    rule: Rule

    @classmethod
    def of(cls, inputs: Inputs, people: Dataset, null: Null | None) -> Limits:
        """Return the limits of an audit of some people; `null` may decide delta."""
        options = inputs.options
        delta = delta_for(options, inputs.predictions, inputs.target.unit)
        if options.delta_from_null and null is not None and not isnan(null.delta):  # somebody was judged
            delta = null.delta
        by_group, shares = inputs.by_group(options.delta_by_group), inputs.by_group(options.limits)
        rule = Rule(
            decision_threshold=options.decision_threshold, fdr=options.fdr, allowed=shares.get(EVERYONE, ALLOWED),
            limits=shares, over=over_words(score_unit(options, inputs.target.unit), delta, by_group, options),
            bounded=is_bounded(options, inputs.target.unit), seed=options.seed,
            folds=None if inputs.protected_values is not None else options.folds,
        )  # fmt: skip
        return cls(delta, by_group, own_deltas(people, delta, by_group), shares, rule)


def findings_of(
    inputs: Inputs,
    readings: Readings,
    limits: Limits,
    null: Null | None,
    streamed: Streamed | None,
    decisions: Decisions | None,
) -> tuple[Finding, ...]:
    """Return what was found for each protected variable, with a verdict that says no more than is known."""
    sources = inputs.encoding.sources
    found = [
        finding_of(
            readings, v, predictions=inputs.predictions, delta=limits.everyones, fitted=inputs.fitting_values,
            merged=dict(sources[v].merged), rule=limits.rule, decisions=decisions,
            streamed=None if streamed is None else streamed.variables[inputs.data.protected[v].name],
        )
        for v in range(len(sources))
    ]  # fmt: skip
    by_chance = null is not None and null.delta > limits.delta
    how: dict[str, Any] = {"allowed": limits.rule.allowed, "points": inputs.target.unit == "probability"}
    with_gaps = inputs.options.main == TOTAL and not inputs.options.info.needs_graph
    for v, each in enumerate(found):
        passes = each.verdict is not None and each.verdict.word == "passes"
        gaps = _gaps(inputs, each, readings.people, v, limits) if with_gaps and passes else []
        held = _held(inputs, v)
        found[v] = replace(each, verdict=held_back(each.verdict, gaps, by_chance=by_chance, held=held, **how))
    if readings.curve:  # the assumption that it speaks of is made
        size, delta = inputs.options.batch_size, limits.delta
        causes = (common_cause(inputs.target, readings, v, delta=delta, batch_size=size) for v in range(len(found)))
        found = [replace(each, common_cause=cause) for each, cause in zip(found, causes, strict=True)]
    if not inputs.options.info.needs_graph:
        return tuple(found)
    parts = [gap_parts(readings, v, finding.contrasts, inputs.predictions) for v, finding in enumerate(found)]
    return tuple(replace(finding, gap_parts=own) for finding, own in zip(found, parts, strict=True))


def _is_total(inputs: Inputs) -> bool:
    """Return whether a map should account for the whole gap between groups: nothing is held equal."""
    held = inputs.options.hold_others and len(inputs.data.protected) > 1
    return not (inputs.options.given or held or inputs.options.info.needs_graph)


def _held(inputs: Inputs, variable: int) -> tuple[str, ...]:
    """Return what is held equal: given columns, and other protected variables."""
    p, options = inputs.data.protected[variable], inputs.options
    others = [q.name for q in inputs.data.protected if q is not p and not (p.parts or q.parts)]
    return (*options.given, *(others if options.hold_others else ()))


def _gaps(inputs: Inputs, finding: Finding, people: Dataset, variable: int, limits: Limits) -> list[Gap]:
    """Return the gaps between the mean predictions of groups, beside the mean effects.

    Where something is held equal, they are between people with the same values in it; none where too few people have.
    """
    here, options, held = inputs.predictions.cpu(), inputs.options, _held(inputs, variable)
    weights = torch.ones(len(people)) if people.weights is None else people.weights.cpu()
    own = [people.c[:, variable].cpu() == k for k in range(len(finding.levels))]
    shares = {level: float(weights[who].sum() / weights.sum()) for level, who in zip(finding.levels, own, strict=True)}
    groups = {group.level: group for group in finding.groups if group.level in shares}
    sampled = 1.0 if finding.streamed is None else len(people) / finding.streamed.people  # of whom the error is
    known: dict[tuple[int, int], tuple[float, float]] = {}
    found = []
    for level, group in groups.items():
        for to, effect in group.towards.items():
            a, b = pair = finding.levels.index(level), finding.levels.index(to)
            if held and pair not in known:
                with suppress(FairfoxError):  # too few people have the same values
                    how: dict[str, Any] = {"given": options.given, "others": options.hold_others}
                    known[a, b], known[b, a] = gaps_given(people, here, variable, pair, **how)
            if not held:
                error = gap_between(here, own[a], own[b], weights)[1] * sampled**0.5
                known[pair] = groups[to].mean_prediction - group.mean_prediction, error
            if pair in known:
                delta, towards = limits.by_group.get(group.name, limits.delta), group_name(finding.name, to)
                gap, error = known[pair]
                found.append(Gap(group.name, towards, gap, effect, delta, shares[level], shares[to], error))
    return found


def decisions_of(inputs: Inputs) -> Decisions | None:
    """Return who gets a yes; None where no prediction is one."""
    return None if inputs.cut is None else Decisions(inputs.cut, _yes(inputs))


def _yes(inputs: Inputs) -> Tensor | None:
    """Return whose label (N,) is a yes, of two classes the audited one, or else the second; None of others."""
    y, values = inputs.data.y, inputs.encoding.label_values
    if y is None or values is None or len(values) != 2:
        return None
    return 1 - y if is_level(values[0], inputs.options.positive) or audited_class(inputs) == str(values[0]) else y


def audited_class(inputs: Inputs) -> str | None:
    """Return the class whose prediction is audited, by the label's name or else the model's; None: unknown."""
    positive, values = inputs.options.positive, inputs.encoding.label_values
    output = getattr(inputs.target, "output", Output(inputs.target.unit))
    if output.unit == "value":
        return None
    if values is not None and len(values) == 2:
        first = is_level(values[0], positive) or (output.column == 0 and not is_level(values[1], positive))
        return str(values[0] if first else values[1])
    classes = None if inputs.described is None else inputs.described.classes
    return None if not classes else str(classes[-1 if output.column is None else output.column])


def label_warnings(inputs: Inputs, found: Sequence[Performance]) -> Iterator[str]:
    """Yield a sentence where predictions are lower for people with a yes: the label may be read upside down."""
    if found and found[0].metric == "auc" and found[0].upper < 0.5 - 1e-9:  # ties alone give one half, but for rounding
        who = f"people whose '{inputs.options.label}' is '{audited_class(inputs)}' (AUC {found[0].value:.2f})"
        other = next(str(value) for value in inputs.encoding.label_values or () if str(value) != audited_class(inputs))
        yield f"Predictions are lower for {who}; did you mean --positive '{other}' (positive={other!r})?"


def performance_of(inputs: Inputs) -> tuple[Performance, ...]:
    """Return how well the predictions tell the label."""
    y, data = labelled_yes(inputs), inputs.data
    if y is None:
        return ()
    out = inputs.predictions.sigmoid() if inputs.target.unit == "logit" else inputs.predictions
    weights = None if data.weights is None else data.weights.double().numpy(force=True)
    return performance(out.double().numpy(force=True), y.double().numpy(force=True), weights)


def labelled_yes(inputs: Inputs) -> Tensor | None:
    """Return whether each label is a yes (N,), or the number that it is where numbers are predicted; None without."""
    numbers = inputs.encoding.label_values is None
    if inputs.data.y is None or numbers != (inputs.target.unit == "value"):
        return None
    return inputs.data.y if numbers else _yes(inputs)


def map_checks(inputs: Inputs, readings: Readings, support: Sequence[Support], limits: Limits) -> tuple[MapCheck, ...]:
    """Return for each group and contrast whether the map accounts for the gap between groups and stays on the data."""
    data, moved = readings.people, readings.moved
    if moved.counterfactuals is None or moved.effect is None:
        return ()
    found: list[MapCheck] = []
    here = inputs.predictions.masked_fill(moved.abstained.to(inputs.predictions.device), torch.nan)
    points, total = inputs.target.unit == "probability", _is_total(inputs)
    about: dict[str, Any] = {"delta": limits.delta, "deltas": limits.by_group, "points": points, "total": total}
    for q, contrast in enumerate(moved.contrasts):
        share = readings.alignment[contrast.variable].value if inputs.options.info.aligned else 1.0
        effects, own = moved.values[:, q] / (share or 1.0), support[contrast.variable]
        rows, shown = moved.counterfactuals, moved.worst == q
        found += check_map(data, contrast, here, effects, rows, shown=shown, support=own, **about)
    return tuple(found)


def finding_of(
    readings: Readings,
    variable: int,
    *,
    predictions: Tensor,
    delta: float | Tensor,
    fitted: Dataset,
    merged: Mapping[str, tuple[str, ...]],
    rule: Rule,
    decisions: Decisions | None = None,
    streamed: StreamedVariable | None = None,
) -> Finding:
    """Return what was found for one protected variable.

    Args:
        readings: of everyone.
        variable: which protected variable.
        predictions: of everyone (N,).
        delta: above which people are flagged, one for all or one each (N,).
        fitted: the protected values that were learnt from.
        merged: rare classes that were merged, by the new name.
        rule: what else decides who is over delta, and whether they are too many.
        decisions: what predictions mean, for the rates of groups; None: nobody decides.
        streamed: all people of a stream in numbers, where the readings are of a sample.
    """
    data = readings.people
    p, own = data.protected[variable], data.c[:, variable]
    main = readings.main.of_variable(variable, data)
    certainty = rule.certainty(main, delta, predictions)
    shown = certainty.without(main.abstained)
    words = contrast_words(main, p, float(centre_and_spread(fitted.c[:, variable], fitted.weights)[1]))
    names, codes = _groups(p, own, fitted.c[:, variable])
    members = {name: codes == code for code, name in enumerate(names)}
    counted = {} if streamed is None else streamed.counted
    finding = Finding(
        name=p.name,
        kind=p.kind,
        levels=p.levels,
        contrasts=words,
        effects=contrast_effects(main, p, own),
        scores=main.score,
        effect=main.effect,
        interval=shown.interval,
        flagged=shown.flagged,
        confident=shown.confident,
        abstained=main.abstained,
        towards=_towards(main, p, own, words),
        group=tuple(UNKNOWN if code < 0 else names[code] for code in codes.tolist()),
        inferred=readings.inferred[:, variable],
        direct=None if readings.direct is None else _signed_or_nan(readings.direct.of_variable(variable, data)),
        total=_signed_or_nan(readings.total.of_variable(variable, data)),
        same_outcome=_same_outcome(readings, variable),
        alignment_share=readings.alignment[variable].value,
        alignment_error=readings.alignment[variable].error,
        proxy=readings.proxy[variable],
        quality=readings.quality[variable],
        groups=(),
        parts=p.parts,
        reference=None if p.reference is None else p.levels[p.reference],
        second=None if p.second is None else p.levels[p.second],
        merged=dict(merged),
        is_own=bool(main.contrasts),
        verdict=_verdict(readings, variable, main, certainty, members, predictions, delta, rule, counted),
    )
    weights = torch.ones(len(data), dtype=torch.float64) if data.weights is None else data.weights.double().cpu()
    rates = [{}] * len(members) if decisions is None else decisions.rates(predictions, weights, [*members.values()])
    each = zip(members.items(), rates, strict=True)
    groups = tuple(_group(finding, *own, rate, predictions, weights) for own, rate in each)
    if streamed is None:
        return replace(finding, groups=groups)
    return replace(finding, streamed=streamed.tally, groups=with_rates(streamed.groups, groups))


def with_rates(groups: Sequence[Group], sample: Sequence[Group]) -> tuple[Group, ...]:
    """Return groups of everyone with the rates of the same groups in a sample."""
    rates = [{name: getattr(group, name) for name in (*RATES, "intervals")} for group in sample]
    return tuple(replace(group, **own) for group, own in zip(groups, rates, strict=True))


def _same_outcome(readings: Readings, variable: int) -> Tensor | None:
    """Return the effect at the same outcome (N,), NaN where it is not known."""
    measured, of = readings.same_outcome, readings.same_outcome_of
    if measured is None or of is None:
        return None
    known = _signed_or_nan(measured.of_variable(variable, readings.people[of]))
    out = known.new_full((len(readings.people),), torch.nan)
    out[of] = known
    return out


def _verdict(
    readings: Readings,
    variable: int,
    main: Measurement,
    certainty: Certainty,
    members: Mapping[str, Tensor],
    predictions: Tensor,
    delta: float | Tensor,
    rule: Rule,
    counted: Mapping[str, Counted],
) -> Verdict | None:
    """Return the verdict on everyone, and on each group that has a limit of its own: all must pass."""
    p, weights = readings.people.protected[variable], readings.people.weights
    each: dict[str, Tensor | None] = {"": None}
    each |= {name: who for level, who in members.items() if (name := group_name(p.name, level)) in rule.limits}
    found = []
    for group, among in each.items():
        own = replace(rule, allowed=rule.limits[group]) if group else rule
        curve, everyone = _curve(readings, variable, predictions, delta, own, among), counted.get(group or p.name)
        found.append(own.judge(main, certainty, weights, p.name, curve, group=group, among=among, everyone=everyone))
    known = [verdict for verdict in found if verdict is not None]
    return family_verdict(known) if known else None


def _curve(
    readings: Readings, variable: int, predictions: Tensor, delta: float | Tensor, rule: Rule, among: Tensor | None
) -> list[Point]:
    """Return which shares of some people, or of those among them (N,) bool, are over delta, by falling persistence."""
    if readings.sample is None or not readings.curve:
        return []
    rows, out = readings.sample, []
    some, limit = readings.people[rows], delta[rows] if isinstance(delta, Tensor) else delta
    groups = some.c[:, variable]
    if some.protected[variable].is_continuous:  # everyone's effect is signed as if the number went up
        groups = torch.zeros_like(groups)
    for at, measured in readings.curve.items():
        own = measured.of_variable(variable, some)
        sure = rule.certainty(own, limit, predictions[rows])
        gone = own.abstained if among is None else own.abstained | ~among[rows]
        out.append(rule.point(at, sure, groups, gone, some.weights))
    return out


def gap_parts(readings: Readings, variable: int, words: Sequence[str], predictions: Tensor) -> tuple[GapParts, ...]:
    """Return the gap between every two groups that are compared, taken apart; none for a protected number."""
    data = readings.people
    weights = torch.ones(len(data), dtype=torch.float64) if data.weights is None else data.weights.double().cpu()
    p, own = data.protected[variable], data.c[:, variable].cpu()
    if p.is_continuous:
        return ()
    main = readings.main.of_variable(variable, data)
    effects = contrast_effects(main, p, data.c[:, variable]).double().cpu()
    alone = torch.zeros_like(effects)
    if readings.swapped is not None:
        alone = contrast_effects(readings.swapped.of_variable(variable, data), p, data.c[:, variable]).double().cpu()
    here, out = predictions.double().cpu(), []
    for q, word in enumerate(words):
        other = (own == p.levels.index(word)) & ~here.isnan()
        for code, level in enumerate(p.levels):
            who = (own == code) & ~effects[:, q].isnan() & ~alone[:, q].isnan()
            if level == word or not bool(who.any()) or not bool(other.any()):
                continue
            now, there = (group_mean(here, weights, members) for members in (who, other))
            changed, swapped = (now + group_mean(part[:, q], weights, who) for part in (effects, alone))
            out.append(GapParts(level, word, there - now, swapped - now, swapped - changed, changed - there))
    return tuple(out)


def _group(
    finding: Finding, name: str, members: Tensor, rates: Mapping[str, Any], predictions: Tensor, weights: Tensor
) -> Group:
    """Return the people of one group together."""
    judged = members & ~finding.abstained.cpu()

    def mean(values: Tensor | None) -> float | None:
        return None if values is None else group_mean(values, weights, judged)

    towards = {word: mean(finding.effects[:, q]) for q, word in enumerate(finding.contrasts) if word != name}
    return Group(
        variable=finding.name,
        level=name,
        people=int(members.sum()),
        mean_prediction=group_mean(predictions, weights, members),
        mean_effect=mean(finding.effect),
        share_flagged=group_mean(finding.flagged, weights, judged),
        share_confident=mean(finding.confident),
        inferred=int((members & finding.inferred).sum()),
        towards={word: value for word, value in towards.items() if value is not None and not isnan(value)},
        **rates,
    )


def intersections_of(record: AuditRecord, decisions: Decisions) -> tuple[Group, ...]:
    """Return what decisions give the intersections of several protected variables; () where these were audited.

    Those of fewer than `FEWEST` people are left out: their rates would tell of single people.
    """
    classes = [finding for finding in record.findings if finding.kind != "continuous"]
    if len(classes) < 2 or any(finding.parts for finding in classes):
        return ()
    cells = list(zip(*(finding.group for finding in classes), strict=True))
    weights = torch.from_numpy(people_weights(record.weights, len(record)))
    kept = [cell for cell, people in sorted(Counter(cells).items()) if people >= FEWEST and UNKNOWN not in cell]
    members = [torch.tensor([own == cell for own in cells]) for cell in kept]
    whole = {name: getattr(record, name) for name in ("flagged", "confident", "abstained", "inferred")}
    crossed = replace(classes[0], name=" & ".join(f.name for f in classes), contrasts=(), effect=None, **whole)
    each = zip(map(" & ".join, kept), members, decisions.rates(record.predictions, weights, members), strict=True)
    return tuple(_group(crossed, *own, record.predictions, weights) for own in each)


def _groups(p: Protected, own: Tensor, fitted: Tensor) -> tuple[tuple[str, ...], Tensor]:
    """Return the names of the groups, and everyone's code among them (N,), -1 where it is unknown."""
    if p.is_continuous:
        groups = NumberGroups.of(fitted)
        return groups.names, groups.assign(own)
    return p.levels, torch.where(own.isnan(), -1.0, own).long().cpu()


def contrast_words(measured: Measurement, p: Protected, spread: float) -> tuple[str, ...]:
    """Return the contrasts of a variable in words: a class each, or up and down; () where a test has none."""
    if not measured.contrasts or measured.effect is None:
        return ()
    if p.kind == "binary":
        return p.levels

    def word(contrast: Contrast) -> str:
        if not p.is_continuous:
            assert contrast.towards is not None
            return p.levels[contrast.towards]
        if contrast.towards is None:
            return p.name
        return f"{p.name} {'+' if contrast.towards == HIGHER else '-'} {spread:.3g}"

    return tuple(word(contrast) for contrast in measured.contrasts)


def contrast_effects(measured: Measurement, p: Protected, own: Tensor) -> Tensor:
    """Return the value of every contrast of a variable (N, Q), NaN towards the own class."""
    values = measured.values
    if not measured.contrasts or measured.effect is None:
        return values[:, :0]
    if p.kind == "binary":  # one column, towards whichever is the other class
        return torch.where(torch.stack([own == 1, own == 0], dim=1).to(values.device), values, torch.nan)
    return values


def _towards(main: Measurement, p: Protected, own: Tensor, words: Sequence[str]) -> tuple[str | None, ...]:
    """Return the contrast that counts for each person, in words."""
    if not words:
        return (None,) * len(own)
    codes = (main.klass if p.kind == "binary" else main.worst).tolist()
    return tuple(
        None if gone else f"away from {words[k]}" if not p.is_continuous and code == k else words[k]
        for gone, k, code in zip(main.abstained.tolist(), codes, own.tolist(), strict=True)
    )


def _signed_or_nan(reading: Measurement) -> Tensor:
    """Return a reading's signed effects (N,), NaN where it abstained."""
    assert reading.effect is not None
    return torch.where(reading.abstained.to(reading.effect.device), torch.nan, reading.effect)
