"""What the charts have in common: rows by name, numbers at the ends of bars, a line at zero."""

from __future__ import annotations

from typing import Any

import altair as alt


def by_name(rows: list[dict[str, Any]], title: str, *, values: list[float]) -> Any:
    """Return a row per name in the order given, with room for numbers beside the longest bars."""
    low, high = min([*values, 0.0]), max([*values, 0.0])
    room = 0.22 * (high - low or 1.0)
    domain = [low - room if low < 0 else 0.0, high + room if high > 0 else 0.0 if low < 0 else room]
    return alt.Chart(inline(rows)).encode(
        y=name_axis([row["name"] for row in rows]),
        x=alt.X("value:Q", title=title, axis=alt.Axis(tickCount=5), scale=alt.Scale(domain=domain, nice=False)),
    )


def name_axis(names: list[str]) -> Any:
    """Return an axis with these names from top to bottom: layers that leave some out must not change their order."""
    domain = alt.Scale(domain=list(dict.fromkeys(names)))
    return alt.Y("name:N", title=None, sort=None, scale=domain, axis=alt.Axis(ticks=False, domain=False))


def numbers(base: Any, *, at: str = "value") -> list[Any]:
    """Return the numbers at the ends of bars: right of those above zero, left of the others."""
    where = {} if at == "value" else {"x": alt.X(f"{at}:Q")}
    return [
        base.mark_text(style="words", align=align, dx=dx, fontSize=12)
        .encode(text="text:N", **where)
        .transform_filter(f"datum.value {sign} 0")
        for align, dx, sign in (("left", 5, ">="), ("right", -5, "<"))
    ]


def zero() -> Any:
    """Return a line at zero."""
    return alt.Chart(inline([{"at": 0}])).mark_rule(style="zero").encode(x="at:Q")


def inline(rows: list[dict[str, Any]]) -> Any:
    """Return rows as the data of a chart, which are written into its spec."""
    return alt.Data(values=tuple(rows))  # type: ignore[no-untyped-call]  # lists are copied with every layer
