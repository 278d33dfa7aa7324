"""Whether the score is more often right about the people who are left when the most doubtful are not judged.

In worlds whose truth is known the error of a person's score is ||effect| - |f(x) - f(x')||. People are left out by
`doubt`, by each single reason to doubt a score, at random, and by the error itself, which only an oracle knows.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import isfinite
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from beyond import FULL as BEYOND
from beyond import Beyond
from runner import Experiment, Found, Job, named
from settings import Rows
from torch import Tensor
from trials import Folders, seed_of
from wording import bar, markdown_table, number
from wording import bars as table_of_bars
from worlds import Draw, Ground, World, ground_job, load_ground

from fairfox.evaluation import spearman
from fairfox.fairtests.protocol import Measurement
from fairfox.fairtests.registry import FAIR_TESTS, make_test
from fairfox.gradients.jacobian import jacobian
from fairfox.reliability import distance, doubt, spread
from fairfox.synthetic.truth import individual_fairness_score

SHARES = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5)  # of the people who are kept
MEASURES = ("error", "relative error", "rho", "true score")
REFERENCES = ("oracle", "random")  # orders that are no reasons


@dataclass(frozen=True)
class Coverage:
    """Which worlds, and which tests are asked for how sure they are."""

    grounds: Beyond = field(default_factory=lambda: replace(BEYOND, fused=BEYOND.fused[:8], draws=1))
    tests: tuple[str, ...] = ("rank", "move")
    refits: int = 5
    widest: int = 100  # columns up to which `move` is asked too: its five auxiliaries take long


FULL = Coverage()
QUICK = Coverage(
    replace(FULL.grounds, fused=(), causal=("additive", "lending"), biases=(1.0,), causal_rows=Rows(600, 150, 400)),
    refits=3,
)


def jobs(plan: Coverage, seed: int) -> list[Job]:
    """Return one job per world, after the one that makes its ground."""
    return [_job(plan, world, draw, seed) for world in plan.grounds.worlds for draw in range(plan.grounds.draws)]


def _job(plan: Coverage, world: World, number: int, seed: int) -> Job:
    how = plan.grounds.draw(world, number, seed)
    ground = ground_job(world, how, plan.grounds.sources, seed)
    arguments = (world, how, plan.tests, plan.refits, plan.widest)
    return Job(_name(world, number), curves_of, arguments, after=(ground, *ground.after[:1]))


def _name(world: World, number: int) -> str:
    return f"risk-{world.place}-{number}"


def curves_of(
    folder: Path, needed: Folders, world: World, how: Draw, tests: Sequence[str], refits: int, widest: int
) -> dict[str, Any]:
    """Return, for each test, how error and size of the kept change by each order, and which reasons go with error."""
    on = load_ground(needed, world, how)
    asked = [test for test in tests if test == "rank" or on.people.x.shape[1] <= widest]
    return {test: _judged(on, test, refits) for test in asked}


def _judged(on: Ground, test: str, refits: int) -> dict[str, Any]:
    measured = make_test(test, refits=refits, seed=on.seed).fit(on.fitting).measure(on.models[0], on.people)
    known = ~measured.abstained
    truth = individual_fairness_score(on.models[0], on.people)
    error = (measured.score - truth).abs()
    found = reasons(on, measured, FAIR_TESTS[test].delta)
    generator = torch.Generator().manual_seed(seed_of(on.seed, "random"))
    orders = found | {"oracle": error, "random": torch.rand(len(error), generator=generator)}
    of_known = {name: order[known] for name, order in orders.items()}
    return {
        "curves": {name: curve(order, measured.score[known], truth[known]) for name, order in of_known.items()},
        "correlations": {name: _finite(spearman(of_known[name], error[known])) for name in found},
    }


def reasons(on: Ground, measured: Measurement, delta: float) -> dict[str, Tensor]:
    """Return what speaks against each person's score (N,), by name: larger is more doubtful."""
    people, model, (member,) = on.people, on.models[0], on.auxiliary.members
    mapped = measured.counterfactual
    assert mapped is not None
    own, to = people.c[:, 0], measured.klass.to(people.x)
    s, groups = spread(measured.refits), on.fitting.c[:, 0]
    off = distance(mapped, to, on.fitting.x, groups, seed=on.seed)
    doubts, there = doubt(measured.refits, delta), jacobian(model, mapped)[:, 0].norm(dim=1)
    return {
        "doubt": doubts,
        "spread": s,
        "relative spread": s / measured.score.clamp(min=1e-9),
        "size": measured.score,
        "distance": off,
        "distance gained": off / distance(people.x, own, on.fitting.x, groups, seed=on.seed),
        "gradient at x": jacobian(model, people.x)[:, 0].norm(dim=1),
        "gradient at x'": there,
        "unsure auxiliary": -_margin(member(people.x).detach()),
        "flat auxiliary": -jacobian(member, people.x).norm(dim=(1, 2)),
        "doubt and gradient": _ranks(doubts) + _ranks(there) / 2,
        "doubt and distance": _ranks(doubts) + _ranks(off) / 2,
    }


def _margin(outputs: Tensor) -> Tensor:
    """Return how much more the auxiliary says for one class than for the next (N,)."""
    if outputs.shape[1] == 1:
        return outputs[:, 0].abs()
    first, second = outputs.topk(2, dim=1).values.unbind(1)
    return first - second


def _ranks(values: Tensor) -> Tensor:
    return values.argsort(stable=True).argsort().to(values)


