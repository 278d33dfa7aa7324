"""Tree ensembles along the way: every step, to the last bit, against the models themselves."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.tree import DecisionTreeRegressor
from torch import Tensor

from fairfox.certificates.ensembles import read_trees
from fairfox.certificates.inputs import numbers_of
from fairfox.certificates.trees import walk
from fairfox.certificates.way import largest_on_the_way
from fairfox.errors import ModelError
from fairfox.models.blackbox import BlackBoxModel
from fairfox.models.output import Output
from fairfox.models.protocol import predict
from fairfox.models.wrap import as_model
from tests.certificates.brute import GRID, at_points, beside

FEATURES = 6


@cache
def training() -> tuple[np.ndarray, np.ndarray]:
    """Return rows with numbers of every kind: any, halves, tenths, and one that is nearly constant."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, FEATURES))
    x[:, 1], x[:, 2], x[:, 3] = np.round(2 * x[:, 1]) / 2, np.round(x[:, 2], 1), 1e5 + 1e-3 * x[:, 3]
    return x, (x[:, 0] + x[:, 1] * x[:, 2] + 0.5 * rng.normal(size=600) > 0).astype(int)


def ways(people: int, *, seed: int = 1) -> tuple[Tensor, Tensor]:
    """Return people and where they go: some columns stay, some move by halves and tenths."""
    rng = np.random.default_rng(seed)
    here = training()[0][rng.integers(0, 600, people)]
    there = training()[0][rng.integers(0, 600, people)]
    there[:, 5] = here[:, 5]
    return torch.tensor(here), torch.tensor(there)


def steps(model: Any, here: Tensor, there: Tensor) -> Tensor:
    """Return every t at which somebody changes a leaf."""
    pieces = walk(read_trees(model, 1), numbers_of(as_model(model), here, there))
    return torch.as_tensor(np.unique(pieces.first).view(np.float64))


@pytest.mark.parametrize(
    "estimator",
    [HistGradientBoostingClassifier(max_iter=200, max_leaf_nodes=8), RandomForestClassifier(200, random_state=0)],
)
def test_two_hundred_trees_equal_brute_force_and_points_beside_every_step(estimator: Any):
    model = estimator.fit(*training())
    here, there = ways(2)
    way = largest_on_the_way(model, here, there)
    for person in range(2):
        row = slice(person, person + 1)
        t = torch.cat([GRID, beside(steps(model, here[row], there[row]), steps=1)])
        assert way.largest[person] == at_points(as_model(model), here[row], there[row], t)[0]
    assert bool((way.largest >= at_points(as_model(model), here, there) - 1e-15).all())


def test_a_staircase_by_hand():
    x = np.arange(5.0)[:, None]
    model = DecisionTreeRegressor().fit(x, [0.0, 3.0, -1.0, 2.0, 1.0])  # steps at 0.5, 1.5, 2.5, 3.5
    here, there = torch.tensor([[0.0], [4.0], [2.0], [0.0]]), torch.tensor([[4.0], [0.0], [2.2], [0.5]])
    way = largest_on_the_way(model, here.double(), there.double())
    # back from 4 the values are 1, 2, -1, 3, 0: -1 and 3 are 2 away from 1, and -1 comes first
    assert way.signed.tolist() == [3.0, -2.0, 0.0, 0.0]
    assert way.end.tolist() == [1.0, -1.0, 0.0, 0.0]
    assert way.largest.tolist() == [3.0, 2.0, 0.0, 0.0]
    # the first t at which 4 t is above 0.5 once it is rounded to float32
    first = float(np.nextafter(np.float32(0.5), np.float32(1)))
    assert 0.125 < way.at[0] < first / 4


