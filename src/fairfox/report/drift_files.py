"""The files of a drift: two audits beside each other, from what their folders hold."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from fairfox.errors import FileError
from fairfox.extras import installed_versions
from fairfox.report.pair import pair_view
from fairfox.report.pair_figures import Side
from fairfox.verdicts.drifting import Drift

SCHEMA_VERSION = 1
_DAMAGES = (LookupError, TypeError, ValueError, AttributeError)


def drift_files(found: Drift, sides: tuple[Side, Side]) -> dict[str, bytes]:
    """Return the files by name: report.html and report.json, summary.json, summary.md and junit.xml."""
    from fairfox.report.pair_files import pair_files  # charts and pages take a while to import

    return pair_files(drift_view(found, sides), drift_fields(found, sides))


def drift_view(found: Drift, sides: tuple[Side, Side]) -> dict[str, Any]:
    """Return all that the page shows; FileError where a summary does not hold it."""
    try:
        return pair_view("drift", found, sides, more=[share_sentence(found)])
    except _DAMAGES as error:  # what is said of a drift needs less of a summary than the page
        raise FileError(
            f"The audit in '{sides[0].name}' or '{sides[1].name}' does not hold all that the page shows "
            f"({' '.join(str(error).split())}); make both anew with `fairfox audit`"
        ) from error


def share_sentence(found: Drift) -> str:
    """Return how many were flagged before and are now, in a sentence."""
    points, share = f"{100 * (found.shares[1] - found.shares[0]):+.1f} points", found.share_difference
    if share is not None:
        points += f" ({100 * share.lower:+.1f} to {100 * share.upper:+.1f}), p = {found.share_p_value:.2g}"
    return f"Flagged: {found.shares[0]:.1%} before, {found.shares[1]:.1%} now; a difference of {points}."


def drift_fields(found: Drift, sides: tuple[Side, Side]) -> dict[str, Any]:
    """Return the fields of summary.json."""
    asked, share = sides[0].summary, found.share_difference
    each = zip(("first", "second"), sides, found.people, found.means, found.shares, strict=True)
    unknown = {"value": found.shares[1] - found.shares[0], **dict.fromkeys(("error", "lower", "upper"))}
    return {
        "kind": "drift",
        "schema_version": SCHEMA_VERSION,
        "word": found.word,
        "why": found.why,
        "test": asked["test"],
        "unit": asked["unit"],
        "delta": asked["delta"],
        "decision_threshold": asked["settings"].get("decision_threshold"),
        "protected": [variable["name"] for variable in asked["variables"]],
        "paired": found.paired,
        "audits": {
            place: {"name": side.name, "people": people, "mean_score": mean, "share_flagged": flagged}
            for place, side, people, mean, flagged in each
        },
        "difference": asdict(found.difference),
        "share_difference": unknown if share is None else asdict(share),
        "p_value": found.p_value,
        "share_p_value": found.share_p_value,
        "bound": found.bound,
        "margin": found.margin,
        "settings": {"versions": installed_versions("fairfox")},
    }
