"""Several fairness tests on one model: which apply, how far they agree."""

from __future__ import annotations

import math

import pytest
import torch
from scipy.stats import spearmanr

from fairfox.comparison import agreement, applicable, check_used, options_by_test
from fairfox.data.dataset import Protected
from fairfox.errors import OptionError
from fairfox.fairtests.registry import FAIR_TESTS

SEX, AGE = Protected("sex"), Protected("age", "continuous", ())
EVERYTHING = {"gradient": True, "labelled": True, "takes_c": True, "graph": True}


def test_everything_but_lic_and_a_applies_where_everything_is_given():
    tests, skipped = applicable([SEX], **EVERYTHING)
    assert tests == [name for name in FAIR_TESTS if name != "lic" and not name.endswith("/a")]
    assert skipped == {"lic": "only generated people have the truth it needs"}


@pytest.mark.parametrize(
    ("lacking", "left_out"),
    [
        ("gradient", {"faux+ig", "faux+ig/s", "unfair_map"}),
        ("labelled", {"unfair_map"}),
        ("takes_c", {"unawareness"}),
        ("graph", {"counterfactual"}),
    ],
)
def test_what_is_lacking_leaves_tests_out_with_a_reason(lacking: str, left_out: set[str]):
    _, skipped = applicable([SEX], **EVERYTHING | {lacking: False})
    assert set(skipped) == {*left_out, "lic"}
    assert all(skipped.values())


def test_a_number_leaves_out_the_tests_that_compare_groups():
    _, skipped = applicable([SEX, AGE], **EVERYTHING)
    assert skipped["transport"] == skipped["fliptest"] == "it compares groups, and 'age' is a number"


def test_a_reference_group_and_holding_leave_out_who_cannot():
    _, skipped = applicable([SEX], **EVERYTHING, compared=True)
    assert set(skipped) == {"lic", "fta", "fta+linear", "unfair_map"}
    _, skipped = applicable([SEX], **EVERYTHING, held=True)
    assert {"faux+ng", "fta", "fliptest", "transport", "unfair_map"} < set(skipped)
    assert "rank" not in skipped


def test_agreement_is_spearman_over_the_people_whom_both_judge():
    scores = torch.randn(50, 3, generator=torch.Generator().manual_seed(0)).double()
    scores[:10, 1] = math.nan
    found = agreement(scores)
    assert found[0, 2] == pytest.approx(spearmanr(scores[:, 0], scores[:, 2]).statistic)
    assert found[1, 0] == found[0, 1] == pytest.approx(spearmanr(scores[10:, 0], scores[10:, 1]).statistic)
    assert torch.equal(found.diagonal(), torch.ones(3).double())


def test_tests_that_judge_nobody_in_common_agree_on_nothing():
    scores = torch.tensor([[1.0, math.nan], [2.0, math.nan], [math.nan, 1.0]])
    assert agreement(scores).isnan().all()


def test_settings_name_their_test():
    given = {"fliptest.steps": 5, "faux+ng.steps": 3, "graph": {"x": ["sex"]}}
    assert options_by_test(given) == {
        "fliptest": {"steps": 5},
        "faux+ng": {"steps": 3},
        "counterfactual": {"graph": {"x": ["sex"]}},
    }
    assert options_by_test(None) == {}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"steps": 5}, r"The setting 'steps' belongs to no test that is compared; .* as in fliptest\.steps"),
        ({"flptest.steps": 5}, "Did you mean 'fliptest'"),
        ({"rank/a.foo": 5}, "belongs to no test that is compared"),
        ({"fliptest.stps": 5}, "Did you mean 'steps'"),
        ({"graph": {"x": ["y"], "y": ["x"]}}, "x"),
    ],
)
def test_settings_that_belong_nowhere_are_refused_before_any_work(given: dict[str, object], message: str):
    with pytest.raises(OptionError, match=message):
        options_by_test(given)


def test_settings_of_a_test_that_is_not_run_are_refused():
    check_used({"rank": {}}, {"lic": "no truth"})
    with pytest.raises(OptionError, match="There are settings of unfair_map, which is not run: a black box; leave"):
        check_used({"unfair_map": {"steps": 5}}, {"unfair_map": "a black box"})
