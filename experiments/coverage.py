"""How often intervals hold the true effect, and how many people on a list of discoveries are there wrongly.

In worlds whose truth is known the true signed effect is f(x_cf) - f(x). A 90 % interval should hold it for nine people
in ten, whatever their score. A list of people whose effect is more than delta, made at a level of false discoveries,
should have no more than that share of people on it whose true effect is not.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import torch
from runner import Experiment, Folders, Found, Job, named
from scipy.stats import t
from settings import SETTINGS, Rows, Setting, Shape, Sources, Target
from torch import Tensor
from trials import generate, generator_job, seed_of, train_shape
from wording import bar, markdown_table
from wording import bars as table_of_bars

from fairfox.benchmark.scm import draw_people
from fairfox.benchmark.truth import TargetTraining
from fairfox.benchmark.worlds import WORLDS
from fairfox.data.dataset import Dataset, assign_folds
from fairfox.fairtests.protocol import CounterfactualTest, Measurement, join_measurements
from fairfox.fairtests.registry import make_test
from fairfox.models.protocol import Model, predict
from fairfox.statistics.intervals import interval, p_values, standard_errors
from fairfox.statistics.multiplicity import benjamini_hochberg

ADDITIVE = ("additive", "additive, skewed", "additive, long tails")
PERSISTENT = (*ADDITIVE, "three classes", "label bias")  # every number keeps its rank among the others of its group
BOUNDS, LEAST = (0.85, 0.95), 0.75  # of the share of intervals that hold: of all people, and in each fifth by score
LEVELS = (0.05, 0.1, 0.2)  # of false discoveries
_CATEGORIES = "the map spreads people over categories, the truth puts everyone in one"
_FUSED = {
    "outer": "every column mixes what depends on the group with what does not, and the rank moves both",
    "concat": "columns are parts of mixtures, which do not keep their rank one by one",
}
REASONS = {
    "three classes": "smaller groups, and the larger of two effects counts",
    "label bias": "one direction carries the effect, so that in a draw nearly all hold or few: 40 draws say little",
    "lending": f"{_CATEGORIES}, and income depends on it",
    "categorical proxies": _CATEGORIES,
    "heavy tails": f"{_CATEGORIES}, and what people drive depends on it",
    "interaction": "what the group changes depends on ability, which nobody sees",
    "confounded": "much of what differs between the groups is not due to the group",
} | {setting.name: _FUSED[setting.fusion] for setting in SETTINGS}


def over_draws(draws: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return means over draws; of the coverage also that of the draw below which a tenth of them lie."""
    coverage = torch.tensor([one["coverage"] for one in draws], dtype=torch.float64)
    out: dict[str, Any] = {"coverage, lowest tenth": rounded(float(coverage.quantile(0.1)))}
    for name, first in draws[0].items():
        if name == "lists":
            out[name] = {delta: _mean_lists([one[name][delta] for one in draws]) for delta in first}
        elif isinstance(first, list):
            out[name] = [rounded(fmean(each)) for each in zip(*(one[name] for one in draws), strict=True)]
        else:
            out[name] = rounded(fmean(one[name] for one in draws))
    return out


