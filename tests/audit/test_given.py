"""Given columns in whole audits: the label, columns that the model does not take, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from support import audited

from fairfox.errors import ColumnError, FairfoxError
from fairfox.findings import AuditRecord
from fairfox.pipeline import fit, score
from fairfox.result import AuditResult

pytestmark = pytest.mark.brief

QUICK: dict[str, Any] = {"protected": "sex", "label": "paid", "refits": 2, "folds": 2}
GRAPH = {"sex": ["age"], "hours": ["sex"], "income": ["hours", "age"]}


def people(n: int = 800, seed: int = 0) -> pd.DataFrame:
    """Return people whose income follows from hours, and hours from sex; older people are men more often."""
    rng = np.random.default_rng(seed)
    age = rng.normal(40, 10, n)
    male = rng.random(n) < 1 / (1 + np.exp(-(age - 40) / 10))
    hours = 30 + 8 * male + rng.normal(0, 4, n)
    income = 100 * hours + 10 * age + rng.normal(0, 200, n)
    paid = (income + rng.normal(0, 300, n) > np.median(income)).astype(int)
    sex = np.where(male, "Male", "Female")
    return pd.DataFrame({"sex": sex, "hours": hours, "income": income, "age": age, "paid": paid})


def by_income(table: pd.DataFrame) -> np.ndarray:
    return 1 / (1 + np.exp(-(table["income"] - 3800) / 400))


@pytest.fixture(scope="module")
def total() -> AuditRecord:
    """An audit in which nothing is given."""
    return audited(by_income, people(), **QUICK, columns=["income"])


def test_columns_that_the_model_does_not_take_are_held_equal(total: AuditRecord):
    held = audited(by_income, people(), **QUICK, columns=["income"], given=["hours", "age"])  # all causes of income
    assert float(held.scores.mean()) < 0.1 * float(total.scores.mean())


def test_people_with_the_same_outcome_are_compared_and_both_effects_are_told(total: AuditRecord):
    result = total
    given = audited(by_income, people(), **QUICK, columns=["income"], given="paid")
    readings, same = result.findings[0].readings(), given.findings[0].readings()
    assert set(readings) == {"total", "same outcome"}
    assert readings["same outcome"].mean_absolute < 0.8 * readings["total"].mean_absolute
    torch.testing.assert_close(given.scores, result.findings[0].same_outcome.abs().nan_to_num())
    assert same["total"] == readings["total"]
    assert "The verdict uses the total effect" in AuditResult(result).summary()
    assert "The verdict uses the effect at the same outcome" in AuditResult(given).summary()
    assert "A bias in the label itself does not show there" in AuditResult(result).to_html()


def test_the_effect_at_the_same_outcome_is_not_times_the_alignment_share():
    asked = {**QUICK, "columns": ["income", "age"], "given": "paid"}
    rank, aligned = (audited(by_income, people(), **asked, test=name) for name in ("rank", "rank/a"))
    torch.testing.assert_close(aligned.findings[0].same_outcome, rank.findings[0].same_outcome)


def test_a_label_of_too_many_classes_costs_the_effect_at_the_same_outcome_and_no_more():
    table = people()
    table["paid"] = [f"level {n % 400}" for n in range(len(table))]
    result = audited(by_income, table, **QUICK, columns=["income"])
    assert set(result.findings[0].readings()) == {"total"}
    (warning,) = [text for text in result.warnings if "same outcome" in text]
    assert warning.startswith("The effect at the same outcome could not be estimated: 400 people are too few to learn")


@pytest.mark.parametrize("column", ["paid", "income"], ids=["classes", "numbers"])
def test_who_has_no_label_is_not_judged_where_it_is_given(column: str):
    table = people()
    table["paid"] = table[column].astype(float).where(np.arange(len(table)) >= 300)
    result = audited(by_income, table, **QUICK, columns=["income"], given="paid")
    assert result.abstained.tolist() == [True] * 300 + [False] * 500
    lacking = "The given column 'paid' is missing for 300 of 800 people: people who lack it are not judged."
    assert lacking in result.warnings
    beside = audited(by_income, table, **QUICK, columns=["income"])
    assert not beside.abstained.any()


def test_a_fitted_test_holds_what_is_given_and_refuses_people_without_it():
    test = fit(people(), protected="sex", label="paid", columns=["income"], given=["hours"], options={"refits": 2})
    new = people(seed=1)
    plain = fit(people(), protected="sex", label="paid", columns=["income"], options={"refits": 2})
    held, total = (float(score(each, by_income, new).record.scores.mean()) for each in (test, plain))
    assert held < 0.2 * total
    with pytest.raises(ColumnError, match="no column 'hours', which the test was fitted on"):
        score(test, by_income, new.drop(columns="hours"))


def test_the_label_is_needed_only_where_it_is_given():
    asked = {"protected": "sex", "label": "paid", "columns": ["income"], "options": {"refits": 1}}
    new = people(seed=1).drop(columns="paid")
    assert not score(fit(people(), **asked), by_income, new).record.abstained.any()
    with pytest.raises(ColumnError, match="no column 'paid', which the test was fitted on"):
        score(fit(people(), **asked, given="paid"), by_income, new)


def test_a_few_people_are_scored_though_a_given_column_tells_their_groups():
    table = people()
    table["contract"] = np.where(np.arange(len(table)) % 3, "full", "half")
    test = fit(table, protected="sex", columns=["income"], given="contract", options={"refits": 1})
    men = (table["sex"] == "Male") == (table["contract"] == "full")
    few = table[men][:30].assign(contract=lambda t: t["contract"].where(t.index != t.index[0], "abroad"))
    found = score(test, by_income, few).record
    assert found.abstained.tolist() == [True] + [False] * 29  # nobody was abroad when the test was fitted
    assert found.reasons[0] == "a given value is unknown"


def test_features_that_differ_only_between_groups_that_are_not_compared_are_named_as_still():
    # b and c differ in shoe; everyone is compared with a, whose few people lie between them
    rng = np.random.default_rng(0)
    race = np.repeat(["a", "b", "c"], [60, 1470, 1470])
    table = pd.DataFrame({"race": race, "income": 3000 + 1000 * (race != "a") + 300 * rng.normal(size=3000)})
    table["shoe"] = 0.2 * (1.0 * (race == "b") - (race == "c")) + rng.normal(size=3000)
    asked = QUICK | {"protected": "race", "label": None, "columns": ["income", "shoe"]}
    assert audited(by_income, table, **asked, reference_group="a").still == ("shoe",)
    assert audited(by_income, table, **asked, contrasts="all").still == ()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("sex", "'sex' cannot be given: the protected variable 'sex' is read from it"),
        ("code", "'code' cannot be given: it reveals everyone's 'sex'"),
        ("hour", r"The given column 'hour' is not in the table.* Did you mean 'hours'\?"),
        (["hours", "income", "age"], "nothing is left to compare"),
        ("name", "^'name' cannot be given: nearly everyone has a different value; name other columns$"),
        ("empty", r"^Column 'empty' has no values, so it cannot be given; leave it out of given \(--given\)$"),
    ],
)
def test_what_cannot_be_given_is_refused_in_a_sentence(given: Any, message: str):
    table = people(300).assign(code=lambda t: (t["sex"] == "Male").astype(int), empty=np.nan)
    table["name"] = [f"person {n}" for n in range(300)]
    asked = QUICK | {"columns": ["hours", "income", "age"]}
    with pytest.raises(FairfoxError, match=message) as error:
        audited(by_income, table, **asked, given=given)
    assert len(str(error.value).splitlines()) == 1


def test_given_columns_that_tell_nothing_or_people_apart_or_that_half_lack_are_warned_of():
    table = people(400).assign(number=np.random.default_rng(2).permutation(400), one=7)
    table.loc[::2, "hours"] = np.nan
    result = audited(by_income, table, **QUICK, columns=["income"], given=["number", "one", "hours"])
    assert [text for text in result.warnings if "The given column" in text] == [
        "The given column 'number' has a different value for everyone; if it is an id, do not give it.",
        "The given column 'one' has only one value, so giving it changes nothing.",
        "The given column 'hours' is missing for 200 of 400 people: people who lack it are compared with each other.",
    ]


def test_given_values_that_a_group_lacks_borrow_and_the_report_says_for_how_many():
    table = people()
    table["contract"] = np.where(np.arange(len(table)) % 3, "full", "half")
    lonely = (table["sex"] == "Male") & (np.arange(len(table)) % 10 == 0)
    table.loc[lonely, "contract"] = "abroad"
    result = audited(by_income, table, **QUICK, columns=["income"], given="contract")
    assert not result.abstained.any()
    assert f"{int(lonely.sum())} of 800 people have given values that nobody in another group has" in " ".join(
        result.warnings
    )


def test_features_without_evidence_stay_and_are_named():
    table = people()
    table["shoe"] = np.random.default_rng(5).normal(size=len(table))
    result = audited(by_income, table, **QUICK, columns=["income", "shoe"])
    assert "shoe" in result.still
    assert "The groups do not differ significantly in shoe: it does not move." in AuditResult(result).to_html()
    assert audited(by_income, table, **QUICK, columns=["income", "shoe"], gate=False).still == ()


def test_the_gap_is_taken_apart_along_a_graph_with_columns_outside_the_model():
    def model(table: pd.DataFrame) -> np.ndarray:
        return by_income(table) + 0.1 * (table["sex"] == "Male")

    table = people()
    asked = QUICK | {"test": "counterfactual", "settings": {"graph": GRAPH}, "columns": ["sex", "income"]}
    result = audited(model, table, **asked)
    means = {level: float(model(table)[table["sex"] == level].mean()) for level in ("Female", "Male")}
    for part in result.findings[0].gap_parts:
        assert part.gap == pytest.approx(means[part.towards] - means[part.group], abs=1e-6)
        assert part.gap == pytest.approx(part.direct - part.indirect - part.spurious, abs=1e-9)
        sign = 1 if part.towards == "Male" else -1
        assert part.direct == pytest.approx(0.1 * sign, abs=1e-6)
        assert sign * part.indirect < -0.1
        assert sign * part.spurious < 0  # men are older, and age pays
    assert "by sex itself" in AuditResult(result).to_html()
