"""The numbers behind charts and slider: binned and averaged, so that nobody can be found in them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fairfox.data.dataset import group_name
from fairfox.findings import AuditRecord, FeatureEffect, Finding, Reading
from fairfox.report.sentences import signed_word
from fairfox.report.text import (
    Table,
    amount,
    cell,
    heading_unit,
    make_table,
    number,
    people,
    percent,
    percent_or_dash,
    points_per_unit,
    unit_words,
)
from fairfox.statistics.groups import flag

MOST_GROUPS, MOST_FEATURES = 6, 12
_MOST_LETTERS = 60  # of a group's name
_PERCENTILES = (5, 25, 50, 75, 95)
_FLAT, _SAME = 0.1, 0.2  # how small a reading is beside the other, how alike two are, as shares of the larger
_OTHER_DIFFERENCES = {
    "reverse": "turn it around",
    "less": "make up for part of it",
    "more": "add to it",
    "same": "hardly matter",
}
_POSITIONS = 200  # about, of the slider, in equal steps
_MOST_SLIDER_GROUPS = 24  # of a variable
_TINY = 1e-290  # scores whose steps no float can tell apart count as 0
_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
Figure = dict[str, Any]  # kind, alt, caption, table, data


def figures(result: AuditRecord) -> dict[str, Figure]:
    """Return every chart of an audit, by its id: `scores-0` is the first protected variable's, `features` of all."""
    out: dict[str, Figure | None] = {"features": features_figure(result)}
    for v, finding in enumerate(result.findings):
        out[f"scores-{v}"] = scores_figure(result, finding)
        out[f"groups-{v}"] = groups_figure(result, finding)
        out[f"readings-{v}"] = readings_figure(result, finding)
        out[f"proxies-{v}"] = proxies_figure(finding)
    return {name: figure for name, figure in out.items() if figure is not None}


def scores_figure(result: AuditRecord, finding: Finding) -> Figure | None:
    """Return the distribution of the signed effects (or scores without a sign) of a variable in each of its groups."""
    spread = distribution(result, finding, scale=points_per_unit(result.unit), most=MOST_GROUPS)
    if spread is None:
        return None
    what = "scores" if finding.signed is None else f"{signed_word(result)}s"
    lines = "" if result.decision_threshold is not None else ", with lines at delta"
    percentiles = ["5th percentile", "25th", "median", "75th", "95th"]
    rows = [
        [
            panel["group"],
            f"{panel['people']:,}",
            *(number(value, sign=finding.signed is not None) for value in panel["percentiles"]),
        ]
        for panel in spread["panels"]
    ]
    return {
        "kind": "scores",
        "alt": f"Histogram of the {what} of {finding.name} in each group{lines}.",
        "caption": _scores_caption(result, finding),
        "table": make_table(["Group"], ["People", *percentiles], rows),
        "data": {**spread, "title": f"{what.capitalize()[:-1]}: {unit_words(result.unit)}"},
    }


def _scores_caption(result: AuditRecord, finding: Finding) -> str:
    sentences = []
    if finding.signed is not None and finding.kind == "continuous":
        sentences.append(f"Right of zero: they would get a higher prediction with a higher {finding.name}.")
    elif finding.signed is not None:
        where = "the other group" if len(finding.levels) == 2 else "the group that changes it most"
        sentences.append(f"Right of zero: they would get a higher prediction as a member of {where}.")
    sentences += [] if finding.signed is None else ["Left of zero: a lower one."]
    if result.decision_threshold is None:
        sentences.append("Dashed: delta; orange: beyond it.")
    sentences.append("Values beyond the drawn range count in the outermost bars.")
    if len(finding.groups) > MOST_GROUPS:
        sentences.append(f"The {MOST_GROUPS} largest groups are drawn.")
    here = {group.name for group in finding.groups}
    if elsewhere := [name for name in result.deltas if name not in here]:
        sentences.append(f"Members of {' or '.join(elsewhere)} have their own delta, which the lines do not show.")
    return " ".join(sentences)


