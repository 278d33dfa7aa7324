from __future__ import annotations

import math
import sys
from typing import Any

import pytest
import torch

from fairfox.errors import DataError, MissingExtraError, OptionError
from fairfox.integrations.fairlearn import metric_frame
from fairfox.result import AuditResult
from tests.support import example_result, many_result, without_sign

fairlearn = pytest.importorskip("fairlearn.metrics")


def people_of(result: AuditResult, **own: str) -> list[int]:
    """Return the judged people of some groups, found one by one."""
    findings = {finding.name: finding for finding in result.findings}
    return [
        n
        for n in range(len(result))
        if not result.abstained[n] and all(findings[name].group[n] == level for name, level in own.items())
    ]


def weighted(values: Any, weights: torch.Tensor, rows: list[int]) -> float:
    return sum(float(values[n]) * float(weights[n]) for n in rows) / sum(float(weights[n]) for n in rows)


def test_groups_of_one_variable_have_the_numbers_of_the_result():
    result = example_result()
    frame = metric_frame(result)
    assert isinstance(frame, fairlearn.MetricFrame)
    assert frame.sensitive_levels == ["sex"]
    for group in result.groups:
        found = frame.by_group.loc[group.level]
        assert found["people"] == group.people == 19
        assert found["mean_effect"] == pytest.approx(group.mean_signed)
        assert found["share_flagged"] == pytest.approx(group.share_flagged)
        assert found["share_confident"] == pytest.approx(group.share_confident)
    assert frame.by_group["selection_rate"].to_dict() == {"Female": 0.0, "Male": 1.0}  # predictions 0.42 and 0.58
    assert frame.overall["share_flagged"] == pytest.approx(result.share_flagged)
    assert frame.overall["mean_score"] == frame.overall["mean_absolute_effect"]
    assert frame.overall["mean_score"] == pytest.approx(result.findings[0].mean_score())


def test_a_decision_threshold_of_the_audit_is_where_people_are_selected():
    frame = metric_frame(example_result(settings={"decision_threshold": 0.4}))
    assert frame.by_group["selection_rate"].to_dict() == {"Female": 1.0, "Male": 1.0}


@pytest.mark.parametrize("variable", ["sex", "race", "age"])
def test_a_variable_is_shown_by_its_own_weighted_effects(variable: str):
    result = many_result()
    finding = next(each for each in result.findings if each.name == variable)
    frame = metric_frame(result, variable=variable)
    assert frame.sensitive_levels == [variable]
    assert set(frame.by_group.index) == {group.level for group in finding.groups}  # the unknown are not judged
    for group in finding.groups:
        found = frame.by_group.loc[group.level]
        assert found["mean_effect"] == pytest.approx(group.mean_signed)
        assert found["share_flagged"] == pytest.approx(group.share_flagged)
        assert found["share_confident"] == pytest.approx(group.share_confident)
    assert frame.overall["share_flagged"] == pytest.approx(finding.share_flagged(result.weights))
    assert frame.overall["mean_score"] == pytest.approx(finding.mean_score(result.weights))


def test_several_variables_are_crossed_and_show_the_worst_case():
    result = many_result()
    frame = metric_frame(result)
    assert frame.sensitive_levels == ["sex", "race", "age"]
    rows = people_of(result, sex="Male", race="Black", age="34 to 52")
    found = frame.by_group.loc[("Male", "Black", "34 to 52")]
    assert found["people"] == len(rows) > 3
    assert found["mean_effect"] == pytest.approx(weighted(result.signed, result.weights, rows), rel=1e-5)
    assert found["share_flagged"] == pytest.approx(weighted(result.flags, result.weights, rows))
    assert frame.overall["share_flagged"] == pytest.approx(result.share_flagged)
    assert frame.overall["people"] == 196
    nobody = frame.by_group.loc[("Male", "Asian", "unknown")]  # every fiftieth person is a woman
    assert math.isnan(nobody["mean_effect"])


def test_a_test_without_a_sign_has_the_metrics_that_it_knows():
    frame = metric_frame(without_sign())
    assert list(frame.by_group.columns) == ["people", "mean_score", "share_flagged"]
    assert frame.by_group.loc["Female", "share_flagged"] == pytest.approx(without_sign().groups[0].share_flagged)


def test_fairlearns_own_summaries_work_on_it():
    result = example_result()
    gap = metric_frame(result).difference()["mean_effect"]
    assert gap == pytest.approx(result.groups[0].mean_signed - result.groups[1].mean_signed)


def test_an_unknown_variable_and_an_audit_of_nobody_are_refused():
    with pytest.raises(OptionError, match=r"no protected variable 'rce' in this audit\. Did you mean 'race'"):
        metric_frame(many_result(), variable="rce")
    with pytest.raises(DataError, match="Nobody could be judged"):
        metric_frame(example_result(abstained=torch.ones(40, dtype=torch.bool)))


def test_without_fairlearn_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "fairlearn.metrics", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'fairfox\[fairlearn\]'"):
        metric_frame(example_result())
