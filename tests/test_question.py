"""The question of an audit: what follows from its options, and what is refused before any table is read."""

import inspect
from dataclasses import fields
from typing import Any

import pytest

import fairfox
from fairfox.errors import OptionError
from fairfox.question import Question

OF_AUDIT = {name: one.default for name, one in inspect.signature(fairfox.audit).parameters.items()}
OPTIONS = [field.name for field in fields(Question)]


def asked(**options: Any) -> Question:
    """Return a question about sex with the options of an audit that is told nothing else."""
    return Question(**({name: OF_AUDIT[name] for name in OPTIONS} | {"protected": "sex"} | options))


def test_every_option_of_an_audit_is_asked_but_for_the_tables_and_the_model():
    assert set(OF_AUDIT) - set(OPTIONS) == {"model", "table", "reference", "protected_from", "progress"}


def test_one_test_is_the_main_one_and_has_the_settings():
    question = asked(test="fta", options={"epsilon": 0.5})
    assert (question.main, question.several) == ("fta", False)
    assert question.options_by_test == {"fta": {"epsilon": 0.5}}
    assert asked(test="rank/a").options_by_test == {"rank": {}}


def test_of_all_tests_rank_is_the_main_one_and_settings_name_theirs():
    question = asked(test="all", options={"fliptest.steps": 50, "fta.epsilon": 0.5})
    assert (question.main, question.several) == ("rank", True)
    assert question.options_by_test == {"fliptest": {"steps": 50}, "fta": {"epsilon": 0.5}}
    assert question.about == asked().about


def test_what_was_named_is_kept_as_lists_and_what_was_not_is_none():
    given = {"reference_group": "White", "categorical": "zip", "continuous": ("age",), "drop": ["name", "note"]}
    assert asked(**given).named == {
        "reference_group": ["White"],
        "categorical": ["zip"],
        "continuous": ["age"],
        "drop": ["name", "note"],
    }
    assert asked().named == dict.fromkeys(given)


def test_one_protected_column_is_a_list_of_one():
    assert asked(protected="age<25").specs == ["age<25"]
    assert asked(protected=("sex", "race")).specs == ["sex", "race"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"test": "rank", "options": {"epsilon": 0.5}}, "epsilon"),
        ({"test": "all", "options": {"epsilon": 0.5}}, "epsilon"),
        ({"protected": ["sex", 3]}, r"protected is \['sex', 3\]; expected a column name, a cut such as 'age<25'"),
        ({"limits": {"": 1.5}}, "the limit of 'everyone' is 1.5; expected a share from 0 to 1"),
        ({"limits": {3: 0.1}}, "expected numbers by group"),
        ({"merge_rare": 0}, "merge_rare is 0; expected a share of the people above 0 and below 0.5"),
        ({"batch_size": 0}, "batch_size is 0; expected a whole number of at least 1"),
        ({"returns": "odds"}, "returns is 'odds'; expected 'probability' or 'logit' or 'value'"),
        ({"legitimate": 3}, "legitimate is 3; expected a column name, or a list of them"),
        ({"legitimate": ["hours", ""]}, r"legitimate is \['hours', ''\]; expected a column name"),
        ({"legitimate": "paid", "label": "paid"}, "'paid' is the label and cannot be legitimate"),
        ({"legitimate": "hours", "test": "faux"}, "faux takes no legitimate columns; use rank, move or move-direct"),
        ({"legitimate": "hours", "test": "fliptest"}, "fliptest takes no legitimate columns; use rank"),
        ({"abstain": 1.0}, r"abstain is 1.0; expected a share of the people from 0 \(nobody\) to below 1"),
        ({"abstain": -0.1}, "abstain is -0.1; expected a share"),
        ({"abstain": float("nan")}, "abstain is nan; expected a share"),
        ({"abstain": True}, "abstain is True; expected a share"),
        ({"abstain": "0.1"}, "abstain is '0.1'; expected a share"),
        ({"abstain": 0.0, "refits": 1}, r"refits is 1, and abstain \(--abstain\) needs at least 2"),
        ({"abstain": 0.1, "test": "fta"}, "fta learns nothing, so that no re-fits can disagree"),
        ({"abstain": 0.1, "test": "unawareness"}, "unawareness learns nothing"),
        ({"abstain": 0.1, "delta": 0}, r"delta is 0, and abstain \(--abstain\) holds disagreement against it"),
        (
            {"legitimate": "hours", "test": "counterfactual", "options": {"graph": {"pay": ["sex"]}}},
            "counterfactual takes no legitimate columns: the graph says what acts on what",
        ),
    ],
)
def test_options_that_cannot_be_are_refused_before_any_table_is_read(options: dict[str, Any], message: str):
    with pytest.raises(OptionError, match=message):
        asked(**options)


def test_one_legitimate_column_is_a_list_of_one_and_each_counts_once():
    assert asked().legitimate_names == []
    assert asked(legitimate="hours").legitimate_names == ["hours"]
    assert asked(legitimate=["hours", "education", "hours"]).legitimate_names == ["hours", "education"]
