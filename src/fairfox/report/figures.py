"""The numbers behind charts and slider: binned and averaged, so that nobody can be found in them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fairfox.data.dataset import group_name
from fairfox.findings import RATES, AuditRecord, Finding, Group
from fairfox.report import text
from fairfox.report.sentences import compared_group, signed_word
from fairfox.statistics.groups import flag, people_weights
from fairfox.statistics.performance import Z95

MOST_GROUPS, MOST_FEATURES = 6, 12
_MOST_LISTED = 8  # features on a terminal and in a comment
_MOST_LETTERS = 60  # of a group's name
_PERCENTILES = (5, 25, 50, 75, 95)
_POSITIONS = 200  # about, of the slider, in equal steps
_MOST_SLIDER_GROUPS = 24  # of a variable
_TINY = 1e-290  # scores whose steps no float can tell apart count as 0
_HUGE = 1e300  # steps of larger deltas are infinite
Figure = dict[str, Any]  # kind, alt, caption, table, data


def figures(result: AuditRecord) -> dict[str, Figure]:
    """Return every chart of an audit, by its id: `scores-0` is the first protected variable's, `features` of all."""
    out: dict[str, Figure | None] = {"features": features_figure(result)}
    for v, finding in enumerate(result.findings):
        out[f"scores-{v}"] = scores_figure(result, finding)
        out[f"groups-{v}"] = groups_figure(result, finding)
        out[f"proxies-{v}"] = proxies_figure(finding)
        out[f"persistence-{v}"] = persistence_figure(finding)
    return {name: figure for name, figure in out.items() if figure is not None}


def persistence_figure(finding: Finding) -> Figure | None:
    """Return the share of people over delta by how far people's ranks carry over; None where that is not known."""
    verdict = finding.verdict
    if verdict is None or not verdict.curve:
        return None
    names = ("significant", "share", "possible")
    points = [
        {name: getattr(point, name) for name in ("persistence", "share", "possible")}
        | {"significant": max(point.significant, point.net)}
        for point in verdict.curve
    ]
    rows = [[f"{p['persistence']:g}", *(f"{100 * p[name]:.1f} %" for name in names)] for p in points]
    return {
        "kind": "persistence",
        "alt": f"Share of people over delta for {finding.name}, by persistence.",
        "caption": "Line: the share of people whose mean effect is over delta. Band: from the smallest to the largest "
        "share that the data allow. The smallest counts the significant people or, if these are more, those over delta "
        "in the direction of their group less those in the opposite one. Dashed: the limit.",
        "table": text.make_table(["Persistence"], ["At least", "On average", "At most"], rows),
        "data": {"points": points, "limit": verdict.allowed},
    }


def scores_figure(result: AuditRecord, finding: Finding) -> Figure | None:
    """Return the distribution of the signed effects (or scores without a sign) of a variable in each of its groups."""
    spread, signed = distribution(result, finding), finding.effect is not None
    if spread is None:
        return None
    what = f"{signed_word(result)}s" if signed else "scores"
    lines = "" if result.decision_threshold is not None else ", with lines at delta"
    rows = [
        [panel["group"], f"{panel['people']:,}", *(text.number(value, sign=signed) for value in panel["percentiles"])]
        for panel in spread["panels"]
    ]
    return {
        "kind": "scores",
        "alt": f"Histogram of the {what} of {finding.name} in each group{lines}.",
        "caption": _scores_caption(result, finding),
        "table": text.make_table(["Group"], ["People", "5th percentile", "25th", "median", "75th", "95th"], rows),
        "data": {**spread, "title": f"{what.capitalize()[:-1]}: {text.unit_words(result.unit)}"},
    }


