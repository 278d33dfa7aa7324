"""`fairfox demo`: audit a biased and a fair lending model of people whose true counterfactuals are known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.table import Table

from fairfox.cli.audit import SEEDS
from fairfox.cli.options import Once
from fairfox.cli.progress import progress_bar

if TYPE_CHECKING:  # the library is imported in the function: `fairfox demo --help` must not wait for torch
    from fairfox.demo import DemoAudit


@click.command(short_help="Audit a biased and a fair lending model, with known truth and no files.")
@click.option(
    "--out",
    cls=Once,
    type=click.Path(path_type=Path, file_okay=False),
    default="fairfox-demo",
    show_default=True,
    metavar="DIR",
    help="Folder for the two reports, demo.json and the applicants as people.csv.",
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
    from fairfox.report.outputs import write_outputs

    errors = Console(stderr=True, soft_wrap=True, markup=False, highlight=False)
    with progress_bar(errors) as progress:
        done = run_demo(people=people, seed=seed, progress=progress)
    audits = (done.biased, done.fair)
    console = Console(highlight=False)
    console.print(
        f"{people:,} loan applicants from a causal model in which sex acts on sector, contract, income, tenure and "
        "leave, and past approvals were biased. Neither model has sex as an input."
    )
    console.print(_table(audits))
    for line in findings(*audits):
        console.print(line)
    for one in audits:
        write_outputs(one.result, out / one.name)
    with written_whole(out / "demo.json") as temporary:
        temporary.write_text(json.dumps(measured(*audits), indent=2) + "\n", encoding="utf-8")
    with written_whole(out / "people.csv") as temporary:
        write_csv(done.applicants.table, temporary)
    paths = [out / one.name / "report.html" for one in audits] + [out / "demo.json", out / "people.csv"]
    errors.print("Written: " + ", ".join(map(str, paths)))


def findings(biased: DemoAudit, fair: DemoAudit) -> list[str]:
    """Return how the audits compare with the truth, in sentences."""
    return [
        f"Biased model: mean |effect| is {biased.mean_effect / biased.mean_truth:.2f} times the true mean individual "
        f"fairness score, Spearman correlation with it {biased.rho:.2f}; of the flagged people {biased.precision:.0%} "
        f"are truly above delta, and {biased.recall:.0%} of those are flagged.",
        f"Fair model: mean |effect| is {fair.mean_effect / biased.mean_effect:.3f} of the biased one's, "
        f"{int(_confident(fair))} people confidently flagged.",
    ]


def measured(biased: DemoAudit, fair: DemoAudit) -> dict[str, object]:
    """Return the numbers behind the findings, with seed, versions and settings."""
    return {
        "biased": {
            "mean_effect": biased.mean_effect,
            "mean_truth": biased.mean_truth,
            "rho": biased.rho,
            "precision": biased.precision,
            "recall": biased.recall,
            "confident": _confident(biased),
        },
        "fair": {"mean_effect": fair.mean_effect, "mean_truth": fair.mean_truth, "confident": _confident(fair)},
        "settings": {"biased": biased.result.settings, "fair": fair.result.settings},
    }


def _table(audits: tuple[DemoAudit, DemoAudit]) -> Table:
    table = Table()
    for heading in ("Model", "Mean |effect|", "True mean", "Flagged", "Confidently", "Truly above delta"):
        table.add_column(heading, justify="left" if heading == "Model" else "right")
    for one in audits:
        n = len(one.result)
        table.add_row(
            one.name,
            f"{one.mean_effect:.4f}",
            f"{one.mean_truth:.4f}",
            f"{one.result.share_flagged:.1%}",
            f"{_confident(one) / n:.1%}",
            f"{float((one.truth > one.result.delta).sum()) / n:.1%}",
        )
    return table


def _confident(one: DemoAudit) -> int:
    return 0 if one.result.confident_flags is None else int(one.result.confident_flags.sum())
