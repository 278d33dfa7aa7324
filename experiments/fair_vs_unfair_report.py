"""The comparison of fair and unfair targets: what it has to show, and its tables and pictures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from real_data import TITLES
from wording import bar, markdown_table
from wording import bars as table_of_bars

BEST_OF = ("faux+ng/s", "rank/a", "move/a")
FAIR = "3"
NEAR = 0.05  # of the plain target's value: a rise up to it counts as a tie
Sections = Mapping[str, Any]
Bar = dict[str, Any]


def bars(found: Sections) -> list[Bar]:
    """Return the bars that can be judged by these sections: of a partial run only some can."""
    out: list[Bar] = []
    tables = list(dict.fromkeys(one["table"] for one in found["targets"]))
    for judge in (_hides, _separates, _falls, _points, _reproduces, _compensates):
        out += [one for table in tables if (one := judge(found, table)) is not None]
    return out


def target(found: Sections, table: str, name: str) -> dict[str, Any]:
    """Return how good the targets of a floor are."""
    return next(one for one in found["targets"] if (one["table"], one["target"]) == (table, name))


def entry(found: Sections, table: str, test: str, name: str) -> dict[str, Any]:
    """Return what a test says of the targets of a floor."""
    wanted = (table, test, name)
    return next(one for one in found["results"] if (one["table"], one["test"], one["target"]) == wanted)


def floors(found: Sections, table: str) -> list[str]:
    """Return the targets of a table by how much they hide, the plain one first."""
    return [one["target"] for one in found["targets"] if one["table"] == table]


def _hides(found: Sections, table: str) -> Bar | None:
    """Return whether targets hide c at a small cost."""
    numbers = {kind: target(found, table, kind) for kind in ("plain", FAIR)}
    value = {kind: {name: one[name][0] for name in ("accuracy", "c_auc", "gap")} for kind, one in numbers.items()}
    fair, plain = value[FAIR], value["plain"]
    if table == "adult":
        what = "floor 3 on Adult: accuracy >= 0.835, AUC of c from the output <= 0.60, gap <= 0.08"
        return bar(what, value, fair["accuracy"] >= 0.835 and fair["c_auc"] <= 0.60 and fair["gap"] <= 0.08)
    if table == "bank":
        what = "floor 3 on Bank: accuracy >= 0.905, the gap at least a third smaller than the plain target's"
        return bar(what, value, fair["accuracy"] >= 0.905 and fair["gap"] <= plain["gap"] * 2 / 3)
    return None


def _separates(found: Sections, table: str) -> Bar:
    """Return whether the best test tells the plain target from the one of floor 3."""
    least = 0.75 if table.startswith("bank") else 0.85
    aucs = {test: entry(found, table, test, FAIR)["auc"][0] for test in BEST_OF}
    return bar(
        f"{TITLES[table]}: the best of {', '.join(BEST_OF)} has AUC >= {least} at floor 3",
        aucs,
        max(aucs.values()) >= least,
    )


def _falls(found: Sections, table: str) -> Bar:
    """Return whether both the alignment share and the mean |rank effect| fall with the floor."""
    names = floors(found, table)
    value = {
        "alignment share": [target(found, table, name)["alignment_share"][0] for name in names],
        "mean |rank effect|": [entry(found, table, "rank", name)["mean"][0] for name in names],
    }
    what = f"{TITLES[table]}: the alignment share and the mean |rank effect| fall with the floor, one near-tie allowed"
    return bar(what, value, all(map(falls, value.values())))


def falls(values: Sequence[float]) -> bool:
    """Return whether values fall from one to the next, but for at most one rise of a twentieth of the first."""
    rises = [after - before for before, after in pairwise(values) if after >= before]
    return len(rises) <= 1 and all(rise <= NEAR * values[0] for rise in rises)


def _points(found: Sections, table: str) -> Bar:
    """Return whether the mean signed rank effect has the sign of the gap."""
    value = {
        name: {
            "effect": entry(found, table, "rank", name)["towards_1"][0],
            "gap": target(found, table, name)["gap_towards_1"][0],
        }
        for name in floors(found, table)
    }
    same = {name: one["effect"] * one["gap"] > 0 for name, one in value.items()}
    return bar(
        f"{TITLES[table]}: the mean signed rank effect has the sign of the group gap for every target",
        value,
        all(same.values()),
    )


def _reproduces(found: Sections, table: str) -> Bar | None:
    """Return whether fAux+NG gives the plain target the higher scores, as in the paper."""
    asked = {
        "bank": (("0", "0.5", "1", FAIR), 0.65, "floors 0 to 3"),
        "bank-without-duration": (("0", "0.5", "1", FAIR), 0.65, "floors 0 to 3"),
        "adult-without-relationship": (("0",), 0.85, "floor 0"),
    }
    if table not in asked or not set(asked[table][0]) <= set(floors(found, table)):
        return None
    names, least, words = asked[table]
    aucs = {name: entry(found, table, "faux+ng", name)["auc"][0] for name in names}
    return bar(f"{TITLES[table]}: faux+ng has AUC >= {least} at {words}", aucs, min(aucs.values()) >= least)


def _compensates(found: Sections, table: str) -> Bar | None:
    """Return whether the direct reading changes its sign where a target can make up for sex, and the swap beside it."""
    if table != "adult":
        return None
    names = ("plain", FAIR)
    direct = {name: entry(found, table, "move-direct", name)["towards_1"][0] for name in names}
    swap = {one["target"]: one["husbands"][0] for one in found["swap"][table] if one["target"] in names}
    value = {"towards male": direct, "husbands called wives": swap}
    holds = direct["plain"] * direct[FAIR] < 0
    return bar("Adult: the direct reading (move-direct) changes its sign from plain to floor 3", value, holds)


Results = dict[str, Any]
PANELS = ("fta", "fta+linear", "unfair_map", "fliptest", "faux", "faux+ng", "faux+ig")  # the paper's
OWN_PANELS = ("rank", "rank/a", "move/a", "faux+ng/s")
# What is reading of targets that hide more and more, and where it stands.
STORY: dict[str, Callable[[Results, str, str], float]] = {
    "gap of mean predictions": lambda found, table, name: target(found, table, name)["gap_towards_1"][0],
    "total reading (rank)": lambda found, table, name: entry(found, table, "rank", name)["towards_1"][0],
    "direct reading (move-direct)": lambda found, table, name: entry(found, table, "move-direct", name)["towards_1"][0],
}
COLOURS = {"plain": "#9a9a9a", FAIR: "#4c78a8"}


def show(found: Results) -> str:
    """Return the results file as Markdown."""
    parts = [section(found) for section in (targets, aucs, generators, table_of_bars)]
    return "\n\n".join(part for part in parts if part)


def targets(found: Results) -> str:
    """Return how good the plain targets and those of floor 3 are, and what they tell of c."""
    heads = ["table", "target", "accuracy", "AUC of the label", "AUC of c from the output", "gap", "alignment share"]
    names = ("accuracy", "auc", "c_auc", "gap", "alignment_share")
    rows = [
        [TITLES[one["table"]], _hiding(one["target"]), *(_spread(one[n]) for n in names)]
        for one in found["targets"]
        if one["target"] in COLOURS
    ]
    rows += [[TITLES[table], reason, *[""] * 5] for table, reason in found["not_run"].items()]
    return markdown_table(heads, rows)


def aucs(found: Results) -> str:
    """Return how often each test of the picture scores the plain target above the one of floor 3, by table."""
    tables = _tables(found)
    known = {test for table in tables for test in _tests(found, table)}
    tests = [test for test in (*PANELS, *OWN_PANELS) if test in known]
    rows = [[f"`{test}`", *(_auc(found, table, test) for table in tables)] for test in tests]
    return markdown_table(["test", *(TITLES[table] for table in tables)], rows)


def _auc(found: Results, table: str, test: str) -> str:
    value = entry(found, table, test, FAIR)["auc"] if test in _tests(found, table) else None
    return "-" if value is None else f"{value[0]:.2f} ± {value[1]:.2f}"


def generators(found: Results) -> str:
    """Return how good FlipTest's generators and the auxiliaries are on each table."""
    heads = [
        "table",
        "KS of the mapped",
        "before mapping",
        "by chance",
        "AUC of the auxiliaries",
        "of adversarial ones",
    ]
    rows = [
        [TITLES[table], *(_spread(checks.get(name)) for name in ("ks", "ks_unmapped", "ks_chance"))]
        + [_spread(found["auxiliary_auc"][table][kind]) for kind in ("plain", "adversarial")]
        for table, checks in found["generators"].items()
    ]
    return markdown_table(heads, rows)


