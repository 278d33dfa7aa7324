import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fairfox.weighted import mean, of_people, share


def test_without_weights_everyone_counts_once():
    assert of_people(None, 3).tolist() == [1.0, 1.0, 1.0]
    assert of_people(torch.tensor([2.0, 0.5]), 2).tolist() == [2.0, 0.5]


def test_the_mean_counts_people_by_their_weights():
    assert mean(np.array([1.0, 4.0]), np.array([3.0, 1.0])) == pytest.approx(1.75)  # (3 + 4) / 4
    assert math.isnan(mean(np.array([]), np.array([])))
    assert mean(np.array([5.0]), np.array([0.0]), nobody=0.0) == 0.0


def test_the_share_is_that_of_judged_people():
    marked, abstained = torch.tensor([True, False, True, True]), torch.tensor([False, False, False, True])
    assert share(marked, abstained, None) == pytest.approx(2 / 3)
    assert share(marked, abstained, torch.tensor([1.0, 2.0, 3.0, 9.0])) == pytest.approx(4 / 6)
    assert share(marked, torch.ones(4, dtype=torch.bool), None) == 0.0


@given(st.lists(st.tuples(st.floats(-1e3, 1e3), st.integers(1, 5)), min_size=1, max_size=20))
def test_a_weight_stands_for_as_many_people(people: list[tuple[float, int]]):
    values, weights = (np.array(each, dtype=np.float64) for each in zip(*people, strict=True))
    repeated = np.repeat(values, weights.astype(int))
    assert mean(values, weights) == pytest.approx(repeated.mean(), abs=1e-9)
