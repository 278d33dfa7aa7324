"""Many independent jobs on all cores: finished ones are kept, so that a run goes on where it was stopped.

A job is a function and its arguments; what it returns is written at once to a file of its own, under a digest of all
that decides the result. Only what is missing is computed, and what changed counts as missing. Every job runs on one
thread, so that the numbers do not depend on how many run at once.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import platform
import shutil
import signal
import sys
import tomllib
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache, cached_property
from importlib.metadata import PackageNotFoundError, version
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from time import perf_counter, time
from typing import Any, Generic, TypeVar

import click
import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from fairfox.data.files import written_whole

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("torch", "numpy", "scikit-learn", "fairfox")
PRELOADED = ["torch", "sklearn.linear_model", "sklearn.mixture", "fairfox.evaluation", "fairfox.fairtests.registry"]
QUIET = 15.0  # seconds between two lines about progress where there is no terminal

_NEEDS = "it needs"

S = TypeVar("S")
One = TypeVar("One")
Found = dict[str, Any]  # what jobs returned, by their names


@dataclass(frozen=True)
class Job:
    """One piece of work: `function(folder, needed, *arguments)` returns what JSON can hold.

    `folder` is the job's own, for files that others need; `needed` are the folders of the jobs it comes `after`. The
    arguments must say all that decides the result, in their repr; the function must be one that a module names.
    """

    name: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()
    after: tuple[Job, ...] = ()

    @cached_property
    def key(self) -> str:
        """The name and a digest of the function's name, the arguments, the packages and the jobs before it."""
        what = [self.function.__name__, repr(self.arguments), *_versions(), *[job.key for job in self.after]]
        return f"{self.name}.{_digest(what)}"


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
        return _read(self.of(job) / "result.json")


class Clock:
    """How long the runs of the same jobs took together, stopped ones up to their last finished job."""

    def __init__(self, parts: Parts, jobs: Sequence[Job]) -> None:
        self.began = perf_counter()
        self.folder = parts.folder / f"seconds.{_digest([job.key for job in jobs])}"
        self.own = self.folder / f"{time():.3f}-{os.getpid()}.json"

    def note(self) -> None:
        """Write down how long this run has taken so far: it may be stopped at any moment."""
        write_json(self.own, perf_counter() - self.began)

    def seconds(self) -> float:
        """Return the sum over all runs."""
        return sum(float(path.read_text(encoding="utf-8")) for path in self.folder.glob("*.json"))


