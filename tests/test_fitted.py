from pathlib import Path

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from fairfox import audit
from fairfox.earlier import drift, read_earlier
from fairfox.errors import ColumnError, OptionError
from fairfox.fitted import FittedTest
from fairfox.fitting import fit_test
from fairfox.synthetic.two_groups import LENDING

REFERENCE, PEOPLE = (LENDING.sample(300, seed=seed).table.drop_columns(["approved"]) for seed in (0, 1))
COLUMNS = [name for name in REFERENCE.column_names if name != "sex"]


def rule(table: pd.DataFrame) -> pd.Series:
    return 1 / (1 + 2.72 ** (3 - table["income"] / 10_000))


@pytest.fixture(scope="module")
def fitted() -> FittedTest:
    return fit_test(REFERENCE, protected="sex", refits=2)


def test_it_scores_people_as_an_audit_with_the_fitting_table_as_reference_does(fitted: FittedTest):
    found, audited = fitted.score(rule, PEOPLE), audit(rule, PEOPLE, protected="sex", reference=REFERENCE, refits=2)
    assert torch.equal(found.scores, audited.scores)
    assert float(found.scores.mean()) > 0.1
    assert torch.equal(found.direct, audited.direct)
    assert torch.equal(found.flags, audited.flags)
    assert found.delta == audited.delta
    assert found.findings[0].groups == audited.findings[0].groups
    assert found.scores_table().equals(audited.scores_table())


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"hold_others": True, "protected": ["sex", "tenure_years<5"], "intersections": True},
        {"protected": ["sex", "tenure_years<5"], "reference_group": ["sex=Male", "not tenure_years<5"]},
    ],
)
def test_its_settings_are_those_of_such_an_audit(options: dict):
    given = {"protected": "sex", "refits": 2, "merge_rare": 0.01, "batch_size": 512, "columns": COLUMNS, **options}
    found = (
        fit_test(REFERENCE, **given).score(rule, PEOPLE, output="logit", returns="probability", kind="table").settings
    )
    told = {"output": "logit", "returns": "probability", "kind": "table"}
    audited = audit(rule, PEOPLE, reference=REFERENCE, **told, **given).settings
    assert set(found) - set(audited) == {"fitted_with", "reference_sha256"}
    assert {name: found[name] for name in audited if name != "seconds"} == {
        name: value for name, value in audited.items() if name != "seconds"
    }
    assert found["folds"] is None
    assert found["seconds"] > 0


def test_its_scores_can_be_held_against_an_audit(fitted: FittedTest, tmp_path: Path):
    result = fitted.score(rule, PEOPLE)
    result.to_json(tmp_path / "summary.json")
    result.to_parquet(tmp_path / "scores.parquet")
    changed = drift(tmp_path, audit(rule, PEOPLE, protected="sex", reference=REFERENCE, refits=2))
    assert changed.means[0] == changed.means[1] > 0
    assert read_earlier(tmp_path).people.folds is None


def test_scores_are_those_of_the_test_itself(fitted: FittedTest):
    assert torch.equal(fitted.score(rule, PEOPLE).scores, fitted.measure(rule, PEOPLE).score)


def test_the_order_of_people_and_the_kind_of_table_change_nothing(fitted: FittedTest):
    backwards = PEOPLE.take(list(range(len(PEOPLE)))[::-1])
    scores = fitted.measure(rule, PEOPLE).score
    torch.testing.assert_close(fitted.measure(rule, backwards).score.flip(0), scores, rtol=0, atol=1e-12)
    for other in (PEOPLE.to_pandas(), pl.from_arrow(PEOPLE)):
        asked = rule if isinstance(other, pd.DataFrame) else lambda table: rule(table.to_pandas())
        torch.testing.assert_close(fitted.measure(asked, other).score, scores, rtol=0, atol=1e-12)


def test_people_without_the_protected_column_are_judged_as_the_most_probable_group(fitted: FittedTest):
    result = fitted.score(rule, PEOPLE.drop_columns(["sex"]))
    assert result.inferred.all()
    assert result.judged == len(PEOPLE)
    assert any("unknown for 300 of 300 people" in warning for warning in result.warnings)


def test_delta_decides_who_is_flagged(fitted: FittedTest):
    result = fitted.score(rule, PEOPLE, delta=0.1)
    assert torch.equal(result.flags, result.scores > 0.1)
    assert result.delta == 0.1


def test_pandas_categories_that_the_new_table_lacks_are_still_there_to_go_to():
    jobs = pd.Series(["clerk", "smith"] * 20)
    table = pd.DataFrame({"sex": ["f", "m"] * 20, "job": jobs.astype("category"), "age": range(40)})
    test = fit_test(table, protected="sex", refits=1)
    women = table[table["sex"] == "f"].assign(job=lambda rows: rows["job"].cat.remove_unused_categories())
    found = test.measure(lambda rows: (rows["job"] == "smith") * 1.0, women)
    torch.testing.assert_close(found.signed, torch.ones(20, dtype=torch.float64))  # all women would be smiths


def test_a_model_that_takes_other_columns_is_refused(fitted: FittedTest):
    frame = REFERENCE.to_pandas()
    model = LogisticRegression(max_iter=1000).fit(frame[COLUMNS[:2]], frame["sex"] == frame["sex"][0])
    with pytest.raises(ColumnError, match=r"The model takes the columns .* the test was fitted on"):
        fitted.score(model, PEOPLE)


def test_a_table_that_lacks_a_column_is_refused(fitted: FittedTest):
    with pytest.raises(ColumnError, match=f"has no column '{COLUMNS[0]}' \\(and 1 more\\), which the test was fitted"):
        fitted.score(rule, PEOPLE.drop_columns(COLUMNS[:2]))


def test_predictions_that_are_no_probabilities_after_all_are_refused(fitted: FittedTest):
    many = pa.concat_tables([PEOPLE] * 4)

    def late(table: pd.DataFrame) -> pd.Series:
        return pd.Series([0.5] * 1000 + [7.0] * (len(table) - 1000)) if len(table) > 1000 else table["income"] * 0 + 0.5

    with pytest.raises(OptionError, match="say what the model returns"):
        fitted.score(late, many)
