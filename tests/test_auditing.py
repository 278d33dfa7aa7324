from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LinearRegression
from torch import nn

import fairfox
from fairfox.errors import ColumnError, DataError, OptionError


def table(n: int = 400, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    male = rng.integers(0, 2, n).astype(bool)
    return pd.DataFrame(
        {
            "name": [f"p{i}" for i in range(n)],
            "sex": np.where(male, "Male", "Female"),
            "income": (3000 + 600 * male + rng.normal(0, 500, n)).round(2),
            "age": rng.integers(18, 70, n),
            "job": rng.choice(["clerk", "nurse", "smith"], n),
            "paid": rng.integers(0, 2, n),
        }
    )


def by_income(frame: Any) -> np.ndarray:
    return 1 / (1 + np.exp(-(np.asarray(frame["income"]) - 3300) / 400))


QUICK = {"protected": "sex", "label": "paid", "id": "name", "refits": 2, "folds": 2}


def test_a_model_on_income_is_found_to_treat_women_worse():
    result = fairfox.audit(by_income, table(), **QUICK)
    women = torch.tensor([g == "Female" for g in result.group])
    assert float(result.signed[women].mean()) > 0.2  # 600 of 400 * 4: about a third of the range
    assert float(result.signed[~women].mean()) < -0.2
    assert next(iter(result.features.effect.total)) == "income"
    assert result.features.effect.total["age"] == 0.0
    assert next(iter(result.features.proxy)) == "income"
    assert result.share_flagged > 0.8
    assert result.ids[:2].tolist() == ["p0", "p1"]
    assert result.delta == 0.05


def test_contributions_of_features_sum_to_each_persons_effect():
    result = fairfox.audit(by_income, table(), **QUICK)
    explained = ~result.features.effect.per_person.isnan().any(1)
    assert 100 <= int(explained.sum()) <= 120  # a black box is explained on a sample and on the worst
    torch.testing.assert_close(result.features.effect.per_person[explained].sum(1), result.signed[explained])


def test_gradient_contributions_sum_to_each_persons_effect():
    net = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1), nn.Sigmoid())
    people = table()
    people["income"] /= 1000
    result = fairfox.audit(net, people, **QUICK, drop=["job"])
    torch.testing.assert_close(result.features.effect.per_person.sum(1), result.signed, atol=1e-6, rtol=0)
    assert result.features.effect.method == "integrated gradients"


@pytest.mark.parametrize("convert", [lambda t: t, pl.from_pandas, lambda t: pl.from_pandas(t).to_arrow()])
def test_pandas_polars_and_arrow_tables_get_the_same_scores(convert: Any):
    expected = fairfox.audit(by_income, table(), **QUICK)
    result = fairfox.audit(by_income, convert(table()), **QUICK)
    torch.testing.assert_close(result.scores, expected.scores)


def test_a_plain_array_is_audited_by_column_names():
    people = table()
    array = np.column_stack([people["sex"] == "Male", people["income"], people["age"]]).astype(float)
    expected = fairfox.audit(by_income, people[["sex", "income", "age"]], protected="sex", refits=2, folds=2)
    result = fairfox.audit(
        lambda x: by_income({"income": x[:, 0]}), array, protected="x0", kind="matrix", refits=2, folds=2
    )
    torch.testing.assert_close(result.scores, expected.scores)


def test_identical_seeds_give_identical_results():
    one, two = (fairfox.audit(by_income, table(), **QUICK, test="move") for _ in range(2))
    assert torch.equal(one.scores, two.scores)
    assert torch.equal(one.interval, two.interval)
    assert one.alignment_share == two.alignment_share
    assert not torch.equal(one.scores, fairfox.audit(by_income, table(), **QUICK, test="move", seed=1).scores)


@pytest.mark.parametrize("test", ["rank", "move", "faux"])
def test_with_a_reference_scores_follow_the_rows_wherever_they_stand(test: str):
    people, reference = table(), table(seed=1)
    order = np.random.default_rng(0).permutation(len(people))
    options = QUICK | {"test": test, "reference": reference}
    one = fairfox.audit(by_income, people, **options)
    two = fairfox.audit(by_income, people.iloc[order].reset_index(drop=True), **options)
    torch.testing.assert_close(two.scores, one.scores[torch.as_tensor(order)], atol=1e-6, rtol=0)


def test_scores_do_not_depend_on_the_batch_size():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1), nn.Sigmoid())
    people = table()
    people["income"] /= 1000
    results = [fairfox.audit(net, people, **QUICK, drop=["job"], test="faux+ng", batch_size=b) for b in (7, 4096)]
    torch.testing.assert_close(results[0].scores, results[1].scores, atol=1e-6, rtol=0)


def test_aligned_tests_are_the_effect_times_the_alignment_share():
    plain, aligned = (fairfox.audit(by_income, table(), **QUICK, test=name) for name in ("rank", "rank/a"))
    share = aligned.alignment_share["sex"]
    assert 0 < share < 1
    torch.testing.assert_close(aligned.scores, plain.scores * share)
    torch.testing.assert_close(aligned.interval, plain.interval * share)


