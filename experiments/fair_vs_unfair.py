"""Does a test tell a target that hides c from one that does not? Every test on real tables, for more and less hiding.

The paper's box plots, and what they leave open: how often the plain target's scores are above the regularised one's
(AUC), which way effects point, and at what hiding all this ends. Numbers have their spread over splits of a table.
On Adult with `relationship` a target hides sex by making up for it; the husband/wife swap is an independent look at it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import torch
from fair_vs_unfair_report import SECTIONS, bars, boxes, compensation, show  # noqa: F401  # pages.py wants the sections
from numpy.typing import NDArray
from real_data import (
    ADVERSARIAL,
    FAMILY,
    FLOORS,
    TABLES,
    Floor,
    Ground,
    floor_name,
    gan_job,
    lacking,
    load_gan,
    load_targets,
    targets_job,
)
from runner import Experiment, Folders, Found, Job, pick
from scipy.stats import mannwhitneyu
from scoring import alignment_shares
from torch import Tensor

from fairfox.auxiliary.adversarial import HidingSettings
from fairfox.auxiliary.model import AuxiliaryModel, FixedAuxiliary
from fairfox.data.dataset import Dataset
from fairfox.fairtests.effect import Effect
from fairfox.fairtests.protocol import CounterfactualTest, Measurement, MeasuringTest
from fairfox.fairtests.registry import make_test
from fairfox.maps.gan import GanSettings
from fairfox.models.protocol import predict
from fairfox.models.torch import TorchModel

Values = NDArray[np.float64]
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)  # of a box: whiskers, box, median


def auc_above(left: Values, right: Values) -> float | None:
    """Return how often a value of the left is above one of the right, ties counting half; NaN is left out."""
    left, right = left[~np.isnan(left)], right[~np.isnan(right)]
    if not len(left) or not len(right):
        return None
    return float(mannwhitneyu(left, right).statistic) / len(left) / len(right)


def box(values: Values) -> list[float] | None:
    """Return the quantiles of a box plot; NaN is left out; None where nothing else is there."""
    known = values[~np.isnan(values)]
    return [float(q) for q in np.quantile(known, QUANTILES)] if len(known) else None


WITHOUT = ("fta", "fta+linear", "unfair_map")
WITH = (*FAMILY, "faux+ng/s", "rank", "move", "move-direct")


@dataclass(frozen=True)
class Comparison:
    """Which targets and tests are compared, and on whom."""

    tables: tuple[str, ...] = tuple(TABLES)
    numbers: int = 3  # targets of each floor, and everything else, are trained so many times
    floors: tuple[Floor, ...] = FLOORS
    rows: int | None = None  # all
    people: int = 2_000  # who are judged by tests, of those that nothing learned from
    refits: int = 5  # of auxiliaries and of the maps; generators and linear models are fitted once
    hiding: HidingSettings | None = None
    gan: GanSettings = GanSettings()  # noqa: RUF009


FULL = Comparison()
QUICK = Comparison(
    tables=("adult", "chicago"),
    numbers=1,
    floors=(None, 3.0),
    rows=900,
    refits=2,
    hiding=HidingSettings(epochs=3, batch_size=64),
    gan=GanSettings(steps=20),
)


def jobs(plan: Comparison, seed: int) -> list[Job]:
    """Return three jobs with tests for each table and number, after those that train its targets and generators."""
    missing = lacking(plan.tables)
    tables = [table for table in plan.tables if table not in missing]
    grounds = [Ground(table, number, seed, plan.rows) for table in tables for number in range(plan.numbers)]
    generators = [gan_job(ground, plan.gan) for ground in grounds]
    size, out = replace(plan, tables=(), numbers=0), list(generators)  # all that decides a job's result
    for ground, generator in zip(grounds, generators, strict=True):
        targets = targets_job(ground, plan.floors, plan.hiding)
        out.append(Job(f"with-{ground.name}", score_with, (ground, size), after=(targets,), seconds=90))
        out.append(Job(f"pairs-{ground.name}", score_pairs, (ground, size), after=(targets, generator)))
        out.append(Job(f"without-{ground.name}", score_without, (ground, size), after=(targets,), seconds=60))
    return out


@dataclass(frozen=True)
class Setup:
    """The targets of one ground, and the people they judge."""

    ground: Ground
    size: Comparison
    models: list[TorchModel]
    fitting: Dataset
    people: Dataset

    @classmethod
    def of(cls, needed: Folders, ground: Ground, size: Comparison) -> Setup:
        """Return it from the folder of the job that trained the targets."""
        fitting, judged = ground.people()
        if size.people < len(judged):
            judged = judged.split(size.people / len(judged), seed=ground.seed_for("judged"))[0]
        return cls(ground, size, load_targets(needed[0], size.floors), fitting, judged)

    def readings(self, test: MeasuringTest, shares: Sequence[float] | None = None) -> list[dict[str, Any]]:
        """Return what a fitted test says of each target, in comparison with the first; effects times shares for /a."""
        options = {"rows": False} if isinstance(test, CounterfactualTest) else {}
        found = [test.measure(model, self.people, **options) for model in self.models]
        if shares is not None:
            found = [one.scaled([share], self.people) for one, share in zip(found, shares, strict=True)]
        each = [_known(one.score, one) for one in found]
        return [self._reading(each[0], scores, one) for scores, one in zip(each, found, strict=True)]

    def _reading(self, plain: Values, scores: Values, one: Measurement) -> dict[str, Any]:
        out = {"auc": auc_above(plain, scores), "box": box(scores), "mean": _mean(scores)}
        if one.effect is None:
            return out
        signed, c = _known(one.effect, one), self.people.c[:, 0].numpy(force=True)
        return out | {"towards_1": _mean(np.where(c == 0, signed, -signed))}

    def auxiliary(self, *, adversarial: bool = False) -> FixedAuxiliary:
        """Return trained auxiliaries that several tests share."""
        seed = self.ground.seed_for("auxiliary")
        fitted = AuxiliaryModel(refits=self.size.refits, seed=seed, adversarial=adversarial).fit(self.fitting)
        return FixedAuxiliary(fitted.members, fitted.held_out)

    def made(self, name: str, auxiliary: FixedAuxiliary | None = None, *, refits: int = 1) -> MeasuringTest:
        """Return a test that is fitted."""
        seed = self.ground.seed_for("tests")
        return make_test(name, auxiliary=auxiliary, refits=refits, seed=seed).fit(self.fitting)


def score_without(folder: Path, needed: Folders, ground: Ground, size: Comparison) -> dict[str, Any]:
    """Return what the tests without an auxiliary network say, and the husband/wife swap where there are such people."""
    here = Setup.of(needed, ground, size)
    return {"tests": {name: here.readings(here.made(name)) for name in WITHOUT}, "swap": swapped(here)}


def score_with(folder: Path, needed: Folders, ground: Ground, size: Comparison) -> dict[str, Any]:
    """Return what the tests with auxiliary networks say, with plain ones and with ones that hide y; and the shares."""
    here = Setup.of(needed, ground, size)
    plain, hiding = here.auxiliary(), here.auxiliary(adversarial=True)
    shares = alignment_shares(plain, here.models, here.fitting, here.people)
    tests = {}
    for name in WITH:
        test = here.made(name, plain, refits=size.refits)
        tests[name] = here.readings(test)
        if isinstance(test, Effect):
            tests[f"{name}/a"] = here.readings(test, shares)
    tests |= {name + ADVERSARIAL: here.readings(here.made(name, hiding)) for name in FAMILY}
    aucs = {"plain": auxiliary_auc(plain, here.people), "adversarial": auxiliary_auc(hiding, here.people)}
    return {"tests": tests, "alignment_share": shares, "auxiliary_auc": aucs}


def score_pairs(folder: Path, needed: Folders, ground: Ground, size: Comparison) -> dict[str, Any]:
    """Return what FlipTest says with the generators of an earlier job."""
    here = Setup.of(needed, ground, size)
    generators = Effect()
    generators.fitted = [[load_gan(needed[1])]]
    return {"tests": {"fliptest": here.readings(generators)}}


def swapped(here: Setup) -> list[dict[str, Any]] | None:
    """Return how each target's prediction changes when a husband is called a wife and nothing else about him changes.

    And the other way round; None where the table does not say who is one.
    """
    feature = next((f for f in here.people.features if f.name == "relationship"), None)
    if feature is None:
        return None
    at = {level: feature.start + place for place, level in enumerate(feature.levels)}
    husband, wife = at["Husband"], at["Wife"]
    x = here.people.x.clone()
    x[:, [husband, wife]] = x[:, [wife, husband]]
    out = []
    for model in here.models:
        change = (predict(model, x) - predict(model, here.people.x)).double().numpy(force=True)
        was = {"husbands": husband, "wives": wife}
        own = {who: change[here.people.x[:, column].numpy(force=True) == 1] for who, column in was.items()}
        out.append({who: _mean(values) for who, values in own.items()})
    return out


def auxiliary_auc(auxiliary: FixedAuxiliary, people: Dataset) -> float:
    """Return how well auxiliaries tell c: the mean AUC over them."""
    c = people.c[:, 0].numpy(force=True)
    outputs = [member(people.x)[:, 0].detach().double().numpy(force=True) for member in auxiliary.members]
    return fmean(auc for out in outputs if (auc := auc_above(out[c == 1], out[c == 0])) is not None)


def _known(values: Tensor, one: Measurement) -> Values:
    """Return values (N,) with NaN for those whom the test abstains from."""
    return np.asarray(torch.where(one.abstained, torch.nan, values.cpu().double()).numpy(force=True))


def _mean(values: Values) -> float | None:
    """Return the mean of what is known; None of nobody."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None


