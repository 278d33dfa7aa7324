"""`fairfox audit MODEL TABLE --protected COL`: parse, call `fairfox.audit`, write the files, print."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from fairfox.cli.config import config_option
from fairfox.cli.endpoints import check_calls, count_calls, endpoint_options, find_model, take_endpoint_options
from fairfox.cli.options import ByGroup, Finite, FiniteRange, Once, by_group, settings, typed_command
from fairfox.cli.progress import progress_bar
from fairfox.errors import DataError, OptionError

if TYPE_CHECKING:  # the library is imported in the functions: `fairfox audit --help` must not wait for torch
    import numpy as np

    from fairfox.result import AuditResult

SEEDS = click.IntRange(0, 2**32 - 1)  # what NumPy's and scikit-learn's generators take


@click.command(short_help="Find the people a model treats differently because of a protected column.")
@click.argument("model")
@click.argument("table", type=click.Path(path_type=Path))
@click.option(
    "-c",
    "--protected",
    multiple=True,
    required=True,
    metavar="COL",
    help="Protected column (groups, classes or a number), or a cut such as 'age<25'; repeat.",
)
@click.option("--intersections", is_flag=True, help="Also compare crossings of the protected classes: Female & Black.")
@click.option("--hold-others", is_flag=True, help="Compare with people who are alike in the other protected variables.")
@click.option(
    "--legitimate",
    multiple=True,
    metavar="COL,COL,...",
    help="Columns that may rightly tell the groups apart: they stay, and what they explain of the others too; repeat.",
)
@click.option(
    "--reference-group",
    multiple=True,
    metavar="GROUP",
    help="Compare all others with this group only: White, or race=White; repeat for other variables.",
)
@click.option(
    "--contrasts",
    cls=Once,
    type=click.Choice(["largest", "all"]),
    default="largest",
    show_default=True,
    help="Of more than two classes: compare everyone with the largest, or with all others.",
)
@click.option(
    "--merge-rare",
    cls=Once,
    type=FiniteRange(0, 0.5, min_open=True, max_open=True),
    metavar="SHARE",
    help="Put together classes with a smaller share of the people.",
)
@click.option(
    "--protected-from",
    cls=Once,
    type=click.Path(path_type=Path),
    metavar="TABLE",
    help="Read the protected columns from this table; needs --on.",
)
@click.option("--on", cls=Once, metavar="COL", help="Column that names people in both tables.")
@click.option("--weights", cls=Once, metavar="COL", help="Column that says how many people a row stands for.")
@click.option("--label", cls=Once, metavar="COL", help="Column with the true outcome; it is not an input of the model.")
@click.option(
    "--test",
    cls=Once,
    default="rank",
    show_default=True,
    metavar="T",
    help="Fairness test, such as rank, move, faux, fliptest, transport; all: rank and every other that applies.",
)
@click.option(
    "--set",
    "settings_of_test",
    multiple=True,
    callback=settings,
    metavar="NAME=VALUE",
    help="A setting of the test, such as epsilon=0.5 for fta; with --test all fliptest.steps=5000; repeat.",
)
@click.option(
    "--graph",
    cls=Once,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="TOML file with the causes of each column, for --test counterfactual.",
)
@click.option(
    "--delta",
    "deltas",
    multiple=True,
    type=ByGroup(min=0),
    callback=by_group,
    metavar="[GROUP=]D",
    help="Flag people whose score is above D; repeat for single groups.  [default: the test's own]",
)
@click.option(
    "--max-flagged",
    "limits",
    multiple=True,
    type=ByGroup(0, 1),
    callback=by_group,
    metavar="[GROUP=]SHARE",
    help="Exit with 1 when a larger share of people, or of a group, is flagged, 0.1 for a tenth; repeat.",
)
@click.option(
    "--reference",
    cls=Once,
    type=click.Path(path_type=Path),
    metavar="TABLE",
    help="Fit on the people of this table, which has the protected columns; without it TABLE is cross-fitted.",
)
@click.option("--categorical", multiple=True, metavar="COL", help="Take this column as categories; repeat.")
@click.option("--continuous", multiple=True, metavar="COL", help="Take this column as numbers; repeat.")
@click.option("--drop", multiple=True, metavar="COL", help="Leave this column out; repeat.")
@click.option(
    "--columns",
    cls=Once,
    metavar="COL,COL,...",
    help="Columns the model takes, in its order.  [default: its own feature names, else all but the other roles]",
)
@click.option("--id", cls=Once, metavar="COL", help="Column that names people.  [default: row numbers from 0]")
@click.option("--positive", cls=Once, metavar="CLASS", help="Class whose prediction is audited.")
@click.option(
    "--output",
    cls=Once,
    type=click.Choice(["probability", "logit"]),
    default="probability",
    show_default=True,
    help="What is audited.",
)
@click.option(
    "--returns",
    cls=Once,
    type=click.Choice(["probability", "logit", "value"]),
    help="What the model returns.  [default: found out]",
)
@click.option(
    "--kind",
    cls=Once,
    type=click.Choice(["table", "matrix", "encoded"]),
    help="How the model takes people.  [default: found out]",
)
@click.option(
    "--refits",
    cls=Once,
    type=click.IntRange(min=1),
    default=5,
    show_default=True,
    metavar="N",
    help="How often the fit is repeated, for the intervals.",
)
@click.option("--sample", cls=Once, type=click.IntRange(min=1), metavar="N", help="Audit N random people of TABLE.")
@click.option("--seed", cls=Once, type=SEEDS, default=0, show_default=True, metavar="N", help="Seed of all randomness.")
@click.option("--trust-model", is_flag=True, help="Load model files that can run code, such as pickles.")
@endpoint_options
@click.option(
    "--certify",
    is_flag=True,
    help="Also prove how far the prediction changes at any point on the way; for ReLU networks and tree ensembles.",
)
@click.option(
    "--abstain",
    cls=Once,
    type=FiniteRange(0, 1, max_open=True),
    metavar="SHARE",
    help="Leave out the share of people whom the re-fits disagree about most; 0 only says how much they do.",
)
@click.option(
    "--fdr",
    cls=Once,
    type=FiniteRange(0, 1, min_open=True, max_open=True),
    default=0.1,
    show_default=True,
    metavar="SHARE",
    help="Of the people listed as over delta, the share that may be there wrongly.",
)
@click.option(
    "--decision-threshold",
    cls=Once,
    type=Finite(),
    metavar="P",
    help="Flag people whose decision would turn: yes from a prediction of P on, whatever the size of the effect.",
)
@click.option(
    "--null",
    cls=Once,
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Do it all again N times with shuffled protected values: what chance alone gives.",
)
@click.option(
    "--delta-from-null", is_flag=True, help="Take as delta what 95 % of people stay below with shuffled values."
)
@click.option(
    "--next-steps/--no-next-steps",
    default=None,
    help="Find out which feature to drop or to repair.  [default: for torch networks and scikit-learn models]",
)
@click.option("--include-rows", is_flag=True, help="Also write the raw rows of flagged people.")
@click.option(
    "--out",
    cls=Once,
    type=click.Path(path_type=Path, file_okay=False),
    default="fairfox-audit",
    show_default=True,
    metavar="DIR",
    help="Folder for report.html, report.json, summary.json, summary.md, junit.xml and scores.parquet.",
)
@config_option
def audit(
    model: str,
    table: Path,
    *,
    protected: tuple[str, ...],
    deltas: dict[str, float],
    settings_of_test: dict[str, Any],
    out: Path,
    sample: int | None,
    include_rows: bool,
    trust_model: bool,
    **options: Any,  # those of `fairfox.audit`, under the same names
) -> None:
    """Score every person in TABLE for unfair treatment by MODEL.

    MODEL is a model file, your own code as module:function or file.py:function, or the URL of a model server:
    MLflow's https://host/invocations, or the Open Inference Protocol's https://host/v2/models/NAME/infer. TABLE is a
    CSV, Parquet or Arrow file with one row per person.

    Exit codes: 0 within --max-flagged or without it, 1 over it, 2 after bad input or an error.
    """
    from fairfox.cli.tables import print_result
    from fairfox.data.hashes import file_sha256
    from fairfox.data.table import load_table
    from fairfox.models.http_model import Endpoint
    from fairfox.models.loading import needs_trust
    from fairfox.report.outputs import write_outputs

    errors = Console(stderr=True, soft_wrap=True, markup=False, highlight=False)
    people, rows = sampled(load_table(table), sample, seed=options["seed"])
    target = find_model(model, trust=trust_model, endpoint=take_endpoint_options(options))
    graph = options.pop("graph")
    if "graph" in settings_of_test:
        raise OptionError("The graph of causes is a file; give it with --graph FILE, not with --set")
    options["options"] = {**settings_of_test, **({} if graph is None else {"graph": graph})} or None
    options["protected"] = list(protected)
    named = csv.reader(options["legitimate"], skipinitialspace=True)
    options["legitimate"] = [name for names in named for name in names or [""]]
    options["delta"], options["deltas"] = deltas.pop("", None), deltas
    options["columns"] = None if options["columns"] is None else next(csv.reader([options["columns"]]))
    if isinstance(target, Endpoint):
        if options["certify"]:  # before the first call
            raise OptionError(
                "A model behind a URL can only be asked for predictions, and certificates along the way read the model "
                "itself; leave --certify out, or give the model's file"
            )
        with progress_bar(errors) as progress:
            needed = count_calls(target, people.to_native(), options, progress=progress)
        check_calls(target, needed)
        errors.print(f"About {needed} calls of up to {target.batch_rows} rows to {target.shown}.")
    result = _audited(target, people.to_native(), errors, options)
    if result.ids is None and rows is not None:
        result = replace(result, ids=rows)  # the row numbers of TABLE, not of the sample
    told: dict[str, Any] = {"model_source": model, "table": str(table), "id": options["id"], "sample": sample}
    told["table_sha256"], told["model_sha256"] = file_sha256(table), file_sha256(model)
    told["protected_from"] = None if options["protected_from"] is None else str(options["protected_from"])
    told["trusted"] = trust_model and not isinstance(target, Endpoint) and needs_trust(model)
    if isinstance(target, Endpoint):  # its URL without what may be secret
        told |= {"model_source": target.shown, "calls": target.calls, "batch_rows": target.batch_rows}
    told["command"] = typed_command(**{model: told["model_source"]})
    result = replace(result, settings={**result.settings, **told})
    limits = result.settings["max_flagged"] or {}
    for name in limits:
        if not result.can_check(name):
            who = f"Nobody of {name}" if name else "Nobody"
            raise DataError(f"{who} could be judged, so --max-flagged cannot be checked; see the reasons without it")
    paths = write_outputs(result, out, table=people, include_rows=include_rows)
    print_result(result, Console(highlight=False))
    for warning in result.warnings:
        errors.print(f"Warning: {warning}")
    errors.print("Written: " + ", ".join(str(path) for path in paths))
    over = result.over_limits(limits)
    for sentence in over:
        errors.print(f"Over the limit: {sentence}")
    if over:
        click.get_current_context().exit(1)


def sampled(table: Any, size: int | None, *, seed: int) -> tuple[Any, np.ndarray | None]:
    """Return `size` random rows of a frame in their own order, and their row numbers; all rows and None without it."""
    import numpy as np

    if size is None or size >= len(table):
        return table, None
    rows = np.sort(np.random.default_rng(seed).choice(len(table), size, replace=False))
    return table[rows.tolist()], rows


def _audited(target: object, people: object, errors: Console, options: dict[str, Any]) -> AuditResult:
    from fairfox.auditing import audit as run

    with progress_bar(errors) as progress:
        return run(target, people, **options, progress=progress)