def test_a_constant_model_is_fair_with_a_warning():
    result = fairfox.audit(lambda frame: np.full(len(frame), 0.3), table(), **QUICK)
    assert result.share_flagged == 0.0
    assert float(result.scores.abs().max()) == 0.0
    assert result.alignment_share == {"sex": 0.0}
    assert any("constant" in text for text in result.warnings)


def test_people_of_unknown_group_are_abstained_and_left_out_of_the_share():
    people = table()
    people.loc[:9, "sex"] = None
    result = fairfox.audit(by_income, people, **QUICK)
    assert result.abstained[:10].all()
    assert not result.abstained[10:].any()
    assert result.reasons[0] == "protected value unknown"
    assert float(result.scores[:10].sum()) == 0.0
    assert result.share_flagged == pytest.approx(float(result.flags.sum()) / 390)
    assert any("10 people" in text for text in result.warnings)


def test_the_default_delta_of_a_regressor_is_a_share_of_its_usual_range():
    people = table()
    model = LinearRegression().fit(people[["income"]], people["income"] * 2.0)
    result = fairfox.audit(model, people, **QUICK)
    low, high = np.quantile(2 * people["income"], [0.01, 0.99])
    assert result.delta == pytest.approx(0.05 * (high - low), rel=1e-6)
    assert "value" in result.unit


def test_a_tree_ensemble_on_its_own_columns_is_audited():
    people = table(600)
    people["job"] = people["job"].astype("category")
    columns = ["age", "income", "job"]
    model = HistGradientBoostingClassifier(max_iter=10, categorical_features="from_dtype")
    model.fit(people[columns], by_income(people) > 0.5)
    result = fairfox.audit(model, people, **QUICK)
    assert result.settings["columns"] == columns
    assert result.settings["model_kind"] == "table"
    assert float(result.scores.mean()) > 0.05
    expected = model.predict_proba(people[columns])[:, 1]
    np.testing.assert_allclose(result.predictions.numpy(), expected)


def test_a_model_that_takes_the_protected_column_is_moved_along_it():
    people = table(600)
    people["sex"] = (people["sex"] == "Male").astype(int)
    model = LinearRegression().fit(people[["sex", "age"]], people["sex"] * 0.5)
    result = fairfox.audit(model, people, **QUICK, delta=0.1)
    torch.testing.assert_close(result.scores, torch.full_like(result.scores, 0.5), atol=1e-3, rtol=0)


def test_small_groups_are_warned_about():
    people = table(600)
    people["sex"] = ["Male"] * 20 + ["Female"] * 580
    result = fairfox.audit(by_income, people, **QUICK)
    assert any("only 3.3%" in text for text in result.warnings)


def test_counterfactual_rows_come_back_in_the_tables_own_units():
    people = table()
    result = fairfox.audit(by_income, people, **QUICK)
    assert list(result.counterfactual_table.columns) == ["income", "age", "job"]
    women = (people["sex"] == "Female").to_numpy()
    gain = (result.counterfactual_table["income"] - people["income"])[women].mean()
    assert gain == pytest.approx(600, abs=120)


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"protected": "sexe"}, ColumnError, "Did you mean 'sex'"),
        ({"protected": "age"}, DataError, "a cut such as 'age<"),
        ({"protected": []}, OptionError, "No protected variable"),
        ({"test": "rnak"}, OptionError, "Did you mean 'rank'"),
        ({"delta": -1}, OptionError, "delta is -1"),
        ({"delta": float("nan")}, OptionError, "delta is nan"),
        ({"delta": "0.1"}, OptionError, "delta is '0.1'"),
        ({"seed": 1.5}, OptionError, "seed is 1.5"),
        ({"protected": 3}, OptionError, "protected is 3"),
        ({"output": "odds"}, OptionError, "output is 'odds'"),
        ({"returns": "odds"}, OptionError, "returns is 'odds'"),
        ({"label": "sex"}, OptionError, "'sex' is given as the label and as protected"),
        ({"id": "paid"}, OptionError, "'paid' is given as the label and as the id"),
        ({"columns": ["income", "paid"]}, OptionError, "as the label and as a column of the model"),
        ({"seed": -1}, OptionError, "seed is -1"),
        ({"refits": 0}, OptionError, "refits is 0"),
        ({"folds": 1}, OptionError, "folds is 1"),
        ({"drop": ["agee"]}, ColumnError, "Did you mean 'age'"),
        ({"id": None}, DataError, "'name' has 400 different values"),
        ({"protected": "age<5"}, DataError, "0 of 400 people"),
    ],
)
def test_bad_options_are_refused_in_one_sentence(options: dict[str, Any], kind: type[Exception], message: str):
    with pytest.raises(kind, match=message):
        fairfox.audit(by_income, table(), **(QUICK | options))


