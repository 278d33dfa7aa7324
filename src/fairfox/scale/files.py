"""Parquet files of any size to a folder of scores, on one machine or with an engine: in parts, and once each."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from time import monotonic
from typing import Any, Literal

import torch

from fairfox.data.files import written_whole
from fairfox.errors import DataError, FileError, OptionError
from fairfox.extras import installed_versions
from fairfox.fitted import FittedTest
from fairfox.scale.following import Follower, Progress
from fairfox.scale.job import Job, ModelSource, check_table, columns_of, prepare
from fairfox.scale.manifest import (
    MANIFEST,
    SCORES,
    SUMMARY,
    Manifest,
    Record,
    alone_in,
    read_manifest,
    read_record,
    unwritable,
)
from fairfox.scale.parts import Outcome, Task, Tick
from fairfox.scale.pilot import read_pilot
from fairfox.scale.places import PART_ROWS, Part, find_sources, split
from fairfox.scale.pool import run_here, run_pool
from fairfox.scale.settled import PILOT, Settled
from fairfox.scale.sketches import merge
from fairfox.scale.summary import as_json, summary_of
from fairfox.storage import load_test

Engine = Literal["files", "spark", "dask"]
_DEFAULTS = {"positive": None, "output": "probability", "returns": None, "kind": None}
_NOBODY = "The tables have column names and no rows, or scores that fairfox wrote; give tables of people"
_MOST = 3  # failures that are told one by one
_OF_GPU = 4 << 30  # bytes of its memory for each process that uses it


def score_files(
    test: str | Path,
    model: ModelSource,
    tables: Sequence[str],
    out: str | Path,
    *,
    delta: float | None = None,
    options: Mapping[str, Any] | None = None,
    workers: int | None = None,
    engine: Engine = "files",
    part_rows: int = PART_ROWS,
    overwrite: bool = False,
    device: str = "cpu",
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Return the summary of everyone in some Parquet tables, whose scores are written to the folder `out` in parts.

    A run that was interrupted is gone on with: parts that are there are kept. Memory does not grow with the tables.

    Args:
        test: a file that `fairfox fit` wrote.
        model: where workers get the model from.
        tables: Parquet files, folders, patterns or URLs.
        out: the folder; `scores.parquet/` with the parts, `manifest.json` and, at the end, `summary.json`.
        delta: people with a score above it are flagged; by default the test's own.
        options: positive, output, returns and kind, as for `fairfox.audit`.
        workers: processes; by default one per core.
        engine: who does the work: processes on this machine, Spark or Dask.
        part_rows: people per part, at least; a part has whole row groups.
        overwrite: begin anew where the folder holds other scores.
        device: "cuda" scores on a GPU that the worker processes share: some read while it computes for others.
        progress: is told how far it is.
    """
    check_device(device, engine)
    folder, started = Path(out), monotonic()
    options = {**_DEFAULTS, **(options or {})}
    fitted = load_test(test)
    content = Path(test).read_bytes()
    parts, failed = split(find_sources(tables), part_rows)
    if not parts:
        raise FileError(_told(failed)) if failed else DataError(_NOBODY)
    settings = {
        "test": {"name": Path(test).name, "sha256": sha256(content).hexdigest()},
        "model": model.identity,
        "delta": delta,
        **{name: None if value is None else str(value) for name, value in options.items()},
        "part_rows": part_rows,
        **({} if device == "cpu" else {"device": device}),
        "version of fairfox": installed_versions("fairfox")["fairfox"],
    }
    manifest = before = _begun(folder, settings, overwrite)
    pilot = read_pilot(parts, columns_of(fitted), fitted.encoding.columns, PILOT, partial(check_table, fitted))
    settled = None if manifest is None else Settled.of_dict(dict(manifest.settled))
    job = prepare(content, fitted, model, pilot, delta=delta, settled=settled, options=options, device=device)
    if manifest is None:
        manifest = Manifest(settings, job.settled.as_dict())
    manifest = manifest.planned(parts, folder, failed)
    with alone_in(folder):
        if not overwrite and read_manifest(folder) != before:
            raise OptionError(f"Another run has just written to '{folder}'; give the same command again")
        tasks, records = _opened(folder, manifest, parts, anew=settled is None)
        follow = Follower(sum(part.rows for part in parts), sum(task.part.rows for task in tasks), progress)
        try:
            with closing(_run(job, tasks, engine, processes(workers, device), follow.tick)) as outcomes:
                for outcome in outcomes:
                    if outcome.fatal:
                        raise FileError(f"{outcome.error}; once that is put right, the same command goes on from there")
                    if outcome.record is None:
                        failed.setdefault(outcome.task.part.source.name, outcome.error)
                    else:
                        records[Path(outcome.task.path).name] = outcome.record
        finally:
            _sweep(folder / SCORES)
        return _finish(folder, manifest, records, failed, fitted, job, tables, monotonic() - started)


def check_device(device: str, engine: Engine) -> None:
    """Refuse a device that is not there, or that an engine's workers may not have."""
    try:
        if not re.fullmatch(r"(cpu|cuda)(:\d+)?", device):
            raise RuntimeError("no device that computes")
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise OptionError(
            f"There is no device '{device}' here; leave --device out to score on the processor"
        ) from error
    if device != "cpu" and engine != "files":
        raise OptionError(f"--device {device} scores with processes of this machine; leave --engine out")


