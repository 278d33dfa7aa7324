"""Optimal transport between groups."""

import sys
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
import torch
from populations import block, encoded, individuals, normal, one_hot, people
from scipy.optimize import linprog
from torch import Tensor

import fairfox.maps.transport as transport
from fairfox.data.dataset import Dataset, Feature, Protected
from fairfox.errors import MissingExtraError, OptionError
from fairfox.maps.transport import TransportMap, assigned_plan, simplex_plan

RACE = Protected("race", "categorical", ("a", "b", "c"))
needs_pot = pytest.mark.skipif(find_spec("ot") is None, reason="POT is not installed")
SOLVERS = [pytest.param("pot", marks=needs_pot), "scipy"]


def two_groups(first: Tensor, second: Tensor, **fields: Any) -> Dataset:
    return individuals(torch.cat([first, second]), c=[0.0] * len(first) + [1.0] * len(second), **fields)


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_group_that_is_another_one_shifted_and_shuffled_is_paired_with_it_row_by_row(solver: str):
    first, shift = normal(150, 4), torch.tensor([0.5, -1.0, 0.2, 2.0])
    order = torch.randperm(150, generator=torch.Generator().manual_seed(1))
    data = two_groups(first, (first + shift)[order])
    rows = TransportMap(solver=solver).fit(data).map(data).rows
    assert torch.equal(rows[:150], first + shift)
    assert torch.equal(rows[150:], first[order])


def test_the_squared_l1_distance_decides():
    # straight: 2² + 0² = 4; crossed: 1² + 1² = 2, though the sums of distances are the same
    data = two_groups(torch.tensor([[0.0], [1.0]]), torch.tensor([[1.0], [2.0]]))
    fitted = TransportMap(standardise=False).fit(data)
    assert fitted.map(data).rows[:, 0].tolist() == [1, 2, 0, 1]
    assert fitted.checks()["mean_cost"] == 1.0
    # over both columns: (1 + 1)² = 4, where squares of each column would sum to 2
    data = two_groups(torch.tensor([[0.0, 0.0]]), torch.tensor([[1.0, 1.0]]))
    assert TransportMap(standardise=False).fit(data).checks()["mean_cost"] == 4.0


@pytest.mark.parametrize("solver", SOLVERS)
def test_the_order_of_rows_does_not_matter(solver: str):
    data = encoded(people(90))[1][:85]
    order = torch.randperm(85, generator=torch.Generator().manual_seed(0))
    for changed in ({}, {"exact_up_to": 20}):
        rows = TransportMap(solver=solver, **changed).fit(data).map(data).rows
        assert torch.equal(TransportMap(solver=solver, **changed).fit(data[order]).map(data[order]).rows, rows[order])


def test_people_who_are_alike_share_their_partners():
    # the two at 0 are paired with 10 and 14, whoever of them with whom: both get 12
    data = two_groups(torch.tensor([[0.0], [0.0], [5.0]]), torch.tensor([[14.0], [20.0], [10.0]]))
    assert TransportMap().fit(data).map(data).rows[:, 0].tolist() == [12, 12, 20, 0, 5, 0]


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_weight_counts_as_so_many_people(solver: str):
    once = two_groups(normal(6, 2), normal(8, 2, seed=1))
    times = torch.tensor([1, 2, 3, 1, 0, 1, 1, 1, 4, 1, 1, 1, 2, 1])
    weighted, repeated = replace(once, weights=times.double()), once[torch.arange(14).repeat_interleave(times)]
    rows = TransportMap(solver=solver).fit(weighted).map(once).rows
    torch.testing.assert_close(rows, TransportMap(solver=solver).fit(repeated).map(once).rows)


@pytest.mark.parametrize("solver", SOLVERS)
def test_who_stands_for_a_hundredth_of_a_person_goes_where_the_others_go(solver: str):
    x = normal(30, 2)
    light = torch.arange(30) % 2 == 0
    weights = torch.where(light, 0.01, 3.0).double().repeat(2)
    data = two_groups(x, x + 5, weights=weights)
    fitted = TransportMap(solver=solver).fit(data)
    mapped = fitted.map(data)
    assert mapped.rows.isfinite().all()
    assert not mapped.abstained.any()
    torch.testing.assert_close(mapped.rows[:30], x + 5)
    torch.testing.assert_close(mapped.rows[30:], x)
    assert fitted.checks()["people_paired"] == pytest.approx(1.0, abs=0.01)
    assert fitted.checks()["spread_kept"] == pytest.approx(1.0, abs=0.01)


