"""`fairfox audit MODEL TABLE --protected COL`: parse, call `fairfox.audit`, write the files, print."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from fairfox.cli.config import CONFIG, config_option
from fairfox.cli.endpoints import endpoint_options, find_model, take_endpoint_options
from fairfox.cli.options import (
    DECLARED,
    Grouped,
    Once,
    Option,
    audit_options,
    given_options,
    reference_option,
    trust_option,
    typed_command,
)
from fairfox.cli.progress import progress_bar, say
from fairfox.errors import OptionError, redacted
from fairfox.options import DATA, ESTIMATION, MODEL, RULE, AuditOptions

if TYPE_CHECKING:
    from fairfox.findings import AuditRecord
    from fairfox.streaming.sources import ModelSource

_CANNOT_TELL = 3  # the exit code


@click.command(cls=Grouped, short_help="Find the people whose prediction depends on a protected column.")
@click.argument("model")
@click.argument("table", type=click.Path(path_type=Path))
@audit_options(*DECLARED)
@click.option(
    "--sample",
    cls=Once,
    type=click.IntRange(min=1),
    metavar="N",
    section=DATA,
    help="Audit N random people of TABLE.",
)
@trust_option
@config_option
@click.option(
    "--cannot-tell",
    cls=Once,
    type=click.Choice(("pass", "fail")),
    section=RULE,
    help="Exit with 0 (pass) or 1 (fail) instead of 3 if the verdict is cannot tell.",
)
@click.option(
    "--graph",
    cls=Once,
    type=click.Path(path_type=Path),
    metavar="FILE",
    section=ESTIMATION,
    common=False,
    help="TOML file with the causes of each column, for --test counterfactual.",
)
@click.option(
    "--repair",
    cls=Once,
    type=click.Path(path_type=Path),
    metavar="FILE",
    section=MODEL,
    common=False,
    help="Audit MODEL together with the repair that `fairfox repair` wrote for it.",
)
@click.option(
    "--alternatives",
    cls=Once,
    type=click.Path(path_type=Path),
    metavar="FILE",
    common=False,
    help="Show the alternatives.json that `fairfox alternatives` wrote in the sign-off.",
)
@reference_option
@endpoint_options
@click.option("--include-rows", cls=Option, is_flag=True, help="Also write the raw rows of flagged people.")
@click.option(
    "--out",
    cls=Once,
    type=click.Path(path_type=Path, file_okay=False),
    default="fairfox-audit",
    show_default=True,
    metavar="DIR",
    help="Folder for report.html, report.json, summary.json, summary.md, junit.xml and scores.parquet.",
)
def audit(
    model: str,
    table: Path,
    *,
    graph: Path | None,
    repair: Path | None,
    alternatives: Path | None,
    reference: Path | None,
    out: Path,
    sample: int | None,
    include_rows: bool,
    trust_model: bool,
    cannot_tell: str | None,
    **values: Any,
) -> None:
    """Find the people in TABLE whose prediction by MODEL depends on a protected column.

    MODEL is a model file, your own code as module:function or file.py:function, or the URL of a model server (MLflow
    or the Open Inference Protocol). TABLE is a CSV, Parquet or Arrow file with one row per person, or a folder of
    Parquet files. A table that does not fit into memory is streamed; the same command resumes an interrupted run.

    Exit codes: 0 the model passes, 1 it fails, 2 bad input or an error, 3 cannot tell.
    """
    from fairfox.data.files import file_sha256, keep_inputs
    from fairfox.data.table import load_table
    from fairfox.models.http import Endpoint
    from fairfox.models.loading import needs_trust
    from fairfox.pipeline import run_audit
    from fairfox.report.files import OUTPUTS, read_alternatives, write_outputs
    from fairfox.streaming.sources import ModelSource, must_stream

    endpoint = take_endpoint_options(values)
    chosen = AuditOptions(**_with_graph(given_options(values), graph))
    config = click.get_current_context().meta.get(CONFIG)
    read = (table, model, repair, alternatives, reference, graph, chosen.protected_from, config)
    keep_inputs([out / name for name in OUTPUTS], *read)
    streamed = sample is None and must_stream(str(table))
    for option, given in (("--repair", repair), ("--include-rows", include_rows), ("--alternatives", alternatives)):
        if streamed and given:
            raise OptionError(f"{option} needs everyone in memory, but the table is streamed; audit a --sample of it")
    asked = {**chosen.recorded(), "model_sha256": file_sha256(model)}
    tried = None if alternatives is None else read_alternatives(alternatives, asked)
    target = find_model(model, trust=trust_model, endpoint=endpoint)
    if isinstance(target, Endpoint) and chosen.certify:  # before the first call
        raise OptionError(
            "A model behind a URL only returns predictions, and certificates need the model itself; omit --certify, or "
            "give the model's file"
        )
    if repair is not None:
        from fairfox.remedies.repair import load_repair

        target = load_repair(repair, target, model_sha256=file_sha256(model))
    recorded: dict[str, Any] = {
        "model_source": model,
        "table": redacted(str(table)),
        "model_sha256": file_sha256(model),
        "repair_sha256": None if repair is None else file_sha256(repair),
        "config_sha256": None if config is None else file_sha256(config),
        "command": typed_command(),
        "sample": sample,
        "cannot_tell": cannot_tell,
        "protected_from": None if chosen.protected_from is None else str(chosen.protected_from),
        "trusted": trust_model and not isinstance(target, Endpoint) and needs_trust(model),
    }
    if isinstance(target, Endpoint):  # its URL without what may be secret
        recorded |= {"model_source": target.shown, "batch_rows": target.batch_rows}
    if streamed:
        source = ModelSource(model, trust_model, endpoint)
        result, paths = _in_a_stream(source, table, chosen, out, reference=reference, recorded=recorded)
    else:
        people, rows = sampled(load_table(table), sample, seed=chosen.seed)
        with progress_bar(Console(stderr=True)) as progress:
            result = run_audit(target, people.to_native(), chosen, reference=reference, progress=progress)
        recorded |= {"calls": target.calls} if isinstance(target, Endpoint) else {}
        ids = rows if result.ids is None and rows is not None else result.ids  # the row numbers of TABLE
        recorded["table_sha256"] = file_sha256(table)
        result = replace(result, ids=ids, alternatives=tried, settings={**result.settings, **recorded})
        paths = write_outputs(result, out, table=people, include_rows=include_rows)
    print_written(result, paths)
    code, rule = exit_code(result, cannot_tell)
    say(rule)
    click.get_current_context().exit(code)


def _in_a_stream(
    model: ModelSource, table: Path, options: AuditOptions, out: Path, **given: Any
) -> tuple[AuditRecord, tuple[Path, ...]]:
    """Return the audit of people who do not fit into memory, and the files it was written to."""
    from fairfox.streaming.files import audit_files, files_in

    with progress_bar(Console(stderr=True)) as progress:
        found = audit_files(model, [str(table)], out, options, progress=progress, **given)
        return found.record, files_in(out)


def print_written(result: AuditRecord, paths: Sequence[Path]) -> None:
    """Print a result, its warnings, and the files it was written to."""
    from fairfox.cli.tables import print_result

    print_result(result, Console(highlight=False))
    say(*(f"Warning: {warning}" for warning in result.warnings), "Written: " + ", ".join(str(path) for path in paths))


def exit_code(result: AuditRecord, cannot_tell: str | None) -> tuple[int, str]:
    """Return the exit code that says the verdict, and the rule in words."""
    word = "cannot tell" if result.verdict is None else result.verdict.word
    code = {"passes": 0, "fails": 1}.get(word, {"pass": 0, "fail": 1}.get(cannot_tell or "", _CANNOT_TELL))
    rule = f"Exit code {code}: 0 passes, 1 fails, 3 cannot tell."
    rule += f" The limit is {100 * result.limit:.3g} % of people over delta (--max-flagged)."
    if word == "cannot tell" and cannot_tell is not None:
        rule += f" The verdict is cannot tell, which counts as {cannot_tell} (--cannot-tell)."
    return code, rule


def sampled(table: Any, size: int | None, *, seed: int) -> tuple[Any, Any]:
    """Return `size` random rows of a frame in their own order, and their row numbers; all rows and None without it."""
    import numpy as np

    if size is None or size >= len(table):
        return table, None
    rows = np.sort(np.random.default_rng(seed).choice(len(table), size, replace=False))
    return table[rows.tolist()], rows


def _with_graph(options: dict[str, Any], graph: Path | None) -> dict[str, Any]:
    """Return the options with the file of the causal graph among the settings of the test."""
    settings = options.get("settings", {})
    if "graph" in settings:
        raise OptionError("The causal graph is a file; give it with --graph FILE, not with --settings")
    return options if graph is None else {**options, "settings": {**settings, "graph": graph}}