SECTIONS: dict[str, Callable[[Results], str]] = {
    "targets": targets,
    "auc": aucs,
    "generators": generators,
    "bars": table_of_bars,
}


def boxes(found: Results) -> Any:
    """Return the paper's seven panels and ours for each table: the plain target grey, the regularised one blue."""
    import altair as alt

    rows = []
    for table in _tables(found):
        panels = [_panel(found, table, test) for test in (*PANELS, *OWN_PANELS) if test in _tests(found, table)]
        rows.append(alt.hconcat(*panels, spacing=4).properties(title=TITLES[table]))
    return alt.vconcat(*rows).configure_view(stroke=None)


def _panel(found: Results, table: str, test: str) -> Any:
    """Return one box plot from its quantiles."""
    import altair as alt

    values = []
    for kind in COLOURS:
        if entry(found, table, test, kind)["box"] is not None:
            quantiles = dict(
                zip(("low", "q1", "median", "q3", "high"), entry(found, table, test, kind)["box"], strict=True)
            )
            values.append({"target": "unfair" if kind == "plain" else "fair", **quantiles})
    base = alt.Chart(alt.InlineData(values=values)).encode(
        x=alt.X("target:N", title=None, sort=["unfair", "fair"], axis=alt.Axis(labelAngle=0))
    )
    colour = alt.Color(
        "target:N", legend=None, scale=alt.Scale(domain=["unfair", "fair"], range=list(COLOURS.values()))
    )
    axis = alt.Axis(format=".2~r", tickCount=4)
    return (
        base.mark_rule().encode(y=alt.Y("low:Q", title=None, axis=axis), y2="high:Q")
        + base.mark_bar(size=22, stroke="black", strokeWidth=0.5).encode(y="q1:Q", y2="q3:Q", color=colour)
        + base.mark_tick(size=22, color="black", thickness=2).encode(y="median:Q")
    ).properties(width=80, height=150, title=alt.TitleParams(test, fontSize=11))


