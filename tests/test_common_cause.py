"""How strong a common cause outside the table would have to be, where the answer is known."""

import numpy as np
import pandas as pd
import pytest

import fairfox

pytestmark = pytest.mark.brief


def people(n: int = 2000) -> pd.DataFrame:
    """Return two groups whose incomes are one apart, with unit spread; their job has nothing to do with it."""
    rng = np.random.default_rng(0)
    man = np.arange(n) % 2
    job = rng.choice(["clerk", "smith"], n)
    return pd.DataFrame({"income": rng.normal(0, 1, n) + man, "job": job, "sex": np.where(man, "m", "f")})


def found(model, table: pd.DataFrame):
    result = fairfox.audit(model, table, protected="sex", delta=0.1, options={"refits": 2, "folds": 2})
    return result, result.record.findings[0].common_cause


def test_the_shift_is_the_gap_in_standard_deviations_of_everyone():
    table = people()
    result, cause = found(lambda rows: 0.2 * rows["income"], table)
    assert cause.feature == "income"
    assert cause.shift == pytest.approx(1 / table["income"].std(), rel=0.1)  # the gap is 1
    assert any("would explain the mean effect on sex=" in line for line in result.summary().splitlines())


def test_no_shift_explains_what_goes_through_another_column():
    table = people()
    table["job"] = np.where(np.random.default_rng(1).random(len(table)) < 0.5, table["sex"], "x")
    _, cause = found(lambda rows: 0.3 * (rows["income"] > -9) + 0.15 * np.tanh(3 * rows["income"]), table)
    assert cause.feature == "income"
    result, cause = found(lambda rows: 0.01 * rows["income"] + (rows["job"] == "m"), table)
    assert cause is None  # of little that goes through income nothing is learnt about the rest
    assert "Not covered: a cause of both sex and the features" in result.summary()


def test_the_column_that_tells_the_group_is_not_what_a_cause_would_shift():
    table = people().rename(columns={"income": "debt"})
    table["age"] = np.random.default_rng(1).normal(30, 8, len(table)).round()
    table["debt"] += table["age"] < 25
    asked = {"protected": "age<25", "columns": ["age", "debt"], "delta": 0.1, "options": {"refits": 2, "folds": 2}}
    result = fairfox.audit(lambda rows: 0.03 * rows["age"] + 0.01 * rows["debt"], table, **asked)
    assert result.record.findings[0].common_cause is None


def test_no_shift_is_named_where_nobody_s_prediction_changes():
    result, cause = found(lambda rows: (rows["job"] == "smith") * 0.5, people())
    assert cause is None
    assert "that is missing from the table." in result.summary()


def test_the_shift_is_that_of_the_column_through_which_the_effect_goes():
    table = people()
    table["shoe"] = np.random.default_rng(2).normal(0, 0.3, len(table)) + 2 * (table["sex"] == "m")  # tells sex best
    assert found(lambda rows: 0.2 * rows["income"], table)[1].feature == "income"


def test_beside_another_variable_the_shift_is_as_it_is_alone():
    table = people()
    table["race"] = np.random.default_rng(3).choice(["a", "b"], len(table))
    table["debt"] = np.random.default_rng(4).normal(0, 1, len(table)) + 1.0 * (table["race"] == "b")

    def model(rows):
        return 0.5 * rows["income"] + 0.2 * rows["debt"]

    asked = {"delta": 0.1, "columns": ["income", "debt"], "options": {"refits": 2, "folds": 2}}
    alone = fairfox.audit(model, table, protected="race", **asked).record.findings[0].common_cause
    beside = fairfox.audit(model, table, protected=["sex", "race"], **asked).record.findings[1].common_cause
    assert alone.feature == beside.feature == "debt"
    assert beside.shift == pytest.approx(alone.shift, rel=0.15)
