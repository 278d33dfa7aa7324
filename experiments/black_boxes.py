"""Models that people really use, on raw tables: four ensembles of trees, a logistic regression, and a remedy.

Each learns from four fifths of a table without the protected column, as a Pipeline that takes the table as it is. Some
of the other people are audited; all of them say how good the model is and what its output tells of their group.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import narwhals as nw
import numpy as np
import torch
from real_data import HELD_OUT
from real_data import lacking as lacking_tables
from runner import Experiment, Folders, Found, Job, installed, pick
from trials import seed_of
from wording import markdown_table

from fairfox.auxiliary.adversarial import HidingSettings
from fairfox.data.dataset import Dataset
from fairfox.data.datasets import adult_table, bank_table, compas_table, encode_people, german_table, law_school_table
from fairfox.errors import MissingExtraError, require
from fairfox.findings import AuditRecord
from fairfox.pipeline import audit
from fairfox.remedies.hiding import FairModel, measure, train_fair

FAIR = "fair"


@dataclass(frozen=True)
class Source:
    """A raw table: who is audited for what, and which columns are neither inputs of a model nor protected."""

    title: str
    read: Callable[[], nw.DataFrame[Any]]
    label: str
    positive: object
    protected: str
    unused: tuple[str, ...] = ()


SOURCES = {
    "adult": Source("Adult", adult_table, "income-per-year", ">50K", "sex", ("fnlwgt",)),
    "adult-without-relationship": Source(
        "Adult without relationship", adult_table, "income-per-year", ">50K", "sex", ("fnlwgt", "relationship")
    ),
    "bank": Source("Bank", bank_table, "y", "yes", "age>=25"),
    "compas": Source(
        *("COMPAS", compas_table, "two_year_recid", 1, "race=African-American"),
        unused=("age_cat", "decile_score", "score_text"),
    ),
    "german": Source("German credit", german_table, "class", "good", "sex", ("personal_status",)),
    "law": Source("Law school", law_school_table, "first_pf", 1, "race=White", ("sander_index", "ZFYA")),
}


@dataclass(frozen=True)
class Kind:
    """A kind of model: the classifier of a package, and its options; one thread each."""

    title: str
    package: str
    classifier: str = ""  # within the package
    trees: str | None = None  # the option that says how many
    options: tuple[tuple[str, object], ...] = ()

    def make(self, trees: int, seed: int) -> Any:
        """Return a new classifier."""
        counted = {} if self.trees is None else {self.trees: trees}
        return getattr(require(self.package), self.classifier)(random_state=seed, **counted, **dict(self.options))


ONE_THREAD = ("n_jobs", 1)
MODELS = {
    "hist-gradient-boosting": Kind(
        "HistGradientBoosting", "sklearn.ensemble", "HistGradientBoostingClassifier", "max_iter"
    ),
    "random-forest": Kind(
        *("random forest", "sklearn.ensemble", "RandomForestClassifier", "n_estimators"),
        options=(ONE_THREAD, ("min_samples_leaf", 5)),
    ),
    "xgboost": Kind(
        "XGBoost", "xgboost", "XGBClassifier", "n_estimators", options=(ONE_THREAD, ("learning_rate", 0.1))
    ),
    "lightgbm": Kind(
        *("LightGBM", "lightgbm", "LGBMClassifier", "n_estimators"),
        options=(ONE_THREAD, ("deterministic", True), ("verbose", -1)),
    ),
    "logistic-regression": Kind(
        "logistic regression", "sklearn.linear_model", "LogisticRegression", options=(("max_iter", 1000),)
    ),
    FAIR: Kind("train_fair", "fairfox"),  # by its own function
}


@dataclass(frozen=True)
class Size:
    """How large one audit is."""

    rows: int | None = None  # of the table; all
    people: int = 2_000  # who are scored, drawn from those the model has not seen; fewer where there are not so many
    trees: int = 200
    refits: int = 5
    floor: float = 3.0  # of the remedy
    hiding: HidingSettings | None = None  # how it trains; by default as the number of rows suggests


def library_of(model: str) -> str:
    """Return the name and version of the package a model is from, as the package itself says it."""
    package = MODELS[model].package.partition(".")[0]
    if package == "fairfox":
        return installed(package)
    return f"{'scikit-learn' if package == 'sklearn' else package} {require(package).__version__}"


def read_people(source: Source, rows: int | None, seed: int) -> tuple[Any, Dataset]:
    """Return a table with the label as 0 and 1 (pandas), or so many rows of it, and the same people encoded.

    The features of the latter are the inputs of a model: not the label, nor what the protected variable is read from.
    """
    frame = source.read().to_pandas().drop(columns=list(source.unused))
    frame[source.label] = (frame[source.label] == source.positive).astype(int)
    if rows is not None and rows < len(frame):
        frame = frame.sample(rows, random_state=seed)
    frame = frame.reset_index(drop=True)
    own = nw.from_native(frame, eager_only=True)
    return frame, encode_people(own, protected=source.protected, label=source.label)


def train(model: str, fitting: Any, inputs: Sequence[str], source: Source, size: Size, seed: int) -> Any:
    """Return a model of the label: a fitted Pipeline on the raw inputs, or the remedy on its own encoding of them."""
    if model == FAIR:  # it holds out a fifth of these rows for measures of its own
        return train_fair(
            fitting,
            label=source.label,
            protected=source.protected,
            floor=size.floor,
            seed=seed,
            settings=size.hiding,
        )
    from sklearn.compose import make_column_transformer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

    texts = list(fitting[inputs].select_dtypes(exclude="number"))
    if model == "logistic-regression":
        columns = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), texts), remainder=StandardScaler())
    else:
        codes = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
        columns = make_column_transformer((codes, texts), remainder="passthrough")
    return make_pipeline(columns, MODELS[model].make(size.trees, seed)).fit(fitting[inputs], fitting[source.label])


def probabilities(model: Any, rows: Any) -> np.ndarray:
    """Return the probability of the label 1 (N,)."""
    return model.predict(rows) if isinstance(model, FairModel) else model.predict_proba(rows)[:, 1]


SHOWN = 5  # features that the effect goes through
CLEAR = 2.0  # standard errors
CHECKED = ("group", "towards", "people", "accounted", "gap", "effect", "outside", "unseen", "unseen_real")  # of a map


@dataclass(frozen=True)
class BlackBoxes:
    """Which models are audited, and on which tables."""

    tables: tuple[str, ...] = tuple(SOURCES)
    models: tuple[str, ...] = tuple(MODELS)
    size: Size = Size()


FULL = BlackBoxes()
QUICK = BlackBoxes(
    ("adult", "compas"),
    ("hist-gradient-boosting", FAIR),
    Size(rows=400, people=60, trees=20, refits=2, hiding=HidingSettings(epochs=2)),
)


def jobs(plan: BlackBoxes, seed: int) -> list[Job]:
    """Return one job per table and model; none for a table or a package that is not to be had."""
    missing = lacking(plan)
    return [
        Job(
            _name(table, model),
            audit_one,
            (table, model, plan.size, seed_of(seed, table), library_of(model)),
        )
        for table in plan.tables
        for model in plan.models
        if not {table, model} & missing.keys()
    ]


def _name(table: str, model: str) -> str:
    return f"{table}-{model}"


def lacking(plan: BlackBoxes) -> dict[str, str]:
    """Return the tables and models that cannot be had, each with the reason."""
    out = lacking_tables(plan.tables, {table: source.read for table, source in SOURCES.items()})
    for model in plan.models:
        try:
            require(MODELS[model].package, why=f"for {MODELS[model].title}")
        except MissingExtraError as error:
            out[model] = f"not run: {error}"
    return out


def audit_one(
    folder: Path, needed: Folders, table: str, model: str, size: Size, seed: int, library: str
) -> dict[str, Any]:
    """Train a model, audit it, and return how good it is, what its output tells of the group, and how it treats whom.

    Everything of one table has the same seed: all of its models learn from the same people and are judged by the same.
    """
    from sklearn.model_selection import train_test_split

    source = SOURCES[table]
    frame, data = read_people(source, size.rows, seed)
    inputs, c = [f.name for f in data.features], data.c[:, 0].numpy(force=True)
    fitting, unseen = train_test_split(np.arange(len(frame)), test_size=HELD_OUT, stratify=c, random_state=seed)
    scored = unseen
    if size.people < len(unseen):
        scored, _ = train_test_split(unseen, train_size=size.people, stratify=c[unseen], random_state=seed)
    began = perf_counter()
    trained = train(model, frame.iloc[fitting], inputs, source, size, seed)
    training = perf_counter() - began
    result = audit(
        trained,
        frame.iloc[scored],
        protected=source.protected,
        label=source.label,
        reference=frame.iloc[fitting],
        seed=seed,
        options={"refits": size.refits},
    ).record
    predictions = torch.as_tensor(probabilities(trained, frame.iloc[unseen][inputs]), dtype=torch.float64)
    return {
        **{"library": library, "training_rows": len(fitting), "training_seconds": training},
        **quality(predictions, data[torch.as_tensor(unseen)]),
        **treatment(result, data.c[torch.as_tensor(scored), 0]),
    }


def quality(predictions: torch.Tensor, unseen: Dataset) -> dict[str, Any]:
    """Return how good predictions are and what they tell of the group, on all people that the model has not seen.

    The gap is the mean prediction of class 1 less that of class 0, and comes with its standard error.
    """
    found = measure(predictions, unseen)
    (leak,) = found.leaks
    first, second = (predictions[unseen.c[:, 0] == code] for code in (0, 1))
    return {
        **{"unseen": found.rows, "accuracy": found.accuracy, "auc": found.auc, "auc_c": leak.auc},
        **{"towards": unseen.protected[0].levels[1], "means": leak.means, "gap": float(second.mean() - first.mean())},
        "gap_error": float((second.var() / len(second) + first.var() / len(first)).sqrt()),
    }


def treatment(result: AuditRecord, c: torch.Tensor) -> dict[str, Any]:
    """Return what an audit says of the people it scored; towards class 1 the effect of those in it counts reversed."""
    (finding,), known = result.findings, ~result.abstained
    assert result.effect is not None
    assert result.features.effect is not None
    towards = torch.where(c == 1, -result.effect, result.effect)[known]
    return {
        **{"people": len(result), "judged": result.judged, "seconds": result.settings["seconds"]},
        **{"effect": float(result.scores[known].mean()), "effect_towards": float(towards.mean())},
        **{"flagged": result.share_flagged, "confident": result.share_confident},
        "through": dict(list(result.features.effect.total.items())[:SHOWN]),
        "readings": {
            name: {"mean_absolute": reading.mean_absolute}
            | {group: part.mean_effect for group, part in reading.groups.items()}
            for name, reading in finding.readings().items()
        },
        "map_checks": [{name: getattr(check, name) for name in CHECKED} for check in result.map_checks],
    }


def gather(plan: BlackBoxes, found: Found, about: dict[str, Any]) -> dict[str, Any]:
    """Return an entry per table and model, what was not run, and whether effects point where the group gap does."""
    results = [
        {"table": table, "model": model, **found[_name(table, model)]}
        for table in plan.tables
        for model in plan.models
        if _name(table, model) in found
    ]
    libraries = dict(entry["library"].split(" ", 1) for entry in results)
    return {
        "versions": about["versions"] | libraries,
        "results": results,
        "not_run": lacking(plan),
        "bars": bars(results),
    }


def bars(results: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what has to be shown; values are lists of exceptions.

    Of few people a small gap has its sign by chance, so the same is said of those gaps alone that are clear.
    """
    numbers = ("table", "model", "gap", "gap_error", "effect_towards")
    against = [{name: one[name] for name in numbers} for one in results if one["gap"] * one["effect_towards"] <= 0]
    clear = [one for one in against if abs(one["gap"]) > CLEAR * one["gap_error"]]
    what = "the mean signed rank effect has the sign of the group gap for every model on every table"
    return [
        {"bar": f"{what}; exceptions", "value": against, "holds": not against},
        {"bar": f"{what} where the gap is clear; exceptions", "value": clear, "holds": not clear},
    ]


