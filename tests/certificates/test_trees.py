"""Tree ensembles along a path: every step, to the last bit, against the models themselves; thresholds in float32."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.tree import DecisionTreeRegressor
from torch import Tensor

from fairfox.certificates.certify import largest_on_path
from fairfox.certificates.path import path_numbers
from fairfox.certificates.trees import leaf_stretches, read_trees, rounded_to_float32
from fairfox.errors import ModelError
from fairfox.models.adapters import BlackBoxModel, as_model
from fairfox.models.protocol import Output
from tests.certificates.brute import GRID, at_points, beside

FEATURES = 6


@cache
def training() -> tuple[np.ndarray, np.ndarray]:
    """Return rows with numbers of every kind: any, halves, tenths, and one that is nearly constant."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, FEATURES))
    x[:, 1], x[:, 2], x[:, 3] = np.round(2 * x[:, 1]) / 2, np.round(x[:, 2], 1), 1e5 + 1e-3 * x[:, 3]
    return x, (x[:, 0] + x[:, 1] * x[:, 2] + 0.5 * rng.normal(size=600) > 0).astype(int)


def paths(people: int, *, seed: int = 1) -> tuple[Tensor, Tensor]:
    """Return people and where they go: some columns stay, some move by halves and tenths."""
    rng = np.random.default_rng(seed)
    here = training()[0][rng.integers(0, 600, people)]
    there = training()[0][rng.integers(0, 600, people)]
    there[:, 5] = here[:, 5]
    return torch.tensor(here), torch.tensor(there)


def steps(model: Any, here: Tensor, there: Tensor) -> Tensor:
    """Return every t at which somebody changes a leaf."""
    pieces = leaf_stretches(read_trees(model, 1), path_numbers(as_model(model), here, there))
    return torch.as_tensor(np.unique(pieces.first).view(np.float64))


@pytest.mark.parametrize(
    "estimator",
    [HistGradientBoostingClassifier(max_iter=200, max_leaf_nodes=8), RandomForestClassifier(200, random_state=0)],
)
def test_two_hundred_trees_equal_brute_force_and_points_beside_every_step(estimator: Any):
    model = estimator.fit(*training())
    here, there = paths(2)
    path = largest_on_path(model, here, there)
    for person in range(2):
        row = slice(person, person + 1)
        t = torch.cat([GRID, beside(steps(model, here[row], there[row]), steps=1)])
        assert path.largest[person] == at_points(as_model(model), here[row], there[row], t)[0]
    assert bool((path.largest >= at_points(as_model(model), here, there) - 1e-15).all())


def test_a_staircase_by_hand():
    x = np.arange(5.0)[:, None]
    model = DecisionTreeRegressor().fit(x, [0.0, 3.0, -1.0, 2.0, 1.0])  # steps at 0.5, 1.5, 2.5, 3.5
    here, there = torch.tensor([[0.0], [4.0], [2.0], [0.0]]), torch.tensor([[4.0], [0.0], [2.2], [0.5]])
    path = largest_on_path(model, here.double(), there.double())
    # back from 4 the values are 1, 2, -1, 3, 0: -1 and 3 are 2 away from 1, and -1 comes first
    assert path.end.tolist() == [1.0, -1.0, 0.0, 0.0]
    assert path.largest.tolist() == [3.0, 2.0, 0.0, 0.0]
    # the first t at which 4 t is above 0.5 once it is rounded to float32
    first = float(np.nextafter(np.float32(0.5), np.float32(1)))
    assert 0.125 < path.at[0] < first / 4


def test_columns_that_pass_at_the_same_moment_are_told_apart_by_their_last_bits():
    corners = np.array([[0.0, 0.0], [0.0, 0.8], [0.8, 0.0], [0.8, 0.8]])
    model = HistGradientBoostingClassifier(
        max_iter=1, min_samples_leaf=1, max_bins=4, learning_rate=1.0, max_depth=2, l2_regularization=0.0
    ).fit(np.repeat(corners, [5, 6, 7, 5], axis=0), np.repeat([0, 1, 1, 0], [5, 6, 7, 5]))
    assert model.predict(corners).tolist() == [0, 1, 1, 0]  # either of two, and both split at 0.4
    starts = np.random.default_rng(0).uniform(0.0, 0.39, size=(300, 2))
    here, there = torch.tensor(starts), torch.tensor(0.8 - starts)  # both columns are at 0.4 when t = 1/2
    path = largest_on_path(model, here, there)
    t = beside(torch.full((1,), 0.5, dtype=torch.float64), steps=40)
    brute = at_points(as_model(model), here, there, torch.cat([GRID[::100], t]))
    assert bool((path.largest >= brute).all())
    alone = (path.largest > 0.1).sum()
    assert 0 < alone < 300  # for some one column is over for a few floating-point numbers, for others never
    row = int((path.largest > 0.1).nonzero()[0, 0])
    point = here[row] + path.at[row] * (there - here)[row]
    assert bool((point[0] > 0.4) != (point[1] > 0.4))


@cache
def small_forest() -> RandomForestClassifier:
    return RandomForestClassifier(10, max_depth=4, random_state=0).fit(*training())


def test_every_step_changes_some_leaf_and_nothing_changes_between():
    model = small_forest()
    here, there = paths(1, seed=4)
    t = steps(model, here, there)
    assert len(t) > 5

    def leaves(t: Tensor) -> np.ndarray:
        return model.apply((here + t[:, None] * (there - here)).numpy())

    before = torch.nextafter(t[1:], torch.tensor(0.0, dtype=torch.float64))
    found, last = leaves(t), leaves(before)
    assert (found[:-1] == last).all()
    assert (found[1:] != last).any(axis=1).all()


def test_trees_that_are_not_the_models_are_noticed():
    model, other = small_forest(), RandomForestClassifier(10, max_depth=4, random_state=5).fit(*training())
    here, there = paths(20)
    target = BlackBoxModel(
        lambda rows: -model.predict_proba(rows), decoder=None, kind="encoded", output=Output(column=1)
    )
    assert torch.equal(  # the opposite of the model's answers rises where they fall
        largest_on_path(model, here, there, target=target).largest, largest_on_path(model, here, there).largest
    )
    with pytest.raises(ModelError, match="rank people differently"):
        largest_on_path(other, here, there, target=target)


THRESHOLDS = st.floats(-1e30, 1e30, allow_nan=False)


@given(THRESHOLDS)
def test_the_limit_is_the_last_float64_that_rounds_to_the_left(threshold: float):
    limit = rounded_to_float32(np.array([threshold]))[0]
    assert float(np.float32(limit)) <= threshold
    assert float(np.float32(np.nextafter(limit, np.inf))) > threshold
