"""`fairfox audit MODEL TABLE --protected COL`: parse, call `fairfox.audit`, write the files, print."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from fairfox.cli import options as cli
from fairfox.cli.config import CONFIG, config_option
from fairfox.cli.progress import progress_bar, say
from fairfox.errors import OptionError, redacted
from fairfox.options import DATA, ESTIMATION, MODEL, RULE, AuditOptions

if TYPE_CHECKING:
    from fairfox.findings import AuditRecord

_CANNOT_TELL = 3  # the exit code
_UNSURE = "Exit with 0 (pass) or 1 (fail) instead of 3 if the verdict is cannot tell."
_GRAPH = "TOML file with the causes of each column, for --test counterfactual."
_REPAIR = "Audit MODEL together with the repair that `fairfox repair` wrote for it."
_ALTERNATIVES = "Show the alternatives.json that `fairfox alternatives` wrote in the sign-off."


@click.command(cls=cli.Grouped)
@click.argument("model")
@click.argument("table", type=click.Path(path_type=Path))
@cli.audit_options(*cli.DECLARED)
@cli.once("--sample", click.IntRange(min=1), "N", "Audit N random people of TABLE.", section=DATA)
@cli.trust_option
@config_option
@cli.once("--cannot-tell", click.Choice(("pass", "fail")), None, _UNSURE, section=RULE)
@cli.once("--graph", cli.FILE, "FILE", _GRAPH, section=ESTIMATION, common=False)
@cli.once("--repair", cli.FILE, "FILE", _REPAIR, section=MODEL, common=False)
@cli.once("--alternatives", cli.FILE, "FILE", _ALTERNATIVES, common=False)
@cli.reference_option
@cli.endpoint_options
@cli.switch("--include-rows", "Also write the raw rows of flagged people.")
@cli.once("--out", cli.FOLDER, "DIR", f"Folder for {cli.AUDIT_FILES}.", default="fairfox-audit", show_default=True)
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
    from fairfox.models.http import Endpoint
    from fairfox.pipeline import run_audit
    from fairfox.report.files import OUTPUTS, read_alternatives, write_outputs
    from fairfox.streaming.files import audit_files, files_in
    from fairfox.streaming.sources import ModelSource, must_stream

    endpoint = cli.take_endpoint_options(values)
    chosen = AuditOptions(**_with_graph(cli.given_options(values), graph))
    config = click.get_current_context().meta.get(CONFIG)
    read = (table, model, repair, alternatives, reference, graph, chosen.protected_from, config)
    keep_inputs([out / name for name in OUTPUTS], *read)
    streamed = sample is None and must_stream(str(table))
    for option, given in (("--repair", repair), ("--include-rows", include_rows), ("--alternatives", alternatives)):
        if streamed and given:
            raise OptionError(f"{option} needs everyone in memory, but the table is streamed; audit a --sample of it")
    asked = {**chosen.recorded(), "model_sha256": file_sha256(model)}
    tried = None if alternatives is None else read_alternatives(alternatives, asked)
    target = _target(model, repair, chosen, trust=trust_model, endpoint=endpoint)
    recorded = _recorded(target)
    if streamed:
        source = ModelSource(model, trust_model, endpoint)
        with progress_bar() as progress:
            result = audit_files(
                source, [str(table)], out, chosen, reference=reference, recorded=recorded, progress=progress
            ).record
        paths = files_in(out)
    else:
        people, rows = sampled(table, sample, seed=chosen.seed, ids=() if chosen.on else (chosen.id,))
        with progress_bar() as progress:
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


def _target(model: str, repair: Path | None, options: AuditOptions, *, trust: bool, endpoint: dict[str, Any]) -> Any:
    """Return the model, repaired where there is a repair."""
    from fairfox.data.files import file_sha256
    from fairfox.models.http import Endpoint

    target = cli.find_model(model, trust=trust, endpoint=endpoint)
    if isinstance(target, Endpoint) and options.certify:  # before the first call
        raise OptionError(
            "A model behind a URL only returns predictions, and certificates need the model itself; omit --certify, or "
            "give the model's file"
        )
    if repair is None:
        return target
    from fairfox.remedies.repair import load_repair

    return load_repair(repair, target, model_sha256=file_sha256(model))


def _recorded(target: object) -> dict[str, Any]:
    """Return what the settings of a result say about the command and its files."""
    from fairfox.data.files import file_sha256
    from fairfox.models.http import Endpoint
    from fairfox.models.loading import needs_trust

    context = click.get_current_context()
    given, config = context.params, context.meta.get(CONFIG)
    recorded = {
        "model_source": " with the repair ".join(str(given[n]) for n in ("model", "repair") if given[n] is not None),
        "table": redacted(str(given["table"])),
        "model_sha256": file_sha256(given["model"]),
        "repair_sha256": None if given["repair"] is None else file_sha256(given["repair"]),
        "config_sha256": None if config is None else file_sha256(config),
        "command": cli.typed_command(),
        "sample": given["sample"],
        "cannot_tell": given["cannot_tell"],
        "protected_from": None if given["protected_from"] is None else str(given["protected_from"]),
        "trusted": given["trust_model"] and not isinstance(target, Endpoint) and needs_trust(given["model"]),
    }
    if isinstance(target, Endpoint):  # its URL without what may be secret
        recorded |= {"model_source": target.shown, "batch_rows": target.batch_rows}
    return recorded


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


def sampled(table: Path, size: int | None, *, seed: int, ids: Sequence[str | None] = ()) -> tuple[Any, Any]:
    """Return `size` random rows of a table in their own order, and their row numbers; all rows and None without it."""
    import numpy as np

    from fairfox.data.table import load_table
    from fairfox.streaming.sources import must_stream, read_sample

    if size is not None and must_stream(str(table)):
        people, rows = read_sample(str(table), size, seed=seed)
        return load_table(people), rows
    frame = load_table(table, ids=ids)
    if size is None or size >= len(frame):
        return frame, None
    rows = np.sort(np.random.default_rng(seed).choice(len(frame), size, replace=False))
    return frame[rows.tolist()], rows


def _with_graph(options: dict[str, Any], graph: Path | None) -> dict[str, Any]:
    """Return the options with the file of the causal graph among the settings of the test."""
    settings = options.get("settings", {})
    if "graph" in settings:
        raise OptionError("The causal graph is a file; give it with --graph FILE, not with --settings")
    return options if graph is None else {**options, "settings": {**settings, "graph": graph}}
