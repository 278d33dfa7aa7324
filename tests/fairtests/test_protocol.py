"""From values to a Measurement: averages, worst cases, signs, abstention, intervals, joining parts."""

import pytest
import torch
from scipy.stats import t

from fairfox.data.dataset import Dataset, Protected
from fairfox.fairtests.protocol import UNKNOWN, combine, join, own_sign

SEX, RACE = Protected("sex"), Protected("race", "categorical", ("a", "b", "c"))
AGE = Protected("age", "continuous", ())
NAN = float("nan")


def people(*c, protected=(SEX,)):
    groups = torch.tensor(c, dtype=torch.float32)
    return Dataset.from_arrays(torch.zeros(len(c), 2), groups.reshape(len(c), -1), protected=protected)


def test_own_sign_turns_away_from_the_own_group():
    data = people([0, 0, 30], [1, 2, 50], protected=(SEX, RACE, AGE))
    # sex: -1 for class 1; race: -1 in the own class's column; age: never
    assert own_sign(data).tolist() == [[1, -1, 1, 1, 1], [-1, 1, 1, -1, 1]]


def test_a_variable_that_is_unknown_has_no_sign_and_does_not_count():
    data = people([NAN, 0, NAN], [1, NAN, 50], protected=(SEX, RACE, AGE))
    assert own_sign(data).tolist() == [[0, -1, 1, 1, 0], [-1, 0, 0, 0, 1]]


def test_values_are_averaged_with_their_signs_before_the_worst_counts():
    values = torch.tensor([[[4.0, 1.0]], [[-4.0, 2.0]]])  # two re-fits, one person, two variables
    measured = combine(values, people([0, 1], protected=(SEX, Protected("old"))), signed=True)
    assert measured.score.tolist() == [1.5]  # 4 and -4 cancel
    assert measured.signed.tolist() == [1.5]
    assert measured.refits.tolist() == [[1.0, 2.0]]
    assert measured.variable.tolist() == [1]
    assert measured.klass.tolist() == [0]  # the other class of `old`


def test_the_sign_of_the_worst_output_is_kept():
    measured = combine(torch.tensor([[[0.2], [-0.7]]]), people(0, 1), signed=True)
    torch.testing.assert_close(measured.score, torch.tensor([0.2, 0.7]))
    torch.testing.assert_close(measured.signed, torch.tensor([0.2, -0.7]))
    assert measured.klass.tolist() == [1, 0]


def test_the_class_that_attained_the_score_is_named():
    values = torch.tensor([[[0.1, 0.2, -0.9, 0.3, 0.0], [0.1, 0.2, 0.0, 0.3, -2.0]]])
    measured = combine(values, people([0, 0, 30], [1, 2, 50], protected=(SEX, RACE, AGE)), signed=True)
    assert measured.variable.tolist() == [1, 2]
    assert measured.klass.tolist() == [1, -1]  # class b; a number has none


def test_tests_without_a_direction_have_no_sign_and_no_class():
    measured = combine(torch.tensor([[[3.0], [2.0]]]), people(0, 1), signed=False)
    assert measured.signed is None
    assert measured.score.tolist() == [3.0, 2.0]
    assert measured.klass.tolist() == [-1, -1]


def test_abstained_people_have_zeros_and_a_reason():
    values = torch.tensor([[[3.0], [NAN]], [[1.0], [2.0]]])
    measured = combine(values, people(0, 1), signed=True, abstained=torch.tensor([False, True]), reason="flat")
    assert measured.score.tolist() == [2.0, 0.0]
    assert measured.signed.tolist() == [2.0, 0.0]
    assert measured.refits.tolist() == [[3.0, 1.0], [0.0, 0.0]]
    assert measured.abstained.tolist() == [False, True]
    assert measured.reasons == (None, "flat")


def test_signed_values_of_people_without_a_known_group_are_abstained():
    data = people(0, NAN, NAN)
    flat = torch.tensor([False, False, True])
    measured = combine(torch.ones(1, 3, 1), data, signed=True, abstained=flat, reason="flat")
    assert measured.abstained.tolist() == [False, True, True]
    assert measured.reasons == (None, UNKNOWN, UNKNOWN)
    assert measured.score.tolist() == [1.0, 0.0, 0.0]


def test_values_without_a_direction_need_no_known_group():
    measured = combine(torch.ones(1, 2, 1), people(0, NAN), signed=False)
    assert not measured.abstained.any()
    assert measured.score.tolist() == [1.0, 1.0]


def test_interval_by_hand():
    measured = combine(torch.tensor([[[1.0]], [[3.0]]]), people(0), signed=True)
    # mean 2, sd sqrt(2) over sqrt(2) re-fits is 1, t(.95, 1) = 6.3138
    torch.testing.assert_close(measured.interval, torch.tensor([[2 - 6.3138, 2 + 6.3138]]), atol=1e-4, rtol=0)


def test_interval_of_five_refits_is_student_s():
    values = torch.randn(5, 7, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    measured = combine(values, people(0, 1, 0, 1, 0, 1, 0), signed=True)
    fits = values[:, :, 0]
    half = t.ppf(0.95, 4) * fits.std(0) / 5**0.5
    torch.testing.assert_close(measured.interval, torch.stack([fits.mean(0) - half, fits.mean(0) + half], dim=1))


def test_one_refit_has_no_interval():
    assert combine(torch.ones(1, 2, 1), people(0, 1), signed=True).interval is None


def test_counterfactual_is_the_mean_of_the_refits():
    rows = torch.tensor([[[1.0, 0.0]], [[3.0, 1.0]]])
    measured = combine(torch.ones(2, 1, 1), people(0), signed=True, counterfactuals=rows)
    assert measured.counterfactual.tolist() == [[2.0, 0.5]]
    assert combine(torch.ones(2, 1, 1), people(0), signed=True).counterfactual is None


@pytest.mark.parametrize("signed", [True, False])
def test_parts_are_joined_in_the_order_of_the_people(signed):
    generator = torch.Generator().manual_seed(1)
    data = people(*[i % 2 for i in range(9)])
    values, rows = torch.randn(3, 9, 1, generator=generator), torch.randn(3, 9, 2, generator=generator)
    gone = torch.arange(9) % 4 == 0

    def measured(at):
        return combine(
            values[:, at],
            data[at],
            signed=signed,
            abstained=gone[at],
            reason="flat",
            counterfactuals=rows[:, at],
            overshoot=rows[0, at, 0],
        )

    places = [torch.tensor([7, 0, 3]), torch.tensor([1, 2, 8, 4]), torch.tensor([5, 6])]
    joined, whole = join([measured(at) for at in places], places, 9), measured(torch.arange(9))
    for name in ("score", "signed", "variable", "klass", "refits", "abstained", "counterfactuals", "overshoot"):
        found, expected = getattr(joined, name), getattr(whole, name)
        assert (found is None) == (expected is None), name
        if expected is not None:
            torch.testing.assert_close(found, expected)
    assert joined.reasons == whole.reasons


def test_what_one_part_lacks_the_whole_lacks():
    data = people(0, 1)
    one = combine(torch.ones(1, 1, 1), data[:1], signed=True, overshoot=torch.ones(1))
    other = combine(torch.ones(1, 1, 1), data[1:], signed=True)
    assert join([one, other], [torch.tensor([0]), torch.tensor([1])], 2).overshoot is None
