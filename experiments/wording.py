"""Results in words: Markdown tables, and measured values in their cells."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isfinite
from statistics import fmean
from typing import Any

from shipped import provenance


def markdown_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table; a pipe in a cell stays a pipe."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |" for line in lines)


def bars(found: dict[str, Any]) -> str:
    """Return what an experiment has to show, the measured values, and whether it holds."""
    rows = [[one["bar"], in_words(one["value"]), "yes" if one["holds"] else "**no**"] for one in found["bars"]]
    return markdown_table(["what has to be shown", "measured", "holds"], rows) if rows else ""


def bar(what: str, value: object, holds: bool) -> dict[str, Any]:
    """Return one thing that an experiment has to show, with what was measured."""
    return {"bar": what, "value": value, "holds": holds}


def claim(what: str, value: object, verdict: str) -> dict[str, Any]:
    """Return something that the paper says, with what was measured: confirmed, refuted or undecided."""
    return {"claim": what, "value": value, "verdict": verdict}


def verdict(value: float, error: float) -> str:
    """Return the verdict on a number that the paper says is above zero, by two of its standard errors."""
    return "undecided" if abs(value) < 2 * error else "confirmed" if value > 0 else "refuted"


def claims(found: dict[str, Any]) -> str:
    """Return what the paper says, the measured values, and the verdict."""
    rows = [
        [
            one["claim"],
            in_words(one["value"]),
            one["verdict"] if one["verdict"] == "confirmed" else f"**{one['verdict']}**",
        ]
        for one in found["claims"]
    ]
    return markdown_table(["the paper says", "measured", "verdict"], rows) if rows else ""


def held(found: dict[str, Any]) -> str:
    """Return in a list which bars hold, without their values."""
    return "\n".join(f"- {'holds' if one['holds'] else '**fails**'}: {one['bar']}" for one in found["bars"])


def in_words(value: Any) -> str:
    """Return a measured value in words: a number, several, or several with names."""
    if isinstance(value, dict) and value.keys() == {"ours", "paper"}:
        return f"{in_words(value['ours'])} (the paper {in_words(value['paper'])})"
    if isinstance(value, dict):
        return "; ".join(f"{name} {in_words(one)}" for name, one in value.items())
    if isinstance(value, list):
        return ", ".join(map(in_words, value))
    return f"{round(value, 4):g}" if isinstance(value, float) else str(value)


def mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of those that are known; None of none."""
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def finite(value: float | None) -> float | None:
    """Return a number, or None where there is none."""
    return value if value is not None and isfinite(value) else None


def number(value: float | None) -> str:
    """Return three decimals; a dash where there is no number."""
    return "-" if value is None else f"{value:.3f}"


def about(found: dict[str, Any]) -> str:
    """Return where, how long and with what an experiment ran, and with which defaults."""
    machine, versions = found["machine"], ", ".join(f"{name} {number}" for name, number in found["versions"].items())
    return (
        f"Seed {found['seed']}; {found['core_seconds'] / 60:,.0f} core minutes with {machine['workers']} workers on "
        f"{machine['cores']} cores; {versions}. {provenance(found)}"
    )