def distribution(result: AuditRecord, finding: Finding, *, scale: float, most: int) -> dict[str, Any] | None:
    """Return a panel of bars for each of the largest groups, in percent of the group; None where nobody is judged.

    A panel has the limits of its group, none where no delta flags people.
    """
    signed = finding.signed is not None
    values = scale * (finding.scores if finding.signed is None else finding.signed).numpy(force=True).astype(np.float64)
    shown = ~finding.abstained.numpy(force=True) & np.isfinite(values)
    if not shown.any():
        return None
    own, panels = np.asarray(finding.group, dtype=str), []
    for group in _largest_groups(finding, own[shown], most):
        delta = scale * result.delta_of(group_name(finding.name, group))
        limits = [] if result.decision_threshold is not None else [-delta, delta] if signed else [delta]
        members = shown & (own == group)
        weights = None if result.weights is None else result.weights.numpy(force=True)[members]
        edges = bin_edges(values[shown], limits or [0.0])
        title = group if len(group) <= _MOST_LETTERS else f"{group[: _MOST_LETTERS - 1]}…"
        panels.append(
            {
                "group": f"{title} ({people(int(members.sum()))})",
                "people": int(members.sum()),
                "limits": limits,
                "edges": edges.tolist(),
                "heights": bar_heights(values[members], edges, weights).tolist(),
                "percentiles": [float(f"{value:.3g}") for value in np.percentile(values[members], _PERCENTILES)],
            }
        )
    return {"signed": signed, "panels": panels}


def _largest_groups(finding: Finding, own: np.ndarray, most: int) -> list[str]:
    """Return the most frequent of the people's own groups, in the order of the finding's groups."""
    names, counts = np.unique(own, return_counts=True)
    largest = names[np.argsort(-counts, kind="stable")[:most]].tolist()
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


def groups_table(result: AuditRecord, findings: Sequence[Finding]) -> Table:
    """Return a row per group: how many people, their mean prediction and effect, and how many are flagged."""
    unit, groups = heading_unit(result.unit), [group for finding in findings for group in finding.groups]
    inferred = any(group.inferred for group in groups)
    own_deltas = any(group.name in result.deltas for group in groups)
    signed = any(finding.signed is not None for finding in findings)
    numbers = ["People", *(["Inferred"] if inferred else []), "Mean prediction"]
    numbers += [f"Mean {signed_word(result)}{unit}"] if signed else []
    numbers += [f"Delta{unit}"] if own_deltas else []
    rows = []
    for group in groups:
        row = [group.name, f"{group.people:,}", *([f"{group.inferred:,}"] if inferred else [])]
        row += [number(group.mean_prediction)]
        row += [cell(group.mean_signed, result.unit, sign=True)] if signed else []
        row += [cell(result.delta_of(group.name), result.unit)] if own_deltas else []
        rows.append([*row, percent(group.share_flagged), percent_or_dash(group.share_confident)])
    return make_table(["Group"], [*numbers, "Flagged", "Confidently"], rows)


def groups_figure(result: AuditRecord, finding: Finding) -> Figure | None:
    """Return who is disadvantaged: each group's mean signed effect, or its flagged share where a test has no sign."""
    signed, scale, unit = finding.signed is not None, points_per_unit(result.unit), result.unit
    bars: list[dict[str, Any]] = []
    for group in finding.groups:
        mean, flagged = group.mean_signed, group.share_flagged
        value = 100 * flagged if mean is None else scale * mean
        words = percent(flagged) if mean is None else cell(mean, unit, sign=True)
        bars += [{"name": group.name, "value": value, "text": words}] if math.isfinite(value) else []
    if not bars:
        return None
    title = f"Mean {signed_word(result)}{heading_unit(unit)}" if signed else "Flagged (%)"
    if not signed:
        caption = "How many percent of each group's people are flagged."
    elif finding.kind == "continuous":
        caption = f"Right of zero: people in this range would get a higher prediction with a higher {finding.name}."
    else:
        caption = (
            "Right of zero: on average these people would get a higher prediction as members of another group, so that "
            "they are worse off in their own, where a high prediction is good for people. Left of zero: the reverse."
        )
    limit = scale * result.delta if signed and not result.deltas and result.decision_threshold is None else None
    return {
        "kind": "groups",
        "alt": f"Bars: {title[0].lower()}{title[1:]} of each group of {finding.name}.",
        "caption": caption + ("" if limit is None else " Dashed: delta."),
        "table": make_table(["Group"], [title], [[bar["name"], bar["text"]] for bar in bars]),
        "data": {"title": title, "signed": signed, "limit": limit, "bars": bars},
    }


