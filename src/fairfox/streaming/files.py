"""A folder of scores from Parquet files of any size, written in parts, on one machine or with an engine."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import timedelta
from functools import partial
from hashlib import sha256
from pathlib import Path
from time import monotonic
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
import torch

from fairfox.data.files import file_sha256, keep_inputs, lock, write_text
from fairfox.errors import DataError, FairfoxError, FileError, OptionError, installed_versions, redacted
from fairfox.fairtests.fitted import FittedTest, Progress
from fairfox.fairtests.storage import from_bytes
from fairfox.options import AuditOptions
from fairfox.pipeline import fit_with
from fairfox.report.files import OUTPUTS, pages_of, write_files
from fairfox.report.text import strict_json
from fairfox.result import AuditResult
from fairfox.streaming.batches import (
    MODEL_OPTIONS,
    PILOT,
    Job,
    PopulationConstants,
    check_table,
    model_options,
    open_test,
    prepare_job,
)
from fairfox.streaming.sources import (
    PART_ROWS,
    RECORD,
    ModelSource,
    RowGroups,
    TableFile,
    find_tables,
    read_pilot,
    split_tables,
)
from fairfox.streaming.summary import TOTALS, add_totals, result_of
from fairfox.streaming.workers import PartRecord, PartResult, PartTask, Tick, run_here, run_pool

Engine = Literal["files", "spark", "dask"]
LEARNT = 50_000  # people of a table that does not fit into memory, from whom maps are learnt
MANIFEST, SCORES = "manifest.json", "scores.parquet"
PAGES = tuple(name for name in OUTPUTS if name != SCORES)  # written when everything is done
_FORMAT = 2  # of manifest.json
_IDENTITY = ("file", "size", "stamp", "row_groups", "first_row", "rows")  # of the people of a part
_HERE = "fitted with this run"  # the name of a test that has no file
_MOST = 3  # failures that a message names one by one
_GPU_SHARE = 4 << 30  # bytes of its memory for each process that uses it
_PART_NAME = r"part-\d{5,}\.parquet"
_ANEW = "choose another folder, or start over with --overwrite"
_LOG = logging.getLogger(__name__)


def audit_files(
    model: ModelSource,
    tables: Sequence[str],
    out: str | Path,
    options: AuditOptions,
    *,
    reference: object | None = None,
    progress: Progress | None = None,
    recorded: Mapping[str, Any] | None = None,
) -> AuditResult:
    """Return the audit of everyone in Parquet tables that do not fit into memory, with the files of `score_files`.

    Maps are learnt from `LEARNT` people drawn at random, or from the reference; of so many, that one is the person
    being scored makes no difference. A folder with scores of other settings is started over.
    """
    names = ("null", "certify", "protected_from", "decision_threshold")
    asked = [
        f"--{f.name.replace('_', '-')}"
        for f in fields(options)
        if f.name in names and f.default != getattr(options, f.name)
    ]
    for option in asked + ["A delta per group"] * bool(options.delta_by_group) + ["--test all"] * options.runs_all:
        raise OptionError(f"{option} needs everyone in memory, but the table is streamed; audit a --sample of it")
    people, failed = split_tables(find_tables(tables), PART_ROWS)
    if failed:
        raise FileError(_failures(failed))
    if progress is not None:
        progress("fitting on a sample", 0.0)
    learnt = read_pilot(people, None, LEARNT, lambda table: None) if reference is None else reference
    fitted = fit_with(learnt, options, model.load())
    read_as = {name: value for name in MODEL_OPTIONS if (value := getattr(options, name)) is not None}
    own = {"delta": options.delta_for_all, "max_flagged": options.max_flagged, "options": read_as}
    return score_files(fitted, model, tables, out, **own, overwrite=None, progress=progress, recorded=recorded)


def score_files(
    test: str | Path | FittedTest,
    model: ModelSource,
    tables: Sequence[str],
    out: str | Path,
    *,
    delta: float | None = None,
    max_flagged: float | Mapping[str, float] | None = None,
    options: Mapping[str, Any] | None = None,
    workers: int | None = None,
    engine: Engine = "files",
    part_rows: int = PART_ROWS,
    overwrite: bool | None = False,
    device: str = "cpu",
    progress: Progress | None = None,
    recorded: Mapping[str, Any] | None = None,
) -> AuditResult:
    """Return the audit of everyone in some Parquet tables, whose scores are written to the folder `out` in parts.

    An interrupted run is resumed: existing parts are kept. Memory does not grow with the tables.

    Args:
        test: a fitted test, or the path of a file that `fairfox fit` wrote.
        model: where workers get the model from.
        tables: Parquet files, folders, patterns or URLs.
        out: the folder; `scores.parquet/` with the parts, `manifest.json` and, at the end, the files of an audit.
        delta: people with a score above it are flagged; by default the test's own.
        max_flagged: the largest share of people that may be over delta; also by group.
        options: how the model is read: positive, output, returns and kind, as for `fairfox.audit`.
        workers: processes; by default one per core.
        engine: processes on this machine, Spark or Dask.
        part_rows: people per part, at least; a part has whole row groups.
        overwrite: start over where the folder holds other scores; None: only where they have other settings.
        device: "cuda" scores on a GPU that the worker processes share.
        progress: called while people are scored.
        recorded: settings to record beside those of the audit.
    """
    _check_device(device, engine)
    folder, started = Path(out), monotonic()
    fitted, content = open_test(test)
    files = find_tables(tables)
    written = None if isinstance(test, FittedTest) else Path(test)
    keep_inputs(files_in(folder), written, model.spec, *(file.path for file in files))
    people, failed = _split(files, part_rows)
    read_as, there = model_options(fitted, options or {}), {} if device == "cpu" else {"device": device}
    stored = {"name": _HERE if written is None else written.name, "sha256": sha256(content).hexdigest()}
    settings = _settings(stored, model, read_as, {"delta": delta, "part_rows": part_rows, **there})
    before = None if overwrite else _resumable(folder, settings, anew=overwrite is None)
    pilot = read_pilot(people, fitted.encoding.needed, PILOT, partial(check_table, fitted))
    limits: dict[str, Any] = {"delta": delta, "max_flagged": max_flagged}
    constants = None if before is None else PopulationConstants.from_json(before.constants)
    job = prepare_job((fitted, content), model, pilot, **limits, constants=constants, options=read_as, device=device)
    manifest = (before or Manifest(settings, asdict(job.constants))).planned(people, folder, failed)
    with only_run_in(folder):
        if overwrite is False and read_manifest(folder) != before:
            raise OptionError(f"Another run has just written to '{folder}'; run the same command again")
        tasks, records = _open_folder(folder, manifest, people, anew=before is None)
        tick = _meter(sum(p.rows for p in people), sum(task.people.rows for task in tasks), progress)
        results = _run(job, tasks, engine, worker_count(workers, device), tick)
        manifest = _finish(folder, manifest, results, records, failed)
        source = {"model_source": model.identity["name"], "model_sha256": model.identity.get("sha256")}
        about = {"fitted": stored, "table": ", ".join(map(redacted, tables)), **source, **there, **(recorded or {})}
        spent = [records[entry["name"]].seconds for entry in manifest.parts]
        of_workers = {what: sum(round(each[what], 3) for each in spent) for what in spent[0]}
        seconds = {"seconds_of_workers": of_workers, "seconds_of_scoring": round(monotonic() - started, 3)}
        own = {"parts": len(spent), **seconds, **about}
        chosen = fitted.options.scoring(read_as, delta=job.constants.delta, max_flagged=max_flagged)
        totals = add_totals(pa.table(records[entry["name"]].totals, schema=TOTALS) for entry in manifest.parts)
        try:
            result = result_of(totals, from_bytes(job.test), model.load(), pilot, chosen, own)
            write_files(folder, pages_of(result, table=pilot))
        except FairfoxError as error:  # the report asks the model about rows that no score needs
            scored = "Everyone is scored; fix that and run the same command again for the report"
            raise type(error)(f"{str(error).rstrip('.')}. {scored}") from error
        with _writing_to(folder):
            manifest.write(folder)
    return AuditResult(result)


def _split(files: Sequence[TableFile], part_rows: int) -> tuple[list[RowGroups], dict[str, str]]:
    """Return the people of each part, and why files cannot be read; raise where nobody is left."""
    people, failed = split_tables(files, part_rows)
    if failed and not people:
        raise FileError(_failures(failed))
    if not people:
        raise DataError("The tables have column names but no rows; give one row per individual, not fairfox's scores")
    return people, failed


def _settings(
    test: Mapping[str, str], model: ModelSource, read_as: Mapping[str, Any], chosen: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what decides scores: parts with other settings are not resumed."""
    return {
        "test": test,
        "model": model.identity,
        **{name: None if value is None else str(value) for name, value in read_as.items()},
        **chosen,
        "version of fairfox": installed_versions("fairfox")["fairfox"],
    }


