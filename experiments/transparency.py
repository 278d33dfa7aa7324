"""Which features give c away? Transparency reports of every method against mutual information, on real tables.

The paper's appendix ranks features by |mean over c = 0| of the auxiliary's gradient, or of x - G(x) for FlipTest, and
judges the order by NDCG. Its ground truth is a mean over one-hot columns, which says little of a category with many
levels; ours is the mutual information of each original feature. A random order has a high NDCG by itself.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike
from real_data import ADVERSARIAL, FAMILY, TABLES, TITLES, Ground, gan_job, lacking, load_gan
from runner import Experiment, Folders, Found, Job, Results, pick
from scipy.stats import ks_2samp
from settings import AUXILIARIES, Shape
from sklearn.metrics import ndcg_score
from torch import Tensor
from torch.nn.functional import normalize
from trials import seed_of
from wording import bar
from wording import bars as bars_in_words

from fairfox.auxiliary.model import AuxiliaryModel, FixedAuxiliary
from fairfox.data.dataset import Dataset, Feature
from fairfox.gradients.integrated import integrated_jacobian
from fairfox.gradients.jacobian import jacobian
from fairfox.maps.gan import GanSettings
from fairfox.maps.move import Metric, MoveMap
from fairfox.maps.protocol import CounterfactualMap
from fairfox.maps.rank import RankMap
from fairfox.models.protocol import Model

Levels = Literal["mean", "max", "sum"]  # what is made of a category's columns
REDUCED: dict[Levels, Callable[[Tensor], Tensor]] = {"mean": torch.mean, "max": torch.max, "sum": torch.sum}
OVER = ("", ", over c = 1")  # whose gradients are averaged; which of two groups is c = 0 the paper does not say
MOVES: dict[str, Metric] = {"move": "between", "move, covariance": "covariance", "move-direct": "identity"}
OWN = (*FAMILY, "rank", *MOVES)  # fairfox's; the others are peers' and yardsticks
GRADIENT: tuple[Levels, ...] = ("mean", "max")
DISPLACEMENT: tuple[Levels, ...] = ("sum", "mean")  # the paper takes the mean
WHOLE = "none"  # no columns to aggregate
TRUTHS = ("paper", "own")

# NDCG and its standard deviation, as printed; with the mean over one-hot columns.
PRINTED = {
    "fliptest": {"adult": (0.810, 0.150), "chicago": (0.840, 0.136), "bank": (0.752, 0.108)},
    "faux": {"adult": (0.802, 0.058), "chicago": (0.796, 0.098), "bank": (0.798, 0.047)},
    "faux+ng": {"adult": (0.807, 0.105), "chicago": (0.884, 0.119), "bank": (0.789, 0.058)},
    "faux+ig": {"adult": (0.896, 0.037), "chicago": (0.958, 0.006), "bank": (0.814, 0.058)},
}
LEAST = {"adult": 0.97, "bank": 0.90}  # NDCG with our truth of the best order
ABOVE_RANDOM = 0.2

Strengths = dict[str, dict[str, list[float]]]  # (F,) of each method, by how its columns were put together


@dataclass(frozen=True)
class Reports:
    """Whose reports are judged, on which tables, and how often everything that is trained is trained."""

    tables: tuple[str, ...] = tuple(TABLES)
    auxiliaries: tuple[Shape, ...] = AUXILIARIES[:4]
    adversarial: tuple[Shape, ...] = AUXILIARIES[:4]  # of the auxiliaries that hide y, as the paper has them
    numbers: int = 3  # generators, and what is fitted without an auxiliary, each on people of its own
    rows: int | None = None  # all
    gan: GanSettings = GanSettings()  # noqa: RUF009


FULL = Reports()
QUICK = Reports(("adult", "chicago"), AUXILIARIES[:2], AUXILIARIES[:1], 1, rows=600, gan=GanSettings(steps=20))


def jobs(plan: Reports, seed: int) -> list[Job]:
    """Return for each table a job for its truths, one for each auxiliary, and two for each of the numbers."""
    out: list[Job] = []
    missing = lacking(plan.tables)
    for table in plan.tables:
        if table in missing:
            continue
        grounds = [Ground(table, number, seed, plan.rows) for number in range(plan.numbers)]
        first = Ground(table, 0, seed, plan.rows)
        out.append(Job(f"truth-{table}", find_truths, (first,)))
        for name, adversarial, shapes in _kinds(plan):
            out += [
                Job(
                    f"{name}-{table}-{i}",
                    read_auxiliary,
                    (first, shape, adversarial, seed_of(seed, name, table, i)),
                    seconds=80 if adversarial else 10,
                )
                for i, shape in enumerate(shapes)
            ]
        out += [Job(f"fliptest-{g.name}", read_generator, (g,), after=(gan_job(g, plan.gan),)) for g in grounds]
        out += [Job(f"groups-{g.name}", read_groups, (g,)) for g in grounds]
    return out


def _kinds(plan: Reports) -> tuple[tuple[str, bool, tuple[Shape, ...]], ...]:
    return ("auxiliary", False, plan.auxiliaries), ("adversarial", True, plan.adversarial)


def mean_gradients(member: Model, x: Tensor, *, batch_size: int = 4096) -> dict[str, Tensor]:
    """Return per column (D,) the mean over people of an auxiliary's gradient, by the name of the test that has it.

    `faux`: the gradient of its first output; `faux+ng`: each person's of length one; `faux+ig`: integrated from the
    zero row. Their sizes (`strength_by_feature`) are the paper's transparency reports.
    """
    gradient = jacobian(member, x, batch_size=batch_size)[:, 0]  # (N, D)
    zero = x.new_zeros(x.shape[1])
    integrated = integrated_jacobian(member, x, baseline=zero, batch_size=batch_size)[:, 0]
    each = {"faux": gradient, "faux+ng": normalize(gradient, dim=1), "faux+ig": integrated}
    return {name: rows.mean(0) for name, rows in each.items()}


def strength_by_feature(columns: Tensor, features: Sequence[Feature], levels: Levels) -> Tensor:
    """Return one strength per original feature (F,) from signed columns (D,): their sizes, reduced to one.

    Gradients of a category's levels are comparable to a number's by their mean or maximum, displacements by their sum.
    """
    return torch.stack([REDUCED[levels](columns[f.columns].abs()) for f in features])


def group_distance(here: Tensor, there: Tensor, features: Sequence[Feature]) -> Tensor:
    """Return the distance (F,), 0 to 1, between each feature's distributions in two groups' rows (n, D) and (m, D).

    A number's distance is the two-sample Kolmogorov-Smirnov statistic, a category's the total variation.
    """
    gaps = (there.mean(0) - here.mean(0)).abs()
    return torch.stack(
        [
            gaps[f.columns].sum() / 2
            if f.kind == "categorical"
            else gaps.new_tensor(ks_2samp(here[:, f.start], there[:, f.start], method="asymp").statistic)
            for f in features
        ]
    )


def learned_from(ground: Ground) -> tuple[Dataset, Dataset]:
    """Return the people that auxiliaries and maps learn from, and everyone: reports are about the whole table."""
    parts = ground.people()
    x, c = (torch.cat([getattr(part, name) for part in parts]) for name in ("x", "c"))
    return parts[0], Dataset(x, c, parts[0].protected, parts[0].features, withheld=parts[0].withheld)


def group(people: Dataset, code: int) -> Dataset:
    """Return the people with c = code; the paper's reports, and those of maps here, are about all with c = 0."""
    return people[people.c[:, 0] == code]