def test_people_who_were_not_fitted_on_move_as_their_nearest_of_the_own_group():
    data = two_groups(torch.tensor([[0.0], [10.0]]), torch.tensor([[3.0], [11.0]]))  # 0 moves by 3, 10 by 1
    new = individuals(torch.tensor([[1.0], [4.0], [8.0], [20.0], [4.0]]), c=[0, 0, 0, 0, 1])
    assert TransportMap().fit(data).map(new).rows[:, 0].tolist() == [4, 7, 9, 21, 1]


def test_groups_that_do_not_differ_leave_everyone_alone():
    x = normal(40, 3)
    fitted = TransportMap().fit(two_groups(x, x))
    new = individuals(normal(30, 3, seed=5))
    assert torch.equal(fitted.map(new).rows, new.x)


def test_categories_become_the_distribution_over_partners():
    # all of group 0 are at "a"; half of the others are at "b", and everyone has partners of both kinds
    x = one_hot([0, 0, 0, 1], 2)
    data = individuals(x, c=[0, 0, 1, 1], features=(block("job", "ab"),))
    assert TransportMap().fit(data).map(data).rows.tolist() == [[0.5, 0.5], [0.5, 0.5], [1, 0], [1, 0]]


def test_mapped_blocks_are_distributions_and_say_how_far_they_left():
    _, data = encoded(people(200))
    out = TransportMap(exact_up_to=20).fit(data).map(data)
    job = next(f for f in data.features if f.name == "job")
    torch.testing.assert_close(out.rows[:, job.columns].sum(1), torch.ones(200).double())
    assert (out.rows[:, job.columns] >= 0).all()
    assert float(out.overshoot.max()) <= 1.0


GAP = (Feature("debt", "continuous", 0, 2), Feature("age", "continuous", 2, 3))


def test_a_missing_number_is_that_of_the_partner():
    # value, is it missing, age; partners are the same age
    x = torch.tensor([[0.0, 1, 1], [2, 0, 9], [3, 0, 1], [0, 1, 9]]).double()
    data = individuals(x, c=[0, 0, 1, 1], features=GAP)
    assert TransportMap(standardise=False).fit(data).map(data).rows.tolist() == [
        [3, 0, 1],  # missing before, known after
        [0, 1, 9],  # and the other way round
        [0, 1, 1],
        [2, 0, 9],
    ]


def test_only_known_numbers_make_a_mean_and_move_a_neighbour():
    x = torch.tensor([[1.0, 0, 0], [4, 0, 0], [6, 0, 0], [0, 1, 0]]).double()
    data = individuals(x, c=[0, 1, 1, 1], features=GAP)
    fitted = TransportMap(standardise=False).fit(data)
    new = individuals(torch.tensor([[2.0, 0, 0], [0, 1, 0]]).double(), c=[0, 0], features=GAP)
    # partners of the one person: 4, 6 and a missing one, of which a third; so they stay known, at the mean of 4 and 6
    assert fitted.map(data).rows[0].tolist() == pytest.approx([5, 0, 0])
    # moved by 4; who lacks the number is near the same person, and lacks it a third more: still
    torch.testing.assert_close(fitted.map(new).rows, torch.tensor([[6.0, 0, 0], [0, 1, 0]]).double())


def three_groups(**changes: Any) -> Dataset:
    x = normal(20, 2)
    c = torch.arange(3).repeat_interleave(20)
    return individuals(torch.cat([x, x + 1, x - 2]), c=c.double(), **changes)


def test_between_many_groups_everyone_goes_to_their_destination():
    data = replace(three_groups(), protected=(RACE,))
    fitted = TransportMap().fit(data)
    own, shift = data.c[:, 0], torch.tensor([0.0, 1.0, -2.0]).double()
    for to in (0, 1, 2):
        out = fitted.map(data, torch.full((60,), float(to)))
        assert out.abstained.tolist() == (own == to).tolist()
        torch.testing.assert_close(out.rows, data.x + (shift[to] - shift[own.long()])[:, None])
    mixed = fitted.map(data, (own + 1) % 3)
    torch.testing.assert_close(mixed.rows, torch.cat([data.x[20:], data.x[:20]]))


@pytest.mark.parametrize("solver", SOLVERS)
def test_large_groups_are_sampled_by_seed(solver: str):
    x = normal(300, 2)
    data = two_groups(x, x + 1)
    rows, again, other = (
        TransportMap(solver=solver, exact_up_to=100, seed=s).fit(data).map(data).rows for s in (0, 0, 1)
    )
    assert torch.equal(rows, again)
    assert not torch.equal(rows, other)
    assert float((rows[:300] - x).mean()) == pytest.approx(1.0, abs=0.1)
    assert TransportMap(solver=solver, exact_up_to=100).fit(data).checks()["people_paired"] == pytest.approx(1 / 3)
    assert TransportMap(solver=solver).fit(data).checks()["people_paired"] == 1.0