@dataclass(frozen=True)
class Experiment(Generic[S]):
    """A question with its jobs, and what is made of their results."""

    name: str
    description: str
    full: S  # settings
    quick: S
    jobs: Callable[[S, int], list[Job]]  # settings, seed
    gather: Callable[[S, Found, dict[str, Any]], dict[str, Any]]  # settings, results, circumstances -> sections
    show: Callable[[dict[str, Any]], str]  # the results file in words
    narrow: Callable[[S, Sequence[str]], S]  # settings with the named parts only
    draw: Callable[[dict[str, Any], Path], None] | None = None  # figures beside the results file
    on: Callable[[S, str], S] | None = None  # settings with another device; None: there is no choice
    check: Callable[[dict[str, Any], dict[str, Any]], None] = lambda earlier, about: None  # before anything is run
    merge: Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]] | None = None  # an earlier file, what was found
    parts_with: str | None = None  # another experiment that has jobs in common; None: an own folder of results
    parts_of_a_whole: bool = False  # what is named by --only goes into the one results file, with all the rest

    def run(self, arguments: Sequence[str] | None = None) -> int:
        """Do what is missing, write the results file, print it; return 1 where a job failed."""
        options = self._options(arguments)
        settings = self.quick if options.quick else self.full
        settings = self.narrow(settings, options.only) if options.only else settings
        settings = self.on(settings, options.device) if self.on is not None else settings
        partial = "-quick" * options.quick + "-only" * (bool(options.only) and not self.parts_of_a_whole)
        out = options.out or RESULTS / f"{self.name}{partial}.json"
        if out.is_file() and self.merge is not None:
            self.check(_read(out), self._about(settings, options))
        parts = Parts(out.parent / f"{self.parts_with or self.name}.parts")
        jobs = with_needed(self.jobs(settings, options.seed))
        clock = Clock(parts, jobs)
        if options.fresh:
            for folder in (clock.folder, *map(parts.of, jobs)):
                shutil.rmtree(folder, ignore_errors=True)
        try:
            failures = run_jobs(jobs, parts, workers=options.workers, finished=clock.note)
        except KeyboardInterrupt:
            done = sum(map(parts.has, jobs))
            click.echo(f"Stopped with {done} of {len(jobs)} jobs done; the next run goes on from there.", err=True)
            return 130
        if failures:
            causes = [failure for failure in failures if not failure.follows]
            for failure in causes:
                click.echo(f"{failure.job} failed: {failure.reason}", err=True)
            follow = f", and {len(failures) - len(causes)} need them" if len(failures) > len(causes) else ""
            click.echo(f"{len(causes)} of {len(jobs)} jobs failed{follow}; the next run tries them again.", err=True)
            return 1
        clock.note()
        found = self._found(settings, options, {job.name: parts.read(job) for job in jobs}, clock.seconds())
        if out.is_file() and self.merge is not None:
            found = self.merge(_read(out), found)
        write_json(out, found)
        if self.draw is not None:
            self.draw(found, out.with_suffix(""))
        click.echo(self.show(found))
        return 0

    def _options(self, arguments: Sequence[str] | None) -> argparse.Namespace:
        parser = argparse.ArgumentParser(description=self.description)
        parser.add_argument("--quick", action="store_true", help="a small version of everything")
        parser.add_argument(
            "--only", nargs="+", action="extend", metavar="NAME", help="only these parts of the experiment"
        )
        parser.add_argument("--seed", type=int, default=0)
        parser.add_argument(
            "--workers", type=_at_least_one, default=usable_cores(), help="jobs at once; default: all cores"
        )
        parser.add_argument("--fresh", action="store_true", help="do again what earlier runs have finished")
        parser.add_argument("--out", type=Path, help=f"results file; default: results/{self.name}.json")
        if self.on is not None:
            parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where large networks train")
        return parser.parse_args(arguments)

    def _found(self, settings: S, options: argparse.Namespace, done: Found, seconds: float) -> dict[str, Any]:
        about = self._about(settings, options) | {
            "seconds": round(seconds, 1),
            "core_seconds": round(sum(part["seconds"] for part in done.values()), 1),
        }
        return about | self.gather(settings, {name: part["result"] for name, part in done.items()}, about)

    def _about(self, settings: S, options: argparse.Namespace) -> dict[str, Any]:
        return {
            "experiment": self.name,
            "seed": options.seed,
            "quick": options.quick,
            "only": options.only,
            "settings": asdict(settings),  # type: ignore[call-overload]
            "versions": {"python": platform.python_version()} | dict(zip(PACKAGES, _versions(), strict=True)),
            "machine": {
                "cores": os.cpu_count(),
                "workers": options.workers,
                "platform": f"{platform.system()} {platform.machine()}",
            },
        }


def _at_least_one(text: str) -> int:
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than one worker")
    return int(text)


def with_needed(jobs: Sequence[Job]) -> list[Job]:
    """Return the jobs and all that they come after, each once and after those it needs."""
    ordered: dict[str, Job] = {}
    for job in jobs:
        ordered |= {needed.name: needed for needed in with_needed(job.after)} | {job.name: job}
    return list(ordered.values())


def run_jobs(
    jobs: Sequence[Job], parts: Parts, *, workers: int, finished: Callable[[], None] = lambda: None
) -> list[Failure]:
    """Do the jobs that have no result yet, each after those it needs; return the ones that failed.

    A job that fails, or whose process dies, takes down only those that need it. `finished` is called after each.
    """
    jobs = with_needed(jobs)
    waiting = [job for job in jobs if not parts.has(job)]
    failures: list[Failure] = []
    done = _one_by_one(waiting, parts) if workers == 1 else _at_once(waiting, parts, workers)
    with _progress(len(jobs), len(jobs) - len(waiting)) as advance, _stopped_politely():
        for job, reason in done:
            if reason is not None:
                failures.append(Failure(job.name, reason, follows=reason.startswith(_NEEDS)))
            finished()
            advance(job.name)
    return failures


def usable_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


Ended = tuple[Job, str | None]  # and why it failed; None: it did not


def _one_by_one(waiting: list[Job], parts: Parts) -> Iterator[Ended]:
    """Do the jobs in this process."""
    failed: set[str] = set()
    while picked := _pick(waiting, parts, failed):
        job, reason = picked
        reason = reason or _attempt(job, parts)
        failed |= {job.name} if reason else set()
        yield job, reason