def table(found: dict[str, Any]) -> str:
    """Return a line for each table and model, and what was not run."""
    heads = ["table", "model", "AUC", "group gap", "mean effect", "mean size", "at the same outcome", "flagged"]
    heads += ["confident", "gap accounted for", "people"]
    rows = []
    for one in found["results"]:
        cells = [SOURCES[one["table"]].title, MODELS[one["model"]].title, f"{one['auc']:.3f}"]
        cells += [f"{one['gap']:+.3f} ± {one['gap_error']:.3f}", f"{one['effect_towards']:+.3f}"]
        cells += [f"{value:.3f}" for value in (one["effect"], one["readings"]["same outcome"]["mean_absolute"])]
        cells += [f"{one[share]:.0%}" for share in ("flagged", "confident")]
        rows.append([*cells, _accounted(one["map_checks"]), f"{one['people']:,}"])
    return "\n".join([markdown_table(heads, rows), *(f"- {_title(n)}: {why}" for n, why in found["not_run"].items())])


def chart(found: dict[str, Any]) -> Any:
    """Return a dot for each table and model: its effect towards class 1 beside the group gap."""
    import altair as alt

    values = [
        {"table": SOURCES[one["table"]].title, "model": MODELS[one["model"]].title}
        | {"gap": one["gap"], "effect": one["effect_towards"]}
        for one in found["results"]
    ]
    ends = alt.Scale(domain=[-0.2, 0.2])
    across = alt.X("gap:Q", title="gap between the groups' mean predictions", scale=ends)
    up = alt.Y("effect:Q", title="mean effect towards class 1", scale=ends)
    line = alt.Chart(alt.InlineData(values=[{"gap": end, "effect": end} for end in (-0.2, 0.2)]))
    dots = (
        alt.Chart(alt.InlineData(values=values))
        .mark_point(size=70)
        .encode(x=across, y=up, color=alt.Color("table:N", title=None), shape=alt.Shape("model:N", title=None))
    )
    return (line.mark_line(strokeDash=[4, 3], color="#888888").encode(x=across, y=up) + dots).properties(
        width=420, height=420
    )


