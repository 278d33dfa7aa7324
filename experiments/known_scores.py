"""Scores against the truth: every fairness test and map on every world, from no bias to all of it.

The eight settings of Table 1, the same pairs of tables at bias 0.25, fusions with wdbc, and causal worlds. In each,
several draws of generators, people, targets and an auxiliary; what a test says of an unfair target is held against the
truth, and against what it says of a target that cannot treat anyone unfairly.

A *ground* is one draw of people, an unfair and a fair target and an auxiliary: jobs make it once, and every method is
judged on it. A method is a fairness test or a counterfactual map. A map gives two scores: its effect under its own name
and, under the name with /a, the effect times the alignment share. Methods of one batch run in one job.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import stdev
from typing import Any

from causal_worlds import DELTA, WORLDS, draw_people
from runner import Folders, Found, Job
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
from wording import bar, finite, markdown_table, mean, number
from wording import bars as table_of_bars

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


Entry = dict[str, Any]  # of one world and method: lists with a number (or none) for each draw

DEFAULT = "rank"  # what speaks about people; with /a about models
KNOWS = "lic"  # knows the generator
FAMILIES = {
    "settings": "Synthetic-1 to 8",
    "wdbc": "fusions with wdbc",
    "additive": "additive worlds",
    "mixed": "mixed worlds",
    "difficult": "interaction, three classes, confounding, label bias",
    "all": "all worlds",
}
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
class Scoring:
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


FULL = Scoring()
QUICK = Scoring(
    fused=(FUSED[3],),
    causal=("additive", "lending"),
    draws=1,
    rows=Rows(800, 200, 250),
    causal_rows=Rows(800, 200, 250),
    sources=Sources(rows=800, steps=100, pairs=200, models=1),
    paired=200,
)


def jobs(plan: Scoring, seed: int) -> list[Job]:
    """Return a job for each world, draw and batch of methods, after the one that makes the ground."""
    out = []
    for world, index in product(plan.worlds, range(plan.draws)):
        how = plan.draw(world, index, seed)
        ground = ground_job(world, how, plan.sources, seed * plan.draws + index)  # with generators of its own
        seconds = 60 if world.fused is not None and world.fused.fusion == "outer" else 8
        for batch in plan.batches:
            arguments, after = (world, how, BATCHES[batch], plan.paired), (ground, *ground.after[:1])
            out.append(Job(_name(world, index, batch), score_batch, arguments, after, seconds=seconds))
    return out


def _name(world: World, number: int, batch: str) -> str:
    return f"scores-{world.place}-{number}-{batch}"


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


def gather(plan: Scoring, found: Found, about: dict[str, Any]) -> dict[str, Any]:
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


def report(results: Sequence[Entry], *, full: bool) -> dict[str, Any]:
    """Return the summaries at bias 0.5 and above and at 0.25, what is seen where there is nothing, and the bars."""
    strong = [entry for entry in results if entry["bias"] > WEAK]
    weak = [entry for entry in results if entry["bias"] == WEAK]
    found = {"summary": summaries(strong), "weak": summaries(weak), "nothing": nothing(results)}
    return found | {"bars": bars(strong, found) if full else []}


def summaries(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """Return a line for each family and method: the mean over worlds with its standard error, and the worst world."""
    out = []
    for family in FAMILIES:
        own = [entry for entry in entries if family in (entry["family"], "all")]
        for method in dict.fromkeys(entry["method"] for entry in own):
            out.append({"family": family, "method": method, **_line([e for e in own if e["method"] == method])})
    return out


def _line(own: Sequence[Entry]) -> dict[str, Any]:
    line: dict[str, Any] = {"worlds": len(own)}
    for name in ("ap", "rho"):
        of_worlds = [each for each in (mean(entry[name]) for entry in own) if each is not None]
        line |= {name: mean(of_worlds), f"{name}_se": _standard_error([entry[name] for entry in own])}
        line[f"{name}_worst"] = min(of_worlds, default=None)
    return line | {name: mean(mean(entry[name]) for entry in own) for name in ("units", "fair")}


def _standard_error(of_worlds: Sequence[Sequence[float | None]]) -> float | None:
    """Return the standard error over draws of the mean over worlds."""
    of_draws = [mean(each) for each in zip(*of_worlds, strict=True)]
    known = [each for each in of_draws if each is not None]
    return float(stdev(known) / len(known) ** 0.5) if len(known) > 1 else None


def nothing(results: Sequence[Entry]) -> dict[str, float | None]:
    """Return each method's mean score where c acts on nothing, over what it is in the same world at full bias."""
    full = {(e["world"], e["method"]): mean(e["mean"]) for e in results if e["bias"] == 1.0}
    shares: dict[str, list[float]] = {}
    for entry in results:
        whole, none = full.get((entry["world"], entry["method"])), mean(entry["mean"])
        if entry["bias"] == 0.0 and whole and none is not None:
            shares.setdefault(entry["method"], []).append(none / whole)
    return {method: mean(each) for method, each in shares.items()}