def readings_figure(result: AuditRecord, finding: Finding) -> Figure | None:
    """Return the direct beside the total reading in each group, so that it shows where they make up for each other."""
    unit, scale = result.effect_unit, points_per_unit(result.effect_unit)
    both = finding.readings(result.weights)
    pairs = [
        {
            "group": group_name(finding.name, name),
            "direct": scale * both["direct"].groups[name].mean_signed,
            "total": scale * both["total"].groups[name].mean_signed,
            "words": {which: cell(both[which].groups[name].mean_signed, unit, sign=True) for which in both},
        }
        for name in both["total"].groups
        if name in both["direct"].groups
    ]
    if not pairs:
        return None
    headings = [f"{word}{heading_unit(unit)}" for word in ("Direct, mean", "mean size", "Total, mean", "mean size")]
    return {
        "kind": "readings",
        "alt": f"Two dots for each group of {finding.name}: the mean direct and the mean total reading, and zero.",
        "caption": "Mean signed change of the prediction. Dots on both sides of zero, or a total nearer to zero than "
        "the direct reading: other differences between the groups make up for the direct effect.",
        "table": readings_table(both, unit, headings),
        "data": {"title": f"Mean change of the prediction{heading_unit(unit)}", "pairs": pairs},
    }


def readings_table(both: dict[str, Reading], unit: str, headings: list[str]) -> Table:
    """Return both readings of all judged people and of each group, and what the other differences do to the direct."""

    def cells(reading: Reading | None) -> list[str]:
        if reading is None:
            return ["-", "-"]
        return [cell(reading.mean_signed, unit, sign=True), cell(reading.mean_absolute, unit)]

    rows = [["all judged", *cells(both["direct"]), *cells(both["total"]), "-"]]
    for name, total in both["total"].groups.items():
        direct = both["direct"].groups.get(name)
        rest = "-" if direct is None else _OTHER_DIFFERENCES[compensation(direct.mean_signed, total.mean_signed)]
        rows.append([name, *cells(direct), *cells(total), rest])
    table = make_table(["People"], headings, rows)
    table["columns"].append({"label": "Other differences", "numeric": False})
    return table


def compensation(direct: float, total: float) -> str:
    """Return what all that differs between groups does to a direct effect: "reverse", "less", "more" or "same".

    Example:
        >>> compensation(0.08, -0.02), compensation(0.08, 0.02), compensation(0.02, 0.08)
        ('reverse', 'less', 'more')
    """
    larger = max(abs(direct), abs(total))
    if direct * total < 0 and min(abs(direct), abs(total)) > _FLAT * larger:
        return "reverse"
    if abs(abs(direct) - abs(total)) <= _SAME * larger:
        return "same"
    return "less" if abs(total) < abs(direct) else "more"


def compensation_lines(result: AuditRecord, finding: Finding) -> list[str]:
    """Return a sentence for each group in which other differences make up for a direct effect that counts."""
    both, unit = finding.readings(result.weights), result.effect_unit
    sentences = {
        "reverse": "the two readings point in opposite directions: other differences between the groups more than make "
        "up for the direct effect.",
        "less": "other differences between the groups make up for part of the direct effect.",
    }
    lines, least = [], result.delta if result.is_effect else 0.0
    for name, total in both["total"].groups.items():
        direct = both["direct"].groups.get(name)
        if direct is None or max(abs(direct.mean_signed), abs(total.mean_signed)) <= least:
            continue
        if (kind := compensation(direct.mean_signed, total.mean_signed)) in sentences:
            sizes = " and ".join(amount(part.mean_signed, unit, sign=True) for part in (direct, total))
            lines.append(f"{finding.name}, {name} ({sizes}): {sentences[kind]}")
    return lines


