"""The verdict on a model, held against exact binomial tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom
from torch import Tensor

from fairfox.statistics.verdict import (
    ALLOWED,
    LEVEL,
    Gap,
    Point,
    Verdict,
    Word,
    family_verdict,
    held_back,
    judge_model,
    p_fewer,
    p_more,
    taken_back,
    tipping_point,
    tipping_sentence,
)

DELTA = 0.05
OVER = "prediction shifts by more than 5 points with sex"


ORDER = ("passes", "cannot tell", "fails")


# significant, possible, all
counts = st.tuples(st.integers(0, 200), st.integers(0, 200), st.integers(1, 200)).map(sorted)


def effects(people: int, over: int) -> Tensor:
    """Return five refits (N, 5) of people of whom the first are over delta, all of them close together."""
    middle = torch.where(torch.arange(people) < over, 0.2, 0.01)[:, None]
    return middle + torch.tensor([-0.002, -0.001, 0.0, 0.001, 0.002])


def judge(significant: int, possible: int, people: int, **options: Any) -> Verdict:
    """Return the verdict where the first people are on the list, and the intervals of as many more reach delta."""
    place = torch.arange(people)
    given: dict[str, Any] = {"fdr": 0.1, "over": OVER} | options
    return judge_model(effects(people, significant), place < possible, place < significant, DELTA, **given)


def verdict(word: Any, p_fails: float, p_passes: float = 1.0, significant: int = 0, variable: str = "") -> Verdict:
    return Verdict(word, f"{word}.", ALLOWED, 100, significant, 50, p_fails, p_passes, variable=variable)


@given(st.integers(1, 300).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), st.floats(0.001, 0.999))
def test_p_values_are_the_tails_of_a_binomial(found: tuple[int, int], allowed: float):
    k, n = found
    assert p_more(k, n, allowed) == pytest.approx(binom.sf(k - 1, n, allowed), abs=1e-9)
    assert p_fewer(k, n, allowed) == pytest.approx(binom.cdf(k, n, allowed), abs=1e-9)


def test_nobody_says_nothing_against_a_model_and_everybody_nothing_for_it():
    assert p_more(0, 100, 0.05) == 1.0
    assert p_fewer(100, 100, 0.05) == 1.0
    assert p_more(1, 100, 0.0) == 0.0  # where nobody may be over delta, one is too many
    assert p_fewer(0, 100, 0.0) == 1.0


def test_the_list_is_held_against_the_allowed_share_without_its_wrong_part():
    # 0.9 * 10 = 9 of 100: P(X >= 9) = 0.063 at 5 %; 0.9 * 11 = 9.9: between P(X >= 9) and P(X >= 10) = 0.028
    ten, eleven = judge(10, 100, 100), judge(11, 100, 100)
    assert ten.p_fails == pytest.approx(binom.sf(8, 100, 0.05))
    assert (ten.word, eleven.word) == ("cannot tell", "fails")
    assert judge(10, 100, 100, fdr=0.001).word == "fails"  # 9.99
    assert judge(11, 100, 100, allowed=0.2).word == "cannot tell"
    assert judge(100, 100, 100, allowed=1.0).word == "passes"  # everyone may be over delta


def test_a_model_passes_where_the_intervals_of_too_few_people_reach_delta():
    # 59 people of whom nobody is over delta: 0.95 ** 59 = 0.0485, 58: 0.051
    assert judge(0, 0, 59).word == "passes"
    assert judge(0, 0, 58).word == "cannot tell"
    assert judge(0, 0, 59).p_passes == pytest.approx(0.95**59)
    assert judge(0, 1, 59).word == "cannot tell"


def test_where_list_and_intervals_contradict_each_other_the_model_fails():
    found = judge(300, 10, 1000)  # more on the list than intervals reach delta
    assert found.p_fails <= LEVEL
    assert found.p_passes <= LEVEL
    assert found.word == "fails"


@given(counts, st.integers(0, 200), st.sampled_from([0.01, 0.05, 0.2]), st.sampled_from([0.05, 0.5]))
@settings(deadline=None, max_examples=60)
def test_more_people_over_delta_never_make_a_model_look_better(found: list[int], more: int, allowed: float, fdr: float):
    significant, possible, people = found
    people = max(people, 1)
    before = judge(significant, possible, people, allowed=allowed, fdr=fdr)
    listed = judge(
        min(significant + more, people),
        max(possible, min(significant + more, people)),
        people,
        allowed=allowed,
        fdr=fdr,
    )
    reached = judge(significant, min(possible + more, people), people, allowed=allowed, fdr=fdr)
    assert ORDER.index(listed.word) >= ORDER.index(before.word)
    assert ORDER.index(reached.word) >= ORDER.index(before.word)


@given(counts.filter(lambda found: found[2] > 0), st.floats(0.01, 100.0))
@settings(deadline=None, max_examples=30)
def test_equal_weights_are_no_weights(found: list[int], weight: float):
    significant, possible, people = found
    plain = judge(significant, possible, people)
    weighted = judge(significant, possible, people, weights=torch.full((people,), weight, dtype=torch.float64))
    assert weighted.word == plain.word
    assert weighted.reason == plain.reason
    numbers = [(v.p_fails, v.p_passes, v.mean.value, v.share.value) for v in (plain, weighted)]
    assert numbers[1] == pytest.approx(numbers[0], rel=1e-6)


def test_uneven_weights_count_as_fewer_people_and_shares_are_weighted():
    # 100 people of weight 3 and 100 of weight 1 say as much as 400 ** 2 / (900 + 100) = 160 of the same weight
    weights = torch.tensor([3.0, 1.0]).repeat_interleave(100)
    found = judge(100, 100, 200, weights=weights)
    assert found.share.value == pytest.approx(0.75)
    assert found.p_fails == pytest.approx(p_more(0.9 * 0.75 * 160, 160, 0.05))
    assert (found.significant, found.possible, found.judged) == (100, 100, 200)  # counts are not weighted


def test_the_mean_size_and_the_share_have_intervals_around_them():
    found = judge(30, 40, 100)
    # 30 people at 0.2 and 70 at 0.01
    assert found.mean.value == pytest.approx(0.067)
    assert found.share.value == pytest.approx(0.3)
    for one in (found.mean, found.share):
        assert one.lower < one.value < one.upper
        assert one.error > 0
    # that of a share of 0.3 of 100 people: 0.046, nobody's refits cross delta
    assert found.share.error == pytest.approx((0.3 * 0.7 / 100) ** 0.5, rel=0.1)


def test_a_share_stays_between_nobody_and_everybody():
    assert judge(0, 0, 30).share.lower == 0.0
    assert judge(30, 30, 30).share.upper == 1.0


def test_everyone_may_have_a_limit_of_their_own_and_an_infinite_one():
    limit = torch.where(torch.arange(100) < 10, torch.inf, 0.05)
    found = judge_model(effects(100, 30), torch.ones(100) > 0, torch.ones(100) > 0, limit, fdr=0.1)
    assert found.share.value == pytest.approx(0.2)


def test_where_nobody_was_judged_nothing_can_be_told():
    found = judge(0, 0, 0)
    assert (found.word, found.reason, found.judged) == ("cannot tell", "Nobody could be judged.", 0)


SHIFTS = f"their {OVER}; the limit is"


@pytest.mark.parametrize(
    ("found", "headline"),
    [
        (
            judge(273, 300, 500),
            "FAIL: 273 of 500 people (55 %) are significantly affected: their prediction shifts by more than 5 points "
            "with sex; the limit is 5 %.",
        ),
        (judge(0, 0, 2000), f"PASS: Nobody's {OVER}; the limit is 5 %."),
        (judge(0, 7, 2000), f"PASS: At most 7 of 2,000 people (0.4 %) are affected: {SHIFTS} 5 %."),
        (judge(0, 1, 2000), f"PASS: At most 1 of 2,000 people (0.1 %) is affected: {SHIFTS} 5 %."),
        (judge(5, 9, 2000, allowed=1.0), "PASS: Everyone may be affected: the limit is 100 %."),
        (judge(3, 3, 50), "CANNOT TELL: 50 people are too few. At least 59 people are needed to pass."),
        (judge(1, 1, 1), "CANNOT TELL: 1 person is too few. At least 59 people are needed to pass."),
        # 0.99 to the power of 299 is below 5 %, to that of 298 above
        (
            judge(1, 1, 250, allowed=0.01),
            "CANNOT TELL: 250 people are too few. At least 299 people are needed to pass.",
        ),
        (
            judge(0, 0, 200, allowed=0.0),
            "CANNOT TELL: No number of people can show that nobody is affected: give a limit above 0.",
        ),
        (
            judge(90, 300, 2000, allowed=0.125),
            f"CANNOT TELL: 90 to 300 of 2,000 people (4.5 % to 15.0 %) may be affected: {SHIFTS} 12.5 %.",
        ),
        (
            judge(21, 90, 300),
            f"CANNOT TELL: 21 to 90 of 300 people (7.0 % to 30 %) may be affected: {SHIFTS} 5 %. The difference from "
            "the limit could be chance.",
        ),
        (
            judge(30, 30, 100, over="decision would change with sex", who="people in the group sex=Female"),
            "FAIL: 30 of 100 people in the group sex=Female (30 %) are significantly affected: their decision would "
            "change with sex; the limit is 5 %.",
        ),
        (
            judge(100, 100, 200, weights=torch.tensor([3.0, 1.0]).repeat_interleave(100)),
            f"FAIL: 100 of 200 people (75 % by weight) are significantly affected: {SHIFTS} 5 %.",
        ),
    ],
)
def test_the_verdict_is_a_sentence_with_its_counts_and_the_limit(found: Verdict, headline: str):
    assert found.headline == headline


def test_of_several_variables_one_must_fail_although_they_are_many():
    assert family_verdict([strong := verdict("fails", 0.04)]) is strong
    # Holm: 0.04 * 2 = 0.08 is no longer enough, 0.02 * 2 = 0.04 is
    weak, strong = verdict("fails", 0.04), verdict("fails", 0.02)
    other = verdict("passes", 1.0, 0.001)
    assert family_verdict([other, strong]) is strong
    together = family_verdict([weak, other])
    assert together.word == "cannot tell"
    assert together.reason == "fails. But with 2 verdicts on the same model this could be chance."
    assert together.p_fails == weak.p_fails


def test_two_variables_that_barely_fail_do_not_fail_together_and_one_that_surely_does_counts_for_all():
    assert family_verdict([verdict("fails", 0.04), verdict("fails", 0.03)]).word == "cannot tell"  # 0.06 by Holm
    sex, race = (
        verdict("fails", 0.0, significant=5, variable="sex"),
        verdict("fails", 0.0, significant=9, variable="race"),
    )
    assert family_verdict([sex, race]).variable == "race"  # more people


def test_a_model_passes_where_it_passes_for_every_variable():
    easy, hard = verdict("passes", 1.0, 0.001), verdict("passes", 1.0, 0.04)
    assert family_verdict([easy, hard]) is hard
    open_one = verdict("cannot tell", 0.3, 0.2)
    assert family_verdict([easy, open_one, hard]) is open_one


def test_a_verdict_that_was_taken_back_hides_no_other_that_fails():
    # p_fails stays with what was taken back, and may be the smaller one
    back = taken_back(verdict("fails", 0.0, significant=9, variable="sex"), "effects as large come by chance.")
    sure = verdict("fails", 1e-9, significant=5, variable="race")
    for both in ([back, sure], [sure, back]):
        assert family_verdict(both) is sure
    assert family_verdict([back, verdict("passes", 1.0, 0.001)]) is back


# --- where ranks persist in part -----------------------------------------------------------------------------------


def curve(*p_fails: float, share: float = 0.0) -> list[Point]:
    """Return what is found at persistence .99, .95, .9 .. 0, as far as it is given; the last value goes on."""
    grid = (0.99, 0.95, 0.9, 0.8, 0.7)
    each = [*p_fails, *[p_fails[-1]] * (len(grid) - len(p_fails))]
    return [Point(at, share, 0.0, 0.0, 0.0, p) for at, p in zip(grid, each, strict=True)]


def test_a_fail_tips_before_the_first_step_at_which_it_does_not_stand():
    assert tipping_point("fails", curve(0.0, 0.0, 0.0, 0.06, 0.0), 0.05) == 0.9  # what comes after does not count
    assert tipping_point("fails", curve(0.0), 0.05) == 0.7
    assert tipping_point("fails", curve(0.06, 0.0), 0.05) == 1.0
    assert tipping_point("fails", [], 0.05) is None
    assert tipping_point("cannot tell", curve(0.0), 0.05) is None


def test_a_pass_tips_where_more_people_than_allowed_are_over_delta_on_average():
    points = [
        replace(point, share=share) for point, share in zip(curve(1.0), (0.0, 0.04, 0.05, 0.06, 0.0), strict=True)
    ]
    assert tipping_point("passes", points, 0.05) == 0.9
    assert tipping_point("passes", points, 0.1) == 0.7
    assert tipping_point("passes", curve(1.0, share=0.2), 0.05) == 1.0


@pytest.mark.parametrize(
    ("word", "tipping", "sentence"),
    [
        (
            "fails",
            0.6,
            "Tipping point: persistence 0.6. The model fails as long as ranks carry over at least that well "
            "(1: exactly, 0: not at all).",
        ),
        (
            "fails",
            0.0,
            "Tipping point: none. The model fails at every persistence, even if ranks do not carry over at all.",
        ),
        ("passes", 1.0, "Tipping point: persistence 1. The model passes only if ranks carry over exactly."),
        ("cannot tell", None, ""),
    ],
)
def test_how_far_ranks_may_fail_to_carry_over_is_a_sentence(word: Word, tipping: float | None, sentence: str):
    assert tipping_sentence(replace(verdict(word, 0.0), tipping=tipping)) == sentence


def test_a_fail_that_does_not_stand_at_95_hundredths_is_taken_back():
    stands, falls = (judge(1500, 1600, 2000, curve=curve(0.0, at, 1.0)) for at in (0.05, 0.06))
    assert (stands.word, stands.tipping) == ("fails", 0.95)
    assert (falls.word, falls.tipping) == ("cannot tell", None)
    assert falls.reason == (
        f"{stands.reason} But the model no longer fails if ranks carry over a little less than exactly "
        "(persistence 0.95)."
    )
    assert judge(1500, 1600, 2000).word == "fails"  # nothing is known of ranks


def test_a_pass_is_not_taken_back_by_its_tipping_point():
    found = judge(0, 0, 2000, curve=curve(1.0, share=0.2))
    assert (found.word, found.tipping) == ("passes", 1.0)


def test_a_gap_of_fewer_people_than_the_limit_allows_takes_no_verdict_back():
    passed, how = judge(0, 2, 1000), {"allowed": 0.05, "by_chance": False, "points": True}
    for share, word in ((0.05, "passes"), (0.06, "cannot tell")):  # both ways: of the small group and of the large one
        sizes = (
            ("sex=F", "sex=M", 0.2, -0.01, 0.05, share, 1 - share),
            ("sex=M", "sex=F", -0.1, 0, 0.05, 1 - share, share),
        )
        taken = held_back(passed, [Gap(*each) for each in sizes], **how)
        assert taken.word == word
    assert taken.reason == (
        f"{passed.reason} But the mean prediction of sex=M is 20.0 points higher than that of sex=F (give or take 0.0 "
        "points), and the map accounts for -1.0 points of that. What is left may be more than delta: audit more "
        "people, or see the map check."
    )
    assert held_back(passed, [Gap("a", "b", 0.2, 0.16, 0.05, 0.5, 0.5)], **how) == passed


def test_a_gap_that_may_be_larger_than_it_is_takes_a_pass_back():
    passed, how = judge(0, 2, 1000), {"allowed": 0.05, "by_chance": False, "points": True}
    for error, word in ((0.012, "passes"), (0.013, "cannot tell")):  # 0.03 + 1.645 * 0.012 = 0.0497, and 0.0514
        assert held_back(passed, [Gap("a", "b", -0.03, 0.0, 0.05, 0.5, 0.5, error)], **how).word == word