def processes(workers: int | None, device: str) -> int:
    """Return how many worker processes there are: one per core unless told, as far as the memory of a GPU goes."""
    most = os.cpu_count() or 1
    if workers is None and device.startswith("cuda"):
        most = min(most, max(1, torch.cuda.mem_get_info(torch.device(device))[0] // _OF_GPU))
    return workers or most


def _begun(folder: Path, settings: Mapping[str, Any], overwrite: bool) -> Manifest | None:
    """Return the manifest of a run to go on with; None for a new one. Refuses a folder that holds something else."""
    if overwrite:
        return None
    manifest = read_manifest(folder)
    if manifest is None and (folder / SCORES).exists():
        raise OptionError(
            f"'{folder / SCORES}' is there already, and not from a run that can be gone on with; choose another "
            "folder, or begin anew with --overwrite"
        )
    if manifest is not None:
        manifest.check_same(settings, folder)
    return manifest


def _opened(
    folder: Path, manifest: Manifest, parts: Sequence[Part], *, anew: bool
) -> tuple[list[Task], dict[str, Record]]:
    """Return what is left to do, and the records of what is done; the folder is ready for more afterwards.

    A run that begins anew leaves nothing of an earlier one; one that goes on has no summary until it is complete.
    """
    scores = folder / SCORES
    by_place = {(part.source.name, part.groups): part for part in parts}
    there = set() if anew else {path.name for path in scores.glob("part-*")}
    run = manifest.key
    records = {e["name"]: read_record(scores / e["name"], e, run) for e in manifest.parts if e["name"] in there}
    tasks = [
        Task(by_place[entry["file"], tuple(entry["row_groups"])], str(scores / entry["name"]), run)
        for entry in manifest.parts
        if entry["name"] not in records
    ]
    try:
        if tasks:
            (folder / SUMMARY).unlink(missing_ok=True)
        if anew and scores.is_dir():
            shutil.rmtree(scores)
        elif anew:
            scores.unlink(missing_ok=True)
        scores.mkdir(parents=True, exist_ok=True)
        _sweep(scores)
        manifest.write(folder)
    except OSError as error:
        raise unwritable(folder, error) from error
    return tasks, records


def _sweep(scores: Path) -> None:
    """Remove what workers that were killed have left half-written."""
    for left in scores.glob(".part-*"):
        left.unlink()


def _run(job: Job, tasks: Sequence[Task], engine: Engine, workers: int, tick: Tick) -> Generator[Outcome, None, None]:
    """Yield the outcomes of tasks as they come."""
    if not tasks:
        return
    if engine == "spark":
        from fairfox.scale.spark import run_spark

        yield from run_spark(job, tasks, workers, tick)
    elif engine == "dask":
        from fairfox.scale.dask import run_dask

        yield from run_dask(job, tasks, workers, tick)
    elif workers == 1:
        yield from run_here(job, tasks, tick)
    else:
        yield from run_pool(job, tasks, min(workers, len(tasks)), tick)


def _finish(
    folder: Path,
    manifest: Manifest,
    records: Mapping[str, Record],
    failed: Mapping[str, str],
    fitted: FittedTest,
    job: Job,
    tables: Sequence[str],
    seconds: float,
) -> dict[str, Any]:
    """Write the manifest and the summary of a run, and return the summary; raise where parts are lacking."""
    entries = tuple(
        records[entry["name"]].entry(entry["name"]) if entry["name"] in records else entry for entry in manifest.parts
    )
    complete = not failed and len(records) == len(entries)
    done = replace(manifest, parts=entries, failed=dict(failed), complete=complete)
    if not complete:
        try:
            (folder / SUMMARY).unlink(missing_ok=True)
            done.write(folder)
        except OSError as error:
            raise FileError(f"{MANIFEST} cannot be written to '{folder}' ({error.strerror or error})") from error
        raise FileError(
            f"{_told(failed)}. {len(records)} of {len(entries)} parts are done; the same command does the rest"
        )
    merged = merge(records[entry["name"]].sketch for entry in entries)
    spent = merge({name: round(value, 3) for name, value in record.seconds.items()} for record in records.values())
    settings = {
        **manifest.settings,
        "tables": list(tables),
        "settled_on": job.settled.people,
        "protected": [p.name for p in fitted.known.protected],
        "columns": list(fitted.encoding.columns),
        "reference_rows": len(fitted.known),
        "parts": len(entries),
        "seconds": round(seconds, 3),
        "seconds_of_workers": spent,
    }
    summary = summary_of(merged, fitted, job.settled, settings)
    try:
        with written_whole(folder / SUMMARY) as path:
            path.write_text(as_json(summary), encoding="utf-8")
        done.write(folder)
    except OSError as error:
        raise FileError(f"The summary cannot be written to '{folder}' ({error.strerror or error})") from error
    return summary


def _told(failed: Mapping[str, str]) -> str:
    """Return what went wrong, in one sentence."""
    words = [why.rstrip(".") for why in failed.values()]
    more = f"; and {len(words) - _MOST} more files" if len(words) > _MOST else ""
    return "; ".join(words[:_MOST]) + more