def gather(plan: Comparison, found: Found, about: dict[str, Any]) -> dict[str, Any]:
    """Return the targets, the tests' results for each of them, shares and swaps, means over numbers; and the bars."""
    missing = lacking(plan.tables)
    tables = [table for table in plan.tables if table not in missing]
    sections: dict[str, Any] = {
        "not_run": missing,
        "targets": [one for table in tables for one in _targets(plan, found, table)],
        "auxiliary_auc": {
            table: _spreads([run["auxiliary_auc"] for run in _runs(plan, found, "with", table)]) for table in tables
        },
        "generators": {table: _spreads(_runs(plan, found, "gan", table)) for table in tables},
        "results": [one for table in tables for one in _results(plan, found, table)],
        "swap": {table: swaps for table in tables if (swaps := _swaps(plan, found, table)) is not None},
    }
    return sections | {"bars": bars(sections)}


def _runs(plan: Comparison, found: Found, kind: str, table: str) -> list[Any]:
    """Return what the jobs of a kind returned, one for each number."""
    return [found[f"{kind}-{table}-{number}"] for number in range(plan.numbers)]


def _spread(values: Sequence[float | None]) -> list[float] | None:
    """Return the mean and the standard deviation (0 for a single value) of what is known; None without any."""
    known = [value for value in values if value is not None]
    return [fmean(known), stdev(known) if len(known) > 1 else 0.0] if known else None


