"""The numbers behind the charts of a report: binned and averaged, so that nobody can be found in them."""

from __future__ import annotations

import math
from typing import Any

from fairfox.data.dataset import group_name
from fairfox.report.lines import signed_word
from fairfox.report.readings import readings_table
from fairfox.report.spread import spread_of
from fairfox.report.tables import Table, count, make_table
from fairfox.report.text import cell, heading_unit, number, percent, unit_words
from fairfox.result import AuditResult, FeatureEffect, Finding

MOST_GROUPS, MOST_FEATURES = 6, 12
Figure = dict[str, Any]  # kind, alt, caption, table, data


def points_per_unit(unit: str) -> float:
    """Return by what numbers of a unit are multiplied before people read them: probabilities are in points."""
    return 100.0 if "probability" in unit else 1.0


def figures(result: AuditResult) -> dict[str, Figure]:
    """Return every chart of an audit, by its id: `scores-0` is the first protected variable's, `features` of all."""
    out: dict[str, Figure | None] = {"features": features_figure(result)}
    for v, finding in enumerate(result.findings):
        out[f"scores-{v}"] = scores_figure(result, finding)
        out[f"groups-{v}"] = groups_figure(result, finding)
        out[f"readings-{v}"] = readings_figure(result, finding)
        out[f"proxies-{v}"] = proxies_figure(finding)
    return {name: figure for name, figure in out.items() if figure is not None}


def scores_figure(result: AuditResult, finding: Finding) -> Figure | None:
    """Return how the signed effects (or scores without a sign) of a variable are spread in each of its groups."""
    spread = spread_of(result, finding, scale=points_per_unit(result.unit), most=MOST_GROUPS)
    if spread is None:
        return None
    what = "scores" if finding.signed is None else f"{signed_word(result)}s"
    title = f"{what.capitalize()[:-1]}: {unit_words(result.unit)}"
    lines = "" if result.decision_threshold is not None else ", with lines at delta"
    quantiles = ["5th percentile", "25th", "median", "75th", "95th"]
    rows = [
        [panel["group"], count(panel["people"]), *(number(q, sign=finding.signed is not None) for q in panel["middle"])]
        for panel in spread["panels"]
    ]
    return {
        "kind": "scores",
        "alt": f"Histogram of the {what} of {finding.name} in each group{lines}.",
        "caption": _spread_caption(result, finding),
        "table": make_table(["Group"], ["People", *quantiles], rows),
        "data": {**spread, "title": title},
    }


def _spread_caption(result: AuditResult, finding: Finding) -> str:
    told = []
    if finding.signed is not None and finding.kind == "continuous":
        told.append(f"Right of zero: they would get a higher prediction with a higher {finding.name}.")
    elif finding.signed is not None:
        where = "the other group" if len(finding.levels) == 2 else "the group that changes it most"
        told.append(f"Right of zero: they would get a higher prediction as a member of {where}.")
    told += [] if finding.signed is None else ["Left of zero: a lower one."]
    if result.decision_threshold is None:
        told.append("Dashed: delta; orange: beyond it.")
    told.append("Values beyond the drawn range count in the outermost bars.")
    if len(finding.groups) > MOST_GROUPS:
        told.append(f"The {MOST_GROUPS} largest groups are drawn.")
    here = {group.name for group in finding.groups}
    elsewhere = [name for name in result.deltas if name not in here]
    if elsewhere:
        told.append(f"Members of {' or '.join(elsewhere)} have their own delta, which the lines do not show.")
    return " ".join(told)


def groups_figure(result: AuditResult, finding: Finding) -> Figure | None:
    """Return who is disadvantaged: each group's mean signed effect, or its flagged share where a test has no sign."""
    signed, scale, unit = finding.signed is not None, points_per_unit(result.unit), result.unit
    bars: list[dict[str, Any]] = []
    for group in finding.groups:
        mean, flagged = group.mean_signed, group.share_flagged
        value, words = (
            (100 * flagged, percent(flagged)) if mean is None else (scale * mean, cell(mean, unit, sign=True))
        )
        bars += [{"name": group.name, "value": value, "text": words}] if math.isfinite(value) else []
    if not bars:
        return None
    what = f"Mean {signed_word(result)}{heading_unit(result.unit)}" if signed else "Flagged (%)"
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
    caption += "" if limit is None else " Dashed: delta."
    rows = [[bar["name"], bar["text"]] for bar in bars]
    return {
        "kind": "groups",
        "alt": f"Bars: {what[0].lower()}{what[1:]} of each group of {finding.name}.",
        "caption": caption,
        "table": make_table(["Group"], [what], rows),
        "data": {"title": what, "signed": signed, "limit": limit, "bars": bars},
    }