def _mean_lists(draws: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return means over draws; the power over those where there is somebody to be found."""
    out: dict[str, Any] = {"over": rounded(fmean(one["over"] for one in draws))}
    for level in map("{:g}".format, LEVELS):
        power = [one[level]["power"] for one in draws if one[level]["power"] is not None]
        false = rounded(fmean(one[level]["false"] for one in draws))
        out[level] = {"false": false, "power": rounded(fmean(power)) if power else None}
    return out


def rounded(value: float) -> float:
    """Return four digits."""
    return float(f"{value:.4g}")


def bars(results: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what has to be shown."""
    (low, high), out = BOUNDS, []
    additive = [one for one in results if one["world"] in ADDITIVE]
    every = {_named(one): one["coverage"] for one in additive}
    holds = all(low <= value <= high for value in every.values())
    out.append(bar(f"additive models: 90 % intervals hold for {low:.0%} to {high:.0%} of people", every, holds))
    fifths = {_named(one): min(one["fifths"]) for one in additive}
    what = f"additive models: and for at least {LEAST:.0%} in each fifth by score (the lowest of the five)"
    out.append(bar(what, fifths, all(value >= LEAST for value in fifths.values())))
    for level in LEVELS:
        most: dict[str, float] = {}
        for one in results:
            if one["world"] in PERSISTENT:
                worst = max(each[f"{level:g}"]["false"] for each in one["lists"].values())
                most[one["world"]] = max(most.get(one["world"], 0.0), worst)
        what = f"models in which ranks persist: at most {level:g} of a list made at that level is false (highest)"
        out.append(bar(what, most, all(value <= level for value in most.values())))
    return out


def _named(one: dict[str, Any]) -> str:
    return f"{one['world']} {one['bias']:g} ({one['learns from']})"


def show(found: Mapping[str, Any]) -> str:
    """Return the results file as Markdown."""
    results = found["results"]
    return "\n\n".join([_intervals(results), _lists(results), table_of_bars(dict(found))]).rstrip()


def _intervals(results: Sequence[Mapping[str, Any]]) -> str:
    """Return a line per world, bias and way: how often intervals hold, how wide they are, and what errors are left."""
    heads = ["world", "bias", "maps learn from", "holds", "lowest tenth of draws", "fifths by score", "median width"]
    heads += ["mean true size", "error", "expected error", "error with ten times the people", "mean ± t sd/√M holds"]
    rows = []
    for one in results:
        fifths = " ".join(f"{value:.2f}" for value in one["fifths"])
        names = ["coverage", "coverage, lowest tenth", "width", "size", "error", "standard error", "error that stays"]
        names.append("coverage by the error of the mean")
        holds, lowest, *numbers = (f"{one[name]:.3f}" for name in names)
        own = [one["world"], f"{one['bias']:g}", one["learns from"], f"**{holds}**", lowest, fifths]
        rows.append([*own, *numbers])
    return markdown_table(heads, rows)


def _lists(results: Sequence[Mapping[str, Any]]) -> str:
    """Return a line per world, bias and delta: how much of each list is false, and how many it finds."""
    chosen = [one for one in results if one["learns from"] == results[0]["learns from"]]
    levels = [level for level in next(iter(chosen[0]["lists"].values())) if level != "over"]
    heads = ["world", "bias", "delta", "truly over it", *(f"false at {level}, power" for level in levels)]
    rows = []
    for one in chosen:
        for delta, own in one["lists"].items():
            cells = [f"{own[level]['false']:.3f}, {_power(own[level]['power'])}" for level in levels]
            rows.append([one["world"], f"{one['bias']:g}", delta, f"{own['over']:.2f}", *cells])
    return markdown_table(heads, rows)


def _power(value: float | None) -> str:
    return "nobody" if value is None else f"{value:.2f}"


def reasons(found: Mapping[str, Any]) -> str:
    """Return why intervals hold less often than they say, world by world."""
    rows = []
    for world, why in REASONS.items():
        own = [one["coverage"] for one in found["results"] if one["world"] == world]
        if own:
            low, high = min(own), max(own)
            rows.append([world, f"{low:.2f}" if low == high else f"{low:.2f} to {high:.2f}", why])
    return markdown_table(["world", "holds", "why"], rows)


CAUSAL = TargetTraining(batch_size=256, rate=5e-3, max_epochs=15)  # few people, who are drawn often
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
        drawn = draw_people(WORLDS[place.world].at(place.bias), many, rows.test, seed=seed)
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
    return join_measurements(parts, folds, len(people))


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
    """Return whether mean ± t(.95, M-1) sd/√M holds the truth (N,): how sure refits are of their mean."""
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
