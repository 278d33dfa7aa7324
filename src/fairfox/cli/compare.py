"""What stored audits are for: `fairfox compare A B [TABLE]`, `fairfox plan [RESULT]` and `fairfox report RESULT`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from fairfox.cli import options as cli
from fairfox.cli.audit import sampled
from fairfox.cli.progress import progress_bar, say
from fairfox.errors import FileError, OptionError
from fairfox.options import DATA, RULE, AuditOptions, split_names

_NOT_HERE = ("max_flagged", "certify", "folds", "batch_size", "null", "delta_from_null", "owner", "reason")
_OPTIONS = tuple(name for name in cli.DECLARED if name not in _NOT_HERE)
_AROUND = (0.25, 0.5, 1.0, 2.0)  # times the people that are needed: what these would show
_OF_AUDITS = ("a", "b", "table", "margin", "out")  # parameters that two stored audits take
_MARGIN = "Without TABLE: ignore a rise of the mean |effect| or score up to this size.  [default: a tenth of delta]"
_OUT = (
    "Folder for report.html, report.json, summary.json, summary.md, junit.xml and, for two models, people.parquet.  "
    "[default: fairfox-compare with TABLE, otherwise no files]"
)
_TRUE_SHARE = "With --max-flagged: true share of people over delta to detect.  [default: of RESULT]"
_MAX_FLAGGED = "Plan for this limit on the share of people over delta, not for the mean |effect|."
_SPREAD = "Without RESULT: standard error of the mean times the root of the number of people."
_PAGE = "File for the page; its folder is created if needed.  [default: report.html in the folder RESULT]"
_SHARE, _POWER = cli.FiniteRange(0, 1, share=True), cli.FiniteRange(0, 1, min_open=True, max_open=True)


@click.command(cls=cli.Grouped)
@click.argument("a")
@click.argument("b")
@click.argument("table", required=False, type=cli.FILE)
@cli.audit_options(*_OPTIONS, required=False)
@cli.once("--columns-b", str, "COL,...", "Columns that model B takes, if they differ from those of A.", section=DATA)
@cli.reference_option
@cli.once("--sample", cli.COUNT, "N", "Compare on N random people of TABLE.", section=DATA)
@cli.trust_option
@cli.once("--margin", cli.FiniteRange(0), "M", _MARGIN, section=RULE)
@cli.once("--out", cli.FOLDER, "DIR", _OUT)
def compare(a: str, b: str, table: Path | None, *, margin: float | None, out: Path | None, **values: Any) -> None:
    """Compare two models on the same people, or two audits of one model.

    With TABLE, A and B are models: files, or your own code as module:function or file.py:function. Both are audited
    with the same options, seed and maps.

    Without TABLE, A and B are folders that `fairfox audit` wrote with the same options, an earlier and a later one.
    The question is whether people are treated less equally than before. If most people are in both audits, by --id,
    each is compared with themselves.

    Exit codes: 0 the comparison was made, 1 (two audits) B is worse, 2 bad input or an error.
    """
    from fairfox.comparison import compare as run
    from fairfox.data.files import keep_inputs
    from fairfox.report.files import OUTPUTS
    from fairfox.statistics.paired import WORSE

    out = Path("fairfox-compare") if out is None and table is not None else out
    stored = [Path(folder) / name for folder in (a, b) for name in OUTPUTS]
    read = stored if table is None else (table, a, b, values["reference"], values["protected_from"])
    keep_inputs([] if out is None else [out / name for name in (*OUTPUTS, "people.parquet")], *read)

    if table is None:
        context = click.get_current_context()
        for option in context.command.params:
            name = option.name or ""
            if name not in _OF_AUDITS and context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
                raise OptionError(
                    f"{option.opts[-1]} says how to audit two models, but there is no TABLE; give one, or omit the "
                    "option to compare two folders that `fairfox audit` wrote"
                )
        found = run(Path(a), Path(b), margin=margin)
    else:
        found = _compare_models(a, b, table, margin=margin, **values)
    paths = () if out is None else found.write(out)
    say(*found.summary().splitlines(), err=False)
    for side, result in (("A", found.a), ("B", found.b)):
        say(*(f"Warning about {side}: {warning}" for warning in (() if result is None else result.warnings)))
    if paths:
        say("Written: " + ", ".join(str(path) for path in paths))
    if found.word == WORSE:
        click.get_current_context().exit(1)


def _compare_models(
    a: str,
    b: str,
    table: Path,
    *,
    margin: float | None,
    columns_b: str | None,
    reference: Path | None,
    sample: int | None,
    trust_model: bool,
    **values: Any,
) -> Any:
    from fairfox.comparison import compare as run
    from fairfox.models.http import is_url
    from fairfox.models.loading import load_model
    from fairfox.result import AuditResult

    given = cli.given_options(values)
    if "protected" in given:
        AuditOptions(**given)  # a wrong option is named before any model is loaded
    people, rows = sampled(table, sample, seed=given["seed"], ids=() if given.get("on") else (given.get("id"),))
    if is_url(a) or is_url(b):
        raise OptionError(
            "This command compares model files and your own code; for a model behind a URL, use fairfox.compare in "
            "Python with a fairfox.Endpoint, which has its own limit of calls"
        )
    one, two = (load_model(spec, trust=trust_model) for spec in (a, b))
    own: dict[str, Any] = {"protected": given.pop("protected", None), "reference": reference}
    own["only_b"] = None if columns_b is None else {"columns": split_names(columns_b)}
    with progress_bar() as progress:
        found = run(one, two, people.to_native(), **own, options=given, names=(a, b), margin=margin, progress=progress)
    if found.a is None or found.b is None or found.a.record.ids is not None or rows is None:
        return found
    first, second = (AuditResult(replace(each.record, ids=rows)) for each in (found.a, found.b))
    return replace(found, a=first, b=second)  # with the row numbers of TABLE


@click.command()
@click.argument("result", required=False, type=cli.FILE)
@cli.once(
    "--effect", cli.FiniteRange(0, min_open=True), "E", "True mean |effect| to detect.  [default: that of RESULT]"
)
@cli.once(
    "--limit", cli.FiniteRange(0), "L", "Value that the mean |effect| must exceed.  [default: the delta of RESULT]"
)
@cli.once("--share", _SHARE, "SHARE", _TRUE_SHARE)
@cli.once("--max-flagged", _SHARE, "SHARE", _MAX_FLAGGED)
@cli.once("--spread", cli.FiniteRange(0), "S", _SPREAD)
@cli.once("--power", _POWER, "P", "Probability of detecting the effect.", default=0.8, show_default=True)
@click.option("--people", multiple=True, type=cli.COUNT, metavar="N", help="Also for N people; repeat.")
def plan(result: Path | None, *, people: tuple[int, ...], **options: Any) -> None:
    """Say how many people an audit needs to detect an effect of a given size.

    RESULT is the folder of a pilot: an audit of a few hundred people from the same population, with the same model. Its
    people and refits say how much results vary. An effect is detected if the lower 95 % bound of the mean |effect|, or
    of the share of people over delta, is above the limit.
    """
    from fairfox.comparison import plan as run
    from fairfox.report.text import people as people_words

    found = run(result, **options)
    click.echo(found.sentence)
    click.echo(
        f"The spread is {found.spread:.3g}: the standard error of the {found.measure} times the square root of the "
        "number of people."
    )
    for size in people or sorted({max(1, round(share * found.people)) for share in _AROUND}):
        click.echo(f"An audit of {people_words(size)} detects it {100 * found.power(size):.0f} % of the time.")


@click.command()
@click.argument("result", type=cli.FILE)
@cli.once("-o --out", cli.FILE, "FILE", _PAGE)
def report(result: Path, *, out: Path | None) -> None:
    """Write the page of the folder RESULT again from its report.json, without the model and the table.

    RESULT is a folder that `fairfox audit` or `compare` wrote, or that of one of the demo's models.
    """
    from fairfox.data.files import keep_inputs, write_text
    from fairfox.report.files import OUTPUTS, stored_page

    path = result / "report.html" if out is None else out
    keep_inputs([path], *(result / name for name in OUTPUTS if name != "report.html"))
    page = stored_page(result)
    if path.is_dir():
        raise FileError(f"'{path}' is a folder; give a file name with -o")
    try:
        write_text(page, path)
    except OSError as error:
        raise FileError(f"The page cannot be written to '{path}' ({error.strerror or error})") from error
    say(f"Written: {path}")
