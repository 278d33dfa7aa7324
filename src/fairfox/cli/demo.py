"""`fairfox demo`: audit a biased and a fair lending model of people whose true counterfactuals are known.

`fairfox datasets [NAME]...`: list the public datasets and where each is; fetch those that are named.

The parts are functions of their own (`run_demo`, `lending_model`, `audit_lending`): tests and experiments use them.
"""

from __future__ import annotations

from collections.abc import Sequence
from inspect import getdoc
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from rich.console import Console
from rich.table import Table

from fairfox.cli.options import FOLDER, audit_options, once
from fairfox.cli.progress import Report, progress_bar, say

if TYPE_CHECKING:  # the library is imported in the functions: `fairfox demo --help` must not wait for torch
    from torch import Tensor, nn

    from fairfox.benchmark.scm import Population
    from fairfox.data.encoding import Encoding
    from fairfox.findings import AuditRecord

_OUT = "Folder for the two reports, summary.json and the applicants as people.csv."


@click.command()
@once("--out", FOLDER, "DIR", _OUT, default="fairfox-demo", show_default=True)
@once("--people", click.IntRange(min=200), "N", "How many applicants.", default=10_000, show_default=True)
@audit_options("seed")
def demo(out: Path, people: int, seed: int) -> None:
    """Audit a biased and a fair lending model.

    The people come from a structural causal model, so each person's true counterfactual is known and the audit can be
    compared with it. Needs no files and no network.
    """
    from pyarrow.csv import write_csv

    from fairfox.cli.tables import rich_table
    from fairfox.data.files import write_text, written_whole
    from fairfox.report.files import write_outputs
    from fairfox.report.text import FORMAT, make_table, strict_json

    with progress_bar() as progress:
        *audits, applicants = run_demo(people=people, seed=seed, progress=progress)
    models = {each.name: each.numbers() for each in audits}
    sentences, rows = _sentences(models["biased"], models["fair"]), []
    for name, n in models.items():
        shares = (n["share_flagged"], n["confident"] / people, n["share_truly_over_delta"])
        means = (n["mean_effect"], n["mean_truth"])
        rows.append([name, *(f"{mean:.4f}" for mean in means), *(f"{100 * share:.1f} %" for share in shares)])
    headings = ("Mean |effect|", "True mean", "Flagged", "Confident", "Truly above delta")
    console = Console(highlight=False)
    console.print(
        f"{people:,} loan applicants from a causal model in which sex acts on sector, contract, income, tenure and "
        "leave, and past approvals were biased. Neither model has sex as an input."
    )
    console.print(rich_table(make_table(["Model"], headings, rows)))
    for line in sentences:
        console.print(line)
    for each in audits:
        write_outputs(each.result, out / each.name, table=applicants.table)
    fields = {"kind": "demo", "format": FORMAT, "people": people, "models": models, "in_words": sentences}
    fields["settings"] = {each.name: each.result.settings for each in audits}
    write_text(strict_json(fields), out / "summary.json")
    with written_whole(out / "people.csv") as temporary:
        write_csv(applicants.table, temporary)
    paths = [out / each.name / "report.html" for each in audits] + [out / "summary.json", out / "people.csv"]
    say("Written: " + ", ".join(map(str, paths)))


class DemoAudit(NamedTuple):
    """One audited model beside the truth."""

    name: str  # "biased" or "fair"
    result: AuditRecord
    truth: Tensor  # (N,) |f(x) - f(x as a member of the other group)|, known because the people are generated

    def numbers(self) -> dict[str, Any]:
        """Return how the audit compares with the truth; NaN where there is nothing to compare."""
        from scipy.stats import spearmanr

        result, above = self.result, self.truth > self.result.delta
        flagged, affected = int(result.flagged.sum()), int(above.sum())
        hits = int((result.flagged & above).sum())
        same = bool((self.truth == self.truth[0]).all())  # a fair model treats nobody differently
        return {
            "verdict": None if result.verdict is None else result.verdict.word,
            "delta": result.delta,
            "mean_effect": float(result.scores.mean()),
            "mean_truth": float(self.truth.mean()),
            "rho": float("nan") if same else float(spearmanr(result.scores, self.truth).statistic),
            "precision": hits / flagged if flagged else float("nan"),
            "recall": hits / affected if affected else float("nan"),
            "share_flagged": result.share_flagged,
            "confident": 0 if result.confident is None else int(result.confident.sum()),
            "share_truly_over_delta": affected / len(result),
        }


