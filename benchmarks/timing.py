"""What the benchmarks share: two durations compared in one run, and numbers that say where they were taken."""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from time import perf_counter
from types import ModuleType
from typing import Any

import torch

from fairfox.data.files import written_whole
from fairfox.errors import installed_versions
from fairfox.options import defaults_sha256

HERE = Path(__file__).resolve().parent
PATIENCE, FEWEST_LAPS = 40.0, 5  # seconds, after which a busy machine is asked for no more laps than these


@dataclass(frozen=True)
class Ratio:
    """One measured ratio beside its bar, or without one: reported, whatever it is."""

    name: str
    of: str  # what is divided
    over: str  # by what
    bar: float | None
    at_most: bool  # else at least
    ratio: float  # median over laps
    fastest: float  # fastest lap over fastest lap: what is left of it on a busy machine
    seconds_of: float  # median of one call
    seconds_over: float
    sound: bool = True  # whether what ours found is as good as what it is compared with
    details: dict[str, Any] = field(default_factory=dict)  # the numbers behind it, as they were measured

    @property
    def holds(self) -> bool:
        """Whether the median keeps the bar, with results that are as good."""
        if self.bar is None:
            return self.sound
        return self.sound and (self.ratio <= self.bar if self.at_most else self.ratio >= self.bar)

    def written(self, *, quick: bool) -> dict[str, Any]:
        """Return what is written in results; no bar counts at small sizes."""
        fields = {name: value for name, value in asdict(self).items() if name != "details" or value}
        return {**fields, "holds": None if quick else self.holds}


@dataclass(frozen=True)
class Benchmark:
    """What is measured, at which sizes, and where the numbers go."""

    description: str
    measure: Callable[[Any], list[Ratio]]
    settings: Any
    quick: Any  # the small settings
    seed: int
    sizes: Callable[[dict[str, Any]], str]  # the settings in a sentence, below the table
    results: Path
    readme: Path
    marks: tuple[str, str]  # in the readme, around the table
    packages: tuple[str, ...] = ()  # whose versions matter beside those that always do
    more: Callable[[dict[str, Any]], Sequence[str]] = lambda found: ()  # lines between the table and the sizes
    chart: Callable[[dict[str, Any]], Any] | None = None  # a picture of the results, drawn beside them

    @classmethod
    def of(cls, module: ModuleType) -> Benchmark:
        """Return the benchmark that a script describes by these names, some of them in capitals.

        Its numbers go to the page that README names, by default that of this folder, between marks of its own.
        """
        name = Path(str(module.__file__)).name
        optional = {"packages": "PACKAGES", "more": "more", "chart": "chart"}
        return cls(
            description=str(module.__doc__),
            measure=module.measure,
            settings=module.Settings(),
            quick=module.QUICK,
            seed=module.SEED,
            sizes=module.sizes,
            results=HERE / "results" / f"{Path(name).stem.removeprefix('bench_')}.json",
            readme=HERE.parent / getattr(module, "README", "benchmarks/README.md"),
            marks=(f"<!-- numbers of {name}: begin -->", f"<!-- numbers of {name}: end -->"),
            **{field: getattr(module, own) for field, own in optional.items() if hasattr(module, own)},
        )

    def table(self, found: dict[str, Any]) -> str:
        """Return the ratios as a Markdown table, with the machine and sizes below."""
        parts = [table_of(found["ratios"]), self.more(found), [self.sizes(found["settings"])], [circumstances(found)]]
        return "\n\n".join("\n".join(part) for part in parts if part)

    def show(self, found: dict[str, Any]) -> None:
        """Put the numbers between their marks in the readme, and draw the picture beside the results."""
        put_between(self.readme, self.marks, self.table(found))
        if self.chart is not None:
            picture = self.chart(found)
            for kind in ("png", "svg"):
                with written_whole(self.results.with_suffix(f".{kind}")) as path:
                    picture.save(str(path), format=kind, scale_factor=2 if kind == "png" else 1)

    def measured(self, *, quick: bool) -> dict[str, Any]:
        """Return all ratios with what is needed to judge them."""
        start, load = perf_counter(), os.getloadavg()[0]
        settings = self.quick if quick else self.settings
        torch.manual_seed(self.seed)
        ratios = self.measure(settings)
        return {
            "seed": self.seed,
            "quick": quick,
            "ratios": [ratio.written(quick=quick) for ratio in ratios],
            "settings": asdict(settings),
            "defaults": defaults_sha256()[:12],
            "machine": {"cpu": cpu_model(), "cores": os.cpu_count(), "threads": torch.get_num_threads(), "load": load},
            "versions": {"python": platform.python_version()}
            | installed_versions("fairfox", "torch", "numpy", "scikit-learn", *self.packages),
            "seconds": round(perf_counter() - start, 1),
        }

    def run(self, arguments: Sequence[str] | None = None) -> int:
        """Measure, print, write; return 1 where a bar is not kept."""
        parser = argparse.ArgumentParser(description=self.description)
        parser.add_argument("--quick", action="store_true", help="small sizes; no bar counts")
        parser.add_argument("--readme", action="store_true", help="only write the numbers in README.md")
        parser.add_argument("--out", type=Path, help=f"JSON file; default: {self.results.name}, none with --quick")
        options = parser.parse_args(arguments)
        if options.readme:
            self.show(json.loads(self.results.read_text(encoding="utf-8")))
            return 0
        found = self.measured(quick=options.quick)
        print(self.table(found))
        out = options.out or (None if options.quick else self.results)
        if out is not None:
            with written_whole(out) as path:
                path.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
            if out.resolve() == self.results:
                self.show(found)
        return 0 if options.quick or all(r["holds"] for r in found["ratios"]) else 1


