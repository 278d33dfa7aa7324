"""Two models on the same people, and two audits one after the other."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairfox.errors import DataError, ShapeError
from fairfox.statistics.paired import Scores, compare_scores, errors_of, refit_correlation, same_audit

DELTA = 0.05


def model(signed, scatter=0.0, refits=5, **options):
    """Return a model's effects: its refits move everyone by the same amounts."""
    moves = scatter * np.linspace(-1, 1, refits)
    each = np.asarray(signed, dtype=float)[:, None] * (1 + moves)
    scores = np.abs(each.mean(1))
    return Scores.of_refits(each, scores, scores > DELTA, **{"delta": DELTA, "folds": 5, **options})


def audit(values, error=0.0):
    """Return an audit of which scores and their errors are known, but no refits."""
    values = np.asarray(values, dtype=float)
    return Scores(values, np.full(len(values), error), (values > DELTA).astype(float), DELTA, refits=5, folds=5)


@pytest.fixture
def people():
    return np.abs(np.random.default_rng(0).normal(0.08, 0.02, 300))


def test_the_error_of_a_person_is_the_scatter_of_a_refit_and_of_their_mean():
    # sd of 1, 2, 3 is 1; √(1 + 1/3)
    assert errors_of(np.array([[1.0, 2.0, 3.0]])) == pytest.approx([(4 / 3) ** 0.5])
    assert errors_of(np.array([[1.0]])).tolist() == [0.0]


def test_means_shares_and_who_is_treated_less_unequally():
    found = compare_scores(model([0.1, -0.2, 0.04, 0.02]), model([0.05, -0.2, 0.0, 0.06]))
    assert found.people == (4, 4)
    assert found.means == pytest.approx((0.09, 0.0775))
    assert found.shares == pytest.approx((0.5, 0.5))  # 0.05 is not above delta
    assert found.difference.value == pytest.approx(-0.0125)
    assert (found.less, found.more) == (0.5, 0.25)


def test_weights_count():
    found = compare_scores(model([0.1, 0.3]), model([0.3, 0.1]), weights=np.array([3.0, 1.0]))
    assert found.difference.value == pytest.approx(0.1)
    assert (found.less, found.more) == (0.25, 0.75)


def test_half_the_effect_for_everyone_is_fairer():
    effects = np.random.default_rng(0).normal(0.1, 0.02, 200)
    found = compare_scores(model(effects, 0.2), model(effects / 2, 0.2))
    assert found.word == "B is fairer"
    assert found.difference.upper < 0
    assert compare_scores(model(effects / 2, 0.2), model(effects, 0.2)).word == "A is fairer"


def test_a_model_beside_itself_cannot_be_told_apart():
    found = compare_scores(model([0.1, 0.2, 0.3], 0.5), model([0.1, 0.2, 0.3], 0.5))
    assert found.word == "cannot tell"
    assert (found.difference.lower, found.difference.upper) == (0.0, 0.0)  # the same maps: nothing scatters


def test_maps_that_scatter_make_a_small_difference_uncertain():
    effects = np.full(400, 0.1)
    a, b = (model(times * effects, 1.0, folds=None) for times in (1.0, 1.3))  # 0.03 apart; refits scatter by 0.024
    assert compare_scores(a, b).word == "cannot tell"
    assert compare_scores(model(effects), model(1.3 * effects)).word == "A is fairer"


def test_refits_go_together_as_their_correlation_says():
    a = np.array([[1.0, 2.0, 3.0], [5.0, 5.0, 5.0]])
    assert refit_correlation(a, 3 * a + 1) == pytest.approx(1.0)
    assert refit_correlation(a, -a) == pytest.approx(-1.0)
    assert refit_correlation(a, np.ones((2, 3))) == 0.0  # one of them does not move
    # The second person's go against each other: (2 - 2) of 4, and with three times the weight of the first (2 - 6) of 8
    b = np.array([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]])
    up = np.array([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]])
    assert refit_correlation(up, b) == pytest.approx(0.0)
    assert refit_correlation(up, b, np.array([1.0, 3.0])) == pytest.approx(-0.5)


def test_the_error_of_a_difference_of_shares_is_that_of_refits_that_go_together_or_not():
    # One error less or more, sd 0.0158 · √1.2 = 0.0173 of everyone, takes all over delta or none: half of 1 each
    signs = np.array([1.0, -0.5, -0.5, -1.0, 1.0])
    across = np.array([1.0, 1.0, 1.0, -1.5, -1.5])  # (1 - 0.5 - 0.5 + 1.5 - 1.5) = 0: they know nothing of each other

    def error(first, second):
        a, b = (
            Scores.of_refits(
                np.full((40, 1), DELTA) + 0.03 * by, np.full(40, DELTA), np.zeros(40, bool), delta=DELTA, folds=None
            )
            for by in (first, second)
        )
        return compare_scores(a, b).share_difference.error

    assert error(signs, signs) == pytest.approx(0.0, abs=1e-6)
    assert error(signs, across) == pytest.approx(0.5**0.5, rel=0.1)  # √(0.5² + 0.5²)
    assert error(signs, -signs) == pytest.approx(1.0, rel=0.1)


def test_one_refit_leaves_open_which_model_is_fairer():
    found = compare_scores(*(model(np.full(200, effect), refits=1) for effect in (0.1, 0.3)))
    assert found.word == "cannot tell"
    assert found.share_difference is None
    unfitted = compare_scores(*(model(np.full(200, effect), refits=1, learnt=False) for effect in (0.1, 0.3)))
    assert unfitted.word == "A is fairer"  # nothing was learnt that could be wrong
    assert unfitted.share_difference is not None


