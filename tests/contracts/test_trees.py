"""Tree ensembles of every library against people whose true counterfactuals are known."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from support import audited

from fairfox.benchmark.judge import spearman
from fairfox.benchmark.worlds import LENDING
from fairfox.findings import AuditRecord

pytestmark = pytest.mark.brief

PEOPLE = 4000
TEXT = ["sector", "contract"]


@cache
def population() -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Return past applicants, new ones, and the new ones as members of the other group."""
    past, new = LENDING.sample(PEOPLE, seed=0), LENDING.sample(PEOPLE, seed=1)
    return past.table.to_pandas(), new.table.to_pandas(), new.counterfactual.to_pandas()


FAIR, ALL = (list(columns) for columns in (LENDING.sample(2).legitimate, LENDING.sample(2).features))


def as_categories(frame: pd.DataFrame) -> pd.DataFrame:
    past = population()[0]
    return frame.assign(**{c: pd.Categorical(frame[c], sorted(past[c].unique())) for c in TEXT if c in frame})


def xgboost(x: pd.DataFrame, y: pd.Series) -> Any:
    from xgboost import XGBClassifier

    model = XGBClassifier(n_estimators=60, max_depth=3, learning_rate=0.1, enable_categorical=True, n_jobs=1)
    return model.fit(as_categories(x), y)


def lightgbm(x: pd.DataFrame, y: pd.Series) -> Any:
    from lightgbm import LGBMClassifier

    model = LGBMClassifier(n_estimators=60, num_leaves=8, learning_rate=0.1, n_jobs=1, verbose=-1, random_state=0)
    return model.fit(as_categories(x), y)


def catboost(x: pd.DataFrame, y: pd.Series) -> Any:
    from catboost import CatBoostClassifier

    model = CatBoostClassifier(iterations=60, depth=4, verbose=0, thread_count=1, allow_writing_files=False)
    return model.fit(x, y, cat_features=[c for c in TEXT if c in x])


def hist_gradient_boosting(x: pd.DataFrame, y: pd.Series) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier

    model = HistGradientBoostingClassifier(max_iter=60, min_samples_leaf=50, categorical_features="from_dtype")
    return model.fit(as_categories(x), y)


def random_forest(x: pd.DataFrame, y: pd.Series) -> Any:
    from sklearn.compose import make_column_transformer
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    encode = make_column_transformer((OneHotEncoder(), [c for c in TEXT if c in x]), remainder="passthrough")
    forest = RandomForestClassifier(60, min_samples_leaf=30, random_state=0)
    return make_pipeline(encode, forest).fit(x, y)


LIBRARIES = [xgboost, lightgbm, catboost, hist_gradient_boosting, random_forest]


def audit_of(fit: Callable[..., Any], columns: list[str]) -> tuple[AuditRecord, np.ndarray]:
    """Return the audit of a model on some columns, and everyone's true score."""
    past, new, others = population()
    model = fit(past[columns], past["approved"])
    prepare = (lambda t: t[columns]) if fit in (catboost, random_forest) else (lambda t: as_categories(t[columns]))
    here, there = (model.predict_proba(prepare(t))[:, 1] for t in (new, others))
    result = audited(
        model, new, protected="sex", reference=past, columns=columns, refits=2
    )  # the table's text columns are text: the model gets what it was trained on
    np.testing.assert_allclose(result.predictions.numpy(), here, atol=1e-6)
    return result, np.abs(here - there)


@pytest.mark.parametrize("fit", LIBRARIES, ids=lambda fit: fit.__name__)
def test_a_biased_ensemble_is_measured_in_true_units_and_a_fair_one_left_alone(fit: Callable[..., Any]):
    pytest.importorskip(
        {"hist_gradient_boosting": "sklearn", "random_forest": "sklearn"}.get(fit.__name__, fit.__name__)
    )
    biased, truth = audit_of(fit, ALL)
    assert spearman(biased.scores, torch.as_tensor(truth)) >= 0.55
    assert float(biased.scores.mean()) / truth.mean() == pytest.approx(1.0, abs=0.30)
    fair, untouched = audit_of(fit, FAIR)
    assert untouched.max() == 0.0
    assert float(fair.scores.mean()) <= 0.2 * float(biased.scores.mean())
