"""The charts of a report, as SVG: drawn here once, so that the page needs neither JavaScript nor a network."""

from __future__ import annotations

import math
from io import StringIO
from typing import Any

import altair as alt
import numpy as np

from fairfox.data.dataset import group_name
from fairfox.report.text import people, signed_word, unit_words
from fairfox.result import AuditResult, Finding

FLAGGED, WITHIN, BAR, LINE = "#d55e00", "#9db4c8", "#0072b2", "#333333"  # told apart by colour-blind readers
WIDTH = 800
MOST_GROUPS, MOST_FEATURES = 6, 12


def effects_chart(result: AuditResult, finding: Finding) -> str:
    """Return how the signed effects (or scores without a sign) of a protected variable are spread in each of its
    groups, with lines at the group's delta."""
    scale, signed = points_per_unit(result.unit), finding.signed is not None
    values = scale * (finding.scores if finding.signed is None else finding.signed).numpy(force=True).astype(np.float64)
    shown = ~finding.abstained.numpy(force=True) & np.isfinite(values)
    if not shown.any():
        return ""
    own = np.asarray(finding.group, dtype=str)
    panels = []
    for group in largest_groups(finding, own[shown]):
        delta = scale * result.delta_of(group_name(finding.name, group))
        limits = [-delta, delta] if signed else [delta]
        edges, members = bin_edges(values[shown], limits), shown & (own == group)
        weights = None if result.weights is None else result.weights.numpy(force=True)[members]
        panels.append((group, int(members.sum()), limits, edges, bar_heights(values[members], edges, weights)))
    span = [min(edges[0] for *_, edges, _ in panels), max(edges[-1] for *_, edges, _ in panels)]
    top = 1.05 * max(shares.max() for *_, shares in panels)
    drawn = [
        _panel(shares, edges, limits, group=f"{group} ({people(count)})", span=span, top=top)
        for group, count, limits, edges, shares in panels
    ]
    return svg(alt.vconcat(*drawn, spacing=12, title=_title(result)))


def largest_groups(finding: Finding, own: np.ndarray) -> list[str]:
    """Return the most frequent of the people's own groups, in the order of the finding's groups."""
    names, counts = np.unique(own, return_counts=True)
    largest = names[np.argsort(-counts, kind="stable")[:MOST_GROUPS]].tolist()
    order = dict.fromkeys([*(group.level for group in finding.groups), *sorted(largest)])
    return [level for level in order if level in largest]


def feature_chart(values: dict[str, float], *, title: str, scale: float = 1.0) -> str:
    """Return one bar per feature for the largest values, each with its number."""
    known = [(name, scale * value) for name, value in values.items() if math.isfinite(value)]
    shown = sorted(known, key=lambda pair: -abs(pair[1]))[:MOST_FEATURES]
    if not shown:
        return ""
    rows = [{"name": name, "value": value, "text": f"{value:.3g}"} for name, value in shown]
    base = alt.Chart(_data(rows)).encode(
        y=alt.Y("name:N", title=None, sort=None, axis=alt.Axis(labelLimit=200, ticks=False, domain=False)),
        x=alt.X("value:Q", title=title, axis=alt.Axis(tickCount=5)),
    )
    bars = base.mark_bar(color=BAR, height=13)
    numbers = base.mark_text(align="left", dx=4, color=LINE, fontSize=12).encode(text="text:N")
    return svg((bars + numbers).properties(width=WIDTH - 200, height=22 * len(shown)))


def points_per_unit(unit: str) -> float:
    """Return by what numbers of a unit are multiplied before people read them: probabilities are in points."""
    return 100.0 if "probability" in unit else 1.0


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


def svg(chart: Any) -> str:
    """Return an Altair chart as SVG."""
    buffer = StringIO()
    styled = chart.configure(font="sans-serif").configure_view(stroke=None)
    styled.configure_axis(labelFontSize=12, titleFontSize=12, titleFontWeight="normal").save(buffer, format="svg")
    return buffer.getvalue()


def _panel(
    share: np.ndarray, edges: np.ndarray, limits: list[float], *, group: str, span: list[float], top: float
) -> Any:
    """Return the bars of one group and the lines at delta."""
    centres = (edges[1:] + edges[:-1]) / 2
    beyond = (centres > limits[-1]) | (centres < limits[0] if len(limits) == 2 else False)
    rows = [
        {"from": left, "to": right, "share": value, "none": 0, "colour": FLAGGED if out else WITHIN}
        for left, right, value, out in zip(edges[:-1].tolist(), edges[1:].tolist(), share.tolist(), beyond, strict=True)
    ]
    ticks = alt.Axis(labelFlush=False, tickCount=12)
    x = alt.X("from:Q", title=None, scale=alt.Scale(domain=span, nice=False), axis=ticks)
    y = alt.Y("share:Q", title="% of group", scale=alt.Scale(domain=[0, top], nice=False), axis=alt.Axis(tickCount=3))
    bars = (
        alt.Chart(_data(rows))
        .mark_bar(binSpacing=1)
        .encode(x=x, x2="to:Q", y=y, y2="none:Q", color=alt.Color("colour:N", scale=None))
    )
    places = [{"at": limit} for limit in limits]
    lines = alt.Chart(_data(places)).mark_rule(color=LINE, strokeDash=[4, 3]).encode(x="at:Q")
    return (bars + lines).properties(width=WIDTH, height=100, title=alt.Title(group, anchor="start", fontSize=13))


def _data(rows: list[dict[str, Any]]) -> Any:
    return alt.Data(values=rows)  # type: ignore[no-untyped-call]


def _title(result: AuditResult) -> Any:
    what = "Score" if result.signed is None else signed_word(result).capitalize()
    text = f"{what}: {unit_words(result.unit)}; dashed: delta; orange: beyond it"
    return alt.Title(text, anchor="start", fontSize=13, fontWeight="normal")
