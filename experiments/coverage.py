"""How often intervals hold the true effect, and how many people on a list of discoveries are there wrongly.

In worlds whose truth is known the true signed effect is f(x_cf) - f(x). A 90 % interval should hold it for nine people
in ten, whatever their score. A list of people whose effect is more than delta, made at a level of false discoveries,
should have no more than that share of people on it whose true effect is not.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import torch
from coverage_report import ADDITIVE, LEVELS, PERSISTENT, bars, over_draws, reasons, rounded, show
from runner import Experiment, Found, Job, named
from scipy.stats import t
from settings import SETTINGS, Rows, Setting, Shape, Sources, Target
from torch import Tensor
from trials import Folders, generate, generator_job, seed_of, train_shape

from fairfox.data.dataset import Dataset, assign_folds
from fairfox.fairtests.protocol import CounterfactualTest, Measurement, join
from fairfox.fairtests.registry import make_test
from fairfox.models.protocol import Model, predict
from fairfox.synthetic.graded import WORLDS, draw
from fairfox.synthetic.targets import TargetTraining
from fairfox.verdicts.discoveries import benjamini_hochberg
from fairfox.verdicts.intervals import interval, p_values, standard_errors

CAUSAL = TargetTraining(rate=5e-3, decay=0.0, max_epochs=15)  # it need not keep away from c by itself
WAYS = ("others", "folds")  # whom maps learn from: other people, or the other folds of those who are judged


@dataclass(frozen=True)
class Plan:
    """Which worlds, how often, how many people, and what counts."""

    causal: tuple[str, ...] = (*PERSISTENT, *(name for name in WORLDS if name not in PERSISTENT))
    biases: tuple[float, ...] = (0.5, 1.0)
    fused: tuple[Setting, ...] = tuple(setting for setting in SETTINGS if setting.c == "australian")
    draws: int = 40
    other_draws: int = 16
    fused_draws: int = 3
    rows: Rows = Rows(1_600, 400, 1_000)  # noqa: RUF009
    many: int = 20_000  # people to learn from, for the error that stays
    many_draws: int = 3
    refits: int = 5
    folds: int = 5
    deltas: tuple[float, ...] = (0.05, 0.1)
    target: Shape = Shape(32, 1)  # noqa: RUF009
    sources: Sources = Sources()  # noqa: RUF009

    def places(self) -> Iterator[Place]:
        """Yield all worlds at all levels of bias, with how often each is drawn."""
        for name in self.causal:
            draws = self.draws if name in PERSISTENT else self.other_draws
            yield from (Place(name, bias, draws) for bias in self.biases)
        yield from (Place(setting.name, setting.bias, self.fused_draws, setting) for setting in self.fused)


class Place(NamedTuple):
    """A world at a level of bias."""

    world: str
    bias: float
    draws: int
    fused: Setting | None = None

    @property
    def job(self) -> str:
        """The name of its job."""
        return f"coverage-{self.world}-{self.bias:g}".replace(" ", "_").replace(",", "")


FULL = Plan()
QUICK = Plan(
    ("additive", "three classes", "lending"), (1.0,), (), 2, 1, 0, Rows(240, 60, 200), many=600, refits=3, folds=2
)


def jobs(plan: Plan, seed: int) -> list[Job]:
    """Return one job per world and bias; of fused tables it comes after their generator."""
    return [
        Job(
            place.job,
            judge,
            (place, plan.rows, plan.many, plan.many_draws, plan.refits, plan.folds, plan.deltas, plan.target, seed),
            after=() if place.fused is None else (generator_job(place.fused, plan.sources, seed),),
        )
        for place in plan.places()
    ]


def judge(
    folder: Path,
    needed: Folders,
    place: Place,
    rows: Rows,
    many: int,
    many_draws: int,
    refits: int,
    folds: int,
    deltas: Sequence[float],
    target: Shape,
    seed: int,
) -> list[dict[str, Any]]:
    """Return for every draw what holds by each way, and the error that is left with many people to learn from."""
    found = []
    for number in range(place.draws):
        own = seed_of(seed, place.world, number)
        more = many if number < many_draws else rows.fitting
        learned, people = _people(needed, place, rows, more, own)
        fitting = learned[: rows.fitting]
        shape = Target(target.width, target.depth, *(() if place.fused else (CAUSAL,)))
        model = train_shape(fitting, shape, rows, own)
        each: dict[str, Any] = {}
        for way in WAYS if place.world in ADDITIVE else WAYS[:1]:
            places = _folds(people, folds, own) if way == "folds" else None
            measured = _measured(model, fitting, people, places, refits, own)
            each[way] = judged(measured.refits, true_effect(model, people, measured.klass), deltas)
        if more == many:
            alone = _measured(model, learned, people, None, 1, own)
            error = alone.refits[:, 0] - true_effect(model, people, alone.klass)
            each["error that stays"] = _root_mean_square(error)
        found.append(each)
    return found


def _people(needed: Folders, place: Place, rows: Rows, many: int, seed: int) -> tuple[Dataset, Dataset]:
    """Return many people to learn from, the first of whom are enough, and people to be judged."""
    if place.fused is None:
        drawn = draw(WORLDS[place.world].at(place.bias), many, rows.test, seed=seed)
        return drawn.fitting, drawn.people
    return generate(needed[0], place.fused.fusion, place.bias, replace(rows, valid=many - rows.train), seed)


def _folds(people: Dataset, folds: int, seed: int) -> list[Tensor]:
    fold = assign_folds(people.c, folds, seed=seed)
    return [(fold == k).nonzero()[:, 0] for k in range(folds)]


def _measured(
    model: Model, fitting: Dataset, people: Dataset, folds: Sequence[Tensor] | None, refits: int, seed: int
) -> Measurement:
    """Return the effects of people, by maps that learned from the others or from the other folds."""
    if folds is None:
        test = make_test("rank", refits=refits, seed=seed).fit(fitting)
        assert isinstance(test, CounterfactualTest)
        return test.measure(model, people, rows=False)
    parts = []
    for number, rows in enumerate(folds):
        others = torch.cat([one for one in folds if one is not rows]).sort().values
        parts.append(_measured(model, people[others], people[rows], None, refits, seed + number))
    return join(parts, folds, len(people))


def true_effect(model: Model, people: Dataset, klass: Tensor) -> Tensor:
    """Return f(x_cf) - f(x) (N,), x_cf the same person as a member of the class given for each."""
    assert people.truth is not None
    others = people.truth.counterfactual
    if others.ndim == 3:  # (N, K - 1, D): the next class, the one after it, ...
        step = (klass - people.c[:, 0].long()) % (others.shape[1] + 1) - 1
        others = others[torch.arange(len(others)), step]
    return predict(model, others) - predict(model, people.x)


def judged(refits: Tensor, truth: Tensor, deltas: Sequence[float]) -> dict[str, Any]:
    """Return how many intervals hold the truth (N,), how wide they are, and how good the lists are."""
    refits, truth = refits.double(), truth.double()
    found, score = interval(refits), refits.mean(1).abs()
    holds = ((found[:, 0] <= truth) & (truth <= found[:, 1])).double()
    return {
        "coverage": float(holds.mean()),
        "coverage by the error of the mean": float(_by_the_error_of_the_mean(refits, truth).double().mean()),
        "fifths": [float(holds[part].mean()) for part in score.argsort().tensor_split(5)],
        "width": float((found[:, 1] - found[:, 0]).median()),
        "error": _root_mean_square(refits.mean(1) - truth),
        "standard error": _root_mean_square(standard_errors(refits)[0]),
        "size": float(truth.abs().mean()),
        "lists": {f"{delta:g}": lists(p_values(refits, delta), truth.abs() > delta) for delta in deltas},
    }


def _by_the_error_of_the_mean(refits: Tensor, truth: Tensor) -> Tensor:
    """Return whether mean ± t(.95, M-1) sd/√M holds the truth (N,): how sure re-fits are of their mean."""
    fits = refits.shape[1]
    half = refits.std(1) * (float(t.ppf(0.95, fits - 1)) / fits**0.5)
    held: Tensor = (refits.mean(1) - truth).abs() <= half
    return held


def lists(p: Tensor, over: Tensor) -> dict[str, Any]:
    """Return, by level, the share of those on the list who are not over delta, and of those over it who are on it."""
    out: dict[str, Any] = {"over": float(over.double().mean())}
    for level in LEVELS:
        listed = benjamini_hochberg(p, level)
        out[f"{level:g}"] = {
            "false": int((listed & ~over).sum()) / max(1, int(listed.sum())),
            "power": int((listed & over).sum()) / int(over.sum()) if bool(over.any()) else None,
        }
    return out


def _root_mean_square(values: Tensor) -> float:
    return float(values.double().square().mean().sqrt())


def gather(plan: Plan, found: Found, about: dict[str, Any]) -> dict[str, Any]:
    """Return what holds in each world by each way, mean over draws, and the bars."""
    results = []
    for place in plan.places():
        draws = found[place.job]
        for way in WAYS:
            if way in draws[0]:
                own = {"world": place.world, "bias": place.bias, "learns from": way, "draws": len(draws)}
                stays = rounded(fmean(one["error that stays"] for one in draws if "error that stays" in one))
                results.append(own | over_draws([one[way] for one in draws]) | {"error that stays": stays})
    return {"results": results, "bars": [] if about["quick"] else bars(results)}


def narrow(plan: Plan, names: Sequence[str]) -> Plan:
    """Return the plan for some of the worlds."""
    known = {place.world: place.world for place in plan.places()}
    chosen = named("world", known, names)
    causal = tuple(name for name in plan.causal if name in chosen)
    return replace(plan, causal=causal, fused=tuple(setting for setting in plan.fused if setting.name in chosen))


SECTIONS = {"reasons": reasons}  # of the page on intervals

EXPERIMENT: Experiment[Plan] = Experiment(
    name="coverage",
    description="How often intervals hold the true effect, and how much of a list is false. --only names worlds.",
    full=FULL,
    quick=QUICK,
    jobs=jobs,
    gather=gather,
    show=show,
    narrow=narrow,
    parts_with="table1",
)


if __name__ == "__main__":
    sys.exit(EXPERIMENT.run())
