"""What the pytest plugin adds to the start of a pytest that does not use it.

Another pytest runs one empty test, with the plugin and without (-p no:fairfox), one after the other in each lap.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

from timing import Benchmark, Ratio

SEED = 0
ALLOWED = 0.05  # seconds


@dataclass(frozen=True)
class Settings:
    laps: int = 41
    warm_up: int = 2


def seconds_of_run(folder: Path, *options: str) -> float:
    """Return how long a pytest of one empty test takes, and raise where it fails."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, "test_nothing.py"]
    # Compiled modules are kept, as on a machine where pytest has run before; the first laps compile them.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    env["PYTHONPYCACHEPREFIX"] = str(folder / "compiled")
    start = perf_counter()
    subprocess.run(command, cwd=folder, env=env, capture_output=True, check=True)
    return perf_counter() - start


def two_runs(folder: Path, *, first: bool) -> tuple[float, float]:
    """Return the seconds with the plugin and without; who is first takes turns, as the second run may be warmer."""
    options: list[tuple[str, ...]] = [(), ("-p", "no:fairfox")]
    seconds = {each: seconds_of_run(folder, *each) for each in (options if first else options[::-1])}
    return seconds[options[0]], seconds[options[1]]


def measure(settings: Settings) -> list[Ratio]:
    """Return the seconds that the plugin adds over the seconds it may add."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "test_nothing.py").write_text("def test_nothing():\n    assert True\n", encoding="utf-8")
        pairs = [two_runs(folder, first=bool(lap % 2)) for lap in range(settings.warm_up + settings.laps)]
    pairs = pairs[settings.warm_up :]
    with_it, without = zip(*pairs, strict=True)
    differences = [a - b for a, b in pairs]
    added = median(differences)
    low, _, high = quantiles([*differences, added], n=4)  # one lap has no quartiles of its own
    milliseconds = f"{1000 * added:.1f} ms; quartiles of the laps {1000 * low:.1f} and {1000 * high:.1f}"
    return [
        Ratio(
            "start",
            f"what the plugin adds to a pytest of {1000 * median(without):.0f} ms ({milliseconds})",
            f"{1000 * ALLOWED:g} ms",
            1, True, added / ALLOWED, (min(with_it) - min(without)) / ALLOWED, added, ALLOWED,
        )
    ]  # fmt: skip


def sizes(s: dict[str, Any]) -> str:
    """Return the settings in a sentence."""
    return f"One empty test, beside the plugins of a developer's environment; {s['laps']} laps of two runs."


QUICK = Settings(laps=1, warm_up=0)
BENCHMARK = Benchmark.of(sys.modules[__name__])

if __name__ == "__main__":
    sys.exit(BENCHMARK.run())
