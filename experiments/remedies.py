"""What to do about an unfair model: what a repair and its rivals take away and cost, and what a search promises.

Models learn from one half of some people of a table without the protected column, and so do repairs. The others
judge. In worlds whose truth is known the true effect is looked at too. How repairs learn was chosen on up to 4,000
people of Adult, law school and German credit; the worlds additive and lending were looked at too.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, sqrt
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np
import torch
from black_box_audits import MODELS, SOURCES, Size, lacking, read_people, train
from causal_worlds import WORLDS, columns_of
from known_intervals import HIDDEN
from real_data import NOT_RUN
from runner import Experiment, Folders, Found, Job, pick
from scipy.stats import rankdata
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.model_selection import ParameterSampler, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OrdinalEncoder
from sklearn.tree import DecisionTreeClassifier
from torch import Tensor
from trials import seed_of
from wording import bar, finite, markdown_table, number
from wording import bars as table_of_bars

from fairfox.auxiliary.adversarial import HidingSettings, train_networks
from fairfox.benchmark.scm import Population
from fairfox.benchmark.truth import train_target
from fairfox.data.dataset import Dataset
from fairfox.data.table import load_table
from fairfox.fairtests.correction import CorrectedModel
from fairfox.fairtests.fitted import FittedTest
from fairfox.fairtests.inputs import Inputs, in_order, read_encoding
from fairfox.models.adapters import as_model, describe
from fairfox.models.protocol import Model, Output, predict
from fairfox.models.torch import TorchModel
from fairfox.options import AuditOptions
from fairfox.remedies.alternatives import Measuring, alternatives, probability_of_improvement
from fairfox.remedies.learning import fit_correction
from fairfox.statistics.performance import performance

MAPS = ("rank", "transport", "move")  # the first is the repair's own
OTHERS = MAPS[1:]
STRENGTHS = (0.25, 0.5, 0.75)  # beside full strength, for the frontier by the repair's own map
FLOORS = (0.0, 1.0, 3.0)  # of train_fair
REPAIRED, PROXY = "repaired, 1", "without the strongest proxy"
MORE = 10  # candidates that a statement about a search speaks of
BETTER, UNLIKELY, ALLOWED = 0.005, 0.1, 0.1
HALF = 0.5  # of the mean |effect|
EQUAL = (HALF, 0.83, 1.0)  # how far ranks go towards those within the groups: the second as far as a repair
KINDS = ("repaired", "train_fair", PROXY)
LITTLE = 0.01  # of a prediction: a smaller effect is no effect that a repair must take away

GRIDS: dict[str, dict[str, list[float]]] = {  # of the user's own candidates: the model with other settings
    "hist-gradient-boosting": {
        "learning_rate": [0.02, 0.05, 0.1], "max_leaf_nodes": [4, 8, 16, 31], "min_samples_leaf": [10, 20, 50]
    },
    "logistic-regression": {"C": [0.01, 0.1, 1.0, 10.0]},
}  # fmt: skip

Numbers = dict[str, float]


@dataclass(frozen=True)
class Remedies:
    """Which tables and worlds take part, and how many people."""

    tables: tuple[str, ...] = ("adult", "german", "compas", "law", "bank")
    models: tuple[str, ...] = ("hist-gradient-boosting", "logistic-regression")
    searched: tuple[str, ...] = ("adult", "german", "compas", "law", "bank")  # where alternatives are looked for
    worlds: tuple[str, ...] = tuple(WORLDS)
    rows: int = 16_000  # of a table, one half to learn from; fewer where there are not so many
    judges: int = 2_000  # of the other half, at most
    of_worlds: int = 4_000  # people of a world, one half to learn from
    repeats: int = 50  # of a search in a world
    people: int = 300  # who judge its candidates
    candidates: int = 50  # the last ten come after the statement
    trees: int = 100
    refits: int = 2
    hiding: HidingSettings | None = None  # by default as the number of rows suggests


FULL = Remedies()
QUICK = Remedies(
    *(("adult", "german"), ("logistic-regression",), ("german",), ("additive",)),
    **{
        "rows": 450,
        "of_worlds": 450,
        "repeats": 1,
        "people": 150,
        "candidates": 14,
        "trees": 10,
        "hiding": HidingSettings(epochs=2),
    },
)


def jobs(plan: Remedies, seed: int) -> list[Job]:
    """Return one job per table and model, per search on a table, per world and per repeat."""
    missing, size = lacking(plan.tables), replace(plan, tables=(), searched=(), models=(), worlds=(), repeats=0)
    tables = [table for table in plan.tables if table not in missing]
    out = [
        Job(_name("table", table, model), measure_table, (table, model, size, seed_of(seed, table)), seconds=30)
        for table in tables
        for model in plan.models
    ]
    out += [
        Job(_name("world", name, given), measure_world, (name, given, size, seed_of(seed, name)))
        for name, given in named_causes(plan)
    ]
    out += [
        Job(_name("alternatives", table), search_table, (table, plan.models[0], size, seed_of(seed, table)), seconds=50)
        for table in plan.searched
        if table in tables
    ]
    names = [plan.worlds[number % len(plan.worlds)] for number in range(plan.repeats)]
    out += [
        Job(_name("search", number), search_world, (name, size, seed_of(seed, "search", number)))
        for number, name in enumerate(names)
    ]
    return out


def named_causes(plan: Remedies) -> list[tuple[str, str]]:
    """Return the worlds, each with what is given; where a cause hides, also with it given."""
    return [(name, given) for name in plan.worlds for given in dict.fromkeys(("", HIDDEN.get(name, "")))]


def _name(*parts: object) -> str:
    return "-".join(str(part).replace(" ", "_") for part in parts if part != "")


def halves(table: str, rows: int, seed: int) -> tuple[Any, Any, list[str]]:
    """Return the people to learn from, those who judge, and the inputs of a model."""
    frame, data = read_people(SOURCES[table], rows, seed)
    fitting, judging = train_test_split(frame, test_size=0.5, random_state=seed)
    return fitting.reset_index(drop=True), judging.reset_index(drop=True), [f.name for f in data.features]


def fit_maps(
    table: object,
    model: object,
    protected: str | Sequence[str],
    inputs: Sequence[str],
    refits: int,
    seed: int,
    others: Sequence[str] = OTHERS,
    given: str = "",
) -> FittedTest:
    """Return the repair's map, and others beside it, learnt from a table."""
    options = AuditOptions.of(
        {"refits": refits}, protected=protected, columns=inputs, given=[given] if given else [], seed=seed
    )
    people = load_table(table)
    encoding = read_encoding(people, None, None if model is None else describe(model, wanted=options.output), options)
    return FittedTest.fit(in_order(encoding.encode(people), options), encoding, options, others=others)