def features_figure(result: AuditRecord) -> Figure | None:
    """Return through which features the effect goes, beside how far the groups differ in each whatever the model."""
    effect = result.features.effect
    if effect is None:
        return None
    unit, scale = result.effect_unit, points_per_unit(result.effect_unit)
    largest = [(name, value) for name, value in effect.total.items() if math.isfinite(value)][:MOST_FEATURES]
    if not largest:
        return None
    differences, errors = result.features.displacement, effect.error
    groups = f"groups{_of_first_variable(result)}"
    bars = [
        {
            "name": name,
            "value": scale * value,
            "text": cell(value, unit),
            "error": scale * errors[name] if math.isfinite(errors[name]) else None,
            "difference": differences.get(name),
        }
        for name, value in largest
    ]
    return {
        "kind": "features",
        "alt": f"Bars: mean size of each feature's contribution to the effect, and how far the {groups} differ in it.",
        "caption": _features_caption(result, effect),
        "table": _features_table(result, effect),
        "data": {
            "title": f"Mean size of the contribution{heading_unit(unit)}",
            "bars": bars,
            "difference": f"How far the {groups} differ, without a model" if differences else None,
        },
    }


def _features_caption(result: AuditRecord, effect: FeatureEffect) -> str:
    caption = "" if result.is_effect else "Of the total reading: "
    caption += f"Each person's contributions add up to their change of prediction ({effect.method}); the bars show the "
    caption += f"mean size over {effect.people:,} people, ± its standard error."
    if result.features.displacement:
        finding = result.findings[0]
        caption += (
            f" Beside them, without any model: how far the feature of {group_name(finding.name, finding.levels[0])} "
            "would move on average, in standard deviations of a number and in shares of a category."
        )
    return caption


def _of_first_variable(result: AuditRecord) -> str:
    """Return " of sex" where there are several variables: the model-free difference is about the first of them."""
    return f" of {result.findings[0].name}" if len(result.findings) > 1 else ""


def signed_by_group(result: AuditRecord) -> dict[str, dict[str, float]]:
    """Return the mean signed contributions of each group, in the order that groups have everywhere."""
    means = result.effect_by_group
    order = dict.fromkeys([*(group.name for group in result.groups), *means])
    return {name: means[name] for name in order if name in means}


def _features_table(result: AuditRecord, effect: FeatureEffect) -> Table:
    """Return the largest contributions, their error, the groups' difference, and for one variable the signed means."""
    unit, differences, errors = result.effect_unit, result.features.displacement, effect.error
    signed = signed_by_group(result) if len(result.findings) == 1 else {}
    headings = [f"Mean size{heading_unit(unit)}", "±"]
    headings += [f"Groups{_of_first_variable(result)} differ by"] if differences else []
    rows = [
        [
            name,
            cell(value, unit),
            cell(errors[name], unit),
            *([number(differences.get(name))] if differences else []),
            *(cell(means[name], unit, sign=True) for means in signed.values()),
        ]
        for name, value in list(effect.total.items())[:MOST_FEATURES]
    ]
    return make_table(["Feature"], [*headings, *(f"{level}, signed" for level in signed)], rows)


def proxies_figure(finding: Finding) -> Figure | None:
    """Return how strongly each feature gives a protected variable away."""
    finite = [(name, value) for name, value in finding.proxy.items() if math.isfinite(value)]
    largest = sorted(finite, key=lambda pair: -abs(pair[1]))[:MOST_FEATURES]
    if not largest:
        return None
    title = "Mean gradient of the auxiliary"
    return {
        "kind": "proxies",
        "alt": f"Bars: how strongly each feature gives {finding.name} away.",
        "caption": f"How strongly an auxiliary model that guesses {finding.name} relies on each feature, whatever the "
        "audited model does with it.",
        "table": make_table(["Feature"], [title], [[name, number(value)] for name, value in largest]),
        "data": {
            "title": title,
            "bars": [{"name": name, "value": value, "text": number(value)} for name, value in largest],
        },
    }


