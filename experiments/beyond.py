"""Beyond the paper: every fairness test and map on every world whose truth is known, from no bias to all of it.

The eight settings of Table 1, the same pairs of tables at bias 0.25, fusions with wdbc, and causal worlds. In each,
several draws of generators, people, targets and an auxiliary; what a test says of an unfair target is held against the
truth, and against what it says of a target that cannot treat anyone unfairly. --only names batches of methods.

A *ground* is one draw of people, an unfair and a fair target and an auxiliary: jobs make it once, and every method is
judged on it. A method is a fairness test or a counterfactual map. A map gives two scores: its effect under its own name
and, under the name with /a, the effect times the alignment share. Methods of one batch run in one job.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from beyond_report import report, show  # noqa: F401  # the runner wants to show results
from causal_worlds import DELTA, WORLDS, draw_people
from runner import Experiment, Folders, Found, Job, pick
from scoring import Scores, alignment_shares, fair_over_unfair, judge_known, known_scores
from settings import SETTINGS, TARGETS, Rows, Setting, Shape, Sources, Target
from torch import Tensor, nn
from trials import (
    generate,
    generator_job,
    load_generator,
    load_targets,
    result_of,
    save_target,
    seed_of,
    threshold_job,
    train_shape,
)
from wording import finite

from fairfox.auxiliary.model import AuxiliaryMember, AuxiliaryModel, FixedAuxiliary
from fairfox.auxiliary.training import usable_columns
from fairfox.benchmark.judge import Trial
from fairfox.benchmark.truth import individual_fairness_score
from fairfox.data.dataset import Dataset
from fairfox.fairtests.registry import make_test
from fairfox.models.torch import TorchModel, load_mlp, save_mlp


@dataclass(frozen=True)
class World:
    """One world at one level of bias: two fused tables, or a causal model by its name."""

    name: str
    family: str
    bias: float
    fused: Setting | None = None

    @property
    def place(self) -> str:
        """The name with the bias, as jobs have it."""
        return f"{self.name}-{self.bias:g}".replace(" ", "_").replace(",", "")


@dataclass(frozen=True)
class Draw:
    """What decides a ground: how many people, which networks, and the seeds."""

    rows: Rows
    target: Target
    auxiliary: Shape
    number: int  # of the draw
    seed: int


@dataclass(frozen=True)
class Ground:
    """People, targets and an auxiliary, and what the ground job measured of them."""

    fitting: Dataset
    people: Dataset
    models: tuple[TorchModel, TorchModel]  # unfair, fair
    auxiliary: FixedAuxiliary
    threshold: float
    shares: list[float]  # alignment share of each target
    seed: int

    @property
    def trial(self) -> Trial:
        """Both targets before the people."""
        return Trial(self.fitting, self.people, *self.models, self.threshold)


def ground_job(world: World, how: Draw, sources: Sources, seed: int) -> Job:
    """Return the job that makes a ground; of fused tables it comes after their generator and the threshold."""
    after: tuple[Job, ...] = ()
    if world.fused is not None:
        generator = generator_job(world.fused, sources, seed)
        after = (generator, threshold_job(generator, world.fused, how.target, how.rows, seed))
    return Job(f"ground-{world.place}-{how.number}", make_ground, (world, how), after=after)


def make_ground(folder: Path, needed: Folders, world: World, how: Draw) -> dict[str, Any]:
    """Train and save both targets and the auxiliary; return the alignment shares of the targets and the threshold."""
    fitting, people, legitimate = _people(needed[:1], world, how)
    models = {
        "unfair": train_shape(fitting, how.target, how.rows, how.seed),
        "fair": train_shape(fitting, how.target, how.rows, how.seed, projection=legitimate),
    }
    for name, model in models.items():
        save_target(model, folder / f"{name}.safetensors")
    auxiliary = AuxiliaryModel(refits=1, width=how.auxiliary.width, depth=how.auxiliary.depth, seed=how.seed).fit(
        fitting
    )
    (member,) = auxiliary.members
    assert isinstance(member, AuxiliaryMember)
    save_mlp(member.net, folder / "auxiliary.safetensors", returns="value")
    shares = alignment_shares(auxiliary, [*models.values()], fitting, people)
    return {"shares": shares, "threshold": DELTA if world.fused is None else result_of(needed[1])["threshold"]}


def load_ground(needed: Folders, world: World, how: Draw) -> Ground:
    """Return what `make_ground` left in the first folder; the second is that of the generator of fused tables."""
    fitting, people, _ = _people(needed[1:], world, how)
    known = result_of(needed[0])
    unfair, fair = load_targets(needed[0])
    learned, held_out = fitting.split(0.8, seed=how.seed)  # as the auxiliary splits them
    net = load_mlp(needed[0] / "auxiliary.safetensors")
    assert isinstance(net, nn.Sequential)
    member = AuxiliaryMember(net, usable_columns(learned))
    auxiliary = FixedAuxiliary([member], held_out)
    return Ground(fitting, people, (unfair, fair), auxiliary, known["threshold"], known["shares"], how.seed)


def _people(generator: Folders, world: World, how: Draw) -> tuple[Dataset, Dataset, Tensor]:
    """Return people to learn from, people to be judged by, and the projection onto what c does not act on."""
    if world.fused is None:
        drawn = draw_people(WORLDS[world.name].at(world.bias), how.rows.fitting, how.rows.test, seed=how.seed)
        return drawn.fitting, drawn.people, drawn.legitimate
    fusion = world.fused.fusion
    fitting, people = generate(generator[0], fusion, world.bias, how.rows, how.seed)
    return fitting, people, load_generator(generator[0]).keep_y(fusion)


PAPER, MAPS = ("faux", "faux+ng", "faux+ig"), ("rank", "move", "move-direct", "transport")
BATCHES = {
    "gradients": (*(name for base in PAPER for name in (base, f"{base}/s")), "fta", "fta+linear", "lic"),
    "maps": MAPS[:3],
    "transport": MAPS[3:],
}
KNOWS_GENERATOR = ("lic",)  # only where dx/dc is known


def scores_of(names: Sequence[str], on: Ground, paired: int) -> Scores:
    """Return the scores of methods for each target (N,), NaN where one cannot say; none of those that lack the truth.

    Every map gives a second score, times the alignment share.
    """
    assert on.people.truth is not None
    found: Scores = {}
    for name in names:
        if name in KNOWS_GENERATOR and on.people.truth.dx_dc is None:
            continue
        settings = {"exact_up_to": paired} if name == "transport" else None
        test = make_test(name, auxiliary=on.auxiliary, refits=1, seed=on.seed, settings=settings).fit(on.fitting)
        found[name] = [known_scores(test.measure(model, on.people)) for model in on.models]
        if name in MAPS:
            found[f"{name}/a"] = [share * each for share, each in zip(on.shares, found[name], strict=True)]
    return found


WEAK = 0.25  # the bias at which the paper's tests lose their footing
ADDITIVE = ("additive", "additive, skewed", "additive, long tails")
MIXED = ("lending", "categorical proxies", "heavy tails")  # categories, unequal spreads, ability as a common cause


def _fused(c: str, y: str, fusion: Any, family: str, bias: float) -> World:
    name = f"{c}-{y}-{fusion}"
    return World(name, family, bias, Setting(name, c, y, fusion, bias))


PAIRS = (("magic", "backache"), ("australian", "credit"))
OF_WDBC = (("wdbc", "credit", "concat"), ("magic", "wdbc", "concat"), ("magic", "wdbc", "outer"))  # 5 880 columns left
FUSED = (
    *(World(setting.name, "settings", setting.bias, setting) for setting in SETTINGS),
    *(_fused(*pair, fusion, "settings", WEAK) for pair in PAIRS for fusion in ("outer", "concat")),
    *(_fused(*three, "wdbc", bias) for three in OF_WDBC for bias in (WEAK, 1.0)),
)


@dataclass(frozen=True)
class Beyond:
    """Which worlds, how many draws of each, and which batches of methods."""

    fused: tuple[World, ...] = FUSED
    causal: tuple[str, ...] = tuple(WORLDS)
    biases: tuple[float, ...] = (0.0, WEAK, 1.0)  # of causal worlds
    draws: int = 2
    batches: tuple[str, ...] = tuple(BATCHES)
    rows: Rows = Rows(10_000, 2_000, 2_500)  # noqa: RUF009
    wide_rows: Rows = Rows(4_000, 1_000, 1_500)  # noqa: RUF009  # of wdbc multiplied out: 2 400 columns
    causal_rows: Rows = Rows(5_000, 1_000, 3_000)  # noqa: RUF009
    targets: tuple[Target, ...] = TARGETS  # in turn
    auxiliary: Shape = Shape(64, 2)  # noqa: RUF009
    sources: Sources = Sources()  # noqa: RUF009
    paired: int = 1_000  # people of each group that transport pairs; it takes the cube of that

    @property
    def worlds(self) -> list[World]:
        """All worlds at all levels of bias."""
        return [*self.fused, *(World(name, family(name), bias) for name in self.causal for bias in self.biases)]

    def draw(self, world: World, number: int, seed: int) -> Draw:
        """Return one of the draws of a world; the same people and networks at every bias, as far as that goes."""
        wide = world.family == "wdbc" and world.fused is not None and world.fused.fusion == "outer"
        rows = self.causal_rows if world.fused is None else self.wide_rows if wide else self.rows
        target = self.targets[number % len(self.targets)]
        return Draw(rows, target, self.auxiliary, number, seed_of(seed, world.name, number))


def family(name: str) -> str:
    """Return which family a causal world belongs to."""
    return "additive" if name in ADDITIVE else "mixed" if name in MIXED else "difficult"


FULL = Beyond()
QUICK = Beyond(
    fused=(FUSED[3],),
    causal=("additive", "lending"),
    biases=(0.0, WEAK, 1.0),
    draws=1,
    rows=Rows(800, 200, 250),
    causal_rows=Rows(800, 200, 250),
    sources=Sources(rows=800, steps=100, pairs=200, models=1),
    paired=200,
)


def jobs(plan: Beyond, seed: int) -> list[Job]:
    """Return a job for each world, draw and batch of methods, after the one that makes the ground."""
    return [
        _scoring_job(plan, world, number, batch, seed)
        for world in plan.worlds
        for number in range(plan.draws)
        for batch in plan.batches
    ]


def _scoring_job(plan: Beyond, world: World, number: int, batch: str, seed: int) -> Job:
    how = plan.draw(world, number, seed)
    ground = ground_job(world, how, plan.sources, seed * plan.draws + number)  # with generators of its own
    arguments = (world, how, BATCHES[batch], plan.paired)
    outer = world.fused is not None and world.fused.fusion == "outer"
    after = (ground, *ground.after[:1])
    return Job(_name(world, number, batch), score_batch, arguments, after, seconds=60 if outer else 8)


def _name(world: World, number: int, batch: str) -> str:
    return f"beyond-{world.place}-{number}-{batch}"


def score_batch(
    folder: Path, needed: Folders, world: World, how: Draw, names: Sequence[str], paired: int
) -> dict[str, Any]:
    """Return how good each method is on one ground."""
    on = load_ground(needed, world, how)
    return {name: numbers(on, scores) for name, scores in scores_of(names, on, paired).items()}


def numbers(on: Ground, scores: Sequence[Tensor]) -> dict[str, float | None]:
    """Return how good a method's scores of both targets are; None where a number has no meaning.

    AP over both targets' people, rho inside the unfair one, the mean score over the mean true score (units), the fair
    target's mean score over the unfair one's (fair), and the unfair one's mean score itself.
    """
    judged = judge_known(scores, on.trial)
    unfair = float(scores[0][scores[0].isfinite()].double().mean())
    truth = float(individual_fairness_score(on.models[0], on.people).double().mean())
    found = {
        **{name: judged[name] for name in ("ap", "rho")},
        "units": unfair / truth if truth else None,
        "fair": fair_over_unfair(*scores),
        "mean": unfair,
    }
    return {name: finite(value) for name, value in found.items()}


def gather(plan: Beyond, found: Found, about: dict[str, Any]) -> dict[str, Any]:
    """Return every world's numbers for each draw, and what they add up to."""
    results: list[dict[str, Any]] = []
    for world in plan.worlds:
        of_draws = [
            {name: one for batch in plan.batches for name, one in found[_name(world, number, batch)].items()}
            for number in range(plan.draws)
        ]
        for method in of_draws[0]:
            each = [own[method] for own in of_draws]
            entry = {"world": world.name, "family": world.family, "bias": world.bias, "method": method}
            results.append(entry | {name: [one[name] for one in each] for name in each[0]})
    return {"results": results} | report(results, full=not about["quick"])


narrow = pick("batches", "batch of methods")
EXPERIMENT = Experiment.of(sys.modules[__name__])


if __name__ == "__main__":
    sys.exit(EXPERIMENT.run())
