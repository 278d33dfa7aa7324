"""How often intervals hold the true effect, and how many people on a list of discoveries are there wrongly.

In worlds whose truth is known the true signed effect is f(x_cf) - f(x). A robust 90 % interval allows for sampling and
for ranks that carry over only with a correlation of .9. A list of people whose effect is more than delta, made at a
level of false discoveries, should have no more than that share of people on it whose true effect is not. There are two
such lists: the verdict's, where ranks carry over as they are (`significant`), and one at the correlation of .9.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import torch
from causal_worlds import UNSEEN, WORLDS, draw_people
from runner import Folders, Found, Job
from settings import SETTINGS, Rows, Setting, Shape, Sources, Target
from torch import Tensor
from trials import generate, generator_job, seed_of, train_shape
from wording import bar, held, mean

from fairfox.benchmark.truth import TargetTraining
from fairfox.data.dataset import Dataset, Feature
from fairfox.fairtests.effect import Effect
from fairfox.fairtests.fitted import DRAWS
from fairfox.fairtests.protocol import Measurement
from fairfox.fairtests.registry import make_test
from fairfox.models.protocol import Model, predict
from fairfox.options import EstimationOptions
from fairfox.statistics.groups import certainty

PERSISTENCE = EstimationOptions().persistence  # .9, fixed before any of these worlds was looked at
LEAST = 0.85  # of the share of people whose interval holds
LEVELS = (0.05, 0.1, 0.2)  # of false discoveries
LISTS = {  # by name: which list of an audit's certainty it is, and the words for it
    "lists": ("robust", "a list"),
    "significant": ("significant", "the verdict's list"),
}
HIDDEN = {"confounded": "hometown"}  # what is a cause of the group and of the features, and not in the table
ALL = WORLDS | UNSEEN
CAUSAL = TargetTraining(batch_size=256, rate=5e-3, max_epochs=15)  # few people, who are drawn often


class Place(NamedTuple):
    """A world at a level of bias, and what is given."""

    world: str
    bias: float
    draws: int
    given: str = ""
    fused: Setting | None = None

    @property
    def job(self) -> str:
        """The name of its job."""
        return f"intervals-{self.world}-{self.bias:g}-{self.given}".replace(" ", "_").replace(",", "")

    @property
    def barred(self) -> bool:
        """Whether intervals are to hold: not where a common cause is not in the table, nor in fused tables as such."""
        return bool(self.given) or (self.fused is None and self.world not in HIDDEN)


@dataclass(frozen=True)
class Plan:
    """Which worlds, how often, how many people, and what counts."""

    causal: tuple[str, ...] = (*UNSEEN, *WORLDS)
    biases: tuple[float, ...] = (0.5, 1.0)
    fused: tuple[Setting, ...] = tuple(setting for setting in SETTINGS if setting.c == "australian")
    draws: int = 8
    fused_draws: int = 2
    rows: Rows = Rows(1_600, 400, 1_000)  # noqa: RUF009
    fused_rows: Rows = Rows(10_000, 2_000, 1_000)  # noqa: RUF009
    refits: int = 5
    deltas: tuple[float, ...] = (0.05, 0.1)
    target: Shape = Shape(32, 1)  # noqa: RUF009
    sources: Sources = Sources()  # noqa: RUF009

    def places(self) -> Iterator[Place]:
        """Yield all worlds at all levels of bias; where something hides, also with it given."""
        for name in self.causal:
            for given in dict.fromkeys(("", HIDDEN.get(name, ""))):
                yield from (Place(name, bias, self.draws, given) for bias in self.biases)
        for setting in self.fused:
            yield from (Place(setting.name, setting.bias, self.fused_draws, given, setting) for given in ("", "y"))


FULL = Plan()
QUICK = Plan(("lending", "confounded"), (1.0,), (), 2, 0, Rows(240, 60, 200), refits=3)


def jobs(plan: Plan, seed: int) -> list[Job]:
    """Return one job per world and bias; of fused tables it comes after their generator."""
    size = replace(plan, causal=(), fused=(), draws=0, fused_draws=0)  # all that decides a job's result
    return [
        Job(
            place.job,
            judge,
            (place, size, seed),
            seconds=60 if place.fused else 15,
            after=() if place.fused is None else (generator_job(place.fused, plan.sources, seed),),
        )
        for place in plan.places()
    ]


def judge(folder: Path, needed: Folders, place: Place, size: Plan, seed: int) -> list[dict[str, Any]]:
    """Return for every draw what holds."""
    found, rows = [], size.fused_rows if place.fused else size.rows
    for draw in range(place.draws):
        own = seed_of(seed, place.world, draw)
        fitting, people = _people(needed, place, rows, own)
        shape = Target(size.target.width, size.target.depth, *(() if place.fused else (CAUSAL,)))
        model = train_shape(fitting, shape, rows, own)
        measured = measure(model, fitting, people, place.given, size.refits, own)
        found.append(judged(measured, true_effect(model, people, measured.klass), size.deltas))
    return found


def _people(needed: Folders, place: Place, rows: Rows, seed: int) -> tuple[Dataset, Dataset]:
    """Return people to learn from, and people to be judged; what is given and hidden stands beside their features."""
    if place.fused is not None:
        return generate(needed[0], place.fused.fusion, place.bias, rows, seed)
    world, sizes = ALL[place.world].at(place.bias), (rows.fitting, rows.test)
    drawn = draw_people(world, *sizes, seed=seed)
    if not place.given:
        return drawn.fitting, drawn.people
    column = (Feature(place.given, "continuous", 0, 1),)
    both = []
    for index, data in enumerate((drawn.fitting, drawn.people)):  # the same people as draw_people has
        values = world.sample(sizes[index], seed=2 * seed + index).values[place.given]
        both.append(replace(data, w=torch.as_tensor(values)[:, None], covariates=column))
    return both[0], both[1]


def measure(model: Model, fitting: Dataset, people: Dataset, given: str, refits: int, seed: int) -> Measurement:
    """Return the effects of people, with what draws add where ranks persist in part."""
    test = make_test("rank", given=(given,) if given else (), refits=refits, seed=seed).fit(fitting)
    assert isinstance(test, Effect)
    measured = test.measure(model, people, rows=False)
    (drawn,) = test.deviations(model, people, measured, predict(model, people.x), (PERSISTENCE,), DRAWS)
    return replace(measured, deviations=drawn)


def true_effect(model: Model, people: Dataset, klass: Tensor) -> Tensor:
    """Return f(x_cf) - f(x) (N,), x_cf the same person as a member of the class given for each."""
    assert people.truth is not None
    others = people.truth.counterfactual
    if others.ndim == 3:  # (N, K - 1, D): the next class, the one after it, ...
        step = (klass - people.c[:, 0].long()) % (others.shape[1] + 1) - 1
        others = others[torch.arange(len(others)), step]
    return predict(model, others) - predict(model, people.x)


def judged(measured: Measurement, truth: Tensor, deltas: Sequence[float]) -> dict[str, Any]:
    """Return how many intervals hold the truth (N,), how wide they are, and how good the lists are."""
    sure, truth = certainty(measured, deltas[0], None), truth.double()
    out: dict[str, Any] = {"size": float(truth.abs().mean())}
    for name, ends in (("", sure.interval), ("sampling alone: ", sure.sampling)):
        assert ends is not None
        holds = ((ends[:, 0] <= truth) & (truth <= ends[:, 1])).double()
        out |= {f"{name}coverage": float(holds.mean()), f"{name}width": float((ends[:, 1] - ends[:, 0]).median())}
    for delta in deltas:
        of_levels = {level: certainty(measured, delta, level) for level in LEVELS}
        for name, (which, _) in LISTS.items():
            listed = {level: getattr(one, which) for level, one in of_levels.items()}
            out.setdefault(name, {})[f"{delta:g}"] = errors(listed, truth.abs() > delta)
    return out


def errors(listed: Mapping[float, Tensor], over: Tensor) -> dict[str, Any]:
    """Return, by level, the share of those on the list who are not over delta, and of those over it who are on it."""
    out: dict[str, Any] = {"over": float(over.double().mean())}
    for level, who in listed.items():
        out[f"{level:g}"] = {
            "false": int((who & ~over).sum()) / max(1, int(who.sum())),
            "power": int((who & over).sum()) / int(over.sum()) if bool(over.any()) else None,
        }
    return out


def gather(plan: Plan, found: Found, about: dict[str, Any]) -> dict[str, Any]:
    """Return the means over draws, and what has to be shown."""
    results = [
        {"world": place.world, "bias": place.bias, "given": place.given, "barred": place.barred}
        | {"unseen": place.world in UNSEEN, "draws": place.draws}
        | over_draws(found[place.job])
        for place in plan.places()
    ]
    return {"persistence": PERSISTENCE, "results": results, "bars": [] if about["quick"] else bars(results)}


def over_draws(draws: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return means over draws."""
    lists = {n: {delta: _mean_lists([one[n][delta] for one in draws]) for delta in draws[0][n]} for n in LISTS}
    return {name: lists[name] if name in lists else fmean(one[name] for one in draws) for name in draws[0]}


