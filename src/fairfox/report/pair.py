"""Two audits beside each other: what the page and summary.md of a comparison or of a drift say, in ready words.

The audits come as their files have them, so that those of today and those of a year ago are shown alike.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from fairfox.data.dataset import group_name
from fairfox.earlier import Side
from fairfox.fairtests.registry import EFFECT
from fairfox.report.junit import Outcome
from fairfox.report.pair_figures import feature_figure, scores_figure
from fairfox.report.tables import Table, count, make_table
from fairfox.report.text import amount, cell, heading_unit, number, percent
from fairfox.verdicts.comparing import Pair
from fairfox.verdicts.drifting import Drift
from fairfox.verdicts.estimates import Estimate

PAIR_VERSION = 1
MOST_PEOPLE = 20  # for whom most changed
OUTCOMES: dict[str, Outcome] = {
    **{"A is fairer": "failure", "B is fairer": "passed"},
    **{"worse": "failure", "not worse": "passed"},
    "cannot tell": "skipped",
}


@dataclass(frozen=True)
class _Words:
    """What a kind of pair is called: its page, its sides, what stands between them, and how to read it."""

    title: str
    sides: tuple[str, str]
    between: str
    headings: Mapping[str, str]  # by the verdict's word
    case: str  # what holds where it passes
    reading: str


_WORDS = {
    "compare": _Words(
        "two models on the same people",
        ("A", "B"),
        "B less A",
        {"A is fairer": "A is fairer", "B is fairer": "B is fairer", "cannot tell": "Which model is fairer is open"},
        "B treats people no more unequally than A",
        "Fairer means here: a smaller mean score by this test. It says nothing about how good the predictions are.",
    ),
    "drift": _Words(
        "an audit and an earlier one",
        ("before", "now"),
        "now less before",
        {
            "worse": "The second audit is worse than the first",
            "not worse": "The second audit is not worse than the first",
            "cannot tell": "Whether the second audit is worse is open",
        },
        "people are treated no more unequally than before",
        "Worse means here: the mean score rose, and surely so; a rise within the margin does not count.",
    ),
}


def pair_case(kind: str) -> str:
    """Return what holds where a comparison or a drift passes, as a sentence."""
    return _WORDS[kind].case


def share_sentence(found: Drift) -> str:
    """Return how many were flagged before and are now, in a sentence."""
    points, share = f"{100 * (found.shares[1] - found.shares[0]):+.1f} points", found.share_difference
    if share is not None:
        points += f" ({100 * share.lower:+.1f} to {100 * share.upper:+.1f}), p = {found.share_p_value:.2g}"
    return f"Flagged: {percent(found.shares[0])} before, {percent(found.shares[1])} now; a difference of {points}."


def pair_view(
    kind: str, found: Pair | Drift, sides: tuple[Side, Side], *, more: Sequence[str] = (), people: Table | None = None
) -> dict[str, Any]:
    """Return all that the page of two audits shows, in JSON's own types.

    Args:
        kind: "compare" or "drift".
        found: what stands between them.
        sides: the two audits, of the same question.
        more: further sentences of the verdict.
        people: a table of the people for whom most changed.
    """
    words = _WORDS[kind]
    return {
        "kind": kind,
        "view_version": PAIR_VERSION,
        "title": words.title,
        "heading": words.headings[found.word],
        "outcome": OUTCOMES[found.word],
        "verdict": [found.why, *more],
        "sides": [
            {"label": label, "name": side.name, "warnings": list(side.summary["warnings"])}
            for label, side in zip(words.sides, sides, strict=True)
        ],
        "numbers": _numbers(found, sides, words),
        "groups": _groups(sides, words),
        "scores": scores_figure(sides, words.sides),
        "features": feature_figure(sides, words.sides),
        "people": people,
        "settings": _settings(sides, words),
        "method": _method(sides[1].summary, words),
    }


def changed_people(people: pa.Table, unit: str) -> Table:
    """Return the people whose scores differ most between two models, the largest difference first.

    Args:
        people: with row_id, difference, score_a, score_b, flag_a and flag_b; no difference where not judged.
        unit: of the scores.
    """
    apart = people["difference"].to_numpy()
    most = np.argsort(-np.abs(apart), kind="stable")[: min(MOST_PEOPLE, len(apart) - people["difference"].null_count)]
    rows = [
        [
            str(row["row_id"]),
            *(cell(row[name], unit) for name in ("score_a", "score_b")),
            cell(row["difference"], unit, sign=True),
            *("yes" if row[name] else "no" for name in ("flag_a", "flag_b")),
        ]
        for row in people.take(pa.array(most)).to_pylist()
    ]
    names = [f"{name}{heading_unit(unit)}" for name in ("Score, A", "Score, B", "B less A")]
    return make_table(["Person"], [*names, "Flagged, A", "Flagged, B"], rows)


def _numbers(found: Pair | Drift, sides: tuple[Side, Side], words: _Words) -> Table:
    both = [side.summary for side in sides]
    unit = both[0]["unit"]
    means = [cell(mean, unit) for mean in found.means]
    rows = [
        [f"Mean score{heading_unit(unit)}", *means, *_apart(found.difference, unit)],
        ["Flagged", *map(percent, found.shares), *_points_apart(found)],
        ["Confidently", *(percent(each["share_confident"]) for each in both), "", ""],
        ["People judged", *(count(each["counts"]["judged"]) for each in both), "", ""],
        ["People without a score", *(count(each["counts"]["abstained"]) for each in both), "", ""],
    ]
    aligned = [{each["name"]: each["alignment_share"] for each in summary["variables"]} for summary in both]
    rows += [
        [f"Alignment share with {name}", *(percent(each.get(name)) for each in aligned), "", ""] for name in aligned[0]
    ]
    return make_table(["What"], [*words.sides, words.between, "95 % interval"], rows)


def _apart(between: Estimate, unit: str) -> list[str]:
    value, lower, upper = (cell(each, unit, sign=True) for each in (between.value, between.lower, between.upper))
    return [value, f"{lower} to {upper}"]


def _points_apart(found: Pair | Drift) -> list[str]:
    share = found.share_difference
    interval = "" if share is None else f"{100 * share.lower:+.1f} to {100 * share.upper:+.1f} points"
    return [f"{100 * (found.shares[1] - found.shares[0]):+.1f} points", interval]


def _groups(sides: tuple[Side, Side], words: _Words) -> Table:
    """Return every group of either audit: how many they are, which way the effect goes, how many are flagged."""
    unit = sides[0].summary["unit"]
    own = [
        {(group["variable"], group["level"]): group for each in side.summary["variables"] for group in each["groups"]}
        for side in sides
    ]
    signed = "effect" if unit.partition(" (")[0] == EFFECT else "signed score"
    labels = ("People", f"Mean {signed}{heading_unit(unit)}", "Flagged")
    rows = []
    for key in dict.fromkeys([*own[0], *own[1]]):
        told = [_group(each.get(key), unit) for each in own]
        rows.append([group_name(*key), *(one[k] for k in range(len(labels)) for one in told)])
    return make_table(["Group"], [f"{label}, {side}" for label in labels for side in words.sides], rows)


def _group(group: Mapping[str, Any] | None, unit: str) -> list[str]:
    if group is None:  # of the other audit only
        return ["-"] * 3
    return [count(group["people"]), cell(group["mean_signed"], unit, sign=True), percent(group["share_flagged"])]


def _settings(sides: tuple[Side, Side], words: _Words) -> Table:
    """Return the settings of both audits; what is not the same is marked."""
    own = [{name: _said(value) for name, value in side.summary["settings"].items()} for side in sides]
    rows = [[name, *(each.get(name, "-") for each in own)] for name in dict.fromkeys([*own[0], *own[1]])]
    apart = [[k, place] for k, row in enumerate(rows) if row[1] != row[2] for place in (1, 2)]
    return make_table(["Setting", *words.sides], [], rows, marked=apart)


def _said(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _method(summary: Mapping[str, Any], words: _Words) -> list[str]:
    threshold = summary["settings"].get("decision_threshold")
    delta = amount(summary["delta"], summary["unit"])
    flagged = (
        f"their score is above delta, {delta}" if threshold is None else f"a decision at {number(threshold)} turns"
    )
    return [f"Test {summary['test']}: {summary['meaning']}", f"People are flagged where {flagged}.", words.reading]
