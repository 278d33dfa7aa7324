"""Models that people really use, on raw tables: boosted trees, a forest, a logistic regression, a network.

Each learns from four fifths of a table without the protected column, as a Pipeline that takes the table as it is. Some
of the other people are audited; all of them say how good the model is and what its output tells of their group.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np
import torch
from real_data import HELD_OUT
from real_data import lacking as lacking_tables
from runner import Folders, Found, Job
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler
from trials import seed_of
from wording import bar, markdown_table
from wording import bars as table_of_bars

from fairfox.data.dataset import Dataset
from fairfox.data.datasets import adult_table, bank_table, compas_table, encode_people, german_table, law_school_table
from fairfox.findings import AuditRecord
from fairfox.pipeline import audit
from fairfox.remedies.hiding import measure


@dataclass(frozen=True)
class Source:
    """A raw table: who is audited for what, and which columns are neither inputs of a model nor protected."""

    title: str
    read: Callable[[], nw.DataFrame[Any]]
    label: str
    positive: object
    protected: str
    unused: tuple[str, ...] = ()

    def shuffled(self, frame: Any, seed: int) -> Any:
        """Return a table (pandas) in which everyone has the protected value of somebody else."""
        column = re.split("[=<>]", self.protected)[0]
        order = np.random.default_rng(seed).permutation(len(frame))
        return frame.assign(**{column: frame[column].to_numpy()[order]})


SOURCES = {
    "adult": Source("Adult", adult_table, "income-per-year", ">50K", "sex", ("fnlwgt",)),
    "bank": Source("Bank", bank_table, "y", "yes", "age>=25"),
    "compas": Source(
        *("COMPAS", compas_table, "two_year_recid", 1, "race=African-American"),
        unused=("age_cat", "decile_score", "score_text"),
    ),
    "german": Source("German credit", german_table, "class", "good", "sex", ("personal_status",)),
    "law": Source("Law school", law_school_table, "first_pf", 1, "race=White", ("sander_index", "ZFYA")),
}


class Kind(NamedTuple):
    """A kind of model: a classifier of scikit-learn, from the number of trees (where it has any) and a seed."""

    title: str
    make: Callable[[int, int], Any]


MODELS = {
    "hist-gradient-boosting": Kind(
        "boosted trees", lambda trees, seed: HistGradientBoostingClassifier(max_iter=trees, random_state=seed)
    ),
    "random-forest": Kind(
        "random forest", lambda trees, seed: RandomForestClassifier(trees, min_samples_leaf=5, random_state=seed)
    ),
    "logistic-regression": Kind(
        "logistic regression", lambda trees, seed: LogisticRegression(max_iter=1000, random_state=seed)
    ),
    "network": Kind("network", lambda trees, seed: MLPClassifier((64, 32), early_stopping=True, random_state=seed)),
}
SCALED = ("logistic-regression", "network")  # the others take numbers as they are and categories as codes


@dataclass(frozen=True)
class Size:
    """How large one audit is."""

    rows: int | None = None  # of the table; all
    people: int = 2_000  # who are scored, drawn from those the model has not seen; fewer where there are not so many
    trees: int = 200
    refits: int = 5


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
    """Return a model of the label: a fitted Pipeline on the raw inputs."""
    texts = list(fitting[inputs].select_dtypes(exclude="number"))
    if model in SCALED:
        columns = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), texts), remainder=StandardScaler())
    else:
        codes = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
        columns = make_column_transformer((codes, texts), remainder="passthrough")
    return make_pipeline(columns, MODELS[model].make(size.trees, seed)).fit(fitting[inputs], fitting[source.label])


SHOWN = 5  # features that the effect goes through
CLEAR = 2.0  # standard errors
CHECKED = ("group", "towards", "people", "accounted", "gap", "effect", "outside", "unseen", "unseen_real")  # of a map


@dataclass(frozen=True)
class Audits:
    """Which models are audited, and on which tables."""

    tables: tuple[str, ...] = tuple(SOURCES)
    models: tuple[str, ...] = tuple(MODELS)
    size: Size = Size()


FULL = Audits()
QUICK = Audits(
    ("adult", "compas"), ("hist-gradient-boosting", "network"), Size(rows=400, people=60, trees=20, refits=2)
)


def jobs(plan: Audits, seed: int) -> list[Job]:
    """Return one job per table and model; none for a table that is not to be had."""
    missing = lacking(plan.tables)
    return [
        Job(_name(table, model), audit_one, (table, model, plan.size, seed_of(seed, table)), seconds=40)
        for table in plan.tables
        for model in plan.models
        if table not in missing
    ]


def _name(table: str, model: str) -> str:
    return f"{table}-{model}"


def lacking(tables: Sequence[str]) -> dict[str, str]:
    """Return the tables that cannot be had, each with the reason."""
    return lacking_tables(tables, {table: source.read for table, source in SOURCES.items()})


def audit_one(folder: Path, needed: Folders, table: str, model: str, size: Size, seed: int) -> dict[str, Any]:
    """Train a model, audit it, and return how good it is, what its output tells of the group, and how it treats whom.

    Everything of one table has the same seed: all of its models learn from the same people and are judged by the same.
    """
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
    predictions = torch.as_tensor(trained.predict_proba(frame.iloc[unseen][inputs])[:, 1], dtype=torch.float64)
    return {
        **{"training_rows": len(fitting), "training_seconds": training},
        **quality(predictions, data[torch.as_tensor(unseen)]),
        **treatment(result, data.c[torch.as_tensor(scored), 0]),
    }


def quality(predictions: torch.Tensor, unseen: Dataset) -> dict[str, Any]:
    """Return how good predictions are and what they tell of the group, on all people that the model has not seen.

    Gaps are of class 1 less class 0: of mean predictions, with its standard error, of the share predicted above one
    half (demographic parity), and of that share among those whose label is 1 (equal opportunity).
    """
    found = measure(predictions, unseen)
    (leak,) = found.leaks
    first, second = (predictions[unseen.c[:, 0] == code] for code in (0, 1))
    return {
        **{"unseen": found.rows, "accuracy": found.accuracy, "auc": found.auc, "auc_c": leak.auc},
        **{"towards": unseen.protected[0].levels[1], "means": leak.means, "gap": float(second.mean() - first.mean())},
        "gap_error": float((second.var() / len(second) + first.var() / len(first)).sqrt()),
        **{"parity_gap": _rate_gap(predictions, unseen), "opportunity_gap": _rate_gap(predictions, unseen, label=1)},
    }


def _rate_gap(predictions: torch.Tensor, unseen: Dataset, *, label: int | None = None) -> float:
    """Return the share predicted above one half in class 1 less that in class 0; among those with a label."""
    assert unseen.y is not None
    counted = torch.ones(len(unseen), dtype=torch.bool) if label is None else unseen.y == label
    first, second = (predictions[counted & (unseen.c[:, 0] == code)] > 0.5 for code in (0, 1))
    return float(second.double().mean() - first.double().mean())


def treatment(result: AuditRecord, c: torch.Tensor) -> dict[str, Any]:
    """Return what an audit says of the people it scored; towards class 1 the effect of those in it counts reversed."""
    (finding,), known = result.findings, ~result.abstained
    assert result.effect is not None
    assert result.verdict is not None
    assert result.features.effect is not None
    towards = torch.where(c == 1, -result.effect, result.effect)[known]
    return {
        **{"people": len(result), "judged": result.judged, "seconds": result.settings["seconds"]},
        **{"effect": float(result.scores[known].mean()), "effect_towards": float(towards.mean())},
        **{"flagged": result.share_flagged, "confident": result.share_confident, "verdict": result.verdict.word},
        "through": dict(list(result.features.effect.total.items())[:SHOWN]),
        "readings": {
            name: {"mean_absolute": reading.mean_absolute}
            | {group: part.mean_effect for group, part in reading.groups.items()}
            for name, reading in finding.readings().items()
        },
        "map_checks": [{name: getattr(check, name) for name in CHECKED} for check in result.map_checks],
    }


def gather(plan: Audits, found: Found, about: dict[str, Any]) -> dict[str, Any]:
    """Return an entry per table and model, what was not run, and whether effects point where the group gap does."""
    results = [
        {"table": table, "model": model, **found[_name(table, model)]}
        for table in plan.tables
        for model in plan.models
        if _name(table, model) in found
    ]
    return {"results": results, "not_run": lacking(plan.tables), "bars": bars(results)}


def bars(results: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what has to be shown; values are lists of exceptions.

    Of few people a small gap has its sign by chance, so the same is said of those gaps alone that are clear.
    """
    against = [one for one in results if one["gap"] * one["effect_towards"] <= 0]
    clear = [one for one in against if abs(one["gap"]) > CLEAR * one["gap_error"]]
    what = "the mean signed rank effect has the sign of the group gap for every model on every table"
    return [
        bar(f"{what}; exceptions", _exceptions(against), not against),
        bar(f"{what} where the gap is clear; exceptions", _exceptions(clear), not clear),
    ]


