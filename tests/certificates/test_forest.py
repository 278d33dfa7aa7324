"""The one form of all trees: thresholds that say what rounding to float32 does."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fairfox.certificates.forest import LEAF, Tree, gathered, rounded_to_float32, seen_in_float32

NUMBERS = st.floats(-1e30, 1e30, allow_nan=False)


def stump(threshold: float, left: float, right: float) -> Tree:
    """Return a tree that splits column 0 once."""
    return Tree(
        np.array([0, LEAF, LEAF]),
        np.array([threshold, 0.0, 0.0]),
        np.array([1, -1, -1]),
        np.array([2, -1, -1]),
        np.array([True, False, False]),
        np.array([0.0, left, right]),
    )


@given(NUMBERS)
def test_the_limit_is_the_last_float64_that_rounds_to_the_left(threshold: float):
    limit = rounded_to_float32(np.array([threshold]))[0]
    assert float(np.float32(limit)) <= threshold
    assert float(np.float32(np.nextafter(limit, np.inf))) > threshold


def test_ties_go_to_the_even_neighbour():
    one, next_one = np.float32(1.0), np.nextafter(np.float32(1.0), np.float32(2.0))
    middle = (float(one) + float(next_one)) / 2
    assert rounded_to_float32(np.array([1.0]))[0] == middle  # rounds to 1, which is even
    third = np.nextafter(next_one, np.float32(2.0))  # even again: the middle rounds up, away from the odd one
    assert rounded_to_float32(np.array([float(next_one)]))[0] == np.nextafter((float(next_one) + float(third)) / 2, 0)


def test_trees_are_put_one_after_the_other():
    ensemble = gathered([stump(1.0, -1.0, 2.0), stump(3.0, 5.0, -7.0)])
    assert ensemble.roots.tolist() == [0, 3]
    assert ensemble.nodes.left[[0, 3]].tolist() == [1, 4]
    assert ensemble.nodes.right[[0, 3]].tolist() == [2, 5]
    assert ensemble.columns.tolist() == [0]
    np.testing.assert_allclose(ensemble.slack, 1e-9 * (2 + 7))  # of the largest leaves
    assert gathered([stump(1.0, -1.0, 2.0)], comparable=False).slack == np.inf
    float32 = gathered([stump(1.0, -1.0, 2.0)] * 4, precision=np.float32).slack
    np.testing.assert_allclose(float32, 4 * 8 * 2.0**-23)


def test_only_columns_in_float32_get_other_limits():
    ensemble = gathered([stump(0.1, -1.0, 2.0)])
    assert seen_in_float32(ensemble, np.array([False])) is ensemble
    rounded = seen_in_float32(ensemble, np.array([True])).nodes.threshold
    assert rounded[0] == rounded_to_float32(np.array([0.1]))[0] != 0.1
    assert rounded[1:].tolist() == [0.0, 0.0]