def test_columns_that_pass_at_the_same_moment_are_told_apart_by_their_last_bits():
    corners = np.array([[0.0, 0.0], [0.0, 0.8], [0.8, 0.0], [0.8, 0.8]])
    model = HistGradientBoostingClassifier(
        max_iter=1, min_samples_leaf=1, max_bins=4, learning_rate=1.0, max_depth=2, l2_regularization=0.0
    ).fit(np.repeat(corners, [5, 6, 7, 5], axis=0), np.repeat([0, 1, 1, 0], [5, 6, 7, 5]))
    assert model.predict(corners).tolist() == [0, 1, 1, 0]  # either of two, and both split at 0.4
    starts = np.random.default_rng(0).uniform(0.0, 0.39, size=(300, 2))
    here, there = torch.tensor(starts), torch.tensor(0.8 - starts)  # both columns are at 0.4 when t = 1/2
    way = largest_on_the_way(model, here, there)
    t = beside(torch.full((1,), 0.5, dtype=torch.float64), steps=40)
    brute = at_points(as_model(model), here, there, torch.cat([GRID[::100], t]))
    assert bool((way.largest >= brute).all())
    alone = (way.largest > 0.1).sum()
    assert 0 < alone < 300  # for some one column is over for a few floating-point numbers, for others never
    row = int((way.largest > 0.1).nonzero()[0, 0])
    point = here[row] + way.at[row] * (there - here)[row]
    assert bool((point[0] > 0.4) != (point[1] > 0.4))


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10_000), batch=st.integers(1, 12))
def test_neither_order_nor_batches_matter(seed: int, batch: int):
    model = small_forest()
    here, there = ways(10, seed=seed)
    way = largest_on_the_way(model, here, there)
    order = torch.randperm(10, generator=torch.Generator().manual_seed(seed))
    mixed = largest_on_the_way(model, here[order], there[order], batch_size=batch)
    assert torch.equal(mixed.signed, way.signed[order])
    assert torch.equal(mixed.at, way.at[order])
    at = here + way.at[:, None] * (there - here)
    assert torch.equal(predict(as_model(model), at) - predict(as_model(model), here), way.signed)


@cache
def small_forest() -> RandomForestClassifier:
    return RandomForestClassifier(10, max_depth=4, random_state=0).fit(*training())


def test_every_step_changes_some_leaf_and_nothing_changes_between():
    model = small_forest()
    here, there = ways(1, seed=4)
    t = steps(model, here, there)
    assert len(t) > 5

    def leaves(t: Tensor) -> np.ndarray:
        return model.apply((here + t[:, None] * (there - here)).numpy())

    before = torch.nextafter(t[1:], torch.tensor(0.0, dtype=torch.float64))
    found, last = leaves(t), leaves(before)
    assert (found[:-1] == last).all()
    assert (found[1:] != last).any(axis=1).all()


def test_missing_numbers_go_where_the_model_sends_them():
    x, y = training()
    x = np.where(np.random.default_rng(1).random(x.shape) < 0.2, np.nan, x)
    model = HistGradientBoostingClassifier(max_iter=20).fit(x, y)
    here, there = (torch.tensor(x[rows]) for rows in (range(40), range(40, 80)))
    gone = here.isnan()
    there = torch.where(gone, torch.nan, torch.where(there.isnan(), here, there))
    there[0, 0] = torch.where(gone[0, 0], 1.0, torch.nan)  # missing at one end only
    way = largest_on_the_way(model, here, there)
    assert way.certified.tolist() == [False] + [True] * 39
    assert way.reasons[0] == "a value is missing at one end of the way only"
    t = GRID[::10]
    torch.testing.assert_close(
        way.largest[1:6],
        at_points(as_model(model), here[1:6], there[1:6], torch.cat([t, way.at[1:6]])),
        atol=1e-3,
        rtol=0,
    )
    assert bool((way.largest[1:6] >= at_points(as_model(model), here[1:6], there[1:6], t)).all())


def test_trees_that_are_not_the_models_are_noticed():
    model, other = small_forest(), RandomForestClassifier(10, max_depth=4, random_state=5).fit(*training())
    here, there = ways(20)
    target = BlackBoxModel(
        lambda rows: -model.predict_proba(rows), decoder=None, kind="encoded", output=Output(column=1)
    )
    assert torch.equal(  # the opposite of the model's answers rises where they fall
        largest_on_the_way(model, here, there, target=target).largest, largest_on_the_way(model, here, there).largest
    )
    with pytest.raises(ModelError, match="do not order people"):
        largest_on_the_way(other, here, there, target=target)


def test_nobody_is_certified_in_no_time():
    way = largest_on_the_way(small_forest(), torch.zeros(0, FEATURES), torch.zeros(0, FEATURES))
    assert way.largest.shape == way.at.shape == (0,)
    assert way.reasons == ()
