from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from contracts.kinds import CATBOOST, GRANTED, PEOPLE, categories, mixed, numeric
from support import audited

from fairfox.errors import DataError, OptionError
from fairfox.models.boosting import describe_booster, load_catboost, load_lightgbm, load_xgboost

pytestmark = pytest.mark.brief

xgb = pytest.importorskip("xgboost")
lgb = pytest.importorskip("lightgbm")
cb = pytest.importorskip("catboost")

NUMBERS = numeric()
LIGHT = {"verbose": -1, "num_threads": 1, "min_data_in_leaf": 5, "min_data_per_group": 5}
JOBS = PEOPLE["job"].to_numpy()
PLACES = pd.Categorical(JOBS).codes


def trained(objective: str, y: Any = GRANTED, frame: pd.DataFrame = NUMBERS, **options: Any) -> Any:
    rows = xgb.DMatrix(frame, np.asarray(y, dtype=float), enable_categorical=True)
    return xgb.train({"objective": objective, "max_depth": 3, "nthread": 1, **options}, rows, 8)


def light(objective: Any, y: Any = GRANTED, frame: Any = NUMBERS, **options: Any) -> Any:
    return lgb.train(LIGHT | {"objective": objective} | options, lgb.Dataset(frame, np.asarray(y, dtype=float)), 8)


def cat(frame: Any = NUMBERS, y: Any = GRANTED, base: Any = cb.CatBoostClassifier, **options: Any) -> Any:
    return base(**CATBOOST, **options).fit(frame, y)


def about(model: object, wanted: Any = "probability") -> tuple[Any, ...]:
    found = describe_booster(model, wanted=wanted)
    return found.kind, found.returns, found.classes


def answers(model: object, rows: Any, wanted: Any = "probability") -> np.ndarray:
    return np.asarray(describe_booster(model, wanted=wanted).predict(rows))


# --- what a model gives --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("objective", "wanted", "returns", "classes"),
    [
        ("binary:logistic", "probability", "probability", [0, 1]),
        ("binary:logistic", "logit", "logit", [0, 1]),
        ("binary:logitraw", "probability", "logit", [0, 1]),
        ("reg:logistic", "probability", "probability", [0, 1]),
        ("reg:squarederror", "probability", "value", None),
        ("reg:squarederror", "logit", "value", None),
        ("count:poisson", "probability", "value", None),
    ],
)
def test_an_xgboost_objective_says_what_the_booster_gives(objective: str, wanted: Any, returns: str, classes: Any):
    booster = trained(objective)
    assert about(booster, wanted) == ("matrix", returns, classes)
    margin = wanted == "logit" and returns == "logit"
    np.testing.assert_array_equal(
        answers(booster, NUMBERS.to_numpy(dtype=float), wanted),
        booster.predict(xgb.DMatrix(NUMBERS), output_margin=margin),
    )


@pytest.mark.parametrize(
    ("objective", "options", "better"),
    [("multi:softmax", {"num_class": 3}, "multi:softprob"), ("binary:hinge", {}, "binary:logistic")],
)
def test_xgboost_boosters_that_answer_with_class_numbers_are_refused(objective: str, options: Any, better: str):
    booster = trained(objective, **options)
    with pytest.raises(OptionError, match=f"'{objective}' returns class numbers, .*; train with '{better}'"):
        describe_booster(booster, wanted="probability")


def test_what_an_estimator_takes_as_missing_is_kept():
    coded = NUMBERS.fillna(-1)
    fitted = xgb.XGBClassifier(n_estimators=5, missing=-1, n_jobs=1).fit(coded, GRANTED)
    np.testing.assert_array_equal(answers(fitted, coded.to_numpy(dtype=float)), fitted.predict_proba(coded)[:, 1])


@pytest.mark.parametrize(
    ("objective", "options", "wanted", "returns", "classes"),
    [
        ("binary", {}, "probability", "probability", [0, 1]),
        ("binary", {}, "logit", "logit", [0, 1]),
        ("binary", {"sigmoid": 2.0}, "logit", "probability", [0, 1]),  # its raw score is half a logit
        ("cross_entropy", {}, "logit", "logit", [0, 1]),
        ("regression", {}, "probability", "value", None),
        ("poisson", {}, "logit", "value", None),
    ],
)
def test_a_lightgbm_objective_says_what_the_booster_gives(
    objective: str, options: Any, wanted: Any, returns: str, classes: Any
):
    booster = light(objective, **options)
    assert about(booster, wanted) == ("matrix", returns, classes)
    found = answers(booster, NUMBERS.to_numpy(dtype=float), wanted)
    np.testing.assert_array_equal(found, booster.predict(NUMBERS, raw_score=returns == "logit"))