def measure_table(folder: Path, needed: Folders, table: str, model: str, size: Remedies, seed: int) -> dict[str, Any]:
    """Return the mean |effect| by each map and the AUC of a model, its repair and their rivals.

    `shuffled` is the model's for groups that mean nothing: what a map shows of any model.
    """
    source, how = SOURCES[table], Size(trees=size.trees)
    fitting, judging, inputs = halves(table, size.rows, seed)
    trained = train(model, fitting, inputs, source, how, seed)
    test = fit_maps(fitting, trained, source.protected, inputs, size.refits, seed)
    learnt, people = (
        replace(test.encoding.encode(load_table(part)), y=torch.tensor(part[source.label].to_numpy(float)))
        for part in (fitting, judging.head(size.judges))
    )
    target = as_model(trained, test.encoding, example=learnt.x)
    candidates: dict[str, Model] = {"model": target}
    candidates[REPAIRED] = CorrectedModel(target, fit_correction(test, target, learnt))
    nets = train_networks(learnt, floors=FLOORS, seeds=[seed] * len(FLOORS), settings=size.hiding)
    for floor, net in zip(FLOORS, nets, strict=True):
        candidates[f"train_fair, {floor:g}"] = TorchModel(net, output=Output("logit"))
    proxy = next(iter(test.proxy[0]))
    left = [name for name in inputs if name != proxy]
    candidates[PROXY] = as_model(train(model, fitting, left, source, how, seed), test.encoding.only(left))
    found = {name: numbers(one, test, people) for name, one in candidates.items()}
    for strength in STRENGTHS:
        weaker = CorrectedModel(target, fit_correction(test, target, learnt, strength=strength))
        found[f"repaired, {strength:g}"] = numbers(weaker, test, people, MAPS[:1])
    mixed = fit_maps(source.shuffled(fitting, seed), trained, source.protected, inputs, size.refits, seed)
    sizes = {"fitting": len(learnt), "people": len(people)}
    out = predict(target, people.x)
    ranks = (ranks_in_groups(out, people.c[:, 0]), ranks_in_groups(out, torch.zeros(len(out))))
    found |= {f"equal, {share}": {"auc": auc(share * ranks[0] + (1 - share) * ranks[1], people)} for share in EQUAL}
    return {**sizes, "proxy": proxy, "found": found, "shuffled": numbers(target, mixed, people)}