def _scores_caption(result: AuditRecord, finding: Finding) -> str:
    sentences = []
    if finding.effect is not None and finding.kind == "continuous":
        sentences.append(f"Right of zero: they would get a higher prediction with a higher {finding.name}.")
    elif finding.effect is not None:
        where = "the other group" if len(finding.levels) == 2 else compared_group(finding)
        sentences.append(f"Right of zero: they would get a higher prediction as a member of {where}.")
    sentences += [] if finding.effect is None else ["Left of zero: a lower one."]
    if result.decision_threshold is None:
        sentences.append("Dashed: delta; orange: beyond it.")
    sentences.append("Values beyond the drawn range count in the outermost bars.")
    if len(finding.groups) > MOST_GROUPS:
        sentences.append(f"The {MOST_GROUPS} largest groups are drawn.")
    here = {group.name for group in finding.groups}
    if elsewhere := [name for name in result.deltas if name not in here]:
        sentences.append(f"Members of {' or '.join(elsewhere)} have their own delta, which the lines do not show.")
    return " ".join(sentences)


def distribution(result: AuditRecord, finding: Finding) -> dict[str, Any] | None:
    """Return a panel of bars for each of the largest groups, in percent of the group; None where nobody is judged.

    A panel has the limits of its group, none where no delta flags people.
    """
    signed, scale = finding.effect is not None, text.points_per_unit(result.unit)
    values = scale * (finding.scores if finding.effect is None else finding.effect).numpy(force=True).astype(np.float64)
    shown = ~finding.abstained.numpy(force=True) & np.isfinite(values)
    if not shown.any():
        return None
    own, panels = np.asarray(finding.group, dtype=str), []
    for group in _largest_groups(finding, own[shown]):
        delta = scale * result.delta_of(group_name(finding.name, group))
        limits = [] if result.decision_threshold is not None else [-delta, delta] if signed else [delta]
        members = shown & (own == group)
        weights = None if result.weights is None else result.weights.numpy(force=True)[members]
        counted = weights is not None and weights.any()
        edges = bin_edges(values[shown], limits or [0.0])
        title = group if len(group) <= _MOST_LETTERS else f"{group[: _MOST_LETTERS - 1]}…"
        panels.append(
            {
                "group": f"{title} ({text.people(int(members.sum()))})",
                "level": group,
                "people": int(members.sum()),
                "limits": limits,
                "edges": edges.tolist(),
                "heights": bar_heights(values[members], edges, weights).tolist(),
                "mean": float(np.average(values[members], weights=weights if counted else None)),
                "percentiles": [float(f"{value:.3g}") for value in np.percentile(values[members], _PERCENTILES)],
            }
        )
    return {"signed": signed, "panels": panels}


def _largest_groups(finding: Finding, own: np.ndarray) -> list[str]:
    """Return the most frequent of the people's own groups, in the order of the finding's groups."""
    names, counts = np.unique(own, return_counts=True)
    largest = names[np.argsort(-counts, kind="stable")[:MOST_GROUPS]].tolist()
    order = dict.fromkeys([*(group.level for group in finding.groups), *sorted(largest)])
    return [level for level in order if level in largest]


def bin_edges(values: np.ndarray, limits: list[float]) -> np.ndarray:
    """Return about forty equal bins over the middle 99 % of the values and the limits.

    Where the bins are narrow enough the limits are edges, so that no bar is half flagged.
    """
    low, high = np.percentile(values, [0.5, 99.5])
    low, high = min(low, 0.0, *limits), max(high, 0.0, *limits)
    delta, step = limits[-1], (high - low) / 40 or 1.0
    if delta >= step:
        step = delta / round(delta / step)
    # The small slack keeps a limit that is an edge from opening one more bin through rounding.
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return step * np.arange(first, max(last, first + 1) + 1)