def find_truths(folder: Path, needed: Folders, ground: Ground) -> dict[str, Any]:
    """Return the mutual information of each feature with c, in the ways of `truths_of`."""
    people = learned_from(ground)[1]
    found = truths_of(people, ground.seed_for("truth"))
    return {"features": [f.name for f in people.features], "people": len(people), **found}


def truths_of(people: Dataset, seed: int) -> dict[str, list[float]]:
    """Return two ground truths, one number per original feature each.

    `paper`: Ross's estimator, by nearest neighbours, on every encoded column, as the paper names it and as
    scikit-learn's function does by itself; the mean over a category's columns. `own`: every original feature,
    categories counted as they are.
    """
    from sklearn.feature_selection import mutual_info_classif

    x, c = people.x.double().numpy(force=True), people.c[:, 0].numpy(force=True).astype(int)
    features = people.features
    original = np.stack(
        [x[:, f.columns].argmax(1) if f.kind == "categorical" else x[:, f.start] for f in features], axis=1
    )
    categorical = np.array([f.kind == "categorical" for f in features])
    encoded = torch.from_numpy(mutual_info_classif(x, c, discrete_features=False, random_state=seed))
    own = mutual_info_classif(original, c, discrete_features=categorical, random_state=seed)
    return {"paper": strength_by_feature(encoded, features, "mean").tolist(), "own": own.tolist()}