def _exceptions(found: Sequence[dict[str, Any]]) -> str:
    return "; ".join(f"{SOURCES[one['table']].title}, {MODELS[one['model']].title}" for one in found) or "none"


def show(found: dict[str, Any]) -> str:
    """Return a line for each table and model, what was not run, and the bars."""
    heads = ["table", "model", "AUC", "verdict", "flagged", "confident", "mean size", "at the same outcome"]
    heads += ["mean effect", "group gap", "parity gap", "opportunity gap", "gap accounted for", "people"]
    rows = []
    for one in found["results"]:
        cells = [SOURCES[one["table"]].title, MODELS[one["model"]].title, f"{one['auc']:.3f}"]
        cells += [one.get("verdict", "-"), *(f"{one[share]:.0%}" for share in ("flagged", "confident"))]
        cells += [f"{value:.3f}" for value in (one["effect"], one["readings"]["same outcome"]["mean_absolute"])]
        cells += [f"{one['effect_towards']:+.3f}", f"{one['gap']:+.3f} ± {one['gap_error']:.3f}"]
        cells += [f"{one[gap]:+.3f}" if gap in one else "-" for gap in ("parity_gap", "opportunity_gap")]
        rows.append([*cells, _accounted(one["map_checks"]), f"{one['people']:,}"])
    missing = [f"- {SOURCES[name].title}: {why}" for name, why in found["not_run"].items()]
    return "\n".join([markdown_table(heads, rows), *missing, "", table_of_bars(found)])


def _accounted(checks: Sequence[dict[str, Any]]) -> str:
    """Return how much of each group's gap the map accounts for; no share of a gap that may be chance."""
    return ", ".join("-" if check["accounted"] is None else f"{check['accounted']:.0%}" for check in checks)
