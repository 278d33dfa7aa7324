"""Many independent jobs on all cores: finished ones are kept, so that a run goes on where it was stopped.

A job is a function and its arguments; what it returns is written at once to a file of its own, under a digest of all
that decides the result. Only what is missing is computed, and what changed counts as missing. Every job runs on one
thread, so that the numbers do not depend on how many run at once. The jobs of several experiments run in one pool: what
they have in common is done once.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import re
import shutil
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from dataclasses import asdict, dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from time import perf_counter
from types import ModuleType
from typing import Any, TypeVar

import torch
from joblib.externals.loky import get_reusable_executor
from joblib.externals.loky.process_executor import TerminatedWorkerError
from shipped import code_hash, defaults_hash
from threadpoolctl import threadpool_info, threadpool_limits  # type: ignore[import-untyped]

from fairfox.data.files import written_whole
from fairfox.errors import installed_versions

RESULTS = Path(__file__).parent / "results"
QUIET = 15.0  # seconds between two lines about progress
GPU_JOBS = 8  # at once on a GPU: more would wait for each other there while cores stand idle

Entry = TypeVar("Entry")
Folders = tuple[Path, ...]
Found = dict[str, Any]  # what jobs returned, by their names
Results = dict[str, Any]  # a results file


@dataclass(frozen=True)
class Device:
    """Where tensors are. It changes rounding alone, so that no job's digest has it: what is done is not done again."""

    name: str = field(default="cpu", repr=False)


@dataclass(frozen=True)
class Job:
    """One unit of work: `function(folder, needed, *arguments)` returns what JSON can hold.

    `folder` is the job's own, for files that others need; `needed` are the folders of the jobs it comes `after`. The
    arguments must say all that decides the result, in their repr; the function must be one that a module names.
    """

    name: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()
    after: tuple[Job, ...] = ()
    on_gpu: bool = False
    seconds: float = 5.0  # about how long it takes: of an experiment the longest start first

    @cached_property
    def key(self) -> str:
        """The name, and a digest of the function and its file, the arguments, packages, code and the jobs before it."""
        file = Path(self.function.__code__.co_filename).stem
        what = [file, self.function.__name__, repr(self.arguments), *versions().values(), code_hash()]
        what += [job.key for job in self.after]
        return f"{self.name}.{hashlib.sha256(json.dumps(what).encode()).hexdigest()[:10]}"


@dataclass(frozen=True)
class Failure:
    """A job that has no result, and why."""

    job: str
    reason: str
    follows: bool = False  # it needs another one that failed


@dataclass(frozen=True)
class Parts:
    """The results of single jobs in a folder, one sub-folder each."""

    folder: Path

    def of(self, job: Job) -> Path:
        """Return a job's own folder."""
        return self.folder / job.key

    def has(self, job: Job) -> bool:
        """Return whether a job is done."""
        return (self.of(job) / "result.json").is_file()

    def read(self, job: Job) -> dict[str, Any]:
        """Return what a finished job returned (`result`) and how long it took (`seconds`)."""
        return read_json(self.of(job) / "result.json")