def _mean_lists(draws: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return means over draws; the power over those where there is somebody to be found."""
    out: dict[str, Any] = {"over": fmean(one["over"] for one in draws)}
    for level in map("{:g}".format, LEVELS):
        false, power = ([one[level][name] for one in draws] for name in ("false", "power"))
        out[level] = {"false": fmean(false), "power": mean(power)}
    return out


def bars(results: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what has to be shown, of worlds that nobody had looked at first."""
    out = []
    for unseen in (True, False):
        own = [one for one in results if one["barred"] and one["unseen"] == unseen]
        which = "worlds made last" if unseen else "all other worlds"
        holds = {_named(one): one["coverage"] for one in own}
        what = f"{which}: robust 90 % intervals hold for at least {LEAST:.0%} of people"
        out.append(bar(what, holds, all(value >= LEAST for value in holds.values())))
        for (name, (_, words)), level in product(LISTS.items(), LEVELS):
            most = {_named(one): max(each[f"{level:g}"]["false"] for each in one[name].values()) for one in own}
            what = f"{which}: at most {level:g} of {words} made at that level is false (highest of the deltas)"
            out.append(bar(what, most, all(value <= level for value in most.values())))
    return out


def _named(one: Mapping[str, Any]) -> str:
    return f"{one['world']} {one['bias']:g}" + (f" given {one['given']}" if one["given"] else "")


show = held  # the values of each world are in the results file


def chart(found: Mapping[str, Any]) -> Any:
    """Return for each world how often intervals hold, and how much of its list at 0.1 is false; rules at the bars."""
    import altair as alt

    values = [
        {"world": _named(one), "intervals hold": one["coverage"]}
        | {"false on the list": one["lists"]["0.05"]["0.1"]["false"]}
        for one in found["results"]
    ]
    base = alt.Chart(alt.InlineData(values=values)).encode(y=alt.Y("world:N", title=None, sort=None))
    panels = []
    for name, at, ends in (("intervals hold", LEAST, [0.5, 1.0]), ("false on the list", 0.1, [0.0, 0.3])):
        across = alt.X(f"{name}:Q", scale=alt.Scale(domain=ends), axis=alt.Axis(format="%"))
        rule = alt.Chart(alt.InlineData(values=[{name: at}])).mark_rule(strokeDash=[4, 3]).encode(x=across)
        panels.append(
            (base.mark_point(filled=True, size=50, color="#0072b2").encode(x=across) + rule).properties(width=260)
        )
    return alt.hconcat(*panels)