def _check_device(device: str, engine: Engine) -> None:
    """Refuse a device that is not there, or that an engine's workers may not have."""
    try:
        if not re.fullmatch(r"(cpu|cuda)(:\d+)?", device):
            raise RuntimeError("no device that computes")
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise OptionError(f"There is no device '{device}' here; leave --device out to score on the CPU") from error
    if device != "cpu" and engine != "files":
        raise OptionError(f"--device {device} works only with processes of this machine; leave --engine out")


def worker_count(workers: int | None, device: str) -> int:
    """Return the number of worker processes: as given, else one per core, as far as GPU memory allows."""
    most = os.cpu_count() or 1
    if workers is None and device.startswith("cuda"):
        most = min(most, max(1, torch.cuda.mem_get_info(torch.device(device))[0] // _GPU_SHARE))
    return workers or most


def _run(
    job: Job, tasks: Sequence[PartTask], engine: Engine, workers: int, tick: Tick
) -> Generator[PartResult, None, None]:
    """Yield the results of tasks as they come."""
    if not tasks:
        return
    if engine == "spark":
        from fairfox.streaming.spark import run_spark

        yield from run_spark(job, tasks, workers, tick)
    elif engine == "dask":
        from fairfox.streaming.dask import run_dask

        yield from run_dask(job, tasks, workers, tick)
    elif workers == 1:
        yield from run_here(job, tasks, tick)
    else:
        yield from run_pool(job, tasks, min(workers, len(tasks)), tick)


def _meter(people: int, left: int, progress: Progress | None) -> Tick:
    """Return what counts people who are scored, and reports how many they are, how fast, and the time left."""
    scored, start = 0, monotonic()

    def tick(rows: int) -> None:
        nonlocal scored
        scored += rows
        if progress is None:
            return
        rate = scored / max(monotonic() - start, 1e-9)
        done = min(people - left + scored, people)  # what a lost worker did is done again
        rest = f", {timedelta(seconds=round((people - done) / rate))} left" if rate else ""
        progress(f"{done:,} of {people:,} people, {rate:,.0f} a second{rest}", done / people)

    return tick


# --- the folder ----------------------------------------------------------------------------------------------------


def _resumable(folder: Path, settings: Mapping[str, Any], *, anew: bool) -> Manifest | None:
    """Return the manifest of a run to resume; None for a new one. Refuses a folder that holds something else.

    With `anew` scores of other settings make room for new ones.
    """
    manifest = read_manifest(folder)
    if manifest is None:
        if (folder / SCORES).exists():
            raise OptionError(f"'{folder / SCORES}' already exists and is not from a run that can be resumed; {_ANEW}")
        return None
    before = manifest.settings
    changed = [name for name in {**before, **settings} if before.get(name) != settings.get(name)]
    if changed and anew:
        return None
    if changed:
        was, now = (_shown(each.get(changed[0])) for each in (before, settings))
        more = f" (and {len(changed) - 1} more)" if len(changed) > 1 else ""
        raise OptionError(f"'{folder}' holds scores with another {changed[0]}{more}: {was} there, {now} now; {_ANEW}")
    return manifest


def _open_folder(
    folder: Path, manifest: Manifest, people: Sequence[RowGroups], *, anew: bool
) -> tuple[list[PartTask], dict[str, PartRecord]]:
    """Return what is left to do, and the records of what is done; the folder is ready for more afterwards.

    A run that begins anew removes the scores of another; one that is resumed has no summary until it is complete.
    """
    scores, run = folder / SCORES, manifest.key
    of_entry = {(groups.file.name, groups.groups): groups for groups in people}
    there = set() if anew else {path.name for path in scores.glob("part-*")}
    records = {e["name"]: read_record(scores / e["name"], e, run) for e in manifest.parts if e["name"] in there}
    tasks = [
        PartTask(of_entry[entry["file"], tuple(entry["row_groups"])], str(scores / entry["name"]), run)
        for entry in manifest.parts
        if entry["name"] not in records
    ]
    with _writing_to(folder):
        _remove(*scores.glob(".part-*.tmp"))
        if anew:
            _remove_scores(folder)
        if tasks:
            _remove(*(folder / name for name in PAGES))
        scores.mkdir(parents=True, exist_ok=True)
        manifest.write(folder)
    return tasks, records


def files_in(folder: Path) -> tuple[Path, ...]:
    """Return what a complete run has written to its folder."""
    return tuple(folder / name for name in (SCORES, MANIFEST, *PAGES))


def _remove(*paths: Path) -> None:
    """Remove what a complete run has written about everyone, or the temporary files of workers that were killed."""
    for path in paths:
        path.unlink(missing_ok=True)


def _remove_scores(folder: Path) -> None:
    """Remove the parts that a manifest names, and nothing else: where something else is there, nothing is removed."""
    scores, named = folder / SCORES, set[Path]()
    with suppress(FileError):  # of another version, or damaged
        named = {scores / entry["name"] for entry in getattr(read_manifest(folder), "parts", ())}
    there = sorted(scores.iterdir()) if scores.is_dir() else [scores] if scores.exists() else []
    for path in there:
        if path not in named:
            raise OptionError(f"'{path}' is not in '{folder / MANIFEST}'; move it away, or choose another folder")
    _remove(*there)


def _finish(
    folder: Path,
    manifest: Manifest,
    results: Generator[PartResult, None, None],
    records: dict[str, PartRecord],
    failed: dict[str, str],
) -> Manifest:
    """Return the manifest of a run with all its parts, once all results are there; say why where some are missing."""
    try:
        with closing(results):
            for result in results:
                if result.fatal:
                    raise FileError(f"{result.error}; fix that and run the same command again to resume")
                if result.record is None:
                    failed.setdefault(result.task.people.file.name, result.error)
                else:
                    records[Path(result.task.path).name] = result.record
    finally:
        _remove(*(folder / SCORES).glob(".part-*.tmp"))
    hashes = {name: record.sha256 for name, record in records.items()}
    parts = tuple({**entry, "sha256": hashes.get(entry["name"], entry["sha256"])} for entry in manifest.parts)
    complete = not failed and len(records) == len(parts)
    manifest = replace(manifest, parts=parts, failed=dict(failed), complete=complete)
    if complete:
        return manifest
    with _writing_to(folder):
        _remove(*(folder / name for name in PAGES))
        manifest.write(folder)
    raise FileError(
        f"{_failures(failed)}. {len(records)} of {len(parts)} parts are done; run the same command again for the rest"
    )


def _failures(failed: Mapping[str, str]) -> str:
    reasons = [why.rstrip(".") for why in failed.values()]
    more = f"; and {len(reasons) - _MOST} more files" if len(reasons) > _MOST else ""
    return "; ".join(reasons[:_MOST]) + more


@contextmanager
def _writing_to(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise FileError(f"The results cannot be written to '{folder}' ({reason}); choose another folder") from error


@contextmanager
def only_run_in(folder: Path) -> Iterator[None]:
    """Lock a folder, created if missing, against other runs until the block or the process ends."""
    with _writing_to(folder):
        folder.mkdir(parents=True, exist_ok=True)
    if os.name != "posix":
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    locked = lock(handle)
    if locked is None:
        _LOG.warning("'%s' cannot be locked: make sure that no other run writes to it", folder)
    try:
        if locked is False:
            raise OptionError(f"Another run is writing to '{folder}'; wait for it, or choose another folder")
        yield
    finally:
        os.close(handle)


# --- the manifest --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Manifest:
    """manifest.json: the fixed settings of a folder, the population constants, and the parts in order."""

    settings: Mapping[str, Any]
    constants: Mapping[str, Any]
    parts: tuple[Mapping[str, Any], ...] = ()  # of parts to come without their hashes
    failed: Mapping[str, str] = field(default_factory=dict)  # what is wrong, by file
    complete: bool = False

    @property
    def key(self) -> str:
        """A hash of the settings, which every part also has."""
        return sha256(strict_json({"settings": self.settings, "constants": self.constants}).encode()).hexdigest()

    def write(self, folder: Path) -> None:
        """Write manifest.json atomically."""
        rows = sum(entry["rows"] for entry in self.parts if entry["sha256"])
        fields = {"format": _FORMAT, "kind": "score", "complete": self.complete, "rows": rows, **vars(self)}
        write_text(strict_json(fields), folder / MANIFEST)

    def planned(self, people: Sequence[RowGroups], folder: Path, failed: Mapping[str, str]) -> Manifest:
        """Return the manifest with parts for all people: existing ones keep their names, new ones follow.

        A file that has changed, is no longer among the tables or `failed` to open is refused.
        """
        wanted = {(groups.file.name, groups.groups): groups.identity for groups in people}
        kept = []
        for entry in self.parts:
            now = wanted.pop((entry["file"], tuple(entry["row_groups"])), None)
            if now is None and entry["file"] in failed:
                raise FileError(f"'{folder}' has scores of a file now damaged: {failed[entry['file']]}; {_ANEW}")
            if now != {name: entry[name] for name in _IDENTITY}:
                why = "is no longer among the tables, or has other row groups" if now is None else "has changed since"
                raise FileError(f"'{folder}' holds scores of '{entry['file']}', which {why}; {_ANEW}")
            kept.append(entry)
        new = [
            {"name": f"part-{number:05d}.parquet", **identity, "sha256": ""}
            for number, identity in enumerate(wanted.values(), start=len(kept))
        ]
        if sum(entry["rows"] for entry in (*kept, *new)) != sum(groups.rows for groups in people):
            raise FileError("Some row groups of the tables share a name, so one would be lost; score them separately")
        return replace(self, parts=(*kept, *new), failed={}, complete=False)


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        digest = str(value.get("sha256", ""))[:8]
        return f"'{value.get('name', '')}'" + (f" (hash {digest})" if digest else "")
    return "none" if value is None else f"'{value}'"


def read_manifest(folder: Path) -> Manifest | None:
    """Return the manifest of a folder; None where there is none."""
    path = folder / MANIFEST
    if not path.exists():
        return None
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        if fields["format"] != _FORMAT:
            raise FileError(f"'{path}' was written by another version of fairfox; {_ANEW}")
        own = {name: fields[name] for name in ("settings", "constants", "failed", "complete")}
        parts = tuple({name: entry[name] for name in ("name", *_IDENTITY, "sha256")} for entry in fields["parts"])
        if not all(re.fullmatch(_PART_NAME, part["name"]) for part in parts):
            raise ValueError("a part has an invalid name")
        return Manifest(**own, parts=parts)
    except FileError:
        raise
    except OSError as error:
        raise FileError(f"'{path}' cannot be read ({error.strerror or error}); {_ANEW}") from error
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise FileError(f"'{path}' is damaged ({type(error).__name__}); {_ANEW}") from error


def read_record(path: Path, entry: Mapping[str, Any], run: str) -> PartRecord:
    """Return the record of a part file, with the hash of its content; refuse that of another entry or run."""
    try:
        with pa.OSFile(str(path)) as file:
            fields = json.loads(pq.ParquetFile(file).metadata.metadata[RECORD])
        record = PartRecord(**fields, sha256=file_sha256(path) or "")
    except (OSError, pa.ArrowException, KeyError, TypeError, ValueError) as error:
        raise FileError(f"'{path}' is not a part that fairfox score wrote ({type(error).__name__}); {_ANEW}") from error
    if record.people != {name: entry[name] for name in _IDENTITY}:
        raise FileError(f"'{path}' holds scores of other people than {MANIFEST} says; {_ANEW}")
    if record.run != run:
        raise FileError(f"'{path}' holds scores of a run with other settings than {MANIFEST} says; {_ANEW}")
    if entry["sha256"] not in ("", record.sha256):
        raise FileError(
            f"'{path}' has changed since it was written: its hash is not the one in {MANIFEST}; delete it, and the "
            "same command scores its people again"
        )
    return record