def bar_heights(values: np.ndarray, edges: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    """Return how many percent of the values lie in each bin; values beyond the ends count in the last bars."""
    counts, _ = np.histogram(np.clip(values, edges[0], edges[-1]), edges, weights=weights)
    return 100.0 * counts / (counts.sum() or 1)


def groups_table(result: AuditRecord, findings: Sequence[Finding]) -> text.Table:
    """Return a row per group: how many people, their mean prediction and effect, and how many are flagged."""
    unit, groups = text.heading_unit(result.unit), [group for finding in findings for group in finding.groups]
    inferred = any(group.inferred for group in groups)
    own_deltas = any(group.name in result.deltas for group in groups)
    signed = any(finding.effect is not None for finding in findings)
    numbers = ["People", *(["Inferred"] if inferred else []), "Mean prediction"]
    numbers += [f"Mean {signed_word(result)}{unit}"] if signed else []
    numbers += [f"Delta{unit}"] if own_deltas else []
    rows = []
    for group in groups:
        row = [group.name, f"{group.people:,}", *([f"{group.inferred:,}"] if inferred else [])]
        row += [text.number(group.mean_prediction)]
        row += [text.cell(group.mean_effect, result.unit, sign=True)] if signed else []
        row += [text.cell(result.delta_of(group.name), result.unit)] if own_deltas else []
        confident = "-" if group.share_confident is None else text.percent(group.share_confident)
        rows.append([*row, text.percent(group.share_flagged), confident])
    return text.make_table(["Group"], [*numbers, "Flagged", "Confident"], rows)


def rates_table(groups: Sequence[Group]) -> text.Table | None:
    """Return a row per group of what decisions at the cut-off give it, with intervals; None where nobody decides."""
    names = [name for name in RATES if any(getattr(group, name) is not None for group in groups)]
    rows = [
        [g.name, f"{g.people:,}", *(_rate(getattr(g, name), g.intervals.get(name)) for name in names)] for g in groups
    ]
    labels = [text.capitalised(name.replace("_", " ")) for name in names]
    return text.make_table(["Group"], ["People", *labels], rows) if names else None


def _rate(value: float | None, interval: tuple[float, float] | None) -> str:
    if value is None or math.isnan(value):
        return "-"
    ends = [] if interval is None else ["?" if math.isnan(end) else f"{end:.3f}" for end in interval]
    return f"{value:.3f} ({' to '.join(ends)})" if ends else f"{value:.3f}"


def groups_figure(result: AuditRecord, finding: Finding) -> Figure | None:
    """Return whom the effects concern and which way: where those of each group lie, their mean, and delta."""
    spread, unit = distribution(result, finding), result.unit
    if spread is None:
        return None
    scale, what = text.points_per_unit(unit), signed_word(result) if spread["signed"] else "score"
    means = {group.level: group.mean_effect for group in finding.groups}
    bars = []
    for panel in spread["panels"]:
        mean = means.get(panel["level"])
        mean = panel["mean"] if mean is None or not math.isfinite(mean) else scale * mean
        low, left, _, right, high = panel["percentiles"]
        ends = {"low": low, "left": left, "right": right, "high": high}
        words = text.cell(mean / scale, unit, sign=spread["signed"])
        bars.append({"name": group_name(finding.name, panel["level"]), "mean": mean, "text": words, **ends})
    delta = None if result.deltas or result.decision_threshold is not None else scale * result.delta
    title = f"{text.capitalised(what)}{text.heading_unit(unit)}"
    rows = [[bar["name"], bar["text"], *(text.number(bar[end]) for end in ends)] for bar in bars]
    return {
        "kind": "groups",
        "alt": f"The {what}s of each group of {finding.name}: mean, middle half, and all but the outer tenth.",
        "caption": "Dot: the mean of the group. Thick: its middle half. Thin: 5th to 95th percentile."
        + ("" if delta is None else " Shaded: within delta."),
        "table": text.make_table(["Group"], ["Mean", "5th percentile", "25th", "75th", "95th"], rows),
        "data": {"title": title, "signed": spread["signed"], "delta": delta, "bars": bars},
    }


def readings_table(result: AuditRecord, finding: Finding) -> text.Table | None:
    """Return every reading of the effect, over all judged people and in each group; None where there is one only."""
    unit, readings = result.effect_unit, finding.readings(result.weights)
    shared = {
        name: {which: reading.groups[name] for which, reading in readings.items()}
        for name in readings["total"].groups
        if all(name in reading.groups for reading in readings.values())
    }
    if not shared or len(readings) < 2:
        return None
    words = [word for which in readings for word in (f"{which.capitalize()}, mean", "mean size")]
    rows = []
    for name, each in {"all judged": readings, **shared}.items():
        cells = [(text.cell(r.mean_effect, unit, sign=True), text.cell(r.mean_absolute, unit)) for r in each.values()]
        rows.append([name, *(word for both in cells for word in both)])
    return text.make_table(["People"], [f"{word}{text.heading_unit(unit)}" for word in words], rows)


def features_table(result: AuditRecord) -> text.Table:
    """Return a row per feature, those that carry the effect first: its part of it, and its strength as a proxy."""
    effect = {} if result.features.effect is None else result.features.effect.total
    proxy, unit = result.features.proxy, result.effect_unit
    names, most = list(dict.fromkeys([*effect, *proxy])), _MOST_LISTED
    rows = [[name, text.cell(effect.get(name), unit), text.cell(proxy.get(name), "")] for name in names[:most]]
    rows += [[f"and {len(names) - most} more", "", ""]] if len(names) > most else []
    size = f"Mean size of its part of the effect{text.heading_unit(unit)}"
    return text.make_table(["Feature"], [size, "Strength as a proxy"], rows)


def features_figure(result: AuditRecord) -> Figure | None:
    """Return through which features the effect goes, with intervals, and on how many people that rests."""
    effect, unit = result.features.effect, result.effect_unit
    largest = [] if effect is None else [(k, v) for k, v in effect.total.items() if v > 0][:MOST_FEATURES]
    if effect is None or not largest:
        return None
    errors, scale, means = effect.error, text.points_per_unit(unit), result.effect_by_group
    signed = [group.name for group in result.groups if group.name in means]
    bars, rows = [], []
    for name, value in largest:
        error = Z95 * errors[name] if math.isfinite(errors[name]) else 0.0
        low, high = max(value - error, 0.0), value + error
        words, ends = text.cell(value, unit), {"low": scale * low, "high": scale * high}
        bars.append({"name": name, "value": scale * value, "text": words, **ends})
        row = [name, words, f"{text.cell(low, unit)} to {text.cell(high, unit)}"]
        rows.append([*row, *(text.cell(means[group][name], unit, sign=True) for group in signed)])
    start = "" if result.is_effect else "Of the total effect. "
    size = f"Mean size{text.heading_unit(unit)}"
    return {
        "kind": "features",
        "alt": "Bars: mean size of each feature's contribution to the effect, with intervals.",
        "caption": f"{start}Bars: mean size of each feature's contribution over {text.people(effect.people)}; lines: "
        f"95 % intervals. A person's contributions add up to their effect ({effect.method}).",
        "table": text.make_table(["Feature"], [size, "95 % interval", *(f"Mean, {group}" for group in signed)], rows),
        "data": {"title": f"{size} over {text.people(effect.people)}", "bars": bars},
    }


def proxies_figure(finding: Finding) -> Figure | None:
    """Return which features are proxies of a protected variable."""
    finite = [(name, value) for name, value in finding.proxy.items() if math.isfinite(value)]
    largest = sorted(finite, key=lambda pair: -abs(pair[1]))[:MOST_FEATURES]
    if not largest:
        return None
    title = "Mean gradient of the auxiliary model"
    rows = [[name, text.number(value)] for name, value in largest]
    bars = [{"name": k, "value": v, "text": text.number(v), "low": v, "high": v} for k, v in largest]
    return {
        "kind": "features",
        "alt": f"Bars: how strongly an auxiliary model of {finding.name} relies on each feature.",
        "caption": f"How strongly an auxiliary model that predicts {finding.name} relies on each feature, whatever the "
        "audited model does with it.",
        "table": text.make_table(["Feature"], [title], rows),
        "data": {"title": title, "bars": bars},
    }


def make_slider(result: AuditRecord) -> dict[str, Any] | None:
    """Return every position of the slider: its delta, and how many are flagged there, in all and in each group.

    None where one delta does not say who is flagged.
    """
    if why_no_slider(result) is not None:
        return None
    deltas = positions(result.scores[~result.abstained], result.delta)
    weights = people_weights(result.weights, len(result))
    until = positions_flagged(result.scores, deltas)
    groups = []
    for v, finding in enumerate(result.findings):
        own, last = np.asarray(finding.group, dtype=str), positions_flagged(finding.scores, deltas)
        judged = ~finding.abstained.numpy(force=True)
        largest = sorted(finding.groups, key=lambda group: -group.people)[:_MOST_SLIDER_GROUPS]
        groups += [
            {"variable": v, "name": group.name, **_counts(last, judged & (own == group.level), weights, len(deltas))}
            for group in finding.groups
            if group in largest
        ]
    return {
        "deltas": deltas,
        "words": [text.amount(delta, result.unit) for delta in deltas],
        "start": deltas.index(result.delta),
        "scale": text.points_per_unit(result.unit),
        **_counts(until, ~result.abstained.numpy(force=True), weights, len(deltas)),
        "groups": groups,
    }


def _counts(until: np.ndarray, judged: np.ndarray, weights: np.ndarray, size: int) -> dict[str, Any]:
    """Return how many of some judged people there are, and how many of them are flagged at each position."""
    last, weight = until[judged], weights[judged]

    def beyond(each: np.ndarray | None) -> np.ndarray:
        """At position k those are flagged whose last one is beyond it."""
        return np.bincount(last, each, minlength=size + 1)[::-1].cumsum()[::-1][1:]

    whole = weight.sum()
    shares = [round(float(part / whole), 6) if whole > 0 else None for part in beyond(weight)]
    return {"judged": len(last), "flagged": beyond(None).tolist(), "shares": shares}


def why_no_slider(result: AuditRecord) -> str | None:
    """Return why one delta does not say who is flagged, in a sentence; None where it does."""
    if result.decision_threshold is not None:
        return "People are flagged where their decision would change, so there is no delta to move."
    if result.deltas:
        return "Some groups have a delta of their own, so there is no single delta to move."
    if not result.judged:
        return "Nobody could be judged, so there is no delta to move."
    scored: list[AuditRecord | Finding] = [result, *result.findings]
    if not all(torch.equal(flag(each.scores, result.delta, abstained=each.abstained), each.flagged) for each in scored):
        return "Delta alone does not decide who is flagged, so there is no delta to move."
    return None


def positions(scores: Tensor, delta: float) -> list[float]:
    """Return the deltas of a slider, ascending: equal steps from 0 on, the audit's own, and one that flags nobody.

    The steps cover all but the largest scores, so that one outlier does not coarsen them.
    """
    values = scores.numpy(force=True).astype(np.float64)
    values = values[np.isfinite(values)]
    most = float(values.max()) if len(values) else 0.0
    usual = max(float(np.quantile(values, 0.995)) if len(values) else 0.0, 2 * delta)
    usual = min(usual, _HUGE) if usual > _TINY else 1.0
    step = float(f"{usual / _POSITIONS:.1g}")  # a round number
    even = [float(f"{k * step:.12g}") for k in range(math.ceil(usual / step) + 1)]
    last = float(f"{step * math.ceil(most / step + 1e-9):.12g}")
    return sorted({*even, delta, max(even[-1], last)})


def positions_flagged(scores: Tensor, deltas: list[float]) -> np.ndarray:
    """Return at how many positions the score of each person is above delta (N,): the first so many."""
    found = torch.searchsorted(torch.tensor(deltas, dtype=torch.float64).to(scores), scores.contiguous())
    return found.numpy(force=True)
