"""Fairness as one line of a test: assert_individually_fair(model, table, protected=...)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairfox.errors import DataError, FileError, OptionError

if TYPE_CHECKING:
    from fairfox.findings import AuditRecord
    from fairfox.result import AuditResult

_log = logging.getLogger("fairfox")


def assert_individually_fair(
    model: object,
    table: object,
    *,
    protected: str | Sequence[str],
    strict: bool = False,
    out: str | Path | None = None,
    **arguments: Any,
) -> AuditResult:
    """Return the audit of a model that passes; raise an AssertionError for one that fails.

    The message says how many people are affected and by how much, with what certainty, through which features, and what
    to do next.

    Args:
        model: what `fairfox.audit` takes.
        table: the people, as `fairfox.audit` takes them.
        protected: the protected column or columns.
        strict: also raise where the verdict is "cannot tell".
        out: a folder for the report of a model that fails.
        arguments: any other argument of `fairfox.audit`.
    """
    __tracebackhide__ = True  # pytest shows the line of the test, not this one
    from fairfox.pipeline import audit  # here, so that tests are collected without torch

    result = audit(model, table, protected=protected, **arguments)
    if lines := _objections(result.record, strict=strict):
        if out is not None:
            lines.append(_report(result.record, Path(out)))
        raise AssertionError("\n".join(lines))
    return result


def _objections(result: AuditRecord, *, strict: bool) -> list[str]:
    """Return why a model is not good enough, a line each, the verdict first; [] where it is.

    Where nobody could be judged it raises: a test must not pass without evidence.
    """
    from fairfox.report.sentences import verdict_lines

    if not result.judged:
        reasons = ", ".join(result.abstained_by_reason)
        raise DataError(f"Nobody could be judged, so there is no verdict: {reasons}")
    if result.verdict is None:
        raise OptionError(
            f"The test '{result.test}' with refits={result.settings['refits']} gives no intervals and so no verdict; "
            "use more refits or the test 'rank'"
        )
    lines, word = verdict_lines(result), result.verdict.word
    if word == "fails" or (strict and word == "cannot tell"):
        return lines
    if word == "cannot tell":
        _log.warning("%s", lines[0])
    return []


def _report(result: AuditRecord, folder: Path) -> str:
    """Return where the files of an audit were written, or why they were not, in one sentence."""
    from fairfox.report.files import write_outputs

    try:
        paths = write_outputs(result, folder)
    except FileError as error:  # must not hide what the audit found
        return str(error)
    return "Written: " + ", ".join(str(path) for path in paths)
