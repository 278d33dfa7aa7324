import pytest
from test_case import PEOPLE, by_income, case_of

from fairfox.errors import OptionError
from fairfox.runs import other_tests, run_shuffled, run_tests


def silent(text: str, done: float) -> None:
    """Say nothing."""


def test_one_test_has_no_others_beside_it():
    assert other_tests(case_of(by_income, test="faux")) == ([], {})


def test_beside_all_tests_those_run_that_a_black_box_without_labels_allows():
    others, skipped = other_tests(case_of(by_income, test="all"))
    assert "move" in others
    assert "unfair_map" in skipped
    assert not set(others) & set(skipped)


def test_settings_of_a_test_that_is_not_run_are_refused():
    with pytest.raises(OptionError, match="unawareness"):
        other_tests(case_of(by_income, test="all", options={"unawareness.seed": 1}))


def test_nothing_is_shuffled_unasked():
    assert run_shuffled(case_of(by_income), silent) is None


def test_shuffled_values_leave_no_effect_of_a_group_and_are_the_same_again():
    people = PEOPLE.assign(income=PEOPLE["income"].where(PEOPLE["sex"] == "Male", PEOPLE["income"] / 4))
    case = case_of(by_income, people, null=2, refits=1, folds=2)
    chance, again = (run_shuffled(case, silent) for _ in range(2))
    assert chance is not None
    assert chance.scores.shape == (2, 40)
    assert chance.scores.equal(again.scores)
    assert chance.mean_score < float(run_tests(case, [], silent).main.score.mean())


def test_a_model_that_takes_the_protected_column_is_not_shuffled():
    with pytest.raises(OptionError, match="leave null"):
        run_shuffled(case_of(by_income, columns=["sex", "income"], null=1), silent)