def read_auxiliary(
    folder: Path, needed: Folders, ground: Ground, shape: Shape, adversarial: bool, seed: int
) -> Strengths:
    """Return what one auxiliary reports: its gradients, and, where it is a plain one, how people move along it."""
    fitting, people = learned_from(ground)
    fitted = AuxiliaryModel(refits=1, width=shape.width, depth=shape.depth, seed=seed, adversarial=adversarial)
    auxiliary = FixedAuxiliary(fitted.fit(fitting).members, fitted.held_out)
    found: Strengths = {}
    for code, over in enumerate(OVER[:1] if adversarial else OVER):
        means = mean_gradients(auxiliary.members[0], group(people, code).x)
        found |= {
            f"{name}{ADVERSARIAL * adversarial}{over}": by_feature(means[name], people, GRADIENT) for name in FAMILY
        }
    for name, metric in MOVES.items() if not adversarial else ():
        found |= displaced(name, MoveMap(metric=metric, auxiliary=auxiliary).fit(fitting), group(people, 0))
    return found


def by_feature(columns: Tensor, people: Dataset, levels: Sequence[Levels]) -> dict[str, list[float]]:
    """Return the strength of each feature from signed columns (D,), in each way of putting levels together."""
    return {how: strength_by_feature(columns, people.features, how).tolist() for how in levels}


def displaced(name: str, fitted: CounterfactualMap, people: Dataset) -> Strengths:
    """Return how far a map displaces people on average; nothing where it can map nobody (a generator diverged)."""
    mapped = fitted.map(people)
    if bool(mapped.abstained.all()):
        return {}
    weight = (~mapped.abstained).to(people.x) * (1.0 if people.weights is None else people.weights)
    signed = (weight / weight.sum()) @ (mapped.rows - people.x)  # (D,)
    return {name: by_feature(signed, people, DISPLACEMENT)}


def read_generator(folder: Path, needed: Folders, ground: Ground) -> Strengths:
    """Return what FlipTest's generator reports."""
    return displaced("fliptest", load_gan(needed[0]), group(learned_from(ground)[1], 0))


def read_groups(folder: Path, needed: Folders, ground: Ground) -> Strengths:
    """Return what needs no auxiliary: how far the rank map goes, and how far the groups are apart by themselves."""
    fitting, people = learned_from(ground)
    zero, one = (group(fitting, code).x for code in (0, 1))
    found = displaced("rank", RankMap(gate=True).fit(fitting), group(people, 0))
    found["group difference"] = by_feature(one.mean(0) - zero.mean(0), fitting, DISPLACEMENT)
    found["group distance"] = {WHOLE: group_distance(zero, one, fitting.features).tolist()}
    return found


def gather(plan: Reports, found: Found, about: dict[str, Any]) -> dict[str, Any]:
    """Return how well each report agrees with each truth, the random order's agreement, and what has to be shown."""
    missing = lacking(plan.tables)
    tables = [table for table in plan.tables if table not in missing]
    truths = {table: found[f"truth-{table}"] for table in tables}
    results = [
        {"table": table, "method": method, "aggregation": how}
        | agreement(each, truths[table])
        | printed(table, method, how)
        for table in tables
        for (method, how), each in together(_parts(plan, table, found)).items()
    ]
    chance = {table: {name: random_ndcg(one[name]) for name in TRUTHS} for table, one in truths.items()}
    winners = {table: best(results, table) for table in tables}
    sections = {"truths": truths, "random": chance, "results": results, "best": winners, "not_run": missing}
    return sections | {"bars": bars(results, winners, chance)}


def _parts(plan: Reports, table: str, found: Found) -> list[Strengths]:
    """Return what all jobs of a table reported."""
    names = [f"{name}-{table}-{i}" for name, _, shapes in _kinds(plan) for i in range(len(shapes))]
    names += [f"{kind}-{table}-{number}" for kind in ("fliptest", "groups") for number in range(plan.numbers)]
    return [found[name] for name in names]


def together(parts: Sequence[Strengths]) -> dict[tuple[str, str], list[list[float]]]:
    """Return the strengths of each method and aggregation, one list for each re-training."""
    out: dict[tuple[str, str], list[list[float]]] = {}
    for part in parts:
        for method, ways in part.items():
            for how, strengths in ways.items():
                out.setdefault((method, how), []).append(strengths)
    return out