def numbers(model: Model, test: FittedTest, people: Dataset, maps: Sequence[str] = MAPS) -> Numbers:
    """Return the mean |effect| of a model by each map, the gap between the groups' mean predictions, and its AUC."""
    out, found = predict(model, people.x), {}
    for name in maps:
        measured = test.measure_one(name, model, people, predictions=out)
        found[name] = float(measured.score[~measured.abstained].double().mean())
    means = [out[people.c[:, 0] == k].double().mean() for k in (0, 1)]
    return found | {"gap": float(abs(means[1] - means[0])), "auc": auc(out, people)}


def ranks_in_groups(out: Tensor, groups: Tensor) -> Tensor:
    """Return everyone's rank (N,) from 0 to 1 within their group: the model's order, with groups that are alike."""
    ranks = torch.zeros(len(out), dtype=torch.float64)
    for group in groups.unique():
        own = groups == group
        ranks[own] = (torch.as_tensor(rankdata(out[own].numpy(force=True))) - 0.5) / int(own.sum())
    return ranks


def auc(out: Tensor, people: Dataset) -> float:
    """Return the AUC of predictions (N,)."""
    assert people.y is not None
    found = {one.metric: one.value for one in performance(out.numpy(force=True), people.y.numpy(force=True))}
    return found["auc"]


