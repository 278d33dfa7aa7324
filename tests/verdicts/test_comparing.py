from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairfox.errors import DataError, ShapeError
from fairfox.verdicts.comparing import Seen, compare_people, errors_of, together

DELTA = 0.05


def seen(signed, scatter=0.0, refits=5):
    """Return a model's effects: its re-fits move everyone by the same amounts."""
    moves = scatter * np.linspace(-1, 1, refits)
    each = np.asarray(signed, dtype=float)[:, None] * (1 + moves)
    scores = np.abs(each.mean(1))
    return Seen(each, scores, scores > DELTA)


def test_the_error_of_a_person_is_the_scatter_of_a_re_fit_and_of_their_mean():
    # sd of 1, 2, 3 is 1; √(1 + 1/3)
    assert errors_of(np.array([[1.0, 2.0, 3.0]])) == pytest.approx([(4 / 3) ** 0.5])
    assert errors_of(np.array([[1.0]])).tolist() == [0.0]


def test_means_shares_and_who_is_treated_less_unequally():
    a, b = seen([0.1, -0.2, 0.04, 0.02]), seen([0.05, -0.2, 0.0, 0.06])
    found = compare_people(a, b, delta=DELTA, folds=None)
    assert found.people == 4
    assert found.means == pytest.approx((0.09, 0.0775))
    assert found.shares == pytest.approx((0.5, 0.5))  # 0.05 is not above delta
    assert found.difference.value == pytest.approx(-0.0125)
    assert (found.less, found.more) == (0.5, 0.25)


def test_half_the_effect_for_everyone_is_fairer_and_the_sentence_says_so():
    effects = np.random.default_rng(0).normal(0.1, 0.02, 200)
    found = compare_people(seen(effects, 0.2), seen(effects / 2, 0.2), delta=DELTA, folds=5)
    assert found.word == "B is fairer"
    assert found.difference.upper < 0
    assert found.why.startswith("On the same 200 people the mean score is 0.1 with A and 0.0502 with B: ")
    probability = replace(found, unit="change of the prediction (probability)")
    assert probability.why.startswith("On the same 200 people the mean score is 10 points with A and 5 points with B: ")
    back = compare_people(seen(effects / 2, 0.2), seen(effects, 0.2), delta=DELTA, folds=5)
    assert back.word == "A is fairer"


def test_a_model_beside_itself_cannot_be_told_apart():
    found = compare_people(seen([0.1, 0.2, 0.3], 0.5), seen([0.1, 0.2, 0.3], 0.5), delta=DELTA, folds=None)
    assert found.word == "cannot tell"
    assert (found.difference.lower, found.difference.upper) == (0.0, 0.0)  # the same maps: nothing scatters
    assert "may be none" in found.why


def test_maps_that_scatter_make_a_small_difference_uncertain():
    effects = np.full(400, 0.1)
    a, b = seen(effects, 1.0), seen(1.3 * effects, 1.0)  # 0.03 apart; the re-fits of both scatter by 0.03 x 0.79 apart
    assert compare_people(a, b, delta=DELTA, folds=None).word == "cannot tell"
    assert compare_people(seen(effects), seen(1.3 * effects), delta=DELTA, folds=None).word == "A is fairer"


def test_re_fits_go_together_as_their_correlation_says():
    a = np.array([[1.0, 2.0, 3.0], [5.0, 5.0, 5.0]])
    assert together(a, 3 * a + 1) == pytest.approx(1.0)
    assert together(a, -a) == pytest.approx(-1.0)
    assert together(a, np.ones((2, 3))) == 0.0  # one of them does not move
    # The second person's go against each other: (2 - 2) of 4, and with three times the weight of the first (2 - 6) of 8
    b = np.array([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]])
    up = np.array([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]])
    assert together(up, b) == pytest.approx(0.0)
    assert together(up, b, np.array([1.0, 3.0])) == pytest.approx(-0.5)


def test_the_error_of_a_difference_of_shares_is_that_of_re_fits_that_go_together_or_not():
    # One error less or more, sd 0.0158 · √1.2 = 0.0173 of everyone, takes all over delta or none: half of 1 each
    signs = np.array([1.0, -0.5, -0.5, -1.0, 1.0])
    across = np.array([1.0, 1.0, 1.0, -1.5, -1.5])  # (1 - 0.5 - 0.5 + 1.5 - 1.5) = 0: they know nothing of each other
    assert signs @ (across - across.mean()) == pytest.approx(0.0)

    def moved(by):
        return Seen(np.full((40, 1), DELTA) + 0.03 * by, np.full(40, DELTA), np.zeros(40, dtype=bool))

    same = compare_people(moved(signs), moved(signs), delta=DELTA, folds=None).share_difference
    other = compare_people(moved(signs), moved(across), delta=DELTA, folds=None).share_difference
    against = compare_people(moved(signs), moved(-signs), delta=DELTA, folds=None).share_difference
    assert same is not None
    assert other is not None
    assert against is not None
    assert same.error == pytest.approx(0.0, abs=1e-6)
    assert other.error == pytest.approx(0.5**0.5, rel=0.1)  # √(0.5² + 0.5²)
    assert against.error == pytest.approx(1.0, rel=0.1)


def test_one_re_fit_leaves_open_which_model_is_fairer():
    a, b = (seen(np.full(200, effect), refits=1) for effect in (0.1, 0.3))
    found = compare_people(a, b, delta=DELTA, folds=5)
    assert found.word == "cannot tell"
    assert found.why.endswith("but one re-fit leaves open how sure the maps are; set refits=5 (--refits 5).")
    assert found.share_difference is None
    unfitted = compare_people(a, b, delta=DELTA, folds=5, learnt=False)  # nothing was learnt that could be wrong
    assert unfitted.word == "A is fairer"
    assert unfitted.share_difference is not None


def test_a_share_that_is_not_by_delta_has_no_interval():
    found = compare_people(seen([0.1, 0.2]), seen([0.01, 0.02]), delta=None, folds=5)
    assert found.shares == (1.0, 0.0)
    assert found.share_difference is None


def test_weights_count():
    a, b = seen([0.1, 0.3]), seen([0.3, 0.1])
    found = compare_people(a, b, delta=DELTA, folds=None, weights=np.array([3.0, 1.0]))
    assert found.difference.value == pytest.approx(0.1)
    assert (found.less, found.more) == (0.25, 0.75)


@settings(max_examples=20)
@given(st.permutations(range(30)))
def test_the_order_of_people_does_not_matter(order):
    effects = np.random.default_rng(0).normal(0.1, 0.05, (2, 30))
    one = compare_people(*(seen(e, 0.1) for e in effects), delta=DELTA, folds=5)
    other = compare_people(*(seen(e[list(order)], 0.1) for e in effects), delta=DELTA, folds=5)
    assert other.difference.value == pytest.approx(one.difference.value)
    assert other.difference.error == pytest.approx(one.difference.error, rel=0.2)  # another bootstrap
    assert (other.less, other.more) == pytest.approx((one.less, one.more))


def test_other_people_or_nobody_are_refused():
    with pytest.raises(ShapeError, match="2 people with A and 1 with B"):
        compare_people(seen([0.1, 0.2]), seen([0.1]), delta=DELTA, folds=None)
    with pytest.raises(DataError, match="Nobody is judged with both models"):
        compare_people(seen([]), seen([]), delta=DELTA, folds=None)
