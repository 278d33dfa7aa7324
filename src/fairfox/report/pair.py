"""Two audits side by side: the page and the files of a comparison of two models, or of two stored audits.

Audits come as their files have them, so that new and stored ones are shown alike.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from fairfox.choices.tests import EFFECT
from fairfox.data.dataset import group_name
from fairfox.errors import FileError, installed_versions
from fairfox.report import text
from fairfox.report.ci import pair_junit, pair_markdown
from fairfox.report.figures import MOST_FEATURES, Figure, bar_heights, bin_edges
from fairfox.report.html import render_page
from fairfox.report.sentences import OUTCOMES
from fairfox.statistics.paired import UNKNOWN, Pair, Side

MOST_PEOPLE = 20  # for whom most changed


_WORDS: dict[str, dict[str, Any]] = {  # by what is compared
    "models": {
        "title": "two models on the same people",
        "sides": ("A", "B"),
        "difference": "B less A",
        "unknown": "Cannot tell which model is fairer",
        "claim": "B treats people no more unequally than A",  # what holds where it passes
        "reading": "Fairer means here: a smaller {measure}. It says nothing about how good the predictions are.",
    },
    "audits": {
        "title": "two audits, one after the other",
        "sides": ("before", "now"),
        "difference": "now less before",
        "unknown": "Cannot tell whether the second audit is worse",
        "claim": "people are treated no more unequally than before",
        "reading": "Worse means here: the {measure} rose by more than chance explains; a rise within the margin does "
        "not count.",
    },
}


def pair_view(
    pair: Pair, sides: tuple[Side, Side], *, more: Sequence[str] = (), people: text.Table | None = None
) -> dict[str, Any]:
    """Return all that the page of two audits shows, in JSON's own types.

    Args:
        pair: their difference; with a margin two audits are compared, without one two models.
        sides: the two audits, of the same options.
        more: further sentences of the verdict.
        people: a table of the people for whom most changed.
    """
    of = "models" if pair.margin is None else "audits"
    words = _WORDS[of]
    with _all_fields(sides):
        return {
            "kind": "compare",
            "of": of,
            "format": text.FORMAT,
            "title": words["title"],
            "heading": _heading(pair, words["unknown"]),
            "outcome": OUTCOMES[pair.word],
            "verdict": [pair.reason, *more],
            "sides": [
                {"label": label, "name": side.name, "warnings": list(side.summary["warnings"])}
                for label, side in zip(words["sides"], sides, strict=True)
            ],
            "numbers": _numbers(pair, sides, words),
            "groups": _groups(sides, words),
            "scores": _scores_figure(sides, words["sides"]),
            "features": _features(sides, words["sides"]),
            "people": people,
            "settings": _settings(sides, words),
            "method": _method(sides[1].summary, words),
        }


def _heading(pair: Pair, unknown: str) -> str:
    if pair.word == UNKNOWN:
        return unknown
    return pair.word if pair.margin is None else f"The second audit is {pair.word} than the first"


def pair_fields(pair: Pair, sides: tuple[Side, Side]) -> dict[str, Any]:
    """Return the fields of summary.json."""
    summary, share = sides[0].summary, pair.share_difference
    unknown = {"value": pair.shares[1] - pair.shares[0], **dict.fromkeys(("error", "lower", "upper"))}
    with _all_fields(sides):
        return {
            "kind": "compare",
            "of": "models" if pair.margin is None else "audits",
            "format": text.FORMAT,
            **{name: getattr(pair, name) for name in ("word", "reason", "paired", "p_value", "share_p_value")},
            **{name: getattr(pair, name) for name in ("bound", "margin")},
            **{name: summary[name] for name in ("test", "unit", "delta")},
            "decision_threshold": summary["settings"].get("decision_threshold"),
            "protected": [variable["name"] for variable in summary["variables"]],
            "sides": {
                which: {
                    "name": side.name,
                    "people": people,
                    "mean_score": mean,
                    "share_flagged": flagged,
                    "alignment_share": {each["name"]: each["alignment_share"] for each in side.summary["variables"]},
                    "alignment_error": {each["name"]: each["alignment_error"] for each in side.summary["variables"]},
                    "performance": side.summary["performance"],
                    **{name: side.summary["settings"].get(name) for name in ("columns", "config_sha256")},
                    "warnings": side.summary["warnings"],
                }
                for which, side, people, mean, flagged in zip(
                    "ab", sides, pair.people, pair.means, pair.shares, strict=True
                )
            },
            "difference": asdict(pair.difference),
            "share_difference": unknown if share is None else asdict(share),
            "share_less_unequal_with_b": pair.less,
            "share_more_unequal_with_b": pair.more,
            "settings": {name: summary["settings"].get(name) for name in ("seed", "refits", "folds", "rows")}
            | {"versions": installed_versions("fairfox")},
        }


@contextmanager
def _all_fields(sides: tuple[Side, Side]) -> Iterator[None]:
    """Refuse a stored summary that does not hold all that is shown: a verdict needs less."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise FileError(
            f"The audit in '{sides[0].name}' or '{sides[1].name}' does not hold all that the page shows "
            f"({text.one_line(error)}); run `fairfox audit` again for both"
        ) from error