def _at_once(waiting: list[Job], parts: Parts, workers: int) -> Iterator[Ended]:
    """Do the jobs in processes of their own, as many at once as there are workers."""
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    method = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
    context = multiprocessing.get_context(method)
    context.set_forkserver_preload(PRELOADED)
    running: dict[int, tuple[Job, BaseProcess]] = {}  # by what tells of their end
    failed: set[str] = set()
    try:
        while waiting or running:
            picked = _pick(waiting, parts, failed) if len(running) < workers else None
            if picked is None:
                for job, reason in _ended(running, parts):
                    failed |= {job.name} if reason else set()
                    yield job, reason
                continue
            job, reason = picked
            if reason is not None:
                failed.add(job.name)
                yield job, reason
                continue
            process = context.Process(  # type: ignore[attr-defined]
                target=_work, args=(job, parts), daemon=True
            )
            process.start()
            running[process.sentinel] = job, process
    finally:
        for _, process in running.values():
            process.terminate()


def _ended(running: dict[int, tuple[Job, BaseProcess]], parts: Parts) -> list[Ended]:
    """Wait until a process ends; take those that have from the running ones."""
    ended: list[Ended] = []
    for sentinel in wait(list(running)):
        assert isinstance(sentinel, int)
        job, process = running.pop(sentinel)
        process.join()
        ended.append((job, None if parts.has(job) else _reason(parts.of(job), process.exitcode)))
    return ended


def _pick(waiting: list[Job], parts: Parts, failed: set[str]) -> Ended | None:
    """Take the first job that can start from the waiting ones, or one that never can with the reason; else None."""
    for place, job in enumerate(waiting):
        lost = [before.name for before in job.after if before.name in failed]
        if lost:
            return waiting.pop(place), f"{_NEEDS} {lost[0]}, which failed"
        if all(parts.has(before) for before in job.after):
            return waiting.pop(place), None
    return None


def _work(job: Job, parts: Parts) -> None:
    """Do one job in a process of its own, and leave the reason where it fails."""
    reason = _attempt(job, parts)
    if reason is not None:
        write_json(parts.of(job) / "failure.json", reason)


def _attempt(job: Job, parts: Parts) -> str | None:
    """Do one job on one thread and write its result; return why it failed."""
    folder, threads = parts.of(job), torch.get_num_threads()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "failure.json").unlink(missing_ok=True)
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


def _reason(folder: Path, exitcode: int | None) -> str:
    """Return why a job in a process of its own has no result."""
    written = folder / "failure.json"
    if written.is_file():
        return str(json.loads(written.read_text(encoding="utf-8")))
    if exitcode is not None and exitcode < 0:
        return f"its process was ended by {signal.Signals(-exitcode).name}; was there enough memory?"
    return f"its process ended with exit code {exitcode} and no result"


@contextmanager
def _progress(total: int, done: int) -> Iterator[Callable[[str], None]]:
    """Yield a function that tells of one more finished job: a bar with the time left, or a line now and then."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
    bar = Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console)
    task = bar.add_task("jobs", total=total, completed=done)
    began = told = perf_counter()
    finished = 0

    def advance(name: str) -> None:
        nonlocal told, finished
        finished += 1
        bar.update(task, advance=1, description=name)
        now = perf_counter()
        if not console.is_interactive and (now - told > QUIET or done + finished == total):
            told = now
            left = (now - began) / finished * (total - done - finished)
            console.print(f"{done + finished} of {total} jobs done, about {left:.0f} s left", highlight=False)

    if not console.is_interactive:
        yield advance
        return
    with bar:
        yield advance


@contextmanager
def _stopped_politely() -> Iterator[None]:
    """Turn SIGTERM into an exception, so that running processes are ended and none is left behind."""

    def stop(number: int, frame: object) -> None:
        sys.exit(128 + number)

    try:
        before = signal.signal(signal.SIGTERM, stop)
    except ValueError:  # signals are for the main thread only
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def write_json(path: Path, found: object) -> None:
    """Write a JSON file that appears whole or not at all."""
    with written_whole(path) as temporary:
        temporary.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def _digest(what: list[str]) -> str:
    return hashlib.sha256(json.dumps(what).encode()).hexdigest()[:10]


def named(what: str, known: Mapping[str, One], names: Sequence[str]) -> tuple[One, ...]:
    """Return those with these names, or stop and say which there are."""
    if unknown := set(names) - known.keys():
        raise SystemExit(f"There is no {what} {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    return tuple(one for name, one in known.items() if name in names)


def installed(name: str) -> str:
    """Return a package's name and version."""
    return f"{name} {_version(name)}"


@cache
def _versions() -> tuple[str, ...]:
    return tuple(map(_version, PACKAGES))


def _version(name: str) -> str:
    """Return a package's version; of fairfox also where it is not installed but run from its sources."""
    try:
        return version(name)
    except PackageNotFoundError:
        if name != "fairfox":
            return "of unknown version"
        project = Path(__file__).parents[1] / "pyproject.toml"
        return str(tomllib.loads(project.read_text(encoding="utf-8"))["project"]["version"])
