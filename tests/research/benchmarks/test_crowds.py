"""The people whom benchmarks measure on."""

import numpy as np
import pytest
import torch

BENCH = "crowds"


def test_people_of_both_groups_and_labels_are_there(bench):
    data = bench.population(400, 8)
    assert 0.4 < float(data.c.mean()) < 0.6
    assert 0.3 < float(data.y.mean()) < 0.7


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_gap_moves_one_group_only_and_in_proportion(bench, dtype):
    none, some, twice = (bench.population(50, 4, gap=gap, dtype=dtype) for gap in (0.0, 0.3, 0.6))
    assert some.x.dtype == dtype
    one = none.c[:, 0] == 1
    torch.testing.assert_close(some.x[~one], none.x[~one])
    move = (some.x - none.x)[one]
    torch.testing.assert_close(move, move[:1].expand_as(move))
    assert (move.abs() > 1e-3).all()
    torch.testing.assert_close((twice.x - none.x)[one], 2 * move)


def test_tables_of_other_seeds_are_other_people_of_the_same_groups(bench):
    first, second = (bench.people(20_000, 2, seed) for seed in (1, 2))
    assert first.column_names == ["x0", "x1", "group"]
    assert not first.equals(second)
    assert first.equals(bench.people(20_000, 2, 1))

    def gap(table):
        member = table["group"].to_numpy() == "a"
        x = table["x0"].to_numpy()
        return x[member].mean() - x[~member].mean()

    expected = 0.5 * np.random.default_rng(0).normal(size=2)[0]
    assert gap(first) == pytest.approx(expected, abs=0.05)  # 3.5 standard errors of 0.014
    assert gap(second) == pytest.approx(expected, abs=0.05)


def test_tables_have_numbers_of_the_kind_asked_for(bench):
    assert [str(kind) for kind in bench.people(5, 2, 0, dtype=np.float32).schema.types] == ["float", "float", "string"]