def render_pair(view: Mapping[str, Any]) -> str:
    """Return the page from `pair_view`, or from the same read back out of report.json."""
    return render_page("pair.html.j2", view=view, data={}, charts={"scores": view["scores"]})


def pair_files(view: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, str | bytes]:
    """Return the files by name, from what the page shows and the fields of summary.json."""
    properties = {"verdict": fields["word"], "test": fields["test"], "unit": fields["unit"]}
    properties["delta"] = f"{fields['delta']:g}"
    junit = pair_junit(_WORDS[view["of"]]["claim"], view["outcome"], fields["reason"], properties)
    return {
        "summary.json": text.strict_json(fields),
        "report.html": render_pair(view),
        "report.json": json.dumps(view, allow_nan=False) + "\n",
        "junit.xml": junit,
        "summary.md": pair_markdown(view),
    }


def mean_of(unit: str) -> str:
    """Return what is compared, by its unit: effects have a size, the scores of other tests have none."""
    return "mean size of the effect" if unit.partition(" (")[0] == EFFECT else "mean score"


def share_sentence(pair: Pair, what: str = "Flagged") -> str:
    """Return how many are flagged on each side, in a sentence."""
    points, interval = _share_difference(pair)
    points += f" ({interval.removesuffix(' points')})" if interval else ""
    one, two = map(text.percent, pair.shares)
    if pair.margin is None:
        return f"{what}: {one} of the people with A, {two} with B; a difference of {points}."
    points += f", p = {pair.share_p_value:.2g} for a rise" if interval else ""
    return f"{what}: {one} before, {two} now; a difference of {points}."


def _share_difference(pair: Pair) -> tuple[str, str]:
    """Return the difference of the shares of flagged people, and its interval where there is one."""
    share = pair.share_difference
    interval = "" if share is None else f"{100 * share.lower:+.1f} to {100 * share.upper:+.1f} points"
    return f"{100 * (pair.shares[1] - pair.shares[0]):+.1f} points", interval


def changed_people(people: pa.Table, unit: str) -> text.Table:
    """Return the people whose scores differ most between two models, the largest difference first.

    Args:
        people: with row_id, difference, score_a, score_b, flagged_a and flagged_b; no difference where not judged.
        unit: of the scores.
    """
    differences = people["difference"]
    judged = len(differences) - differences.null_count
    most = np.argsort(-np.abs(differences.to_numpy()), kind="stable")[: min(MOST_PEOPLE, judged)]
    rows = [
        [
            str(row["row_id"]),
            *(text.cell(row[name], unit) for name in ("score_a", "score_b")),
            text.cell(row["difference"], unit, sign=True),
            *("yes" if row[name] else "no" for name in ("flagged_a", "flagged_b")),
        ]
        for row in people.take(pa.array(most)).to_pylist()
    ]
    names = [f"{name}{text.heading_unit(unit)}" for name in ("Score, A", "Score, B", "B less A")]
    return text.make_table(["Person"], [*names, "Flagged, A", "Flagged, B"], rows)


def _numbers(pair: Pair, sides: tuple[Side, Side], words: Mapping[str, Any]) -> text.Table:
    both, d = [side.summary for side in sides], pair.difference
    unit = both[0]["unit"]
    value, lower, upper = (text.cell(end, unit, sign=True) for end in (d.value, d.lower, d.upper))
    means = [text.cell(mean, unit) for mean in pair.means]
    rows = [
        [f"{text.capitalised(mean_of(unit))}{text.heading_unit(unit)}", *means, value, f"{lower} to {upper}"],
        ["Flagged", *map(text.percent, pair.shares), *_share_difference(pair)],
        ["Confident", *(text.percent(each["share_confident"]) for each in both), "", ""],
        ["People judged", *(f"{each['counts']['judged']:,}" for each in both), "", ""],
        ["People without a score", *(f"{each['counts']['abstained']:,}" for each in both), "", ""],
    ]
    aligned = [{each["name"]: each["alignment_share"] for each in summary["variables"]} for summary in both]
    rows += [
        [f"Alignment share with {name}", *(text.percent(each.get(name)) for each in aligned), "", ""]
        for name in aligned[0]
    ]
    return text.make_table(["What"], [*words["sides"], words["difference"], "95 % interval"], rows)


