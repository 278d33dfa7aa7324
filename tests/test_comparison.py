"""Several fairness tests on one model: which apply, how far they agree."""

from __future__ import annotations

import math

import pytest
import torch
from scipy.stats import spearmanr

from fairfox.comparison import agreement, applicable, options_of
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
    assert options_of(["fliptest", "counterfactual"], given) == {
        "fliptest": {"steps": 5},
        "counterfactual": {"graph": {"x": ["sex"]}},
    }
    with pytest.raises(OptionError, match=r"The setting 'steps' belongs to no test; .* as in fliptest\.steps"):
        options_of(["fliptest"], {"steps": 5})
    with pytest.raises(OptionError, match=r"Did you mean 'fliptest'"):
        options_of(["fliptest"], {"flptest.steps": 5})