def put_between(page: Path, marks: tuple[str, str], text: str) -> None:
    """Replace what stands between two marks of a page."""
    head, rest = page.read_text(encoding="utf-8").split(marks[0])
    tail = rest.split(marks[1])[1]
    with written_whole(page) as path:
        path.write_text(f"{head}{marks[0]}\n{text}\n{marks[1]}{tail}", encoding="utf-8")


def compare(of: Callable[[], object], over: Callable[[], object], *, laps: int) -> tuple[float, float, float, float]:
    """Return the median ratio of two durations, that of the fastest laps, and the median seconds of a call of each.

    A lap times one after the other, so that both see the same machine; what is short is called as often as it
    takes to last as long as the other, so that interruptions hit both alike.
    """
    first, second = (min(_seconds(call, 1) for _ in range(3)) for call in (of, over))  # the warm-up too
    calls = max(1, round(second / first)), max(1, round(first / second))
    pairs, start = [], perf_counter()
    while len(pairs) < laps and (len(pairs) < FEWEST_LAPS or perf_counter() - start < PATIENCE):
        pairs.append((_seconds(of, calls[0]), _seconds(over, calls[1])))
    firsts, seconds = zip(*pairs, strict=True)
    return median(a / b for a, b in pairs), min(firsts) / min(seconds), median(firsts), median(seconds)


def _seconds(call: Callable[[], object], times: int) -> float:
    start = perf_counter()
    for _ in range(times):
        call()
    return (perf_counter() - start) / times


def cpu_model() -> str:
    """Return the name of the processor."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def table_of(ratios: Sequence[dict[str, Any]]) -> list[str]:
    """Return the lines of a Markdown table of ratios."""
    lines = ["| what | over | bar | measured | fastest laps | holds |", "|---|---|---|---|---|---|"]
    for r in ratios:
        bar, holds = judged(r)
        lines.append(f"| {r['of']} | {r['over']} | {bar} | {r['ratio']:.3g} | {r['fastest']:.3g} | {holds} |")
    return lines


def judged(ratio: dict[str, Any]) -> tuple[str, str]:
    """Return the bar of a written ratio, and whether it is kept, in words."""
    if ratio["bar"] is None:
        return "none", "**no**" if ratio["holds"] is False else "-"
    bar = f"{'≤' if ratio['at_most'] else '≥'} {ratio['bar']:g}"
    return bar, {None: "-", True: "yes", False: "**no**"}[ratio["holds"]]


def circumstances(found: dict[str, Any]) -> str:
    """Return a sentence on the machine, the versions and the duration."""
    machine, versions = found["machine"], found["versions"]
    return (
        f"Measured on {machine['cpu']}, {machine['cores']} cores, {machine['threads']} threads, load "
        f"{machine['load']:.1f} before the run, with "
        + ", ".join(f"{name} {number}" for name, number in versions.items())
        + f"; {found['seconds']:g} s. Defaults {found.get('defaults', 'not recorded')}."
    )