@dataclass(frozen=True)
class Experiment:
    """A question with its jobs, and what is made of their results."""

    name: str
    description: str
    full: Any  # settings
    quick: Any
    jobs: Callable[[Any, int], list[Job]]  # settings, seed
    gather: Callable[[Any, Found, Results], Results]  # settings, results, circumstances -> sections
    show: Callable[[Results], str]  # the results file in words
    narrow: Callable[[Any, Sequence[str]], Any]  # settings with what --only names
    charts: Mapping[str, Callable[[Results], Any]] = field(default_factory=dict)  # by what their file's name ends with
    alone: bool = False  # it measures seconds: one job at a time, and nothing beside it

    @classmethod
    def of(cls, module: ModuleType) -> Experiment:
        """Return the experiment that a module describes: its settings FULL and QUICK, and the functions above by name.

        It may have CHARTS, and ALONE.
        """
        own = {name: getattr(module, name) for name in ("jobs", "gather", "show", "narrow")}
        optional = {name.lower(): getattr(module, name) for name in ("CHARTS", "ALONE") if hasattr(module, name)}
        about = (Path(str(module.__file__)).stem, str(module.__doc__))
        return Experiment(*about, module.FULL, module.QUICK, **own, **optional)

    @classmethod
    def of_parts(cls, module: ModuleType) -> Experiment:
        """Return the experiment that the modules of a module's PARTS make together, by name; --only takes their names.

        Settings are those of all parts. The results file has a section for each, and all bars, each with its part.
        """
        parts: Mapping[str, ModuleType] = module.PARTS

        def jobs(settings: Mapping[str, Any], seed: int) -> list[Job]:
            return [job for name, own in settings.items() for job in parts[name].jobs(own, seed)]

        def gather(settings: Mapping[str, Any], found: Found, about: Results) -> Results:
            sections = {name: parts[name].gather(own, found, about) for name, own in settings.items()}
            bars = [{"part": name} | bar for name, own in sections.items() for bar in own.pop("bars")]
            return sections | {"bars": bars}

        def show(found: Results) -> str:
            own = [name for name in parts if name in found]
            return "\n\n".join(f"{name}:\n\n{parts[name].show(part_of(found, name))}" for name in own)

        def narrow(settings: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
            return dict(named("part", {name: (name, own) for name, own in settings.items()}, names))

        full, quick = ({name: getattr(part, size) for name, part in parts.items()} for size in ("FULL", "QUICK"))
        about, charts = (Path(str(module.__file__)).stem, str(module.__doc__)), getattr(module, "CHARTS", {})
        return Experiment(*about, full, quick, jobs, gather, show, narrow, charts)

    @property
    def has_device(self) -> bool:
        """Whether there is a choice where large networks train."""
        return hasattr(self.full, "device")

    def run(self, arguments: Sequence[str] | None = None) -> int:
        """Do what is missing, write the results file, print it; return 1 where a job failed."""
        run = self.planned(arguments)
        failed = run_together([run], workers=run.options.workers)
        if not failed:
            sys.stdout.write(f"{self.show(read_json(run.out))}\n")
        return int(bool(failed))

    def planned(self, arguments: Sequence[str] | None = None) -> Run:
        """Return what the options of the command line ask for."""
        options = self._options(arguments)
        settings = self.quick if options.quick else self.full
        settings = self.narrow(settings, options.only) if options.only else settings
        if self.has_device:
            settings = replace(settings, device=Device(options.device))
        partial = "-quick" * options.quick + "-only" * bool(options.only)
        out = options.out or RESULTS / f"{self.name}{partial}.json"
        return Run(self, settings, options, out, with_needed(self.jobs(settings, options.seed)))

    def draw_charts(self, found: Results, out: Path) -> None:
        """Write the charts of a results file beside it; `pages.py` does so later where a package is missing."""
        try:
            for ending, chart in self.charts.items():
                if (drawn := chart(found)) is not None:
                    write_chart(Path(f"{out.with_suffix('')}{ending}.svg"), drawn)
        except ImportError as error:
            say(f"{self.name}: no chart ({error}); `python experiments/pages.py` draws it where there is altair.")

    def _options(self, arguments: Sequence[str] | None) -> argparse.Namespace:
        parser = argparse.ArgumentParser(description=self.description)
        parser.add_argument("--quick", action="store_true", help="a small version of everything")
        parser.add_argument(
            "--only", nargs="+", action="extend", metavar="NAME", help="only these parts of the experiment"
        )
        parser.add_argument("--seed", type=int, default=0)
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        parser.add_argument(
            "--jobs", "--workers", dest="workers", type=int, default=cores, help="at once; default: one for each core"
        )
        parser.add_argument("--fresh", action="store_true", help="do again what earlier runs have finished")
        parser.add_argument("--out", type=Path, help=f"results file; default: results/{self.name}.json")
        if self.has_device:
            parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where large networks train")
        return parser.parse_args(arguments)

    def _about(self, settings: Any, options: argparse.Namespace) -> Results:
        kinds = sorted({library["architecture"] for library in threadpool_info() if "architecture" in library})
        return {
            "experiment": self.name,
            "seed": options.seed,
            "quick": options.quick,
            "only": options.only,
            "settings": {n: asdict(one) for n, one in settings.items()}
            if isinstance(settings, dict)
            else asdict(settings),
            "defaults": defaults_hash(),
            "code": code_hash(),
            "versions": {"python": platform.python_version()} | versions(),
            "machine": {
                "cores": os.cpu_count(),
                "workers": options.workers,
                "platform": f"{platform.system()} {platform.machine()}",
                "processor": [torch.backends.cpu.get_cpu_capability(), *kinds],  # as torch and NumPy choose their code
            },
        }


@dataclass(frozen=True)
class Run:
    """An experiment with its settings and jobs, and where its results go."""

    experiment: Experiment
    settings: Any
    options: argparse.Namespace
    out: Path
    jobs: list[Job]

    @property
    def parts(self) -> Parts:
        """Where the results of single jobs are: one folder for all experiments."""
        return Parts(self.out.parent / "jobs.parts")

    def write(self) -> None:
        """Write the results file and its charts."""
        done = {job.name: self.parts.read(job) for job in self.jobs}
        about = self.experiment._about(self.settings, self.options)
        about["core_seconds"] = round(sum(part["seconds"] for part in done.values()), 1)
        results = {name: part["result"] for name, part in done.items()}
        found = about | self.experiment.gather(self.settings, results, about)
        write_results(self.out, found)
        self.experiment.draw_charts(found, self.out)


def run_together(runs: Sequence[Run], *, workers: int) -> list[str]:
    """Do the jobs of all runs in one pool and write each results file once it can be; return which have none."""
    parts, waiting, failed = runs[0].parts, list(runs), []
    for run in runs:
        for job in run.jobs if run.options.fresh else ():
            shutil.rmtree(parts.of(job), ignore_errors=True)

    def finished() -> None:
        for run in [run for run in waiting if all(map(parts.has, run.jobs))]:
            waiting.remove(run)
            try:
                run.write()
                say(f"{run.experiment.name}: {run.out.name} is written")
            except Exception:  # whatever it is, the other experiments go on
                failed.append(run.experiment.name)
                traceback.print_exc()

    jobs = most_urgent_first([run.jobs for run in runs])
    failures = run_jobs(jobs, parts, workers=workers, finished=finished)
    finished()
    for failure in failures:
        if not failure.follows:
            say(f"{failure.job} failed: {failure.reason}")
    if failures:
        say(f"{len(failures)} jobs have no result; the next run tries them again.")
    return [*failed, *(run.experiment.name for run in waiting)]


def say(text: str) -> None:
    """Print a line about progress."""
    sys.stderr.write(f"{text}\n")


def with_needed(jobs: Sequence[Job]) -> list[Job]:
    """Return the jobs and all that they come after, each once and after those it needs."""
    ordered: dict[str, Job] = {}
    for job in jobs:
        if job.key not in ordered:
            ordered |= {needed.key: needed for needed in with_needed(job.after)} | {job.key: job}
    return list(ordered.values())


def chains(jobs: Sequence[Job]) -> dict[str, float]:
    """Return by key how many seconds each job and the longest chain of jobs that wait for it take."""
    waits: dict[str, float] = {}
    for job in reversed(with_needed(jobs)):
        waits[job.key] = chain = waits.get(job.key, 0.0) + job.seconds
        waits |= {before.key: max(waits.get(before.key, 0.0), chain) for before in job.after}
    return waits


def most_urgent_first(batches: Sequence[Sequence[Job]]) -> list[Job]:
    """Return all jobs, batch after batch, so that the first batches are done early: the longest chains come first."""
    waits = [chains(jobs) for jobs in batches]
    ordered = sorted(zip(batches, waits, strict=True), key=lambda batch: -max(batch[1].values(), default=0.0))
    return [job for jobs, own in ordered for job in sorted(jobs, key=lambda job: -own[job.key])]


def run_jobs(
    jobs: Sequence[Job], parts: Parts, *, workers: int, finished: Callable[[], None] = lambda: None
) -> list[Failure]:
    """Do the jobs that have no result yet, in their order but each after those it needs; return the ones that failed.

    A job that fails takes down only those that need it; a process that dies stops the run. `finished` is called after
    each job.
    """
    jobs = with_needed(jobs)
    done = {job.key for job in jobs if parts.has(job)}
    waiting = [job for job in jobs if job.key not in done]
    running: dict[Future[str | None], Job] = {}
    failures: list[Failure] = []
    executor = _executor(workers)
    printed = perf_counter()
    while waiting or running:
        for job in _ready(waiting, done, [*running.values()], workers):
            waiting.remove(job)
            running[executor.submit(_attempt, job, parts)] = job
        if not running:  # what is left needs a job that failed
            lost = {job.name: next(b.name for b in job.after if b.key not in done) for job in waiting}
            told = (Failure(name, f"it needs {why}, which failed", follows=True) for name, why in lost.items())
            return [*failures, *told]
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            job = running.pop(future)
            try:
                reason = future.result()
            except TerminatedWorkerError:
                return [*failures, Failure("a job", "its process was ended; was there enough memory?")]
            if reason is None:
                done.add(job.key)
            else:
                failures.append(Failure(job.name, reason))
            finished()
        if perf_counter() - printed > QUIET:
            printed = perf_counter()
            say(f"{len(done)} of {len(jobs)} jobs done")
    return failures


def _ready(waiting: Sequence[Job], done: set[str], running: Sequence[Job], workers: int) -> list[Job]:
    """Return the jobs to be started now, beside those that are running."""
    chosen: list[Job] = []
    for job in waiting:
        now = [*running, *chosen]
        if len(now) >= workers:
            break
        gpu_is_full = job.on_gpu and sum(other.on_gpu for other in now) >= GPU_JOBS
        if not gpu_is_full and all(before.key in done for before in job.after):
            chosen.append(job)
    return chosen


def _executor(workers: int) -> Executor:
    """Return what runs jobs: so many processes, or this one."""
    if workers == 1:
        return _Here()
    executor: Executor = get_reusable_executor(workers, timeout=600, env={"OMP_NUM_THREADS": "1"})
    return executor


class _Here(Executor):
    """Runs each job where it is submitted."""

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **options: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(function(*arguments, **options))
        return future


def _attempt(job: Job, parts: Parts) -> str | None:
    """Do one job on one thread and write its result; return why it failed."""
    folder, threads = parts.of(job), torch.get_num_threads()
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            began = perf_counter()
            result = job.function(folder, tuple(parts.of(before) for before in job.after), *job.arguments)
            write_json(folder / "result.json", {"seconds": perf_counter() - began, "result": result})
    except Exception as error:  # whatever it is, the other jobs go on
        at = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {error} ({Path(at.filename).name}, line {at.lineno})"
    finally:
        torch.set_num_threads(threads)
    return None


def write_json(path: Path, found: object) -> None:
    """Write JSON, whole or not at all."""
    with written_whole(path) as temporary:
        temporary.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def part_of(found: Results, name: str) -> Results:
    """Return what a results file has of one part, with its own bars."""
    return found[name] | {"bars": [bar for bar in found["bars"] if bar["part"] == name]}


def write_results(path: Path, found: Results) -> None:
    """Write a results file: five digits of each number that count, and a line for each entry of a section."""
    with written_whole(path) as temporary:
        temporary.write_text(_lines(_short(found), whole=True) + "\n", encoding="utf-8")


def _lines(value: Any, *, whole: bool = False) -> str:
    if whole or (isinstance(value, dict) and "results" in value):  # all of a file, or a part of an experiment
        return "{\n" + ",\n".join(f"{json.dumps(name)}: {_lines(one)}" for name, one in value.items()) + "\n}"
    if not isinstance(value, list) or not any(isinstance(one, dict | list) for one in value):
        return json.dumps(value, separators=(",", ":"))
    return "[\n" + ",\n".join(json.dumps(one, separators=(",", ":")) for one in value) + "\n]"


def _short(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _short(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_short(one) for one in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value


def write_chart(path: Path, chart: Any) -> None:
    """Write a chart as SVG, for a page that shows it as an image: one decimal, nothing that is invisible."""
    chart.save(path)
    path.write_text(slim(path.read_text(encoding="utf-8")), encoding="utf-8")


_UNSEEN = r' (?:(?:aria-[a-z]+|role|pointer-events|class|font-family)="[^"]*"|(?:opacity|stroke-width)="1")'


def slim(svg: str) -> str:
    """Return an SVG that looks the same without names of marks, empty elements and tenths of tenths of a point."""
    svg = re.sub(_UNSEEN, "", svg).replace("<svg ", '<svg font-family="sans-serif" ', 1)
    svg = re.sub(r'<path[^>]* d="(?:M0,0h0v0h0Z)?"[^>]*/>', "", svg)
    while "<g></g>" in svg:
        svg = svg.replace("<g></g>", "")
    places = r'(?<= )(?:d|transform|[xy][12]?|width|height)="[^"]*"'
    return re.sub(places, lambda place: re.sub(r"\d+\.\d\d+", lambda n: f"{float(n[0]):.1f}", place[0]), svg)


def read_json(path: Path) -> dict[str, Any]:
    """Return what a JSON file holds."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def named(what: str, known: Mapping[str, Entry], names: Sequence[str]) -> tuple[Entry, ...]:
    """Return those with these names, or stop and say which there are."""
    if unknown := set(names) - known.keys():
        raise SystemExit(f"There is no {what} {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    return tuple(entry for name, entry in known.items() if name in names)


def pick(field: str, what: str) -> Callable[[Any, Sequence[str]], Any]:
    """Return what narrows settings to the entries of one of their fields that have the given names."""

    def narrow(settings: Any, names: Sequence[str]) -> Any:
        known = {getattr(entry, "name", entry): entry for entry in getattr(settings, field)}
        return replace(settings, **{field: named(what, known, names)})

    return narrow


@cache
def versions() -> dict[str, str]:
    """Return the versions of the packages that decide numbers."""
    return installed_versions("torch", "numpy", "scikit-learn", "fairfox")
