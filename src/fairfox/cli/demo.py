"""`fairfox demo`: audit a biased and a fair lending model of people whose true counterfactuals are known."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.table import Table

from fairfox.cli.audit import SEEDS
from fairfox.cli.options import Once
from fairfox.cli.progress import progress_bar

if TYPE_CHECKING:  # the library is imported in the function: `fairfox demo --help` must not wait for torch
    from fairfox.demo import DemoAudit
    from fairfox.report.tables import Table as Shown

SCHEMA_VERSION = 1


@click.command(short_help="Audit a biased and a fair lending model, with known truth and no files.")
@click.option(
    "--out",
    cls=Once,
    type=click.Path(path_type=Path, file_okay=False),
    default="fairfox-demo",
    show_default=True,
    metavar="DIR",
    help="Folder for the two reports, summary.json, summary.md, junit.xml and the applicants as people.csv.",
)
@click.option("--people", cls=Once, type=click.IntRange(min=200), default=10_000, show_default=True, metavar="N")
@click.option("--seed", cls=Once, type=SEEDS, default=0, show_default=True, metavar="N", help="Seed of all randomness.")
def demo(out: Path, people: int, seed: int) -> None:
    """Audit a biased and a fair lending model.

    The people come from a structural causal model, so that everyone's true counterfactual is known and the
    audit can be checked against it. Needs no network and no file.
    """
    from pyarrow.csv import write_csv

    from fairfox.data.files import written_whole
    from fairfox.demo import run_demo
    from fairfox.report.junit import junit_xml
    from fairfox.report.markdown import lines_markdown
    from fairfox.report.outputs import write_outputs
    from fairfox.report.summary import strict_json

    errors = Console(stderr=True, soft_wrap=True, markup=False, highlight=False)
    with progress_bar(errors) as progress:
        done = run_demo(people=people, seed=seed, progress=progress)
    audits = (done.biased, done.fair)
    console = Console(highlight=False)
    console.print(_about(people))
    console.print(_table(audits))
    for line in findings(*audits):
        console.print(line)
    for one in audits:
        write_outputs(one.result, out / one.name, table=done.applicants.table)
    contents = {
        "summary.json": strict_json(summary_fields(*audits)),
        "summary.md": lines_markdown(_title(audits), [_about(people), *findings(*audits)], table=_shown(audits)),
        "junit.xml": junit_xml(*(one.result for one in audits), names=[f"the {one.name} model" for one in audits]),
    }
    for name, text in contents.items():
        with written_whole(out / name) as temporary:
            temporary.write_bytes(text.encode())
    with written_whole(out / "people.csv") as temporary:
        write_csv(done.applicants.table, temporary)
    paths = [out / one.name / "report.html" for one in audits] + [out / name for name in (*contents, "people.csv")]
    errors.print("Written: " + ", ".join(map(str, paths)))


def _about(people: int) -> str:
    return (
        f"{people:,} loan applicants from a causal model in which sex acts on sector, contract, income, tenure and "
        "leave, and past approvals were biased. Neither model has sex as an input."
    )


def findings(biased: DemoAudit, fair: DemoAudit) -> list[str]:
    """Return how the audits compare with the truth, in sentences."""
    return [
        f"Biased model: mean |effect| is {biased.mean_effect / biased.mean_truth:.2f} times the true mean individual "
        f"fairness score, Spearman correlation with it {biased.rho:.2f}; of the flagged people {biased.precision:.0%} "
        f"are truly above delta, and {biased.recall:.0%} of those are flagged.",
        f"Fair model: mean |effect| is {fair.mean_effect / biased.mean_effect:.3f} of the biased one's, "
        f"{int(_confident(fair))} people confidently flagged.",
    ]


def summary_fields(biased: DemoAudit, fair: DemoAudit) -> dict[str, Any]:
    """Return the numbers behind the findings for the demo's summary.json, with seed, versions and settings."""
    return {
        "kind": "demo",
        "schema_version": SCHEMA_VERSION,
        "people": len(biased.result),
        "models": {one.name: _measured(one) for one in (biased, fair)},
        "in_words": findings(biased, fair),
        "settings": {one.name: one.result.settings for one in (biased, fair)},
    }


def _measured(one: DemoAudit) -> dict[str, Any]:
    verdict = one.result.verdict
    return {
        "verdict": None if verdict is None else verdict.word,
        "delta": one.result.delta,
        "mean_effect": one.mean_effect,
        "mean_truth": one.mean_truth,
        "rho": one.rho,
        "precision": one.precision,
        "recall": one.recall,
        "share_flagged": one.result.share_flagged,
        "confident": _confident(one),
        "share_truly_over_delta": _truly_over(one),
    }


def _title(audits: tuple[DemoAudit, DemoAudit]) -> str:
    verdicts = {one.name: one.result.verdict for one in audits}
    words = [f"{name}: {'no verdict' if found is None else found.word}" for name, found in verdicts.items()]
    return f"fairfox demo; {'; '.join(words)}"


def _shown(audits: tuple[DemoAudit, DemoAudit]) -> Shown:
    """Return the two models and the truth, in ready words."""
    from fairfox.report.tables import make_table

    headings = ("Mean |effect|", "True mean", "Flagged", "Confidently", "Truly above delta")
    rows = [
        [
            one.name,
            f"{one.mean_effect:.4f}",
            f"{one.mean_truth:.4f}",
            f"{one.result.share_flagged:.1%}",
            f"{_confident(one) / len(one.result):.1%}",
            f"{_truly_over(one):.1%}",
        ]
        for one in audits
    ]
    return make_table(["Model"], headings, rows)


def _table(audits: tuple[DemoAudit, DemoAudit]) -> Table:
    table, shown = Table(), _shown(audits)
    for column in shown["columns"]:
        table.add_column(column["label"], justify="right" if column["numeric"] else "left")
    for row in shown["rows"]:
        table.add_row(*row)
    return table


def _truly_over(one: DemoAudit) -> float:
    return float((one.truth > one.result.delta).sum()) / len(one.result)


def _confident(one: DemoAudit) -> int:
    return 0 if one.result.confident_flags is None else int(one.result.confident_flags.sum())