def readings_figure(result: AuditResult, finding: Finding) -> Figure | None:
    """Return the direct beside the total reading in each group, so that it shows where they make up for each other."""
    unit, scale = result.effect_unit, points_per_unit(result.effect_unit)
    both = finding.readings(result.weights)
    names = [name for name in both["total"].groups if name in both["direct"].groups]
    pairs = [
        {
            "group": group_name(finding.name, name),
            "direct": scale * both["direct"].groups[name].mean_signed,
            "total": scale * both["total"].groups[name].mean_signed,
            "words": {which: cell(both[which].groups[name].mean_signed, unit, sign=True) for which in both},
        }
        for name in names
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


def features_figure(result: AuditResult) -> Figure | None:
    """Return through which features the effect goes, beside how far the groups differ in each whatever the model."""
    effect = result.features.effect
    if effect is None:
        return None
    unit, scale = result.effect_unit, points_per_unit(result.effect_unit)
    largest = [(name, value) for name, value in effect.total.items() if math.isfinite(value)][:MOST_FEATURES]
    if not largest:
        return None
    apart, errors = result.features.displacement, effect.error
    bars = [
        {
            "name": name,
            "value": scale * value,
            "text": cell(value, unit),
            "error": scale * errors[name] if math.isfinite(errors[name]) else None,
            "apart": apart.get(name),
        }
        for name, value in largest
    ]
    return {
        "kind": "features",
        "alt": "Bars: mean size of each feature's contribution to the effect, and how far the groups"
        f"{_of_which(result)} differ in it.",
        "caption": _features_caption(result, effect),
        "table": features_table(result, effect),
        "data": {
            "title": f"Mean size of the contribution{heading_unit(unit)}",
            "bars": bars,
            "apart": f"How far the groups{_of_which(result)} differ, without a model" if apart else None,
        },
    }


def _features_caption(result: AuditResult, effect: FeatureEffect) -> str:
    told = "" if result.is_effect else "Of the total reading: "
    told += f"Each person's contributions add up to their change of prediction ({effect.method}); the bars show the "
    told += f"mean size over {count(effect.people)} people, ± its standard error."
    if result.features.displacement:
        finding = result.findings[0]
        told += (
            f" Beside them, without any model: how far the feature of {group_name(finding.name, finding.levels[0])} "
            "would move on average, in standard deviations of a number and in shares of a category."
        )
    return told


def _of_which(result: AuditResult) -> str:
    """Return " of sex" where there are several variables: the model-free difference is about the first of them."""
    return f" of {result.findings[0].name}" if len(result.findings) > 1 else ""


def signed_by_group(result: AuditResult) -> dict[str, dict[str, float]]:
    """Return the mean signed contributions of each group, in the order in which groups stand everywhere."""
    means = result.effect_by_group
    order = dict.fromkeys([*(group.name for group in result.groups), *means])
    return {name: means[name] for name in order if name in means}


def features_table(result: AuditResult, effect: FeatureEffect) -> Table:
    """Return the largest contributions, their error, the groups' difference, and for one variable the signed means."""
    unit, apart, errors = result.effect_unit, result.features.displacement, effect.error
    signed = signed_by_group(result) if len(result.findings) == 1 else {}
    differ = f"Groups{_of_which(result)} differ by"
    numbers = [f"Mean size{heading_unit(unit)}", "±", *([differ] if apart else [])]
    rows = [
        [
            name,
            cell(value, unit),
            cell(errors[name], unit),
            *([number(apart.get(name))] if apart else []),
            *(cell(means[name], unit, sign=True) for means in signed.values()),
        ]
        for name, value in list(effect.total.items())[:MOST_FEATURES]
    ]
    return make_table(["Feature"], [*numbers, *(f"{level}, signed" for level in signed)], rows)


def proxies_figure(finding: Finding) -> Figure | None:
    """Return how strongly each feature gives a protected variable away."""
    known = [(name, value) for name, value in finding.proxy.items() if math.isfinite(value)]
    shown = sorted(known, key=lambda pair: -abs(pair[1]))[:MOST_FEATURES]
    if not shown:
        return None
    title = "mean gradient of the auxiliary"
    return {
        "kind": "proxies",
        "alt": f"Bars: how strongly each feature tells {finding.name}.",
        "caption": f"How strongly an auxiliary model that guesses {finding.name} leans on each feature, whatever the "
        "audited model does with it.",
        "table": make_table(["Feature"], [title.capitalize()], [[name, number(value)] for name, value in shown]),
        "data": {
            "title": title.capitalize(),
            "bars": [{"name": name, "value": value, "text": number(value)} for name, value in shown],
        },
    }