def _targets(plan: Comparison, found: Found, table: str) -> list[dict[str, Any]]:
    """Return how good the targets of each floor are, and what they tell of c."""
    out = []
    shares = [run["alignment_share"] for run in _runs(plan, found, "with", table)]
    for place, floor in enumerate(plan.floors):
        each = [run[place] for run in _runs(plan, found, "targets", table)]
        leaks = [one["leaks"][0] for one in each]
        means = [[*leak["means"].values()] for leak in leaks]
        numbers = {
            "accuracy": [one["accuracy"] for one in each],
            "auc": [one["auc"] for one in each],
            "c_auc": [leak["auc"] for leak in leaks],
            "gap": [leak["gap"] for leak in leaks],
            "gap_towards_1": [second - first for first, second in means],  # of class 1 over class 0
            "alignment_share": [share[place] for share in shares],
        }
        about = {"table": table, "target": floor_name(floor), "people": each[0]["rows"]}
        out.append(about | {name: _spread(values) for name, values in numbers.items()})
    return out


def _spreads(runs: Sequence[Mapping[str, Any]]) -> dict[str, list[float] | None]:
    """Return the mean and the standard deviation over runs of each of their numbers."""
    return {name: _spread([run[name] for run in runs]) for name in runs[0]}


def _results(plan: Comparison, found: Found, table: str) -> list[dict[str, Any]]:
    """Return an entry for each test and target."""
    kinds = [_runs(plan, found, kind, table) for kind in ("without", "with", "pairs")]
    runs = [
        {name: reading for run in own for name, reading in run["tests"].items()} for own in zip(*kinds, strict=True)
    ]
    return [
        {"table": table, "test": test, "target": floor_name(floor), **_entry([run[test][place] for run in runs])}
        for test in runs[0]
        for place, floor in enumerate(plan.floors)
    ]


def _entry(each: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return means and spreads over numbers, without those where a test had nothing to say (null: it never had)."""
    boxes = [one["box"] for one in each if one["box"] is not None]
    others = [{name: value for name, value in one.items() if name != "box"} for one in each]
    return _spreads(others) | {"box": [fmean(values) for values in zip(*boxes, strict=True)] or None}


def _swaps(plan: Comparison, found: Found, table: str) -> list[dict[str, Any]] | None:
    runs = [run["swap"] for run in _runs(plan, found, "without", table)]
    if runs[0] is None:
        return None
    return [
        {"target": floor_name(floor), **_spreads([run[place] for run in runs])}
        for place, floor in enumerate(plan.floors)
    ]


narrow = pick("tables", "table")
CHARTS = {"": boxes, "-compensation": compensation}
EXPERIMENT = Experiment.of(sys.modules[__name__])


if __name__ == "__main__":
    sys.exit(EXPERIMENT.run())
