import numpy as np
import pytest
from populations import people
from sklearn.base import BaseEstimator
from sklearn.cluster import KMeans
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import LinearSVC

from fairfox.errors import OptionError
from fairfox.models.sklearn_model import describe_estimator, is_estimator

TABLE = people()[["income", "age", "job"]]
NUMBERS = TABLE[["income", "age"]]
RICH = (TABLE["income"] > 3200).to_numpy()


def pipeline(model: BaseEstimator) -> BaseEstimator:
    columns = make_column_transformer((StandardScaler(), ["income", "age"]), (OneHotEncoder(), ["job"]))
    return make_pipeline(columns, model)


def test_estimators_and_pipelines_are_recognised():
    assert is_estimator(LogisticRegression())
    assert is_estimator(pipeline(LogisticRegression()))
    assert not is_estimator(LogisticRegression)
    assert not is_estimator(len)
    assert not is_estimator(StandardScaler())


def test_a_classifier_is_asked_for_probabilities_and_knows_its_classes_and_columns():
    fitted = pipeline(LogisticRegression()).fit(TABLE, np.where(RICH, "rich", "poor"))
    found = describe_estimator(fitted, wanted="probability")
    assert (found.returns, found.classes, found.names) == ("probability", ["poor", "rich"], ("income", "age", "job"))
    np.testing.assert_array_equal(found.predict(TABLE), fitted.predict_proba(TABLE))


def test_an_estimator_fitted_on_an_array_knows_no_columns():
    fitted = make_pipeline(StandardScaler(), LogisticRegression()).fit(NUMBERS.to_numpy(), RICH)
    assert describe_estimator(fitted, wanted="probability").names is None


def test_a_regressor_is_asked_for_values():
    found = describe_estimator(pipeline(LinearRegression()).fit(TABLE, TABLE["income"]), wanted="probability")
    assert (found.returns, found.classes) == ("value", None)


def test_a_search_is_described_by_what_it_found():
    search = GridSearchCV(pipeline(LogisticRegression()), {"logisticregression__C": [0.1, 1.0]}, cv=2).fit(TABLE, RICH)
    found = describe_estimator(search, wanted="probability")
    assert (found.returns, found.classes, found.names) == ("probability", [False, True], ("income", "age", "job"))


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


def test_anything_else_that_predicts_gives_values():
    fitted = KMeans(2, n_init=1, random_state=0).fit(NUMBERS)
    assert describe_estimator(fitted, wanted="probability").returns == "value"
