"""Raw tables, and models of the kinds that people really use on them: Pipelines, and a remedy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import narwhals as nw
import numpy as np
from runner import installed

from fairfox.data.adult import adult_table
from fairfox.data.bank import bank_table
from fairfox.data.catalog import encode_people
from fairfox.data.compas import compas_table
from fairfox.data.dataset import Dataset
from fairfox.data.german import german_table
from fairfox.data.law import law_school_table
from fairfox.extras import require
from fairfox.nets.adversarial import HidingSettings
from fairfox.remedy import FairModel, train_fair

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
