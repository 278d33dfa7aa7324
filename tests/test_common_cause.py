"""How strong a common cause outside the table would have to be, where the answer is known."""

import numpy as np
import pandas as pd
import pytest

import fairfox


def people(n: int = 2000) -> pd.DataFrame:
    """Return two groups whose incomes are one apart, with unit spread; their job has nothing to do with it."""
    rng = np.random.default_rng(0)
    man = np.arange(n) % 2
    job = rng.choice(["clerk", "smith"], n)
    return pd.DataFrame({"income": rng.normal(0, 1, n) + man, "job": job, "sex": np.where(man, "m", "f")})


def found(model, table: pd.DataFrame):
    result = fairfox.audit(model, table, protected="sex", delta=0.1, options={"refits": 2, "folds": 2})
    return result, result.findings[0].common_cause


def test_the_shift_is_the_gap_in_standard_deviations_of_everyone():
    table = people()
    result, cause = found(lambda rows: 0.2 * rows["income"], table)
    assert cause.feature == "income"
    assert cause.shift == pytest.approx(1 / table["income"].std(), rel=0.1)  # the gap is 1
    assert any("to explain the mean effect on sex=" in line for line in result.summary().splitlines())


def test_no_shift_explains_what_goes_through_another_column():
    table = people()
    table["job"] = np.where(np.random.default_rng(1).random(len(table)) < 0.8, table["sex"], "x")
    _, cause = found(lambda rows: 0.01 * rows["income"] + (rows["job"] == "m"), table)
    assert (cause.feature, cause.shift) == ("income", None)


def test_nothing_is_said_where_nobody_s_prediction_changes():
    assert found(lambda rows: (rows["job"] == "smith") * 0.5, people())[1] is None
