import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fairfox.data.contrasts import HIGHER, LOWER, Contrast, concerned, destinations, moves
from fairfox.data.dataset import Dataset, Feature, Protected

NAN = float("nan")
SEX = Protected("sex", "binary", ("female", "male"))
RACE = Protected("race", "categorical", ("a", "b", "c"))
AGE = Protected("age", "continuous", ())


def people(*columns: list[float], protected: tuple[Protected, ...]) -> Dataset:
    c = torch.tensor(columns).T
    return Dataset(x=torch.zeros(len(c), 1), c=c, protected=protected, features=(Feature("x0", "continuous", 0, 1),))


def same(found: torch.Tensor, expected: list[float]) -> None:
    torch.testing.assert_close(found, torch.tensor(expected, dtype=found.dtype), equal_nan=True)


def test_a_map_goes_to_the_other_group_to_every_class_and_both_ways_along_a_number():
    assert moves([SEX, RACE, AGE]) == (
        Contrast(0, None),
        *(Contrast(1, k) for k in range(3)),
        Contrast(2, HIGHER),
        Contrast(2, LOWER),
    )


def test_a_number_goes_one_standard_deviation_up_and_down():
    data = people([1.0, -1.0, 40.0, NAN], protected=(AGE,))  # also where the value itself is 1 or -1
    same(destinations(data, Contrast(0, HIGHER)), [1, 1, 1, NAN])
    same(destinations(data, Contrast(0, LOWER)), [-1, -1, -1, NAN])


def test_each_variable_is_read_from_its_own_column():
    data = people([0.0, 1.0, 0.0], [2.0, NAN, 0.0], [30.0, 40.0, NAN], protected=(SEX, RACE, AGE))
    same(destinations(data, Contrast(0)), [1, 0, 1])
    same(destinations(data, Contrast(1, 0)), [0, NAN, NAN])
    same(destinations(data, Contrast(2, LOWER)), [-1, -1, NAN])
    assert concerned(data, Contrast(2)).tolist() == [True, True, False]


@settings(deadline=None)
@given(codes=st.lists(st.integers(0, 3), min_size=1, max_size=20), reference=st.one_of(st.none(), st.integers(0, 3)))
def test_who_knows_their_class_meets_every_other_one_or_the_reference_group_once(
    codes: list[int], reference: int | None
):
    variable = Protected("v", "categorical", tuple("abcd"), reference=reference)
    data = people([float(k) for k in codes], protected=(variable,))
    where = torch.stack([destinations(data, contrast) for contrast in moves([variable])], dim=1)  # (N, 4)
    for own, found in zip(codes, where.tolist(), strict=True):
        visited = {int(to) for to in found if to == to}
        others = set(range(4)) - {own}
        assert visited == (others if reference is None or own == reference else {reference})