@pytest.mark.parametrize(
    ("fit", "logit"),
    [
        (lambda: trained("multi:softprob", PLACES, num_class=3), "logit"),
        (lambda: light("multiclass", PLACES, num_class=3), "logit"),
        (lambda: light("multiclassova", PLACES, num_class=3), "probability"),
    ],
)
def test_several_classes_give_a_column_each(fit: Any, logit: str):
    booster = fit()
    assert about(booster) == ("matrix", "probability", [0, 1, 2])
    assert answers(booster, NUMBERS.to_numpy(dtype=float)).shape == (160, 3)
    assert about(booster, "logit")[1] == logit


@pytest.mark.parametrize(
    ("loss", "wanted", "returns", "asked"),
    [
        ("Logloss", "probability", "probability", "Probability"),
        ("Logloss", "logit", "logit", "RawFormulaVal"),
        ("CrossEntropy", "probability", "probability", "Probability"),
        ("RMSE", "logit", "value", "RawFormulaVal"),
        ("Quantile:alpha=0.3", "probability", "value", "RawFormulaVal"),
        ("Poisson", "probability", "value", "Exponent"),
    ],
)
def test_a_catboost_loss_says_what_the_model_gives(loss: str, wanted: Any, returns: str, asked: str):
    model = cb.CatBoost(CATBOOST | {"loss_function": loss}).fit(NUMBERS, GRANTED.astype(float))
    assert about(model, wanted)[:2] == ("matrix", returns)
    found = answers(model, NUMBERS.to_numpy(dtype=float), wanted)
    np.testing.assert_array_equal(found, model.predict(NUMBERS, prediction_type=asked))


def test_wrappers_know_their_classes():
    names = np.where(GRANTED, "yes", "no")
    assert about(cat(y=names)) == ("matrix", "probability", ["no", "yes"])
    assert about(cat(y=JOBS)) == ("matrix", "probability", ["clerk", "nurse", "smith"])
    fitted = lgb.LGBMClassifier(n_estimators=3, n_jobs=1, verbose=-1).fit(NUMBERS, names)
    assert about(fitted) == ("matrix", "probability", ["no", "yes"])
    for positive, column in (("no", 0), ("yes", 1)):
        result = audited(fitted, mixed(), protected="sex", positive=positive, refits=1, folds=2)
        np.testing.assert_allclose(result.predictions, fitted.predict_proba(NUMBERS)[:, column], atol=1e-12)
        assert result.settings["audited_class"] == positive


@pytest.mark.parametrize(
    ("obj", "message"),
    [
        (xgb.XGBClassifier(), "This XGBClassifier is not fitted"),
        (lgb.LGBMClassifier(), "This LGBMClassifier is not fitted"),
        (cb.CatBoostClassifier(), "This CatBoostClassifier is not fitted"),
        (xgb.DMatrix(np.eye(2)), "This is a DMatrix, not a model"),
        (lgb.Dataset(np.eye(2)), "This is a Dataset, not a model"),
        (cb.Pool(np.eye(2)), "This is a Pool, not a model"),
    ],
)
def test_what_cannot_predict_is_refused(obj: object, message: str):
    with pytest.raises(OptionError, match=message):
        describe_booster(obj, wanted="probability")


# --- columns -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fit", [lambda d: trained("binary:logistic", frame=d), lambda d: light("binary", frame=d), cat]
)
def test_models_know_their_columns_unless_the_library_made_the_names_up(fit: Any):
    named, unnamed = (describe_booster(fit(d), wanted="logit") for d in (NUMBERS, NUMBERS.to_numpy(dtype=float)))
    assert (named.names, named.width, named.as_category) == (("income", "age", "debt", "member"), 4, frozenset())
    assert (unnamed.names, unnamed.width) == (None, 4)


WITH_CATEGORIES = {
    "xgboost": lambda: trained("binary:logistic", frame=categories()),
    "lightgbm": lambda: light("binary", frame=categories()),
    "catboost": lambda: cat(categories(), cat_features=["job", "code"]),
}


@pytest.fixture(scope="module", params=list(WITH_CATEGORIES))
def model(request: pytest.FixtureRequest) -> Any:
    return WITH_CATEGORIES[request.param]()


def test_models_on_categories_take_a_table_and_name_them(model: Any):
    found = describe_booster(model, wanted="probability")
    assert (found.kind, found.as_category) == ("table", {"job", "code"})
    assert found.names == ("income", "age", "debt", "member", "job", "code")


def test_a_file_with_texts_is_as_good_as_the_categories_it_was_written_from(model: Any, tmp_path: Path):
    mixed().to_csv(tmp_path / "people.csv", index=False)
    options: dict[str, Any] = {"protected": "sex", "refits": 1, "folds": 2}
    whole = audited(model, mixed(), **options)
    read = audited(model, tmp_path / "people.csv", categorical=["code"], **options)
    np.testing.assert_array_equal(read.predictions, whole.predictions)
    np.testing.assert_allclose(read.scores, whole.scores, atol=1e-9)
    assert float(whole.scores.max()) > 0.01


