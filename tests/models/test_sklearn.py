import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from populations import people
from sklearn.base import BaseEstimator
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_transformer
from sklearn.ensemble import (
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    VotingClassifier,
)
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier

from fairfox.errors import FileError, OptionError
from fairfox.models.sklearn import describe_estimator, load_skops

TABLE = people()[["income", "age", "job"]]
NUMBERS = TABLE[["income", "age"]]
RICH = (TABLE["income"] > 3200).to_numpy()


def pipeline(model: BaseEstimator) -> BaseEstimator:
    columns = make_column_transformer((StandardScaler(), ["income", "age"]), (OneHotEncoder(), ["job"]))
    return make_pipeline(columns, model)


def test_a_classifier_is_asked_for_probabilities_and_knows_its_classes_and_columns():
    fitted = pipeline(LogisticRegression()).fit(TABLE, np.where(RICH, "rich", "poor"))
    found = describe_estimator(fitted, wanted="probability")
    assert (found.returns, found.classes, found.names) == ("probability", ["poor", "rich"], ("income", "age", "job"))
    np.testing.assert_array_equal(found.predict(TABLE), fitted.predict_proba(TABLE))


def test_a_classifier_without_probabilities_is_audited_on_its_decision_function_only():
    fitted = make_pipeline(StandardScaler(), LinearSVC()).fit(NUMBERS, RICH)
    with pytest.raises(
        OptionError, match=r"has no predict_proba; wrap it in CalibratedClassifierCV, or .*output='logit'"
    ):
        describe_estimator(fitted, wanted="probability")
    found = describe_estimator(fitted, wanted="logit")
    assert found.returns == "logit"
    np.testing.assert_array_equal(found.predict(NUMBERS), fitted.decision_function(NUMBERS))


@pytest.mark.parametrize("model", [LogisticRegression(), pipeline(LogisticRegression()), LinearRegression()])
def test_an_estimator_that_is_not_fitted_is_refused(model: BaseEstimator):
    with pytest.raises(OptionError, match=f"This {type(model).__name__} is not fitted; call its fit before the audit"):
        describe_estimator(model, wanted="probability")


# --- categories ----------------------------------------------------------------------------------------------------

CATEGORIES = TABLE.assign(job=TABLE["job"].astype("category"), region=pd.Categorical(TABLE["age"] % 3 + 10))


def boosting() -> HistGradientBoostingClassifier:
    return HistGradientBoostingClassifier(max_iter=5, min_samples_leaf=5, categorical_features="from_dtype")


@pytest.mark.parametrize(
    "model",
    [boosting(), make_pipeline("passthrough", boosting()), GridSearchCV(boosting(), {"max_iter": [5]}, cv=2)],
    ids=["alone", "pipeline", "search"],
)
def test_boosting_on_categories_takes_the_texts_and_codes_of_a_file(model: BaseEstimator):
    odd = RICH ^ (CATEGORIES["job"] == "smith") ^ (CATEGORIES["region"] == 11)
    fitted = model.fit(CATEGORIES, odd)
    found = describe_estimator(fitted, wanted="probability")
    assert (found.kind, found.as_category) == ("table", {"job", "region"})
    expected = fitted.predict_proba(CATEGORIES)
    assert len(np.unique(expected)) > 10
    for region in (CATEGORIES["region"].astype(int), CATEGORIES["region"].astype(str)):
        texts = CATEGORIES.assign(job=TABLE["job"], region=region)
        np.testing.assert_array_equal(found.predict(texts), expected)
        np.testing.assert_array_equal(found.predict(texts[:7]), expected[:7])


def test_boosting_on_categories_with_gaps_takes_a_file_with_gaps():
    gaps = CATEGORIES.copy()
    gaps.loc[::7, ["job", "region"]] = None
    fitted = boosting().fit(gaps, RICH)
    found = describe_estimator(fitted, wanted="probability")
    texts = gaps.astype({"job": object, "region": float})  # as they come from a CSV
    np.testing.assert_array_equal(found.predict(texts), fitted.predict_proba(gaps))


# --- skops ---------------------------------------------------------------------------------------------------------

skops_io = pytest.importorskip("skops.io")


@pytest.mark.parametrize(
    "model",
    [
        pipeline(RandomForestClassifier(3)),
        pipeline(GradientBoostingClassifier(n_estimators=3)),
        pipeline(CalibratedClassifierCV(SVC(), method="isotonic", cv=2)),
        pipeline(MLPClassifier((4,), solver="lbfgs", max_iter=20, random_state=0)),
        pipeline(ExtraTreesClassifier(3, max_leaf_nodes=5, n_jobs=2)),
        pipeline(VotingClassifier([("nb", GaussianNB()), ("tree", DecisionTreeClassifier())], voting="soft")),
        GridSearchCV(pipeline(LogisticRegression()), {"logisticregression__C": [0.1, 1.0]}, cv=2),
        boosting(),
    ],
    ids=lambda model: type(getattr(model, "steps", [[model]])[-1][-1]).__name__,
)
def test_a_skops_file_gives_the_estimator_that_was_saved(model: BaseEstimator, tmp_path: Path):
    fitted = model.fit(CATEGORIES, RICH)
    skops_io.dump(fitted, tmp_path / "model.skops")
    loaded = load_skops(tmp_path / "model.skops")
    expected = fitted.predict_proba(CATEGORIES)
    np.testing.assert_allclose(loaded.predict_proba(CATEGORIES), expected, rtol=0, atol=1e-15)  # sums of trees


def test_a_damaged_skops_file_is_refused_in_one_sentence(tmp_path: Path):
    path = tmp_path / "model.skops"
    skops_io.dump(pipeline(RandomForestClassifier(3)).fit(TABLE, RICH), path)
    whole = path.read_bytes()
    for content in (whole[: len(whole) // 2], whole[:-30], b"PK", b"", whole.replace(b"RandomForest", b"RandomFirest")):
        path.write_bytes(content)
        with pytest.raises(
            FileError, match=r"^'model.skops' could not be read as a skops file: [^\n]*; save it again$"
        ):
            load_skops(path)


def test_a_skops_file_that_unpacks_to_far_more_than_it_is_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("fairfox.models.sklearn._INFLATED", 2**20)
    path = tmp_path / "model.skops"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("array.npy", bytes(3 * 2**20))
    with pytest.raises(
        FileError, match=r"'model.skops' would unpack to 3 MiB or too many objects; save the model again with skops"
    ):
        load_skops(path)