def test_progress_runs_from_start_to_end():
    seen: list[tuple[str, float]] = []
    fairfox.audit(by_income, table(), **QUICK, progress=lambda text, done: seen.append((text, done)))
    fractions = [done for _, done in seen]
    assert fractions == sorted(fractions)
    assert fractions[0] == 0.0
    assert fractions[-1] == 1.0


def test_settings_say_how_the_result_came_about():
    settings = fairfox.audit(by_income, table(), **QUICK).settings
    assert settings["seed"] == 0
    assert settings["versions"]["torch"] == torch.__version__
    assert settings["refits"] == 2
    assert settings["seconds"] > 0
    assert settings["rows"] == 400


@pytest.mark.parametrize("test", ["faux", "faux+ng", "fta"])
def test_gradient_tests_see_the_slope_of_a_tree_ensemble(test: str):
    people = table(600)
    model = HistGradientBoostingClassifier(max_iter=30).fit(people[["age", "income"]], by_income(people) > 0.5)
    result = fairfox.audit(model, people, **QUICK, test=test)
    assert float((result.scores == 0).double().mean()) < 0.5
    assert not any("exactly zero" in text for text in result.warnings)


def test_missing_numbers_stay_missing_in_every_counterfactual():
    people = table()
    people.loc[people.index % 7 == 0, "income"] = np.nan

    def score(frame: Any) -> np.ndarray:
        return np.where(np.isnan(frame["income"]), 0.25, by_income(frame))

    for test in ("rank", "move", "move-direct"):
        result = fairfox.audit(score, people, **QUICK, test=test)
        gone = people["income"].isna()
        assert (result.counterfactual_table["income"].isna() == gone).all()
        assert float(result.direct[torch.tensor(gone.tolist())].abs().max()) == 0.0


def test_the_counterfactual_is_that_of_the_chosen_test():
    people = table()
    result = fairfox.audit(by_income, people, **(QUICK | {"refits": 1}), test="move")
    effect = by_income(result.counterfactual_table) - by_income(people)
    np.testing.assert_allclose(effect, result.signed.numpy(), atol=1e-9)


def test_contributions_leave_out_the_abstained():
    people = table()
    people.loc[:199, "sex"] = None
    result = fairfox.audit(by_income, people, **QUICK)
    assert result.features.effect.per_person[:200].isnan().all()
    assert result.features.effect.total["income"] == pytest.approx(float(result.scores[200:].mean()), rel=0.15)


def test_the_columns_of_a_function_can_be_named_with_the_protected_one_among_them():
    people = table()
    people["sex"] = (people["sex"] == "Male").astype(int)
    result = fairfox.audit(lambda t: 0.2 + 0.5 * t["sex"], people, **QUICK, columns=["sex", "age"])
    torch.testing.assert_close(result.scores, torch.full_like(result.scores, 0.5))


def test_a_reference_that_spells_the_groups_otherwise_is_refused():
    reference = table(seed=1).replace({"sex": {"Male": "M", "Female": "F"}})
    with pytest.raises(DataError, match="spell them alike"):
        fairfox.audit(by_income, table(), **QUICK, reference=reference)


def test_a_reference_of_a_few_people_is_refused():
    with pytest.raises(DataError, match="at least 10 are needed"):
        fairfox.audit(by_income, table(), **QUICK, reference=table(12, seed=1))


def test_log_odds_are_noticed():
    result = fairfox.audit(lambda t: (t["income"] - 3300) / 400, table(), **QUICK)
    assert any("if they are log-odds" in text for text in result.warnings)


def test_an_extreme_gradient_is_warned_about():
    def cliff(x: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(200 * (x[:, 0] - 3.3)) + 0.001 * x[:, 1]

    people = table()
    people["income"] /= 1000
    result = fairfox.audit(cliff, people, **QUICK, drop=["job"], returns="value")
    assert any("gradient is extreme" in text for text in result.warnings)


def test_the_default_audit_of_a_black_box_asks_for_fourteen_predictions_a_person_at_most():
    rng = np.random.default_rng(0)
    male = rng.integers(0, 2, 10_000)
    people = pd.DataFrame(rng.normal(0, 1, (10_000, 10)) + 0.3 * male[:, None], columns=[f"x{j}" for j in range(10)])
    asked = []

    def model(frame: pd.DataFrame) -> np.ndarray:
        asked.append(len(frame))
        return 1 / (1 + np.exp(-frame.sum(axis=1)))

    result = fairfox.audit(model, people.assign(sex=male), protected="sex")
    assert result.interval is not None
    assert sum(asked) <= 14 * len(people)


def test_a_function_that_leaves_the_range_of_probabilities_late_is_refused():
    people = table(1500)
    with pytest.raises(OptionError, match="The first 1000 predictions lie within 0 and 1 and others do not"):
        fairfox.audit(lambda t: np.where(t.index < 1000, 0.5, 2.0), people, **QUICK)
