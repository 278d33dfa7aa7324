"""What the comparison of fair and unfair targets has to show, and whether it does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from real_data import TITLES
from wording import bar

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
    if FAIR not in floors(found, table):
        return None
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


def _separates(found: Sections, table: str) -> Bar | None:
    """Return whether the best test tells the plain target from the one of floor 3."""
    if FAIR not in floors(found, table):
        return None
    least = 0.75 if table.startswith("bank") else 0.85
    aucs = {test: entry(found, table, test, FAIR)["auc"][0] for test in BEST_OF}
    return bar(
        f"{TITLES[table]}: the best of {', '.join(BEST_OF)} has AUC >= {least} at floor 3",
        aucs,
        max(aucs.values()) >= least,
    )


def _falls(found: Sections, table: str) -> Bar | None:
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


def _points(found: Sections, table: str) -> Bar | None:
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
    if table != "adult" or FAIR not in floors(found, table):
        return None
    names = ("plain", FAIR)
    direct = {name: entry(found, table, "move-direct", name)["towards_1"][0] for name in names}
    swap = {one["target"]: one["husbands"][0] for one in found["swap"][table] if one["target"] in names}
    value = {"towards male": direct, "husbands called wives": swap}
    holds = direct["plain"] * direct[FAIR] < 0
    return bar("Adult: the direct reading (move-direct) changes its sign from plain to floor 3", value, holds)