def bars(strong: Sequence[Entry], found: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what the default has to show, with the measured values; nothing where a method or family is missing."""
    of, weak = ({(one["family"], one["method"]): one for one in found[part]} for part in ("summary", "weak"))
    aligned, paper = f"{DEFAULT}/a", "faux+ng"
    ap = {method: of["settings", method]["ap"] for method in (aligned, KNOWS)}
    out = [
        bar(f"{aligned}: mean AP over the settings at most 0.005 below {KNOWS}", ap, ap[aligned] >= ap[KNOWS] - 0.005)
    ]
    rho = {(e["world"], e["method"]): mean(e["rho"]) or 0.0 for e in strong if e["family"] == "settings"}
    ahead = [rho[world, method] > rho[world, KNOWS] for world, method in rho if method == DEFAULT]
    what = f"{DEFAULT}: rho above {KNOWS} in at least six of the eight settings"
    out.append(bar(what, f"{sum(ahead)} of {len(ahead)}", sum(ahead) >= 6))
    aim = {name: of["settings", DEFAULT][name] for name in ("rho", "rho_worst")}
    what = f"{DEFAULT}: the aim over the settings, mean rho at least 0.75 and the worst above 0.6"
    out.append(bar(what, aim, aim["rho"] >= 0.75 and aim["rho_worst"] > 0.6))
    for family, least in (("settings", 0.64), ("additive", 0.97), ("mixed", 0.68)):
        own = of[family, DEFAULT]["rho"]
        out.append(bar(f"{DEFAULT}: mean rho at least {least} ({FAMILIES[family]})", own, own >= least))
    for name, words, method in (("ap", "AP", aligned), ("rho", "rho", DEFAULT)):
        others = {m: one[name] for (f, m), one in of.items() if f == "all" and m not in (KNOWS, method) and one[name]}
        own, best = of["all", method][name], max(others, key=lambda m: others[m])
        what = f"{method}: no mean {words} over all worlds is higher, {KNOWS} apart"
        out.append(bar(what, {method: own, best: others[best]}, own >= others[best]))
    ap = {method: weak["all", method]["ap"] for method in (aligned, paper)}
    within = {method: weak["settings", method]["ap"] for method in (aligned, KNOWS)}
    what = f"{aligned} at bias {WEAK}: mean AP at least 0.10 above {paper}, or that of {KNOWS} in the settings"
    holds = ap[aligned] >= ap[paper] + 0.10 or within[aligned] >= within[KNOWS] - 0.005
    out.append(bar(what, ap | {"in the settings": within}, holds))
    units = of["all", DEFAULT]["units"]
    out.append(bar(f"{DEFAULT}: mean score over mean true score from 0.8 to 1.2", units, 0.8 <= units <= 1.2))
    for fused, most, words in ((False, 0.10, "in causal worlds"), (True, 0.20, "where tables are fused")):
        own = [e for e in strong if e["method"] == DEFAULT and (e["family"] in ("settings", "wdbc")) == fused]
        fair = mean(mean(entry["fair"]) for entry in own) or 0.0
        told = f"{DEFAULT}: mean score of fair targets over that of unfair ones at most {most:.2f} {words}"
        out.append(bar(told, fair, fair <= most))
    return out


def show(found: dict[str, Any]) -> str:
    """Return the methods over all worlds at bias 0.5 and above, at 0.25 and at none, and the bars, as Markdown."""
    heads = ["method", "worlds", "mean AP", "worst AP", "mean rho", "worst rho", "units", "fair / unfair"]
    heads += [f"mean AP at {WEAK}", "no bias / full bias"]
    own = [line for line in found["summary"] if line["family"] == "all"]
    weak = {line["method"]: line["ap"] for line in found["weak"] if line["family"] == "all"}
    own.sort(key=lambda line: -(line["ap"] if line["ap"] is not None else -1.0))
    rows = []
    for line in own:
        numbers = [_with_error(line, "ap"), number(line["ap_worst"]), _with_error(line, "rho")]
        numbers += [number(line[name]) for name in ("rho_worst", "units", "fair")]
        numbers += [number(each.get(line["method"])) for each in (weak, found["nothing"])]
        rows.append([line["method"], str(line["worlds"]), *numbers])
    return f"{markdown_table(heads, rows)}\n\n{table_of_bars(found)}".rstrip()


def _with_error(line: dict[str, Any], name: str) -> str:
    error = line[f"{name}_se"]
    return number(line[name]) + (f" ± {error:.3f}" if error is not None else "")