def test_people_who_get_the_mean_of_many_are_too_much_alike_and_it_says_so():
    alike, different = (TransportMap().fit(two_groups(normal(n, 3), normal(90, 3, seed=1))) for n in (3, 90))
    assert different.warnings(different.checks()) == []
    assert different.checks()["spread_kept"] == pytest.approx(1.0)
    assert alike.checks()["spread_kept"] < 0.6
    assert "because people with many partners get their mean; compare with rank" in alike.warnings(alike.checks())[0]


def test_a_column_that_is_withheld_takes_the_other_groups_value_and_costs_nothing():
    frame = people(60)
    encoding, data = encoded(frame, columns=["sex", "income", "age"])
    rows = TransportMap().fit(data).map(data).rows
    assert encoding.table(rows)["sex"].tolist() == frame["sex"].map({"male": "female", "female": "male"}).tolist()
    _, without = encoded(frame, columns=["income", "age"])
    assert torch.equal(rows[:, ~data.withheld], TransportMap().fit(without).map(without).rows)


def test_a_model_of_protected_columns_alone_leaves_nothing_to_pair_people_by():
    data = individuals(normal(6, 2), withheld=torch.ones(2, dtype=torch.bool))
    with pytest.raises(OptionError, match="All columns of the model are protected, so nothing is left to match"):
        TransportMap().fit(data)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"exact_up_to": 0}, "exact_up_to is 0; expected a number of people of at least 1"),
        ({"solver": "simplex"}, "The solver is 'simplex'; expected 'auto', 'pot' or 'scipy'"),
    ],
)
def test_settings_that_cannot_be_are_refused(changed: dict[str, Any], message: str):
    with pytest.raises(OptionError, match=message):
        TransportMap(**changed)


def test_without_pot_scipy_pairs_people_and_pot_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch):
    data = individuals(normal(20, 2))
    expected = TransportMap(solver="scipy").fit(data).map(data).rows
    monkeypatch.setitem(sys.modules, "ot", None)
    monkeypatch.setattr(transport, "find_spec", lambda name: None)
    assert torch.equal(TransportMap().fit(data).map(data).rows, expected)
    with pytest.raises(MissingExtraError, match=r"pip install 'fairfox\[peers\]'"):
        TransportMap(solver="pot").fit(data)


def least_cost(cost: Tensor) -> float:
    """Return the least mean cost (n, m) of any plan between uniform groups, by linear programming."""
    n, m = cost.shape
    sums = np.vstack([np.kron(np.eye(n), np.ones(m)), np.kron(np.ones(n), np.eye(m))])
    found = linprog(cost.numpy().ravel(), A_eq=sums, b_eq=[1 / n] * n + [1 / m] * m)
    return float(found.fun)


@needs_pot
@pytest.mark.parametrize(("n", "m"), [(7, 5), (4, 9)])
def test_groups_of_unequal_size_have_the_least_cost_and_the_right_marginals(n: int, m: int):
    cost = torch.cdist(normal(n, 2), normal(m, 2, seed=1), p=1).square()
    plan = simplex_plan(cost, torch.ones(n).double(), torch.ones(m).double())
    torch.testing.assert_close(plan.sum(1), torch.full((n,), 1 / n).double())
    torch.testing.assert_close(plan.sum(0), torch.full((m,), 1 / m).double())
    assert float((plan * cost).sum()) == pytest.approx(least_cost(cost))


@pytest.mark.parametrize("times", [2, 3])
def test_without_pot_a_size_that_is_a_multiple_of_the_other_is_exact(times: int):
    cost = torch.cdist(normal(5, 2), normal(5 * times, 2, seed=1), p=1).square()
    plan = assigned_plan(cost, torch.ones(5).double(), torch.ones(5 * times).double(), 5 * times, 0.3)
    torch.testing.assert_close(plan.sum(1), torch.full((5,), 0.2).double())
    assert float((plan * cost).sum()) == pytest.approx(least_cost(cost))


def test_without_pot_other_sizes_repeat_the_smaller_group_as_evenly_as_can_be():
    cost = torch.cdist(normal(7, 2), normal(5, 2, seed=1), p=1).square()
    plan = assigned_plan(cost, torch.ones(7).double(), torch.ones(5).double(), 7, 0.3)
    torch.testing.assert_close(plan.sum(1), torch.full((7,), 1 / 7).double())
    assert set((plan.sum(0) * 7).round().tolist()) == {1.0, 2.0}
    assert float((plan * cost).sum()) < 1.2 * least_cost(cost)