def make_slider(result: AuditRecord) -> dict[str, Any] | None:
    """Return every position of the slider: its delta, and how many are flagged there, in all and in each group.

    None where one delta does not say who is flagged.
    """
    if why_no_slider(result) is not None:
        return None
    deltas = positions(result.scores[~result.abstained], result.delta)
    weights = np.ones(len(result)) if result.weights is None else result.weights.numpy(force=True).astype(np.float64)
    everyone = np.zeros(len(result), dtype=np.int64)
    flagged, shares = _flagged_by_group(result.scores, result.abstained, deltas, everyone, weights)
    return {
        "deltas": deltas,
        "words": [amount(delta, result.unit) for delta in deltas],
        "start": deltas.index(result.delta),
        "scale": points_per_unit(result.unit),
        "judged": result.judged,
        "flagged": flagged[:, 0].tolist(),
        "shares": [round(share, 6) for share in shares[:, 0].tolist()],
        "groups": [
            {"variable": v, **group}
            for v, finding in enumerate(result.findings)
            for group in _slider_groups(finding, deltas, weights)
        ],
    }


def why_no_slider(result: AuditRecord) -> str | None:
    """Return why one delta does not say who is flagged, in a sentence; None where it does."""
    if result.decision_threshold is not None:
        return "People are flagged where their decision would change, so there is no delta to move."
    if result.deltas:
        return "Some groups have a delta of their own, so there is no single delta to move."
    if not result.judged:
        return "Nobody could be judged, so there is no delta to move."
    scored: list[AuditRecord | Finding] = [result, *result.findings]
    if not all(torch.equal(flag(each.scores, result.delta, abstained=each.abstained), each.flags) for each in scored):
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
    usual = usual if usual > _TINY else 1.0
    power = 10.0 ** math.floor(math.log10(usual / _POSITIONS))
    step = next(nice * power for nice in _STEPS if nice * power >= usual / _POSITIONS * (1 - 1e-9))
    even = [float(f"{k * step:.12g}") for k in range(math.ceil(usual / step) + 1)]
    last = float(f"{step * math.ceil(most / step + 1e-9):.12g}")
    return sorted({*even, delta, max(even[-1], last)})


def positions_flagged(scores: Tensor, abstained: Tensor, deltas: list[float]) -> list[int]:
    """Return at how many positions each person is flagged: the first so many, since scores are above delta."""
    return torch.stack([flag(scores, delta, abstained=abstained) for delta in deltas]).sum(0).tolist()


def _slider_groups(finding: Finding, deltas: list[float], weights: np.ndarray) -> list[dict[str, Any]]:
    """Return the counts of a variable's largest groups."""
    largest = sorted(finding.groups, key=lambda group: -group.people)[:_MOST_SLIDER_GROUPS]
    groups = [group for group in finding.groups if group in largest]
    codes = {group.level: code for code, group in enumerate(groups)}
    own = np.array([codes.get(level, len(groups)) for level in finding.group], dtype=np.int64)
    flagged, shares = _flagged_by_group(finding.scores, finding.abstained, deltas, own, weights)
    judged = np.bincount(own[~finding.abstained.numpy(force=True)], minlength=len(groups) + 1)
    return [
        {
            "name": group.name,
            "judged": int(judged[code]),
            "flagged": flagged[:, code].tolist(),
            "shares": [round(share, 6) if math.isfinite(share) else None for share in shares[:, code].tolist()],
        }
        for code, group in enumerate(groups)
    ]


def _flagged_by_group(
    scores: Tensor, abstained: Tensor, deltas: list[float], own: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return how many people of each group (positions, G) are flagged, and their share of its judged people."""
    judged, size = ~abstained.numpy(force=True), int(own.max(initial=0)) + 1
    whole = np.bincount(own[judged], weights[judged], minlength=size)
    counts, sums = [], []
    for delta in deltas:
        flags = flag(scores, delta, abstained=abstained).numpy(force=True)
        counts.append(np.bincount(own[flags], minlength=size))
        sums.append(np.bincount(own[flags], weights[flags], minlength=size))
    with np.errstate(invalid="ignore"):
        return np.stack(counts), np.stack(sums) / whole
