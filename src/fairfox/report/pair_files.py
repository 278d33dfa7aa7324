"""The files of a comparison or a drift: report.html and what it is made from, summary.json, junit.xml, summary.md."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import altair as alt

from fairfox.earlier import Side
from fairfox.errors import FileError
from fairfox.extras import installed_versions
from fairfox.report.html import render_page
from fairfox.report.junit import pair_junit
from fairfox.report.markdown import pair_markdown
from fairfox.report.pair import pair_case, pair_view, share_sentence
from fairfox.report.summary import strict_json
from fairfox.verdicts.drifting import Drift

DRIFT_VERSION = 1  # of the drift's summary.json
_DAMAGES = (LookupError, TypeError, ValueError, AttributeError)


def pair_files(view: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, bytes]:
    """Return the files by name, from what the page shows and the fields of summary.json."""
    told = {"verdict": fields["word"], "test": fields["test"], "unit": fields["unit"], "delta": f"{fields['delta']:g}"}
    junit = pair_junit(view["kind"], pair_case(view["kind"]), view["outcome"], fields["why"], told)
    return {
        "summary.json": strict_json(fields).encode(),
        "report.html": render_pair(view).encode(),
        "report.json": (json.dumps(view, allow_nan=False) + "\n").encode(),
        "junit.xml": junit.encode(),
        "summary.md": pair_markdown(view).encode(),
    }


def render_pair(view: Mapping[str, Any]) -> str:
    """Return the page from `pair_view`, or from the same read back out of report.json."""
    charts = {"scores": _scores_chart(view)}
    if view["features"] is not None:
        charts["features"] = _feature_chart(view)
    return render_page("pair.html.j2", view=view, data={"charts": charts})


def drift_files(found: Drift, sides: tuple[Side, Side]) -> dict[str, bytes]:
    """Return the files of a drift by name."""
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


def drift_fields(found: Drift, sides: tuple[Side, Side]) -> dict[str, Any]:
    """Return the fields of summary.json."""
    asked, share = sides[0].summary, found.share_difference
    each = zip(("first", "second"), sides, found.people, found.means, found.shares, strict=True)
    unknown = {"value": found.shares[1] - found.shares[0], **dict.fromkeys(("error", "lower", "upper"))}
    return {
        "kind": "drift",
        "schema_version": DRIFT_VERSION,
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


def _scores_chart(view: Mapping[str, Any]) -> dict[str, Any]:
    """Return the distributions of both scores over each other, with a line at delta."""
    shown, labels = view["scores"], [side["label"] for side in view["sides"]]
    edges = shown["edges"]
    rows = [
        {"low": edges[k], "high": edges[k + 1], "share": 100 * share, "side": label}
        for label, shares in zip(labels, shown["shares"], strict=True)
        for k, share in enumerate(shares)
    ]
    bars = (
        alt.Chart(alt.InlineData(values=rows))
        .mark_bar(opacity=0.55)
        .encode(
            x=alt.X("low:Q", title=shown["axis"], scale=alt.Scale(domain=[0, edges[-1]])),
            x2="high:Q",
            y=alt.Y("share:Q", title="% of people", stack=None),
            y2=alt.datum(0),
            color=alt.Color("side:N", sort=labels, legend=None),
        )
    )
    limit = [] if shown["delta"] is None else [{"delta": shown["delta"]}]
    line = alt.Chart(alt.InlineData(values=limit)).mark_rule(style="limit", strokeDash=[4, 3]).encode(x="delta:Q")
    spec: dict[str, Any] = (bars + line).properties(height=240).to_dict()
    return spec


def _feature_chart(view: Mapping[str, Any]) -> dict[str, Any]:
    """Return two bars per feature, one for each side."""
    shown, labels = view["features"], [side["label"] for side in view["sides"]]
    rows = [
        {"feature": name, "value": value, "side": label}
        for label, values in zip(labels, shown["values"], strict=True)
        for name, value in zip(shown["names"], values, strict=True)
        if value is not None
    ]
    chart = (
        alt.Chart(alt.InlineData(values=rows))
        .mark_bar()
        .encode(
            x=alt.X("value:Q", title=shown["axis"], axis=alt.Axis(tickCount=6)),
            y=alt.Y("feature:N", title=None, sort=shown["names"]),
            yOffset=alt.YOffset("side:N", sort=labels),
            color=alt.Color("side:N", sort=labels, legend=None),
        )
    )
    spec: dict[str, Any] = chart.properties(height=36 * len(shown["names"])).to_dict()
    return spec