def curve(order: Tensor, score: Tensor, truth: Tensor) -> dict[str, list[float | None]]:
    """Return mean error, the same over the mean true score, rho and mean true score, at each share that is kept."""
    ranked = order.argsort(stable=True)
    found: dict[str, list[float | None]] = {name: [] for name in MEASURES}
    for share in SHARES:
        kept = ranked[: round(share * len(ranked))]
        s, t = score[kept].double(), truth[kept].double()
        error, size = float((s - t).abs().mean()), float(t.mean())
        values = (error, error / size if size else None, _finite(spearman(s, t)), size)
        for name, value in zip(MEASURES, values, strict=True):
            found[name].append(value)
    return found


def _finite(value: float) -> float | None:
    return value if isfinite(value) else None


def gather(plan: Coverage, found: Found, about: dict[str, Any]) -> dict[str, Any]:
    """Return each test's mean curves, how many worlds go the same way, each world's own curve, and the bars."""
    places = [(world, draw) for world in plan.grounds.worlds for draw in range(plan.grounds.draws)]
    results, means = [], {}
    for test in plan.tests:
        asked = [(world, draw, own[test]) for world, draw in places if test in (own := found[_name(world, draw)])]
        means[test] = over_worlds([own for _, _, own in asked])
        results += [
            {"test": test, "world": world.name, "family": world.family, "bias": world.bias, "draw": draw}
            | {name: _rounded(own["curves"]["doubt"][name]) for name in MEASURES}
            | {"correlations": {name: _rounded([value])[0] for name, value in own["correlations"].items()}}
            for world, draw, own in asked
        ]
    return {"shares": SHARES, "means": means, "results": results} | {"bars": [] if about["quick"] else bars(means)}


def over_worlds(each: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return for each order the mean curves, in how many worlds they become better, and how it goes with the error."""
    out = {}
    for order in each[0]["curves"]:
        own: dict[str, Any] = {"worlds": len(each)}
        for name in MEASURES:
            curves = [one["curves"][order][name] for one in each if None not in one["curves"][order][name]]
            own[name] = _rounded([fmean(values) for values in zip(*curves, strict=True)])
            if name != "true score":  # which need not change
                own[f"{name}: worlds"] = {
                    "known": len(curves),
                    "better at every step": sum(_better(values, name) for values in curves),
                    "better at half": sum(_better((values[0], values[-1]), name) for values in curves),
                }
        if order not in REFERENCES:
            known = [value for one in each if (value := one["correlations"][order]) is not None]
            own["correlation"] = _rounded([fmean(known), min(known), max(known)])
        out[order] = own
    return out


def _better(values: Sequence[float], name: str) -> bool:
    """Return whether what is kept becomes better at every step: errors fall, rho rises; equal is not better."""
    return all(b > a if name == "rho" else b < a for a, b in pairwise(values))


def bars(means: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what has to be shown."""
    out = []
    for test, orders in means.items():
        own, random = orders["doubt"], orders["random"]
        falls = f"{test}: the error of the kept falls at every tenth from all people to half, mean over worlds"
        out.append(bar(falls, own["error"], _better(own["error"], "error")))
        relative = f"{test}: so does the error relative to the true score of the kept"
        out.append(bar(relative, own["relative error"], _better(own["relative error"], "relative error")))
        out.append(bar(f"{test}: and rho among the kept rises", own["rho"], _better(own["rho"], "rho")))
        ahead = all(a < b for a, b in zip(own["error"][1:], random["error"][1:], strict=True))
        out.append(bar(f"{test}: below the error of a random order at every share", random["error"], ahead))
    return out


def _rounded(values: Sequence[float | None]) -> list[float | None]:
    return [None if value is None else float(f"{value:.4g}") for value in values]


def show(found: dict[str, Any]) -> str:
    """Return the results file as Markdown."""
    parts = []
    for test, orders in found["means"].items():
        parts += [f"`{test}`, mean over {orders['doubt']['worlds']} worlds:", _table(orders)]
    return "\n\n".join([*parts, table_of_bars(found)]).rstrip()


def _table(orders: Mapping[str, Any]) -> str:
    """Return a line per order: error of all, of nine tenths and of half, the rest for half, and worlds."""
    heads = ["left out by", "with error", "error: all", "90 %", "50 %", "relative: all", "90 %", "50 %"]
    heads += ["rho: all", "90 %", "50 %", "true score, 50 % over all", "falls at every tenth in"]
    rows = []
    for name, own in orders.items():
        errors = [f"{own['error'][place]:.4f}" for place in (0, 1, -1)]
        numbers = errors + [number(own[measure][place]) for measure in MEASURES[1:3] for place in (0, 1, -1)]
        size = f"{own['true score'][-1] / own['true score'][0]:.2f}"
        worlds = own["error: worlds"]
        steady = f"{worlds['better at every step']} of {worlds['known']} worlds"
        with_error = f"{own['correlation'][0]:.2f}" if "correlation" in own else "-"
        rows.append([name, with_error, *numbers, size, steady])
    return markdown_table(heads, rows)


def narrow(plan: Coverage, names: Sequence[str]) -> Coverage:
    """Return the plan for some of the tests."""
    return replace(plan, tests=named("test", {test: test for test in plan.tests}, names))


EXPERIMENT: Experiment[Coverage] = Experiment(
    name="risk_coverage",
    description="Error of the people who are left when the most doubtful are not judged. --only names tests.",
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