def test_the_levels_are_the_models_own_whatever_the_table_holds(model: Any):
    few = categories()[mixed()["job"] == "smith"].head(5)
    texts = few.assign(job=few["job"].astype(str), code=few["code"].astype(int))
    expected = answers(model, categories())[few.index]
    np.testing.assert_array_equal(answers(model, texts), expected)
    np.testing.assert_array_equal(answers(model, pl.from_pandas(texts)), expected)


@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
def test_a_code_that_was_read_as_a_number_is_told_to_be_a_category(library: str):
    found = describe_booster(WITH_CATEGORIES[library](), wanted="probability")
    with pytest.raises(DataError, match=r"'code' is a category for the model .*categorical=\['code'\]"):
        found.predict(categories().assign(code=12.5))


def test_xgboost_that_knows_a_category_by_numbers_only_takes_no_texts():
    codes = categories().assign(job=PLACES.astype(float), code=0.0).to_numpy(dtype=float)
    rows = xgb.DMatrix(
        codes,
        GRANTED,
        feature_names=list(categories()),
        feature_types=["q", "q", "q", "q", "c", "q"],
        enable_categorical=True,
    )
    booster = xgb.train({"objective": "binary:logistic", "nthread": 1}, rows, 5)
    found = describe_booster(booster, wanted="probability")
    assert (found.kind, found.as_category) == ("table", {"job"})
    table = categories().assign(code=0.0)
    np.testing.assert_array_equal(found.predict(table), booster.predict(rows))  # pandas has the same codes
    np.testing.assert_array_equal(found.predict(table.assign(job=PLACES)), booster.predict(rows))
    with pytest.raises(DataError, match="only category numbers for 'job', but the table has text there; give a pandas"):
        found.predict(table.assign(job=JOBS))


# --- files ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("library", "name", "load", "options"),
    [
        ("xgboost", "model.json", load_xgboost, {}),
        ("xgboost", "model.ubj", load_xgboost, {}),
        ("lightgbm", "model.txt", load_lightgbm, {}),
        ("catboost", "model.cbm", load_catboost, {}),
        ("catboost", "model.json", load_catboost, {"format": "json"}),
    ],
)
def test_a_file_gives_the_model_that_was_saved(library: str, name: str, load: Any, options: Any, tmp_path: Path):
    saved = WITH_CATEGORIES[library]()
    saved.save_model(str(tmp_path / name), **options)
    loaded = load(tmp_path / name)
    np.testing.assert_allclose(answers(loaded, categories()), np.asarray(answers(saved, categories())), atol=1e-7)
    texts = categories().assign(job=JOBS)
    np.testing.assert_array_equal(answers(loaded, texts), answers(loaded, categories()))


# --- corners -------------------------------------------------------------------------------------------------------


def test_columns_that_are_really_named_by_counting_are_found_by_name():
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(300, 3)), columns=["f0", "f1", "f2"])
    model = xgb.XGBClassifier(n_estimators=5, n_jobs=1).fit(table, table["f2"] > 0)
    people = table[["f2", "f0", "f1"]].assign(sex=np.arange(300) % 2)
    result = audited(model, people, protected="sex", refits=1, folds=2)
    assert result.settings["columns"] == ["f0", "f1", "f2"]
    np.testing.assert_allclose(result.predictions.numpy(), model.predict_proba(table)[:, 1], atol=1e-6)


def test_early_stopping_counts_as_in_the_library_itself():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(400, 3)), rng.integers(0, 2, 400)
    data, held_out = xgb.DMatrix(x[:300], y[:300]), xgb.DMatrix(x[300:], y[300:])
    options = {"objective": "binary:logistic", "max_depth": 6, "nthread": 1, "learning_rate": 1.0}
    native = xgb.train(options, data, 30, evals=[(held_out, "v")], early_stopping_rounds=3, verbose_eval=False)
    assert native.best_iteration + 1 < native.num_boosted_rounds()
    described = describe_booster(native, wanted="probability")
    np.testing.assert_allclose(described.predict(x), native.predict(xgb.DMatrix(x)), atol=1e-6)
    wrapper = xgb.XGBClassifier(n_estimators=30, learning_rate=1.0, early_stopping_rounds=3, n_jobs=1)
    wrapper.fit(x[:300], y[:300], eval_set=[(x[300:], y[300:])], verbose=False)
    found = np.asarray(describe_booster(wrapper, wanted="probability").predict(x)).reshape(400, -1)[:, -1]
    np.testing.assert_allclose(found, wrapper.predict_proba(x)[:, 1], atol=1e-6)


def test_lightgbm_levels_that_fit_no_column_for_sure_are_refused():
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {"band": pd.Categorical(rng.choice(list("abc"), 300), ordered=True), "x": rng.normal(size=300)}
    )
    model = lgb.LGBMClassifier(n_estimators=3, verbose=-1, n_jobs=1).fit(table, table["x"] > 0)
    with pytest.raises(OptionError, match="so their levels cannot be matched"):
        describe_booster(model, wanted="probability")