def compensation(found: Results) -> Any:
    """Return for each table of Adult how readings change as a target hides more: towards male is up."""
    import altair as alt

    charts = []
    for table in [table for table in _tables(found) if table.startswith("adult")]:
        names = floors(found, table)
        values = [
            {"target": _hiding(name), "what": what, "change": reading(found, table, name)}
            for name in names
            for what, reading in STORY.items()
        ]
        for one in found["swap"].get(table, []):
            if one["wives"] is not None:
                reading = {"target": _hiding(one["target"]), "what": "wives called husbands", "change": one["wives"][0]}
                values.append(reading)
        zero = alt.Chart(alt.InlineData(values=[{"zero": 0}])).mark_rule(color="#888888").encode(y="zero:Q")
        lines = (
            alt.Chart(alt.InlineData(values=values))
            .mark_line(point=True)
            .encode(
                x=alt.X(
                    "target:N", sort=[_hiding(name) for name in names], title="target", axis=alt.Axis(labelAngle=-30)
                ),
                y=alt.Y("change:Q", title="change of the prediction, towards male"),
                color=alt.Color("what:N", title=None, sort=None),
            )
        )
        charts.append((zero + lines).properties(width=300, height=240, title=TITLES[table]))
    return alt.hconcat(*charts)


def _tables(found: Results) -> list[str]:
    return list(dict.fromkeys(one["table"] for one in found["targets"]))


def _tests(found: Results, table: str) -> list[str]:
    return list(dict.fromkeys(one["test"] for one in found["results"] if one["table"] == table))


def _hiding(name: str) -> str:
    return name if name == "plain" else f"floor {name}"


def _spread(value: Sequence[float] | None) -> str:
    return "-" if value is None else f"{value[0]:.3f} ± {value[1]:.3f}"
