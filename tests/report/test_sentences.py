"""The sentences about an audit: its verdict, who is flagged and why, what is special about a variable."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fairfox.findings import AuditRecord
from fairfox.report.sentences import (
    because,
    certificate_lines,
    map_lines,
    reading_words,
    reliability_lines,
    variable_lines,
    verdict_lines,
)
from fairfox.result import AuditResult
from tests.report.helpers import FEMALE, with_map_checks
from tests.support import (
    PEOPLE,
    example_certificates,
    example_result,
    many_result,
    nameless,
    with_doubt,
    with_finding,
    without_sign,
)


def only(place: int) -> AuditRecord:
    """The audit of many variables, as if one of them had been audited alone."""
    result = many_result(weights=None, deltas={})
    finding = result.findings[place]
    alone = {
        "scores": finding.scores,
        "effect": finding.effect,
        "flagged": finding.flagged,
        "abstained": finding.abstained,
    }
    worst = torch.zeros(len(result), dtype=torch.long)
    return replace(result, findings=(finding,), worst=worst, confident=finding.confident, **alone)


def test_verdict_of_an_effect_says_what_would_change():
    found, surely = verdict_lines(example_result())
    assert found.startswith("23 of 38 people (60.5 %) are flagged: the prediction would change by more than 5 points")
    assert surely == "19 of them confidently: the whole interval lies beyond 5 points."


def test_verdict_of_another_score_names_its_unit():
    found, surely = verdict_lines(without_sign())
    assert found.endswith("flagged: the score (prediction per standard deviation) is above 0.05.")
    assert "no interval" in surely


@pytest.mark.parametrize(
    ("of", "described"), [("probability", "slope) is above 5 points."), ("logit", "slope, logit) is above 0.05.")]
)
def test_a_score_that_is_no_probability_is_not_said_to_be_one(of: str, described: str):
    assert verdict_lines(replace(without_sign(), unit=f"slope ({of})"))[0].endswith(f"flagged: the score ({described}")


def test_verdict_names_the_worst_variable_and_its_contrast():
    result = many_result()
    found, surely, mostly = verdict_lines(result)
    assert found == (
        f"79 of 196 people ({100 * result.share_flagged:.1f} % by weight) are flagged because of at least one of 3 "
        "variables: the prediction would change by "
        "more than 5 points (race=Black: 3 points) if they belonged to another group or if their age were one "
        "standard deviation (13.6) higher or lower."
    )
    assert surely == "44 of them confidently: the whole interval lies beyond delta."
    race = [n for n in result.flagged.nonzero()[:, 0].tolist() if int(result.worst[n]) == 1]
    assert mostly == f"Mostly because of race: the worst case for {len(race)} of them, most often towards White."


def test_verdict_of_one_variable_says_what_it_is_compared_with():
    assert verdict_lines(only(0))[0].endswith("if they belonged to the other group.")
    found, _, towards = verdict_lines(only(1))
    assert found.endswith("if they belonged to another group.")
    flagged = only(1).flagged.nonzero()[:, 0].tolist()
    assert towards == f"Most often towards White: {sum(only(1).towards[n] == 'White' for n in flagged)} of them."
    found, _, towards = verdict_lines(only(2))
    assert found.endswith("if their age were one standard deviation (13.6) higher or lower.")
    assert towards.startswith("Most often age + 13.6: ")


def test_a_test_that_knows_no_variable_blames_none():
    result = nameless(many_result())
    assert len(verdict_lines(many_result())) == 3
    assert len(verdict_lines(result)) == 2
    assert "worst case" not in variable_lines(result, result.findings[1])[0]


def test_what_is_proved_follows_the_verdict():
    result = example_result()
    proved = replace(result, certificates=example_certificates(result))
    within = int((proved.certificates.largest <= 0.05).sum())
    assert 0 < within < 15
    assert verdict_lines(proved) == [*verdict_lines(result), *certificate_lines(proved)]
    assert certificate_lines(proved) == [
        f"For {within} of 38 people no point on the path to the other group changes the prediction by more than "
        "5 points: proved, not sampled.",
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
    assert (
        "on the path to another group or a higher or lower age changes the prediction by more than delta: " in many[0]
    )


def test_who_is_left_out_follows_the_verdict_where_abstaining_was_asked_for():
    result = with_doubt(example_result())
    (described,) = reliability_lines(result)
    assert described == (
        "1 of 40 people (2.5 %) is left out, but for the verdict: the refits disagree about them most; the median "
        "counterfactual is 1.00 times as far from real people as these are from each other."
    )
    assert verdict_lines(result)[-1] == described
    assert "1 person not judged: the refits disagree" in AuditResult(result).summary().splitlines()
    weights = torch.ones(PEOPLE)
    weights[37] = 11.0
    assert (
        "1 of 40 people (22.0 % by weight) is left out, but" in reliability_lines(replace(result, weights=weights))[0]
    )


def test_of_doubt_nothing_is_said_unasked_and_little_where_nobody_is_left_out_or_moved():
    asked = with_doubt(example_result(), share=0.0)
    assert reliability_lines(asked)[0].startswith("Nobody is left out because the refits disagree; the median ")
    unmoved = replace(asked, reliability=replace(asked.reliability, rows=None))
    assert reliability_lines(unmoved) == ["Nobody is left out because the refits disagree."]
    unasked = with_doubt(example_result(), share=None)
    assert reliability_lines(unasked) == []
    assert verdict_lines(unasked) == verdict_lines(example_result())


def test_variables_are_told_in_a_line_each():
    result = many_result()
    race = result.findings[1]
    (line,) = variable_lines(result, race)
    share = race.tally(result.weights).share_flagged
    assert line == (
        f"race: {int(race.flagged.sum())} of 196 people ({100 * share:.1f} %) flagged, "
        f"{int(race.confident.sum())} confidently; the worst case for {100 * result.worst_case['race']:.1f} % "
        "of people; own group inferred for 20 people; 'Other' combines Eskimo and Inuit; delta of race=Black is "
        "3 points"
    )
    assert variable_lines(result, result.findings[2])[0].endswith("; own group unknown for 4 people")


def test_one_variable_has_a_line_only_for_what_is_special():
    assert variable_lines(example_result(), example_result().findings[0]) == []
    special = with_finding(example_result(), parts=("sex", "race"), reference="Male")
    assert variable_lines(special, special.findings[0]) == ["sex: crosses sex and race; compared with Male only"]
    by_size = with_finding(example_result(), reference="Male", second="Female")
    assert variable_lines(by_size, by_size.findings[0]) == ["sex: compared with Male (and Male with Female)"]


def test_contrasts_in_words():
    _, race, age = many_result().findings
    assert because(race, "White") == "race (towards White)"
    assert because(race, "away from Black") == "race (away from Black)"
    assert because(age, "age - 13.6") == "age - 13.6"
    assert (because(age, "age"), because(race, None)) == ("age", "race")


def test_the_total_reading_is_told_for_what_was_audited():
    many = many_result()
    race, age = (replace(many, findings=(finding,)) for finding in many.findings[1:])
    assert reading_words(example_result())["total"] == "becoming a member of the other group with the same ranks in it"
    assert reading_words(race)["total"] == "becoming a member of another group with the same ranks in it"
    assert reading_words(age)["total"] == "going one standard deviation up or down with the same ranks there"
    assert "another group (of a number: going one" in reading_words(many)["total"]


@pytest.mark.parametrize(
    ("of", "described"),
    [("probability", "(13.0 of 18.0 points)."), ("value", "(0.13 of 0.18).")],
)
def test_how_much_of_a_gap_the_map_accounts_for_is_a_line_for_each_group(of: str, described: str):
    result = with_map_checks(example_result(unit=f"change of the prediction ({of})"))
    assert map_lines(result) == [
        f"sex=Female: the map accounts for 72 % of the gap {described}"
    ]  # of men it is too small
    assert map_lines(result)[0] in AuditResult(result).summary().splitlines()
    assert map_lines(example_result()) == []
    twice = with_map_checks(example_result(), (FEMALE, replace(FEMALE, towards="sex=Other", accounted=0.5)))
    assert [line.partition(":")[0] for line in map_lines(twice)] == [
        "sex=Female towards sex=Male",
        "sex=Female towards sex=Other",
    ]