def run_demo(
    *, people: int = 10_000, seed: int = 0, progress: Report | None = None
) -> tuple[DemoAudit, DemoAudit, Population]:
    """Return the audits of a biased and of a fair model of the same lending population, and that population.

    Both learn from past applicants, whose approvals were biased, and are audited on new ones. The biased model
    takes every column but sex; the fair one only those that sex does not act on.
    """
    from fairfox.benchmark.worlds import LENDING
    from fairfox.data.table import load_table
    from fairfox.models.protocol import predict
    from fairfox.models.torch import TorchModel

    say = progress or (lambda text, fraction: None)
    past, new = LENDING.sample(people, seed=seed), LENDING.sample(people, seed=seed + 1)

    def audited(name: str, columns: Sequence[str], start: float) -> DemoAudit:
        say(f"training the {name} model", start)
        net, encoding = lending_model(past, new, columns, seed=seed)

        def tell(text: str, fraction: float) -> None:
            say(f"{name} model: {text}", start + fraction / 2)

        result = audit_lending(net, new, new.table, past.table, columns, seed=seed, progress=tell)
        target = TorchModel(net)
        here, there = (predict(target, encoding.encode(load_table(t)).x) for t in (new.table, new.counterfactual))
        return DemoAudit(name, result, (here - there).abs())

    return audited("biased", past.features, 0.0), audited("fair", past.legitimate, 0.5), new


def lending_model(
    past: Population, new: Population, columns: Sequence[str], *, seed: int
) -> tuple[nn.Sequential, Encoding]:
    """Return a network from some columns of past applicants to the probability of approval, and its encoding.

    A fifth of the applicants is held out for early stopping.
    """
    import torch
    from torch import nn

    from fairfox.auxiliary.mlp import MLP
    from fairfox.auxiliary.training import binary_loss, train
    from fairfox.data.encoding import fit_encoding
    from fairfox.data.table import load_table

    table = load_table(past.table)
    encoding = fit_encoding(
        table, protected=past.protected, label=past.label, columns=columns, also=load_table(new.table)
    )
    x, y = encoding.encode(table).x, torch.as_tensor(past.y).float()
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    held_out, kept = order[: len(x) // 5], order[len(x) // 5 :]
    net = MLP(x.shape[1], seed=seed)
    train(net, x[kept], y[kept], loss=binary_loss, valid_x=x[held_out], valid_targets=y[held_out], seed=seed)
    return nn.Sequential(net.member(0), nn.Sigmoid()), encoding


def audit_lending(
    net: nn.Module, population: Population, table: object, reference: object, columns: Sequence[str], **options: Any
) -> AuditRecord:
    """Return the audit of a lending model on a table of applicants, learnt from those of another one."""
    from fairfox.pipeline import audit

    return audit(
        net,
        table,
        protected=population.protected,
        label=population.label,
        reference=reference,
        options={"drop": [name for name in population.features if name not in columns], "kind": "encoded"},
        **options,
    ).record


def _sentences(unfair: dict[str, Any], fair: dict[str, Any]) -> list[str]:
    """Return how the audits of the two models compare with the truth."""
    return [
        f"Biased model: mean |effect| is {unfair['mean_effect'] / unfair['mean_truth']:.2f} times the true mean "
        f"individual fairness score, Spearman correlation with it {unfair['rho']:.2f}; of the flagged people "
        f"{100 * unfair['precision']:.0f} % are truly over delta; {100 * unfair['recall']:.0f} % of these are flagged.",
        f"Fair model: mean |effect| is {fair['mean_effect'] / unfair['mean_effect']:.3f} of the biased one's, "
        f"{fair['confident']} people confidently flagged.",
    ]


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
def datasets(names: tuple[str, ...]) -> None:
    """List the public datasets that fairfox can load, or download those with a NAME.

    A file in the folder that FAIRFOX_DATA names is taken as it is. Otherwise it is downloaded from its public source,
    checked by its checksum, and kept in the cache (FAIRFOX_CACHE). The paths of the files go to stdout, what the data
    is for and what is wrong with it to stderr.
    """
    from fairfox.data.catalog import DATASETS, find_dataset  # here: `fairfox datasets --help` must not wait for Arrow
    from fairfox.data.files import fetch_file

    if not names:
        table = Table(caption="Fetch one, and see what is wrong with it: fairfox datasets NAME", caption_justify="left")
        for heading in ("Name", "Where it is", "What it is for"):
            table.add_column(heading)
        for name, dataset in DATASETS.items():
            table.add_row(name, dataset.availability, dataset.purpose)
        Console(highlight=False).print(table)
        return
    from fairfox.data import datasets as loaders

    errors = Console(stderr=True, soft_wrap=True, markup=False, highlight=False)
    for name, dataset in [(name, find_dataset(name)) for name in names]:  # before any is fetched
        for file in dataset.files:
            click.echo(fetch_file(file))
        about = getdoc(getattr(loaders, dataset.loader)) or ""
        errors.print(f"{name}: from fairfox.data.datasets import {dataset.loader}")
        errors.print(about.partition("\n\nArgs:")[0])