def judged(found: dict[str, Any]) -> str:
    """Return what has to be shown, with its exceptions."""
    return "\n".join(
        f"- {'holds' if b['holds'] else '**fails**'}: {b['bar']}: {_exceptions(b['value'])}" for b in found["bars"]
    )


SECTIONS = {"table": table, "bars": judged}


def _accounted(checks: Sequence[dict[str, Any]]) -> str:
    """Return how much of each group's gap the map accounts for; no share of a gap that may be chance."""
    return ", ".join("-" if check["accounted"] is None else f"{check['accounted']:.0%}" for check in checks)


def _title(name: str) -> str:
    """Return a table or a model as it is called on the page."""
    return SOURCES[name].title if name in SOURCES else MODELS[name].title


def _exceptions(value: Sequence[dict[str, Any]]) -> str:
    return "; ".join(f"{SOURCES[one['table']].title}, {MODELS[one['model']].title}" for one in value) or "none"


EXPERIMENT = Experiment(
    name="black_boxes",
    description="Ensembles of trees on raw tables, audited for a column they do not see, beside a remedy.",
    full=FULL,
    quick=QUICK,
    jobs=jobs,
    gather=gather,
    show=lambda found: f"{table(found)}\n\n{judged(found)}",
    narrow=pick("tables", "table"),
    draw=lambda found: {"": chart(found)},
)

if __name__ == "__main__":
    sys.exit(EXPERIMENT.run())
