from dataclasses import replace

import pytest
import torch

from fairfox.data.dataset import Dataset, Protected
from fairfox.maps.surroundings import Surroundings, look_around

RACE, AGE = Protected("race", "categorical", ("a", "b")), Protected("age", "continuous", ())
X = torch.tensor([[0.0, 1.0], [2.0, 1.0], [4.0, 3.0], [6.0, 3.0]]).double()
PLAIN = {"shrink": 0.0, "others": [], "hold_others": False, "legitimate": (), "seed": 0}


def seen(p: Protected, c: list[float], **options: object) -> Surroundings:
    data = Dataset.from_arrays(X, torch.tensor(c).double()[:, None], protected=[p])
    return look_around(data, 0, **PLAIN | {"metric": "between"} | options)


def test_classes_are_as_far_apart_as_their_means():
    gaps = seen(RACE, [0, 0, 1, 1]).gaps
    torch.testing.assert_close(gaps, torch.tensor([[1.0, 1.0], [5.0, 3.0]]).double())


def test_features_go_with_a_number_by_their_slope():
    here = seen(AGE, [20, 20, 40, 40])
    torch.testing.assert_close(here.gaps, torch.tensor([[0.2, 0.1]]).double())  # 4 and 2 in 20 years
    assert here.spread == pytest.approx(10.0)
    assert here.values.tolist() == [20.0, 40.0]


def test_numbers_are_reached_in_standard_deviations_within_what_was_seen():
    here = seen(AGE, [20, 30, 40, 50])
    ages, steps = torch.tensor([30.0, 50.0, 20.0]).double(), torch.tensor([1.0, 1.0, -1.0]).double()
    there = here.reached(ages, steps)
    assert float(there[0]) == pytest.approx(30 + 125**0.5)
    assert there[1:].isnan().all()
    classes = torch.tensor([1.0, 0.0])
    assert seen(RACE, [0, 0, 1, 1]).reached(1 - classes, classes) is classes


def test_columns_that_do_not_move_along_are_not_in_the_metric():
    here = replace(seen(RACE, [0, 0, 1, 1], metric="covariance"), hidden=torch.tensor([False, True]))
    matrix = here.metric("covariance", here.gaps[0])
    assert float(matrix[0, 0]) > 0
    assert matrix[1].tolist() == matrix[:, 1].tolist() == [0.0, 0.0]
    assert float(here.covariance[1, 1]) > 0  # which is left as it was
    assert seen(RACE, [0, 0, 1, 1], metric="identity").metric("identity", here.gaps[0]) is None