def test_a_share_that_is_not_by_delta_has_no_interval():
    found = compare_scores(*(model(effects, by_delta=False) for effects in ([0.1, 0.2], [0.01, 0.02])))
    assert found.shares == (1.0, 0.0)
    assert found.share_difference is None


@settings(max_examples=20)
@given(st.permutations(range(30)))
def test_the_order_of_people_does_not_matter(order):
    effects = np.random.default_rng(0).normal(0.1, 0.05, (2, 30))
    one = compare_scores(*(model(e, 0.1) for e in effects))
    other = compare_scores(*(model(e[list(order)], 0.1) for e in effects))
    assert other.difference.value == pytest.approx(one.difference.value)
    assert other.difference.error == pytest.approx(one.difference.error, rel=0.2)  # another bootstrap
    assert (other.less, other.more) == pytest.approx((one.less, one.more))


def test_other_people_or_nobody_are_refused():
    with pytest.raises(ShapeError, match="2 people with A and 1 with B"):
        compare_scores(model([0.1, 0.2]), model([0.1]))
    with pytest.raises(DataError, match="Nobody is judged with both models"):
        compare_scores(model([]), model([]))


def test_the_same_audit_is_not_worse(people):
    found = compare_scores(audit(people), audit(people), margin=0.005)
    assert found.word == "not worse"
    assert found.difference.value == found.bound == 0.0
    assert found.p_value == 1.0
    itself = same_audit(audit(people, error=0.5), margin=0.0)  # whatever its maps leave open
    assert (itself.word, itself.means[0], itself.bound) == ("not worse", itself.means[1], 0.0)


def test_a_rise_for_everyone_is_worse_unless_it_is_within_the_margin(people):
    found = compare_scores(audit(people, 0.01), audit(people + 0.05, 0.015), margin=0.005)
    assert found.word == "worse"
    assert found.difference.value == pytest.approx(0.05)
    assert found.p_value < 0.01
    assert found.shares[1] == 1.0
    small = compare_scores(audit(people), audit(people + 0.002), margin=0.005)
    assert small.p_value < 0.05
    assert small.word == "not worse"


def test_what_the_maps_of_the_same_people_get_wrong_counts_for_both_audits():
    # Nobody differs from anyone: √(0.6² · 0.7 + 0.3² · 0.7) of maps alone, as for two samples
    first, second = audit(np.full(50, 0.5), 0.6), audit(np.full(50, 0.5), 0.3)
    same, others = (compare_scores(first, second, paired=paired, margin=0.005) for paired in (True, False))
    assert same.difference.error == pytest.approx((0.7 * (0.6**2 + 0.3**2)) ** 0.5, rel=0.1)
    assert others.difference.error == pytest.approx(same.difference.error, rel=0.1)
    assert same.word == "cannot tell"


def test_the_same_people_scatter_less_than_two_samples_of_them(people):
    first, second = audit(people), audit(people + 0.002)
    assert compare_scores(first, second, margin=0.0).word == "worse"
    assert compare_scores(first, second, paired=False, margin=0.0).word == "cannot tell"


@pytest.mark.parametrize("paired", [True, False], ids=["the same people", "two samples"])
def test_a_model_that_stays_as_it_is_is_rarely_found_worse(paired):
    # What maps get wrong moves everyone of an audit together, by an error of which a mean keeps √0.7
    rng, worse = np.random.default_rng(0), 0
    for _ in range(100):
        who = rng.normal(0.3, 0.05, (2, 60))
        audits = [audit(who[0 if paired else k] + rng.normal(0, 0.02 * 0.7**0.5), 0.02) for k in range(2)]
        worse += compare_scores(*audits, paired=paired, margin=0.0).word == "worse"
    assert worse <= 11  # 5 expected, and three standard deviations more


@pytest.mark.parametrize("paired", [True, False])
def test_without_the_error_of_the_maps_nothing_can_be_told(people, paired):
    first, second = audit(people), audit(people + 0.05)
    found = compare_scores(first, replace(second, maps_known=False), paired=paired, margin=1.0)
    assert found.word == "cannot tell"
    assert found.share_difference is None
    by_cut = compare_scores(first, replace(second, by_delta=False), paired=paired, margin=0.005)
    assert by_cut.word == "worse"
    assert by_cut.share_difference is by_cut.share_p_value is None


def test_of_two_samples_both_scatter_and_a_large_rise_is_still_worse(people):
    # Errors of 0.02 each, of which a mean keeps √0.7: √2 · 0.02 · √0.7, and of people √2 · 0.02 / √300 beside it
    found = compare_scores(audit(people, 0.02), audit(people[::-1] + 0.01, 0.02), paired=False, margin=0.005)
    assert found.difference.error == pytest.approx((2 * (0.02**2 * 0.7 + 0.02**2 / 300)) ** 0.5, rel=0.1)
    assert found.word == "cannot tell"
    assert (found.less, found.more) == (None, None)
    large = compare_scores(audit(people, 0.01), audit(people[:200] + 0.1, 0.01), paired=False, margin=0.005)
    assert (large.word, large.people) == ("worse", (300, 200))


def test_units_do_not_matter(people):
    first, second = audit(people, 0.02), audit(people + 0.02, 0.02)
    one = compare_scores(first, second, paired=False, margin=0.005)
    times = (replace(s, scores=10 * s.scores, errors=10 * s.errors, delta=10 * s.delta) for s in (first, second))
    ten = compare_scores(*times, paired=False, margin=0.05)
    assert ten.word == one.word
    assert ten.difference.upper == pytest.approx(10 * one.difference.upper)
    assert ten.share_difference == one.share_difference
