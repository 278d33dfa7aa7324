"""From values to a Measurement: averages, worst cases, signs, abstention, joining parts."""

from dataclasses import replace

import pytest
import torch

from fairfox.data.contrasts import HIGHER, LOWER, Contrast, derivatives, moves
from fairfox.data.dataset import Dataset, Protected
from fairfox.fairtests.protocol import NOBODY, away_from_own, combine, join_measurements
from fairfox.maps.protocol import UNKNOWN

SEX, RACE = Protected("sex"), Protected("race", "categorical", ("a", "b", "c"))
AGE = Protected("age", "continuous", ())
NAN = float("nan")


def people(*c, protected=(SEX,)):
    groups = torch.tensor(c, dtype=torch.float32)
    return Dataset.from_arrays(torch.zeros(len(c), 2), groups.reshape(len(c), -1), protected=protected)


def measured_of(values, data, **options):
    """Return the Measurement of derivatives, signed by default."""
    return combine(values, data, **{"contrasts": derivatives(data.protected), "signed": True} | options)


def test_derivatives_are_turned_away_from_the_own_group():
    data = people([0, 0, 30], [1, 2, 50], protected=(SEX, RACE, AGE))
    # sex: -1 for class 1; race: -1 in the own class's column; age: never
    assert away_from_own(data, derivatives(data.protected)).tolist() == [[1, -1, 1, 1, 1], [-1, 1, 1, -1, 1]]


def test_a_variable_that_is_unknown_does_not_count():
    data = people([NAN, 0, NAN], [1, NAN, 50], protected=(SEX, RACE, AGE))
    expected = torch.tensor([[NAN, -1, 1, 1, NAN], [-1, NAN, NAN, NAN, 1]])
    torch.testing.assert_close(away_from_own(data, derivatives(data.protected)), expected, equal_nan=True)


def test_with_a_reference_group_only_the_contrast_to_it_or_from_it_counts():
    race = Protected("race", "categorical", ("a", "b", "c"), reference=1)
    data = people(0, 1, 2, protected=(race,))
    expected = torch.tensor([[NAN, 1, NAN], [1, NAN, 1], [NAN, 1, NAN]])
    torch.testing.assert_close(away_from_own(data, derivatives([race])), expected, equal_nan=True)


def test_values_are_averaged_with_their_signs_before_the_worst_counts():
    values = torch.tensor([[[4.0, 1.0]], [[-4.0, 2.0]]])  # two refits, one person, two variables
    measured = measured_of(values, people([0, 1], protected=(SEX, Protected("old"))))
    assert measured.score.tolist() == [1.5]  # 4 and -4 cancel
    assert measured.effect.tolist() == [1.5]
    assert measured.refits.tolist() == [[1.0, 2.0]]
    assert measured.variable.tolist() == [1]
    assert measured.klass.tolist() == [0]  # the other class of `old`
    assert measured.values.tolist() == [[0.0, 1.5]]


def test_the_class_that_attained_the_score_is_named():
    values = torch.tensor([[[0.1, 0.2, -0.9, 0.3, 0.0], [0.1, 0.2, 0.0, 0.3, -2.0]]])
    measured = measured_of(values, people([0, 0, 30], [1, 2, 50], protected=(SEX, RACE, AGE)))
    assert measured.variable.tolist() == [1, 2]
    assert measured.klass.tolist() == [1, -1]  # class b; a number has none


def test_each_variable_has_a_worst_case_of_its_own():
    data = people([0, 0, 30], [1, 2, 50], protected=(SEX, RACE, AGE))
    values = torch.tensor([[[0.1, NAN, -0.9, 0.3, 0.0, -0.2], [NAN, 0.2, 0.0, NAN, -2.0, 1.0]]])
    measured = measured_of(values, data, contrasts=moves(data.protected), reasons="off range")
    race, sex, age = (measured.of_variable(v, data) for v in (1, 0, 2))
    torch.testing.assert_close(race.effect, torch.tensor([-0.9, 0.2]))
    assert race.klass.tolist() == [1, 0]
    assert sex.abstained.tolist() == [False, True]
    assert sex.reasons == (None, NOBODY)
    assert age.klass.tolist() == [LOWER, HIGHER]
    torch.testing.assert_close(age.effect, torch.tensor([-0.2, -2.0]))


