"""What fairfox has to keep, each with the measured value and whether it holds: from all results files, and the code.

The bars of experiments and benchmarks are in their results files. Those of the code are counted when the page is
written, so that they follow every change.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

from runner import read_json
from wording import in_words, markdown_table

ROOT = Path(__file__).parents[1]
BENCHMARKS = ROOT / "benchmarks" / "results" / "bench.json"
MOST = {"src": 21_500, "tests": 26_000, "experiments": 5_000, "benchmarks": 1_700}  # lines of code

Bar = tuple[str, str, str, bool]  # of what, what has to be shown, the measured value, whether it holds


def measured(results: Path) -> list[Bar]:
    """Return the bars of all experiments and benchmarks."""
    found = {path.stem: read_json(path) for path in sorted(results.glob("*.json"))}
    whole = {name: one for name, one in found.items() if not one["quick"] and not one["only"]}
    out = [
        (_about(name, bar), bar["bar"], in_words(bar["value"]), bool(bar["holds"]))
        for name, one in whole.items()
        for bar in one.get("bars", [])
    ]
    for name, one in read_json(BENCHMARKS).items():
        about = f"speed: {name.removeprefix('bench_').replace('_', ' ')}"
        out += [(about, *_speed(ratio)) for ratio in one["ratios"] if ratio["bar"] is not None]
    return out


def _about(name: str, bar: dict[str, Any]) -> str:
    """Return what a bar is about: an experiment, or a part of one."""
    return name.replace("_", " ") + (f": {bar['part']}" if "part" in bar else "")


def _speed(ratio: dict[str, Any]) -> tuple[str, str, bool]:
    """Return a ratio of a benchmark: what it is of, its value beside the bar, and whether it holds."""
    bar = f"{'at most' if ratio['at_most'] else 'at least'} {ratio['bar']:g}"
    return f"{ratio['of']}, over {ratio['over']}: {bar}", f"{ratio['ratio']:.3g}", bool(ratio["holds"])


def broken(results: Path) -> str:
    """Return how many bars hold, and those that do not."""
    bars = measured(results)
    return f"{sum(bar[3] for bar in bars)} of {len(bars)} hold. These do not:\n\n{_table(bars, holds=False)}"


def kept(results: Path) -> str:
    """Return the bars that hold."""
    return _table(measured(results), holds=True)


def _table(bars: list[Bar], *, holds: bool) -> str:
    return markdown_table(["about", "what has to be shown", "measured"], [bar[:3] for bar in bars if bar[3] == holds])


def code(results: Path) -> str:
    """Return the bars of the code as it is now."""
    rows = [(f"lines of code in {name}/", lines_of_code(ROOT / name), most) for name, most in MOST.items()]
    rows.append(("modules of the package", sum(lines_of_code(path) > 0 for path in (ROOT / "src").rglob("*.py")), 115))
    rows.append(("lines of the README", len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()), 120))
    stored = sum(path.stat().st_size for path in results.iterdir() if path.suffix in (".json", ".svg"))
    rows.append(("kB of results and charts", round(stored / 1000), 1_500))
    cells = [[what, f"{value:,}", f"{most:,}", "yes" if value <= most else "**no**"] for what, value, most in rows]
    return markdown_table(["counted", "now", "at most", "holds"], cells)


def lines_of_code(path: Path) -> int:
    """Return the lines that have code: no blank lines, comments and docstrings."""
    if path.is_dir():
        return sum(map(lines_of_code, path.rglob("*.py")))
    text = path.read_text(encoding="utf-8")
    lines = {n for n, line in enumerate(text.splitlines(), 1) if line.strip() and not line.strip().startswith("#")}
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, documented) and ast.get_docstring(node) is not None:
            lines -= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return len(lines)


OF_ALL: dict[str, Callable[[Path], str]] = {"broken": broken, "kept": kept, "code": code}
