"""An audit in an MLflow run: its numbers as metrics, its options as parameters, its report and scores as artifacts."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from tempfile import TemporaryDirectory
from time import time
from typing import Any

from fairfox.errors import OptionError, require
from fairfox.findings import AuditRecord
from fairfox.report.files import write_outputs

_NOT_IN_A_KEY = re.compile(r"[^\w.\- ]", re.ASCII)  # what MLflow refuses in a part of a name on some system
_PREFIX = re.compile(r"\w[\w.\- ]*(/\w[\w.\- ]*)*", re.ASCII)
_LONGEST = 250  # characters of a name
_AT_ONCE = 1000  # metrics that MLflow takes in one call


def log_audit(result: Any, *, prefix: str = "fairfox", rows: object = None, run_id: str | None = None) -> str:
    """Log an audit to the active run and return the run's id.

    Metrics are `fairfox/share_flagged`, `fairfox/mean_score.sex`, `fairfox/mean_effect.sex_Female` and others (MLflow
    allows no "=" in a name), parameters `fairfox/test`, `fairfox/delta` and others. The tag `fairfox/verdict` has the
    verdict's word. The folder `fairfox` of the run's artifacts holds report.html and the other files of an audit.

    No run is started: it would stay open, and hold the audit apart from its model.

    Args:
        result: what `fairfox.audit` or `fairfox.score` returned.
        prefix: the first part of all names; a run with several audits needs one for each.
        rows: the audited table; with it the page and the scores also hold the raw rows of flagged people.
        run_id: a run to log to instead of the active one; it may be finished.
    """
    record = result.record
    if not _PREFIX.fullmatch(prefix):
        raise OptionError(f"prefix is '{prefix}'; MLflow takes letters, digits, '_', '-', '.' and '/' between them")
    mlflow = require("mlflow", why="to log an audit")
    client, entities, active = mlflow.MlflowClient(), mlflow.entities, mlflow.active_run()
    if run_id is None and active is None:
        raise OptionError(
            "There is no active MLflow run to log to; open one with `with mlflow.start_run():`, or give its run_id"
        )
    run_id = str(active.info.run_id if run_id is None else run_id)
    params = {"test": record.test, "delta": f"{record.delta:g}", "protected": ", ".join(record.variables)}
    params |= {key: str(record.settings[key]) for key in ("seed", "refits") if key in record.settings}
    word, now = "none" if record.verdict is None else record.verdict.word, int(1000 * time())
    metrics = [
        entities.Metric(f"{prefix}/{key}", value, now, 0)
        for key, value in _metrics(record, _LONGEST - len(prefix) - 1).items()
    ]
    with TemporaryDirectory() as folder:  # all files are there before anything is logged
        write_outputs(record, folder, table=rows, include_rows=rows is not None)
        named = [entities.Param(f"{prefix}/{key}", value) for key, value in params.items()]
        client.log_batch(run_id, params=named, tags=[entities.RunTag(f"{prefix}/verdict", word)])
        for start in range(0, len(metrics), _AT_ONCE):
            client.log_batch(run_id, metrics=metrics[start : start + _AT_ONCE])
        client.log_artifacts(run_id, folder, artifact_path=prefix)
    return run_id


def _metrics(result: AuditRecord, longest: int) -> dict[str, float]:
    """Return the finite numbers of an audit by names that MLflow takes; names that would be the same get a number."""
    out: dict[str, float] = {}
    for what, of, number in _numbers(result):
        if number is None or not math.isfinite(number):
            continue
        key = _NOT_IN_A_KEY.sub("_", f"{what}.{of}" if of else what)[:longest]
        copies = 1
        while key in out:
            copies += 1
            key = f"{key[: longest - 8]}_{copies}"
        out[key] = float(number)
    return out


def _numbers(result: AuditRecord) -> Iterable[tuple[str, str, float | None]]:
    """Yield what is measured, of which variable or group ("": of everyone), and the number."""
    yield "people", "", result.tally.people
    yield "flagged", "", result.tally.flagged
    for name in ("judged", "share_flagged", "share_confident", "share_abstained"):
        yield name, "", getattr(result, name)
    for finding in result.findings:
        tally = finding.tally(result.weights)
        for name in ("mean_score", "share_flagged", "share_confident"):
            yield name, finding.name, getattr(tally, name)
        yield "alignment_share", finding.name, finding.alignment_share
        yield "auxiliary", finding.name, finding.quality.value
    for group in result.groups:
        yield "mean_effect", group.name, group.mean_effect
        yield "share_flagged", group.name, group.share_flagged