def test_a_test_that_knows_no_variable_says_the_same_of_each():
    measured = combine(torch.tensor([[[3.0], [2.0]]]), people(0, 1), contrasts=(), signed=False)
    assert measured.of_variable(0, people(0, 1)) is measured
    assert measured.scaled([0.5], people(0, 1)) is measured


def test_variables_are_scaled_before_the_worst_counts():
    data = people([0, 0], [1, 1], protected=(SEX, Protected("old")))
    measured = measured_of(torch.tensor([[[0.5, 0.4], [-0.5, NAN]]]), data).scaled([0.1, 0.5], data)
    torch.testing.assert_close(measured.effect, torch.tensor([0.2, -0.05]))
    assert measured.variable.tolist() == [1, 0]


def test_tests_without_a_direction_have_no_sign_and_no_class():
    measured = combine(torch.tensor([[[3.0], [2.0]]]), people(0, 1), contrasts=(), signed=False)
    assert measured.effect is None
    assert measured.score.tolist() == [3.0, 2.0]
    assert measured.klass.tolist() == [-1, -1]


def test_abstained_people_have_zeros_and_a_reason():
    values = torch.tensor([[[3.0], [NAN]], [[1.0], [2.0]]])  # one refit that does not know is enough
    measured = measured_of(values, people(0, 1), reasons="flat")
    assert measured.score.tolist() == [2.0, 0.0]
    assert measured.effect.tolist() == [2.0, 0.0]
    assert measured.refits.tolist() == [[3.0, 1.0], [0.0, 0.0]]
    assert measured.abstained.tolist() == [False, True]
    assert measured.reasons == (None, "flat")


def test_a_contrast_that_cannot_be_judged_leaves_the_others():
    values = torch.tensor([[[NAN, 0.3, NAN], [NAN, NAN, NAN]]])
    measured = measured_of(values, people(0, 1, protected=(RACE,)), reasons=[None, "too few"])
    assert measured.abstained.tolist() == [False, True]
    assert measured.klass.tolist()[0] == 1
    assert measured.reasons == (None, "too few")


def test_people_without_a_known_group_are_abstained_for_that_reason():
    values = torch.tensor([[[1.0], [NAN], [NAN]]])
    measured = measured_of(values, people(0, NAN, 1), reasons="flat")
    assert measured.reasons == (None, UNKNOWN, "flat")
    assert measured.score.tolist() == [1.0, 0.0, 0.0]


@pytest.mark.parametrize("signed", [True, False])
def test_parts_are_joined_in_the_order_of_the_people(signed):
    generator = torch.Generator().manual_seed(1)
    data = people(*[i % 2 for i in range(9)])
    values, rows = torch.randn(3, 9, 1, generator=generator), torch.randn(3, 9, 2, generator=generator)
    values[0, torch.arange(9) % 4 == 0] = NAN

    def measured(at):
        found = measured_of(values[:, at], data[at], signed=signed, reasons="flat", overshoot=rows[0, at, 0])
        return replace(found, counterfactuals=rows[:, at])

    places = [torch.tensor([7, 0, 3]), torch.tensor([1, 2, 8, 4]), torch.tensor([5, 6])]
    joined, whole = join_measurements([measured(at) for at in places], places, 9), measured(torch.arange(9))
    for name in ("score", "effect", "variable", "klass", "refits", "abstained", "counterfactuals", "overshoot",
                 "each", "worst"):  # fmt: skip
        found, expected = getattr(joined, name), getattr(whole, name)
        assert (found is None) == (expected is None), name
        if expected is not None:
            torch.testing.assert_close(found, expected, equal_nan=True)
    assert joined.contrasts == whole.contrasts == (Contrast(0),)
    assert joined.reasons == whole.reasons


def test_what_one_part_lacks_the_whole_lacks():
    data = people(0, 1)
    one = measured_of(torch.ones(1, 1, 1), data[:1], overshoot=torch.ones(1))
    other = measured_of(torch.ones(1, 1, 1), data[1:])
    assert join_measurements([one, other], [torch.tensor([0]), torch.tensor([1])], 2).overshoot is None