def measure_world(folder: Path, needed: Folders, world: str, given: str, size: Remedies, seed: int) -> dict[str, Any]:
    """Return the true mean unfairness and the AUC of a network before and after its repair.

    A network that sees legitimate columns alone is repaired too; another draw of its weights is what refits differ by.
    """

    def known(one: Population, table: Any) -> Any:
        return load_table(table.append_column(given, [one.values[given]]) if given else table)

    past, new = (WORLDS[world].sample(size.of_worlds // 2, seed=2 * seed + k) for k in (0, 1))
    table = known(past, past.table).to_native()
    test = fit_maps(table, None, past.protected, past.features, size.refits, seed, (), given)
    learnt, people = (
        replace(test.encoding.encode(known(one, one.table)), y=torch.tensor(one.y)) for one in (past, new)
    )
    (protected,) = past.world.chosen(past.protected)
    others = [test.encoding.encode(known(new, new.as_if({protected.name: level}))).x for level in protected.levels]
    fair = columns_of(people, past.legitimate)
    networks = {
        "unfair": train_target(learnt, seed=seed),
        "fair": train_target(learnt, seed=seed, projection=fair),
        "refit": train_target(learnt, seed=seed + 1, projection=fair),
    }
    out, found = {}, {}
    for name, net in networks.items():
        target = TorchModel(net.module, output=Output("probability"))
        for when, one in (
            ("before", target),
            *([] if name == "refit" else [("after", CorrectedModel(target, fit_correction(test, target, learnt)))]),
        ):
            own = out[name, when] = predict(one, people.x)
            apart = torch.stack([(predict(one, rows) - own).abs() for rows in others]).amax(0)
            found[f"{name}, {when}"] = {"unfairness": float(apart.mean()), "auc": auc(own, people)}
    changes = {what: float((out[pair] - out["fair", "before"]).abs().mean())
               for what, pair in (("repair", ("fair", "after")), ("refit", ("refit", "before")))}  # fmt: skip
    return {"found": found, "change of the fair network": changes}


def search_table(folder: Path, needed: Folders, table: str, model: str, size: Remedies, seed: int) -> dict[str, Any]:
    """Return the model as it is and the best alternative within the usual loss, its own other settings among them."""
    source = SOURCES[table]
    fitting, judging, inputs = halves(table, size.rows, seed)
    trained = train(model, fitting, inputs, source, Size(trees=size.trees), seed)
    grid = {f"{trained.steps[-1][0]}__{name}": values for name, values in GRIDS[model].items()}
    found = alternatives(
        trained, judging, protected=source.protected, label=source.label, estimator=trained, grid=grid, columns=inputs,
        reference=fitting, seed=seed, options={"max_minutes": 60},
    )  # fmt: skip
    first, best = found.tried[0], found.best
    return {"people": found.people, "best": best.name, "tried": len(found.tried), "loss": best.loss,
            "effect": [first.mean_effect, best.mean_effect]}  # fmt: skip


def search_world(folder: Path, needed: Folders, world: str, size: Remedies, seed: int) -> dict[str, Any]:
    """Return what is said after a search about ten more candidates, and by how much these improve on it."""
    past, new = (WORLDS[world].sample(n, seed=2 * seed + k) for k, n in enumerate((2 * size.people, size.people)))
    codes = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
    columns = make_column_transformer((codes, make_column_selector(dtype_exclude="number")), remainder="passthrough")
    estimator = make_pipeline(columns, DecisionTreeClassifier(max_depth=6, random_state=0))
    grid = {"max_depth": [2, 3, 4, 5, 6, 8], "min_samples_leaf": [5, 10, 20, 40, 80], "max_features": [0.3, 0.6, 1.0],
            "random_state": [0, 1, 2]}  # fmt: skip
    tree = {f"decisiontreeclassifier__{name}": values for name, values in grid.items()}
    settings = list(ParameterSampler(tree, size.candidates, random_state=seed))
    few = {"refits": size.refits, "folds": 2}
    options = AuditOptions.of(few, protected=past.protected, label=past.label, columns=past.features, seed=seed)
    known = past.table.to_pandas()
    model = estimator.fit(known[list(past.features)], known[past.label])
    inputs = Inputs.read(model, new.table, None, options)
    measuring = Measuring.of(inputs, lambda text, done: None)
    first = measuring.measure("model", "model", lambda lesson: inputs.target, None)
    plan = measuring.searched(estimator, settings)
    tried = [measuring.measure(*candidate, first) for candidate in plan]
    effects = [each.mean_effect if each.loss <= 0.05 else inf for each in tried]  # trees on half of the people are poor
    before, after = effects[:-MORE], effects[-MORE:]
    said = probability_of_improvement(before) if min(before) < inf else None
    return {"said": said, "gain": min(before) - min(after) if min(before) < inf > min(after) else None}


def gather(plan: Remedies, found: Found, about: dict[str, Any]) -> dict[str, Any]:
    """Return what was measured of each table, world and search, and what had to be shown."""
    missing = lacking(plan.tables)
    tables = []
    for table in plan.tables:
        for model in plan.models if table not in missing else ():
            tables.append({"table": table, "model": model, **found[_name("table", table, model)]})
    worlds = [
        {"world": name + f" given {given}" * bool(given), "barred": bool(given) or name not in HIDDEN,
         **found[_name("world", name, given)]}
        for name, given in named_causes(plan)
    ]  # fmt: skip
    searched = [
        {"table": table, **found[_name("alternatives", table)]} for table in plan.searched if table not in missing
    ]
    searches = [found[_name("search", number)] for number in range(plan.repeats)]
    results = {"tables": tables, "worlds": worlds, "alternatives": searched, "searches": searches}
    return {**results, "not_run": missing, "bars": bars(**results)}


def fall(one: Mapping[str, Any], name: str, by: str) -> float:
    """Return the share of the model's mean |effect| that a candidate takes away, by a map."""
    return _less(one["found"]["model"][by], one["found"][name][by])


def _less(before: float, after: float) -> float:
    return 1 - after / before if before > 0 else 0.0


def loss(one: Mapping[str, Any], name: str) -> float:
    """Return the AUC that a candidate loses."""
    return float(one["found"]["model"]["auc"] - one["found"][name]["auc"])


def beyond_chance(one: Mapping[str, Any], by: str) -> float | None:
    """Return how much a repair takes away of what a map shows beyond shuffled groups; None where that is little."""
    before, after = (max(one["found"][name][by] - one["shuffled"][by], 0.0) for name in ("model", REPAIRED))
    return _less(before, after) if before > LITTLE else None


def loss_at_half(one: Mapping[str, Any], kind: str) -> float:
    """Return the AUC that a kind of remedy loses where half of the effect is gone; inf where it never is."""
    names = [name for name in one["found"] if name.startswith(kind)]
    points = sorted([(0.0, 0.0), *((fall(one, name, MAPS[0]), loss(one, name)) for name in names)])
    falls, losses = zip(*points, strict=True)
    return inf if falls[-1] < HALF else float(np.interp(HALF, falls, losses))


def bars(
    tables: Sequence[Mapping[str, Any]],
    worlds: Sequence[Mapping[str, Any]],
    alternatives: Sequence[Mapping[str, Any]],
    searches: Sequence[Mapping[str, Any]],
) -> list[dict[str, Any]]:
    """Return what has to be shown."""
    own = [fall(one, REPAIRED, MAPS[0]) for one in tables]
    other = {by: [fall(one, REPAIRED, by) for one in tables] for by in OTHERS}
    gaps = [fall(one, REPAIRED, "gap") for one in tables]
    lost = [loss(one, REPAIRED) for one in tables]
    half, taken, price = ([loss(one, f"equal, {share}") for one in tables] for share in EQUAL)
    more = [own - least for own, least in zip(lost, price, strict=True)]
    half_gone = {
        SOURCES[table].title: [fmean(loss_at_half(one, kind) for one in tables if one["table"] == table)
                               for kind in KINDS]
        for table in dict.fromkeys(one["table"] for one in tables)
    }  # fmt: skip
    ahead = [title for title, (own_loss, *rivals) in half_gone.items() if own_loss < min(rivals)]
    true = [_less(_true(one, "before"), _true(one, "after")) for one in worlds]
    changes = [one["change of the fair network"] for one in worlds if one["barred"]]
    halved = {SOURCES[one["table"]].title: [_less(*one["effect"]), one["loss"]] for one in alternatives}
    return [
        bar("repair by its own map: the mean effect falls by at least 80 % for every table and model (least, median)",
            [min(own), median(own)], min(own) >= 0.8),
        *(bar(f"by {by}: by at least 60 % for every table and model (least, median)", [min(each), median(each)],
              min(each) >= 0.6) for by, each in other.items()),
        *(bar(f"what {by} shows beyond shuffled groups falls by at least 60 % wherever that is more than "
              f"{LITTLE:g} (least, median, in how many of {len(tables)})", [min(each), median(each), len(each)],
              min(each) >= 0.6)
          for by in OTHERS
          if (each := [share for one in tables if (share := beyond_chance(one, by)) is not None])),
        bar("the gap between the groups' mean predictions falls by at least 60 % for every table and model (least, "
            "median)", [min(gaps), median(gaps)], min(gaps) >= 0.6),
        bar("the median loss is at most 0.01 of an AUC (median, largest)", [median(lost), max(lost)],
            median(lost) <= 0.01),
        bar("ranks within the groups, which take the protected column, lose at most 0.01 of an AUC less at the median "
            "(their own loss by table, and how much more the repair loses)",
            {_title(one): pair for one, *pair in zip(tables, price, more, strict=True)}, median(more) <= 0.01),
        bar("where half of the effect is gone, a repair has lost less AUC than train_fair and than a model without "
            "the strongest proxy, on at least three tables (so much each, the mean over models; none: never half gone)",
            {title: list(map(finite, each)) for title, each in half_gone.items()}, len(ahead) >= 3),
        bar("known truth: the mean true unfairness falls by at least 70 % (mean over worlds, least)",
            [fmean(true), min(true)], fmean(true) >= 0.7),
        bar("a fair network changes less by a repair than from refit to refit, in every world whose common cause is "
            "in the table (largest ratio)",
            max(one["repair"] / one["refit"] for one in changes),
            all(one["repair"] < one["refit"] for one in changes)),
        bar("alternatives: on at least three tables one has at most half of the effect and loses at most 0.005 of the "
            "AUC (fall, loss)", halved, sum(gone >= HALF for gone, _ in halved.values()) >= 3),
        bar("ranks halfway to those within the groups, which take the protected column, lose at most 0.005 of an AUC "
            "on every table (so much by table)", dict(zip(map(_title, tables), half, strict=True)), max(half) <= 0.005),
        bar(f"ranks that go {EQUAL[1]:.0%} of that way, as far as a repair, lose at most 0.01 of an AUC at the median "
            "(median, largest)", [median(taken), max(taken)], median(taken) <= 0.01),
        bar_of_searches(searches),
    ]  # fmt: skip


def bar_of_searches(searches: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return how often an improvement followed that was said to be unlikely."""
    sure = [one for one in searches if one["said"] is not None and one["said"] <= UNLIKELY]
    followed = sum(one["gain"] is not None and one["gain"] > BETTER for one in sure)
    share, error = followed / max(len(sure), 1), sqrt(ALLOWED * (1 - ALLOWED) / max(len(sure), 1))
    what = f"searches: statements of at most {UNLIKELY:g} are followed by an improvement in at most {ALLOWED:.0%}, "
    what += "within two binomial errors (share, statements)"
    return bar(what, [share, len(sure)], share <= ALLOWED + 2 * error)


def _title(one: Mapping[str, Any]) -> str:
    return f"{SOURCES[one['table']].title}, {MODELS[one['model']].title}"


def _true(one: Mapping[str, Any], when: str) -> float:
    return float(one["found"][f"unfair, {when}"]["unfairness"])


def show(found: dict[str, Any]) -> str:
    """Return the results file as Markdown."""
    by_map = (f"effect, {by} (shuffled groups)" for by in MAPS)
    half_gone = "AUC lost with half of it gone: repair, train_fair, no proxy"
    heads = ["table", "model", "people", "AUC", *by_map, "AUC lost", half_gone]
    rows = []
    for one in found["tables"]:
        before, after = one["found"]["model"], one["found"][REPAIRED]
        effects = [f"{before[by]:.3f} to {after[by]:.3f} ({one['shuffled'][by]:.3f})" for by in MAPS]
        half = [number(finite(loss_at_half(one, kind))) for kind in KINDS]
        names = [SOURCES[one["table"]].title, MODELS[one["model"]].title, str(one["people"]), f"{before['auc']:.3f}"]
        rows.append([*names, *effects, f"{loss(one, REPAIRED):+.3f}", ", ".join(half)])
    worlds = [
        [one["world"], f"{_true(one, 'before'):.3f} to {_true(one, 'after'):.3f}",
         *(f"{one['found'][f'unfair, {when}']['auc']:.3f}" for when in ("before", "after")),
         *(f"{one['change of the fair network'][what]:.4f}" for what in ("repair", "refit"))]
        for one in found["worlds"]
    ]  # fmt: skip
    of_worlds = ["world", "true unfairness", "AUC before", "after", "fair network: change by repair", "by a refit"]
    missing = [f"{table}: {NOT_RUN}" for table in found["not_run"]]
    return "\n\n".join([markdown_table(heads, rows), markdown_table(of_worlds, worlds), table_of_bars(found), *missing])


narrow = pick("tables", "table")
EXPERIMENT = Experiment.of(sys.modules[__name__])


if __name__ == "__main__":
    sys.exit(EXPERIMENT.run())
