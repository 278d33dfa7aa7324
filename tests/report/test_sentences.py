"""The sentences about an audit: its verdict, who is flagged and why, what is special about a variable."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from fairfox.options import AuditOptions
from fairfox.report.sentences import (
    certificate_lines,
    count_lines,
    direction_lines,
    flip_lines,
    headline,
    map_lines,
    meanings,
    over_words,
    reading_words,
    through_lines,
    variable_lines,
    verdict_lines,
)
from fairfox.result import AuditResult
from fairfox.statistics.intervals import Estimate
from fairfox.statistics.verdict import Point, Verdict
from tests.report.helpers import FEMALE, with_map_checks
from tests.support import (
    PEOPLE,
    example_certificates,
    example_result,
    many_result,
    with_finding,
    without_sign,
)

VERDICT = Verdict("fails", "19 of 38 people are affected.", 0.05, 38, 19, 25, 0.0, 1.0, variable="sex")


def judged(result: AuditResult, **changes: Any) -> AuditResult:
    """Return an audit with a verdict on its first variable."""
    found = replace(VERDICT, mean=Estimate(0.06, 0.005, 0.05, 0.07), **changes)
    return with_finding(result, verdict=found)


def test_the_verdict_comes_first_then_who_which_way_how_sure_and_how_many():
    result = judged(example_result(), tipping=0.0)
    women, men = (100 * group.mean_effect for group in result.groups)
    assert verdict_lines(result) == [
        "FAIL: 19 of 38 people are affected.",
        f"Mean change of the prediction as members of the other group: sex=Female {women:+.1f} points and sex=Male "
        f"{men:+.1f} points.",
        "Mean size of the effect: 6 points (95 % interval 5.0 to 7.0 points).",
        "Tipping point: none. The model fails at every persistence, even if ranks do not carry over at all.",
        "Significant: 19 (false discovery rate: 10 %). Flagged: 23 (|effect| > 5 points). Confident: 19 (whole "
        "interval beyond 5 points).",
        *(f"{line}." for line in (*through_lines(result), *flip_lines(result, result.findings[0]))),
        "2 people not judged: no evidence about sex.",
        "Next: unless a feature is a valid reason (--given), fairfox repair lowers the effect without training the "
        "model again, and fairfox alternatives finds what else does, and what it costs.",
    ]
    assert verdict_lines(judged(example_result(), word="cannot tell"))[-1].startswith("Next: audit more people (")


def test_of_many_groups_the_largest_are_named_in_their_usual_order():
    finding = example_result().findings[0]
    groups = [replace(finding.groups[0], level=str(k), people=k, mean_effect=0.1) for k in range(8)]
    (line,) = direction_lines(example_result(), replace(finding, groups=tuple(groups)))
    each = ", ".join(f"sex={k} +10 points" for k in range(2, 8))
    assert line.endswith(f": {each} and 2 more groups")


def test_without_intervals_there_is_no_verdict_and_that_is_said():
    result = without_sign()
    first, counts, *_ = verdict_lines(result)
    assert first == "NO VERDICT: the test fta gives no intervals. 23 of 38 people (60.5 %) are flagged."
    assert counts == "Flagged: 23 (score > 0.05)."
    one = replace(result, settings={**result.settings, "refits": 1})
    assert headline(one).startswith("NO VERDICT: one refit gives no intervals.")


def test_words_mean_what_the_audit_counts():
    turned = judged(example_result(settings={**example_result().settings, "decision_threshold": 0.5}))
    assert meanings(turned)["flagged"] == "the decision would change"
    assert meanings(turned)["confident"] == "the decision would change over the whole interval"
    assert meanings(many_result())["flagged"] == "|effect| > the delta of their group, for any variable"
    of_group = judged(example_result(), variable="sex=Female")
    assert meanings(of_group)["significant"] == "sex=Female, false discovery rate: 10 %"
    curve = (Point(0.9, 0.1, 0.1, 0.1, 0.0, 0.0),)
    several = replace(judged(many_result()), significant=torch.arange(200) < 25)
    assert count_lines(several)[0] == "Significant: 19 (sex, false discovery rate: 10 %)."
    assert count_lines(several)[1].endswith("(|effect| > the delta of their group, for any variable).")
    assert " flagged for any variable (test rank, " in repr(AuditResult(several))
    carried = judged(example_result(settings={"persistence": 0.9, "fdr": 0.05}), curve=curve)
    assert meanings(carried)["confident"] == "whole interval beyond 5 points, at persistence 0.9"
    assert meanings(carried)["significant"] == "false discovery rate: 5 %, at persistence 1"


def test_of_several_variables_each_has_its_own_verdict_and_direction():
    result = judged(many_result())
    other = replace(VERDICT, word="cannot tell", reason="50 people are too few.", variable="race", p_fails=1.0)
    result = with_finding(result, 1, verdict=other)
    lines = verdict_lines(result)
    assert lines[0] == "FAIL: 19 of 38 people are affected."
    assert "For race: CANNOT TELL: 50 people are too few." in lines
    assert not [line for line in lines if line.startswith("For sex")]  # the first line says it
    (race,) = direction_lines(result, result.findings[1])
    assert race.startswith("Mean change of the prediction as members of the group that changes their prediction most: ")
    (age,) = direction_lines(result, result.findings[2])
    assert age.startswith("Mean change of the prediction with age one standard deviation (13.6) higher: ")
    assert direction_lines(without_sign(), without_sign().findings[0]) == []


def test_what_counts_against_a_model_is_said_for_every_kind_of_score():
    options = AuditOptions(protected=("sex",), given=("job", "hours"))
    effect = "change of the prediction (probability)"
    assert over_words(effect, 0.05, {}, options) == (
        "prediction shifts by more than 5 points with {variable}, given job and hours"
    )
    plain = AuditOptions(protected=("sex",))
    assert over_words(effect, 0.05, {"sex=Male": 0.1}, plain) == "prediction shifts by more than delta with {variable}"
    assert over_words("cosine", 0.2, {}, plain) == "score for {variable} is above 0.2"
    decided = AuditOptions(protected=("sex",), decision_threshold=0.6)
    assert over_words(effect, 0.05, {}, decided) == "decision at the threshold 0.6 would change with {variable}"


def test_decisions_that_depend_on_the_group_are_counted():
    result = example_result(predictions=torch.full((PEOPLE,), 0.47))
    gain = int((result.effect[::2][:-1] >= 0.03).sum())
    (line,) = flip_lines(result, result.findings[0])
    assert line == (
        "At the cut-off 0.5, judged by their mean prediction as members of the other group, "
        f"{gain} of 19 people in the group sex=Female would get a positive decision and 0 would lose it; "
        "0 of 19 people in the group sex=Male would get a positive decision and 0 would lose it"
    )
    named = replace(result, settings={**result.settings, "audited_class": ">50K"})
    assert "would get the decision '>50K' and 0 would lose it" in flip_lines(named, named.findings[0])[0]
    assert flip_lines(without_sign(), without_sign().findings[0]) == []


def test_what_is_proved_follows_the_verdict():
    result = example_result()
    proved = replace(result, certificates=example_certificates(result))
    within = int((proved.certificates.largest <= 0.05).sum())
    assert 0 < within < 15
    assert [line for line in verdict_lines(proved) if line not in verdict_lines(result)] == certificate_lines(proved)
    assert certificate_lines(proved) == [
        f"For {within} of 38 people no point on the path to their counterfactual row changes the prediction by more "
        "than 5 points: proved, not sampled.",
        "For 3 of the 37 people with a certificate a point on the path is worse than its end by more than 5 points.",
        "1 person without a certificate: a category changes on the way.",
    ]
    assert certificate_lines(result) == []
    assert certificate_lines(proved)[0] in AuditResult(proved).summary().splitlines()


def test_the_words_of_a_proof_say_of_which_way_and_in_what_unit():
    result = without_sign()
    total = replace(result, certificates=example_certificates(result, total=True))
    assert certificate_lines(total)[0].startswith("In the total reading, for ")
    assert "by more than 0.05: " in certificate_lines(total)[0]
    result = example_result(test="rank/a", unit="change of the prediction x alignment share (probability)")
    shared = certificate_lines(replace(result, certificates=example_certificates(result)))
    assert "changes the prediction, times the alignment share, by more than 5 points: " in shared[0]
    result = many_result()
    many = certificate_lines(replace(result, certificates=example_certificates(result)))
    assert "on the path to their counterfactual row changes the prediction by more than delta: " in many[0]


def test_what_is_special_about_a_variable_is_a_line_each():
    result = many_result()
    _, *notes = variable_lines(result, result.findings[1])
    assert notes == [
        "race: own group inferred for 20 people",
        "race: 'Other' combines Eskimo and Inuit",
        "race: delta of race=Black is 3 points",
    ]
    assert variable_lines(result, result.findings[2])[1:] == ["age: own group unknown for 4 people"]
    special = with_finding(example_result(), parts=("sex", "race"), reference="Male")
    assert variable_lines(special, special.findings[0])[1:] == [
        "sex: crosses sex and race",
        "sex: compared with Male only",
    ]
    by_size = with_finding(example_result(), reference="Male", second="Female")
    assert variable_lines(by_size, by_size.findings[0])[1:] == ["sex: compared with Male (and Male with Female)"]


def test_the_total_reading_is_told_for_what_was_audited():
    age = replace(many_result(), findings=many_result().findings[2:])
    assert reading_words(example_result())["total"].endswith("the value of the same rank in the other group")
    assert reading_words(age)["total"].endswith("the value of the same rank one standard deviation up or down")


@pytest.mark.parametrize(("of", "described"), [("probability", "(13.0 of 18.0 points)."), ("value", "(0.13 of 0.18).")])
def test_how_much_of_a_gap_the_map_accounts_for_is_a_line_for_each_group(of: str, described: str):
    result = with_map_checks(example_result(unit=f"change of the prediction ({of})"))
    assert map_lines(result) == [
        f"sex=Female: the map accounts for 72 % of the gap {described}"
    ]  # of men it is too small
    assert map_lines(example_result()) == []
    twice = with_map_checks(example_result(), (FEMALE, replace(FEMALE, towards="sex=Other", accounted=0.5)))
    assert [line.partition(":")[0] for line in map_lines(twice)] == [
        "sex=Female towards sex=Male",
        "sex=Female towards sex=Other",
    ]