def agreement(each: Sequence[Sequence[float]], truth: Mapping[str, Any]) -> dict[str, Any]:
    """Return mean and standard deviation over re-trainings of NDCG with every truth."""
    out: dict[str, Any] = {"retrainings": len(each)}
    for name in TRUTHS:
        values = [ndcg(truth[name], strengths) for strengths in each]
        out |= {f"ndcg_{name}_mean": fmean(values), f"ndcg_{name}_std": stdev(values) if len(values) > 1 else 0.0}
    return out


def ndcg(truth: Sequence[float], strengths: ArrayLike) -> float:
    """Return the discounted gain of the strengths' order, relative to the best; equal ones share their discounts."""
    return float(ndcg_score([truth], [strengths]))


def random_ndcg(truth: Sequence[float]) -> float:
    """Return the mean NDCG over all orders: that of equal scores, which share the mean of their discounts."""
    return ndcg(truth, np.zeros(len(truth)))


def printed(table: str, method: str, how: str) -> dict[str, list[float]]:
    """Return what the paper printed, over c = 0 and with the mean of levels; nothing where it printed nothing.

    It says neither whether Adult had `relationship` or Bank `duration` nor, in that place, which auxiliary was used.
    """
    known = PRINTED.get(method.removesuffix(ADVERSARIAL), {}).get(table.partition("-without-")[0])
    return {"printed": [*known]} if known is not None and how == "mean" else {}


def best(results: Sequence[Results], table: str) -> Results:
    """Return which of fairfox's own orders of a table's features agrees best with our truth."""
    own = [one for one in results if one["table"] == table and one["method"] in OWN]
    first = max(own, key=lambda one: float(one["ndcg_own_mean"]))
    return {name: first[name] for name in ("method", "aggregation", "ndcg_own_mean", "ndcg_own_std")}


def bars(results: Sequence[Results], winners: Mapping[str, Results], chance: Mapping[str, Results]) -> list[Results]:
    """Return what has to be shown of the tables that were run."""
    out = []
    for one in results:
        if "printed" in one and one["method"].removesuffix(ADVERSARIAL) in FAMILY and one["table"] in LEAST:
            ours, (mean, spread) = one["ndcg_paper_mean"], one["printed"]
            text = f"{TITLES[one['table']]}: {one['method']} is within two printed standard deviations of the paper"
            value = {"ours": ours, "paper": [mean, spread]}
            out.append(bar(text, value, abs(ours - mean) <= 2 * spread))
    for table, least in LEAST.items():
        if table in winners:
            value, above = winners[table]["ndcg_own_mean"], chance[table]["own"] + ABOVE_RANDOM
            text = f"{TITLES[table]}: the best own order has an NDCG of at least {least:.2f} with our truth"
            out.append(bar(text, value, value >= least))
            text = f"{TITLES[table]}: the best own order is at least {ABOVE_RANDOM:g} above a random one"
            out.append(bar(text, value - chance[table]["own"], value >= above))
    return out


def show(found: Results) -> str:
    """Return what has to be shown as Markdown; the picture has the numbers, and the results file all of them."""
    return "\n\n".join(
        [*(f"**{TITLES[table]}**: {why}" for table, why in found["not_run"].items()), bars_in_words(found)]
    )


def chart(found: Results) -> Any:
    """Return a dot for each method and truth beside the random order's line; levels as each kind of value wants it."""
    import altair as alt

    shown = [
        {"table": TITLES[one["table"]], "method": one["method"], "truth": words}
        | {"ndcg": one[f"ndcg_{name}_mean"], "random": found["random"][one["table"]][name]}
        for one in found["results"]
        for name, words in (("paper", "the paper's truth"), ("own", "our truth"))
        if one["aggregation"] in ("mean" if one["method"].startswith("faux") else "sum", WHOLE)
    ]
    colour = alt.Color("truth:N", title=None, scale=alt.Scale(range=["#0072b2", "#d55e00"]))
    base = alt.Chart(alt.InlineData(values=shown)).encode(color=colour)
    across = alt.Scale(domain=[0.4, 1.0], zero=False)
    dots = base.mark_point(filled=True, size=60).encode(
        x=alt.X("ndcg:Q", title="NDCG; dashed: a random order", scale=across),
        y=alt.Y("method:N", title=None, sort=[one["method"] for one in shown]),
    )
    rule = base.mark_rule(strokeDash=[4, 3]).encode(x=alt.X("mean(random):Q", scale=across))
    return alt.layer(dots, rule).properties(width=220).facet(column=alt.Column("table:N", title=None))


narrow = pick("tables", "table")
CHARTS = {"": chart}
EXPERIMENT = Experiment.of(sys.modules[__name__])


if __name__ == "__main__":
    sys.exit(EXPERIMENT.run())
