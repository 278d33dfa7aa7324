"""The folder an audit leaves behind: report.html and report.json, summary.json and .md, scores.parquet, junit.xml."""

from __future__ import annotations

import json
from contextlib import ExitStack
from io import BytesIO
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from fairfox.data.files import written_whole
from fairfox.errors import FileError, OptionError
from fairfox.report.html import render
from fairfox.report.junit import junit_xml
from fairfox.report.markdown import summary_markdown
from fairfox.report.people import raw_rows
from fairfox.report.view import view
from fairfox.result import AuditResult


def write_outputs(
    result: AuditResult, folder: str | Path, *, table: object = None, include_rows: bool = False
) -> tuple[Path, ...]:
    """Write the six files and return their paths: all of them, or none where one cannot be made.

    `table` is the audited table, one row per person in the same order: with it the page also says which features of
    people would be higher or lower. With `include_rows` the page, report.json, from which it can be made again, and
    the Parquet file (columns `row.<name>`) also hold the raw rows of flagged people.
    """
    if include_rows and table is None:
        raise OptionError("include_rows needs the audited table; pass it as table=")
    rows = table if include_rows else None
    shown = view(result, rows, table=table)
    contents = {
        "summary.json": result.to_json().encode(),
        "scores.parquet": _parquet(_scores(result, rows)),
        "report.html": render(shown).encode(),
        "report.json": json.dumps(shown, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode(),
        "junit.xml": junit_xml(result).encode(),
        "summary.md": summary_markdown(result).encode(),
    }
    return write_files(Path(folder), contents)


def _scores(result: AuditResult, rows: object) -> pa.Table:
    scores = result.scores_table()
    if rows is not None:
        raw = raw_rows(result, rows)
        for name in raw.column_names:
            scores = scores.append_column(f"row.{name}", raw[name])
    return scores


def _parquet(table: pa.Table) -> bytes:
    buffer = BytesIO()
    pq.write_table(table, buffer)
    return buffer.getvalue()


def write_files(folder: Path, contents: dict[str, bytes]) -> tuple[Path, ...]:
    """Write files of these names into a folder, all or none, and return their paths."""
    paths = tuple(folder / name for name in contents)
    taken = next((path for path in paths if path.is_dir()), None)
    if taken is not None:  # found out before the first rename, so that no run leaves a mixed folder
        raise FileError(f"'{taken}' is a folder, not a file; move it away or choose another folder")
    existed = folder.exists()
    try:
        with ExitStack() as stack:  # every file is complete under its temporary name before the first is renamed
            temporaries = [stack.enter_context(written_whole(path)) for path in paths]
            for temporary, content in zip(temporaries, contents.values(), strict=True):
                temporary.write_bytes(content)
    except OSError as error:
        if not existed and folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
        reason = error.strerror or str(error)
        raise FileError(f"The results cannot be written to '{folder}' ({reason}); choose another folder") from error
    return paths
