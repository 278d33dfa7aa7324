"""Charts as Altair objects, of one audit or of two: drawn from what the page shows, never from a row per person."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import altair as alt
from altair.utils.schemapi import debug_mode

from fairfox.findings import AuditRecord
from fairfox.report.figures import Figure, figures

WIDTH = 640  # of a plot outside the page, which fits them to its own width
# Colour-blind readers can tell them apart. The page gives the same names colours of its own, light or dark.
_COLOURS = {"flagged": "#d55e00", "within": "#9fb3c5", "first": "#0072b2", "second": "#c77400"}
_COLOURS |= {"zero": "#8b96a3"} | dict.fromkeys(("limit", "error", "words"), "#1b232d")
_KINDS = ["#0072b2", "#c77400", "#007a5e", "#b4478f", "#1b232d", "#6a7f95"]  # of alternatives
STYLES = {name: {"color": colour} for name, colour in _COLOURS.items()}


def _chart(what: str, about: str) -> property:
    return property(lambda self: self._drawn(what), doc=about)


class Charts:
    """The charts of an audit, to show in a notebook or to save: `result.charts.scores`."""

    def __init__(self, result: AuditRecord) -> None:
        self.result = result

    scores = _chart("scores", "How the effects are spread in each group.")
    groups = _chart("groups", "Where the effects of each group lie, and their mean.")
    proxies = _chart("proxies", "How strongly features give the protected variable away.")
    features = _chart("features", "Through which features the effect goes.")
    persistence = _chart("persistence", "The share of people over delta by persistence.")

    @cached_property
    def _figures(self) -> dict[str, Figure]:
        return figures(self.result)

    def _drawn(self, what: str) -> Any:
        """Return one kind of chart: of all variables together, or one below the other."""
        drawn = [draw_figure(self._figures[what])] if what in self._figures else []
        for v, title in enumerate(self.result.variables):
            if (figure := self._figures.get(f"{what}-{v}")) is not None:
                drawn.append(draw_figure(figure).properties(title=title))
        if not drawn:
            words = alt.Chart(inline([{"text": f"This audit has no {what} to draw."}]))
            drawn = [words.mark_text(style="words").encode(text="text:N")]
        return themed(drawn[0] if len(drawn) == 1 else alt.vconcat(*drawn))


def specs(shown: dict[str, Figure]) -> dict[str, dict[str, Any]]:
    """Return the Vega-Lite spec of every figure, by its id; not checked against the schema, which takes seconds."""
    with debug_mode(False):
        return {name: draw_figure(figure).to_dict(validate=False) for name, figure in shown.items()}


def draw_figure(figure: Figure) -> Any:
    """Return the chart of a figure."""
    return _CHARTS[figure["kind"]](figure["data"])


def themed(chart: Any) -> Any:
    """Return a chart with the colours it has outside the page."""
    return (
        chart.configure(style=STYLES, font="sans-serif", range={"category": ["#0072b2", "#c77400"]})
        .configure_view(stroke=None)
        .configure_axis(labelFontSize=12, titleFontSize=12, titleFontWeight="normal", labelLimit=240)
        .configure_title(limit=WIDTH)
    )


def scores_chart(data: dict[str, Any]) -> Any:
    """Return a histogram for each group; where one delta is for all, the parameter `delta` moves its lines."""
    panels = data["panels"]
    span = [min(panel["edges"][0] for panel in panels), max(panel["edges"][-1] for panel in panels)]
    top = 1.05 * max(max(panel["heights"]) for panel in panels)
    limits = [panel["limits"][-1] for panel in panels if panel["limits"]]
    one = len(limits) == len(panels) and len(set(limits)) == 1
    drawn = [
        _panel(panel, span=span, top=top, signed=data["signed"], moves=one, title=data["title"] if last else None)
        for panel, last in zip(panels, [False] * (len(panels) - 1) + [True], strict=True)
    ]
    chart = alt.vconcat(*drawn, spacing=14)
    return chart.add_params(alt.param(name="delta", value=limits[0])) if one else chart


def _panel(
    panel: dict[str, Any], *, span: list[float], top: float, signed: bool, moves: bool, title: str | None
) -> Any:
    """Return the bars of one group, what of them is beyond delta over them, and the lines at delta."""
    edges = panel["edges"]
    bars = [
        {"from": left, "to": right, "share": height, "none": 0}
        for left, right, height in zip(edges[:-1], edges[1:], panel["heights"], strict=True)
    ]
    scale = alt.Scale(domain=span, nice=False, zero=False)
    x = alt.X("from:Q", title=title, scale=scale, axis=alt.Axis(labelFlush=False, grid=False, tickCount=10))
    y = alt.Y("share:Q", title="% of group", scale=alt.Scale(domain=[0, top], nice=False), axis=alt.Axis(tickCount=3))
    base = alt.Chart(inline(bars)).encode(x=x, x2="to:Q", y=y, y2="none:Q")
    layers = [base.mark_bar(style="within", binSpacing=1)]
    if panel["limits"]:
        limit = "delta" if moves else repr(panel["limits"][-1])
        layers.append(_beyond(base, "from", f"max(datum.from, {limit})"))
        layers += [_beyond(base, "to", f"min(datum.to, -({limit}))")] if signed else []
        layers += [_line(sign + f"({limit})", scale) for sign in (["-", ""] if signed else [""])]
    return alt.layer(*layers).properties(width=WIDTH, height=96, title=panel["group"])


def _beyond(base: Any, end: str, expression: str) -> Any:
    """Return the part of the bars beyond a limit."""
    return (
        base.mark_bar(style="flagged", binSpacing=1)
        .transform_calculate(**{end: expression})
        .transform_filter("datum.from < datum.to")
    )


def _line(expression: str, scale: Any) -> Any:
    line = alt.Chart(inline([{}])).transform_calculate(at=expression)
    return line.mark_rule(style="limit", strokeDash=[4, 3], clip=True).encode(x=alt.X("at:Q", scale=scale))


def groups_chart(data: dict[str, Any]) -> Any:
    """Return a row per group: a dot at its mean, a thick line over its middle half, a thin one over nearly all."""
    bars, delta = data["bars"], data["delta"]
    within = [] if delta is None else [{"from": -delta if data["signed"] else 0.0, "to": delta}]
    ends = [end for bar in bars for end in (bar["low"], bar["high"], bar["mean"])]
    base = bars_by_name(
        bars, data["title"], values=[*ends, *(end for band in within for end in band.values())], at="mean"
    )
    band = alt.Chart(inline(within)).mark_rect(style="within", opacity=0.35).encode(x="from:Q", x2="to:Q")
    lines = [
        base.mark_rule(style="first", strokeWidth=width, strokeCap="round", opacity=0.8).encode(
            x=alt.X(f"{left}:Q", title=data["title"]), x2=f"{right}:Q"
        )
        for left, right, width in (("low", "high", 2), ("left", "right", 9))
    ]
    dots = base.mark_point(style="words", filled=True, size=70, opacity=1)
    words = base.mark_text(style="words", dy=-15, fontSize=13, fontWeight="bold").encode(text="text:N")
    zero = alt.Chart(inline([{"at": 0}])).mark_rule(style="zero").encode(x="at:Q")
    layers = [*([band] if within else []), zero, *lines, dots, words]
    return alt.layer(*layers).properties(width=WIDTH, height=46 * len(bars))


def features_chart(data: dict[str, Any]) -> Any:
    """Return a bar per feature with its number and its interval."""
    bars = data["bars"]
    base = bars_by_name(bars, data["title"], values=[bar["high"] for bar in bars])
    errors = base.mark_rule(style="error").encode(x=alt.X("low:Q", title=data["title"]), x2="high:Q")
    words = base.mark_text(style="words", align="left", dx=5, fontSize=12).encode(text="text:N", x=alt.X("high:Q"))
    return alt.layer(base.mark_bar(style="first", height=14), errors, words).properties(
        width=WIDTH, height=24 * len(bars)
    )


def persistence_chart(data: dict[str, Any]) -> Any:
    """Return the share of people over delta, with its band, by how far ranks carry over, and the limit."""
    share = alt.Scale(domain=[0, 1])
    x = alt.X("persistence:Q", title="Persistence (1: ranks carry over exactly)", scale=alt.Scale(domain=[0, 1]))
    base = alt.Chart(inline(data["points"])).encode(x=x)
    y = alt.Y("significant:Q", title="Share of people over delta", scale=share, axis=alt.Axis(format="%"))
    band = base.mark_area(style="within", opacity=0.6).encode(y=y, y2="possible:Q")
    line = base.mark_line(style="first").encode(y=alt.Y("share:Q", scale=share))
    limit = alt.Chart(inline([{"at": data["limit"]}])).mark_rule(style="limit", strokeDash=[4, 3])
    return alt.layer(band, line, limit.encode(y=alt.Y("at:Q", scale=share))).properties(width=WIDTH, height=200)


def pair_chart(data: dict[str, Any]) -> Any:
    """Return the distributions of both scores over each other, with a line at delta."""
    edges, labels = data["edges"], data["labels"]
    rows = [
        {"low": edges[k], "high": edges[k + 1], "share": share, "side": label}
        for label, shares in zip(labels, data["shares"], strict=True)
        for k, share in enumerate(shares)
    ]
    bars = (
        alt.Chart(inline(rows))
        .mark_bar(opacity=0.55)
        .encode(
            x=alt.X("low:Q", title=data["axis"], scale=alt.Scale(domain=[0, edges[-1]])),
            x2="high:Q",
            y=alt.Y("share:Q", title="% of people", stack=None),
            y2=alt.datum(0),
            color=alt.Color("side:N", sort=labels, legend=None),
        )
    )
    limit = [] if data["delta"] is None else [{"delta": data["delta"]}]
    line = alt.Chart(inline(limit)).mark_rule(style="limit", strokeDash=[4, 3]).encode(x="delta:Q")
    return (bars + line).properties(height=240)


_CHARTS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "scores": scores_chart,
    "groups": groups_chart,
    "features": features_chart,
    "persistence": persistence_chart,
    "pair": pair_chart,
}


def bars_by_name(rows: list[dict[str, Any]], title: str, *, values: list[float], at: str = "value") -> Any:
    """Return a row per name in the order given, with room for numbers beside the longest bars."""
    low, high = min([*values, 0.0]), max([*values, 0.0])
    room = (0.22 if at == "value" else 0.03) * (high - low or 1.0)
    domain = [low - room if low < 0 else 0.0, high + room if high > 0 else 0.0 if low < 0 else room]
    # all names from top to bottom: layers that leave some out must not change their order
    names = alt.Scale(domain=list(dict.fromkeys(row["name"] for row in rows)))
    return alt.Chart(inline(rows)).encode(
        y=alt.Y("name:N", title=None, sort=None, scale=names, axis=alt.Axis(ticks=False, domain=False)),
        x=alt.X(f"{at}:Q", title=title, axis=alt.Axis(tickCount=5), scale=alt.Scale(domain=domain, nice=False)),
    )


def inline(rows: list[dict[str, Any]]) -> Any:
    """Return rows as the data of a chart, which are written into its spec."""
    return alt.Data(values=tuple(rows))  # type: ignore[no-untyped-call]  # lists are copied with every layer


def frontier_chart(points: list[dict[str, Any]], *, performance: str) -> Any:
    """Return performance against the mean |effect|: candidates that no other one dominates are filled."""
    base = alt.Chart(inline(points)).encode(
        x=alt.X("mean_effect:Q", title="mean |effect|", scale=alt.Scale(zero=True)),
        tooltip=["name:N", alt.Tooltip("performance:Q", format=".3f"), alt.Tooltip("mean_effect:Q", format=".4f")],
    )
    scale, kinds = alt.Scale(zero=False), alt.Scale(range=_KINDS)
    marks = base.mark_point(size=70).encode(
        y=alt.Y("performance:Q", title=f"{performance} with 95 % interval", scale=scale),
        color=alt.Color("kind:N", title=None, scale=kinds),
        fill=alt.Fill("kind:N", legend=None, scale=kinds),
        fillOpacity=alt.condition("datum.dominated", alt.value(0), alt.value(1)),
    )
    bars = base.mark_rule(opacity=0.5).encode(y=alt.Y("lower:Q", scale=scale), y2="upper:Q", color="kind:N")
    names = base.mark_text(align="left", dx=7, dy=-5, fontSize=10).encode(
        y=alt.Y("performance:Q", scale=scale), text="name:N"
    )
    return themed(bars + marks + names.transform_filter("!datum.dominated"))