def _groups(sides: tuple[Side, Side], words: Mapping[str, Any]) -> text.Table:
    """Return every group of either audit: how many they are, their mean signed effect, how many are flagged."""
    unit = sides[0].summary["unit"]
    own = [
        {(group["variable"], group["level"]): group for each in side.summary["variables"] for group in each["groups"]}
        for side in sides
    ]
    signed = "effect" if unit.partition(" (")[0] == EFFECT else "signed score"
    labels = ("People", f"Mean {signed}{text.heading_unit(unit)}", "Flagged")

    def cells(group: Mapping[str, Any] | None) -> list[str]:
        if group is None:  # of the other audit only
            return ["-"] * len(labels)
        effect, flagged = text.cell(group["mean_effect"], unit, sign=True), text.percent(group["share_flagged"])
        return [f"{group['people']:,}", effect, flagged]

    rows = []
    for key in dict.fromkeys([*own[0], *own[1]]):
        both = [cells(each.get(key)) for each in own]
        rows.append([group_name(*key), *(side[k] for k in range(len(labels)) for side in both)])
    return text.make_table(["Group"], [f"{label}, {side}" for label in labels for side in words["sides"]], rows)


def _scores_figure(sides: tuple[Side, Side], labels: tuple[str, str]) -> Figure:
    """Return the distribution of the scores in both audits, over the same bins, the last of which is open."""
    unit, delta = sides[0].summary["unit"], sides[0].summary["delta"]
    edges = bin_edges(np.concatenate([side.scores for side in sides]), [delta]).tolist()
    shares = [bar_heights(side.scores, np.array(edges), side.weights).tolist() for side in sides]
    ends = [f"{text.cell(low, unit)} to {text.cell(high, unit)}" for low, high in pairwise(edges[:-1])]
    ends.append(f"{text.cell(edges[-2], unit)} and above")
    title, scale = f"Score{text.heading_unit(unit)}", text.points_per_unit(unit)
    rows = [[end, *(f"{share:.1f} %" for share in both)] for end, *both in zip(ends, *shares, strict=True)]
    return {
        "kind": "pair",
        "alt": f"Histograms of the scores of people, {labels[0]} and {labels[1]}",
        "caption": f"Share of people by score: {text.unit_words(unit)}. Further right is less fair; the line is delta.",
        "table": text.make_table([title], labels, rows),
        "data": {
            "labels": list(labels),
            "axis": title,
            "delta": scale * delta,
            "edges": [scale * edge for edge in edges],
            "shares": shares,
        },
    }


def _features(sides: tuple[Side, Side], labels: tuple[str, str]) -> text.Table | None:
    """Return through which features the effect goes in both audits, the largest first; None where neither says."""
    unit = sides[0].summary["unit"].partition(" (")[2].removesuffix(")")
    effects = [(side.summary["features"]["effect"] or {}).get("mean_absolute", {}) for side in sides]
    largest = {name: max(each.get(name) or 0.0 for each in effects) for name in [*effects[0], *effects[1]]}
    names = sorted(largest, key=lambda name: -largest[name])[:MOST_FEATURES]
    headings = [f"Mean size{text.heading_unit(unit)}, {label}" for label in labels]
    rows = [[name, *(text.cell(each.get(name), unit) for each in effects)] for name in names]
    return text.make_table(["Feature"], headings, rows) if rows else None


def _settings(sides: tuple[Side, Side], words: Mapping[str, Any]) -> text.Table:
    """Return the settings of both audits; those that differ are marked."""
    own = [{name: text.as_json(value) for name, value in side.summary["settings"].items()} for side in sides]
    rows = [[name, *(each.get(name, "-") for each in own)] for name in dict.fromkeys([*own[0], *own[1]])]
    differ = [[k, column] for k, row in enumerate(rows) if row[1] != row[2] for column in (1, 2)]
    return text.make_table(["Setting", *words["sides"]], [], rows, marked=differ)


def _method(summary: Mapping[str, Any], words: Mapping[str, Any]) -> list[str]:
    threshold = summary["settings"].get("decision_threshold")
    flagged = f"their score is above delta, {text.amount(summary['delta'], summary['unit'])}"
    if threshold is not None:
        flagged = f"a decision at {text.number(threshold)} would change"
    reading = words["reading"].format(measure=mean_of(summary["unit"]))
    return [f"Test {summary['test']}: {summary['meaning']}", f"People are flagged where {flagged}.", reading]
