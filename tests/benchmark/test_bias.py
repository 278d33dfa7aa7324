"""The joint distribution of c and y: its ends, its marginals, and nothing beyond."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fairfox.benchmark.bias import joint_distribution, most_dependent, mutual_information
from fairfox.errors import OptionError, ShapeError


def shares(*values):
    p = torch.tensor(values, dtype=torch.float64)
    return p / p.sum()


def marginals(size):
    return st.lists(st.floats(0.05, 1.0), min_size=size, max_size=size).map(lambda values: shares(*values))


def test_no_bias_is_independence():
    joint = joint_distribution(shares(1, 3), shares(2, 3), 0.0)
    torch.testing.assert_close(joint, torch.tensor([[0.1, 0.15], [0.3, 0.45]], dtype=torch.float64))


def test_full_bias_of_unequal_marginals_is_the_end_with_more_information():
    # P(1, 1) lies in [0.2, 0.5]. At 0.5 one cell is empty with P(y=1 | c=0) = 0.2 / 0.5, P(y=1 | c=1) = 1; at 0.2
    # everyone with c = 0 has y = 1, and P(y=1 | c=1) = 0.4: the same information, so the first end is taken.
    joint = joint_distribution(shares(5, 5), shares(3, 7), 1.0)
    torch.testing.assert_close(joint, torch.tensor([[0.3, 0.2], [0.0, 0.5]], dtype=torch.float64))


def test_halfway_is_the_mean_of_both_ends():
    p_c, p_y = shares(9, 1), shares(2, 8)
    ends = joint_distribution(p_c, p_y, 0.0) + joint_distribution(p_c, p_y, 1.0)
    torch.testing.assert_close(joint_distribution(p_c, p_y, 0.5), ends / 2)


@settings(max_examples=50, deadline=None)
@given(marginals(2), marginals(2))
def test_two_classes_closed_form_equals_a_line_search(p_c, p_y):
    c, y = float(p_c[1]), float(p_y[1])
    line = torch.linspace(max(0.0, c + y - 1), min(c, y), 501, dtype=torch.float64)
    found = [
        mutual_information(torch.tensor([[1 - c - y + b, y - b], [c - b, b]], dtype=torch.float64).clamp(min=0.0))
        for b in line.tolist()
    ]
    assert float(mutual_information(most_dependent(p_c, p_y))) == pytest.approx(float(max(found)), abs=1e-9)


def vertices(p_c, p_y):
    """All vertices by brute force: every choice of K_c + K_y - 1 cells that the marginals determine."""
    rows, columns = len(p_c), len(p_y)
    cells = list(itertools.product(range(rows), range(columns)))
    for basis in itertools.combinations(cells, rows + columns - 1):
        system = torch.zeros(rows + columns, len(basis), dtype=torch.float64)
        for k, (i, j) in enumerate(basis):
            system[i, k] = system[rows + j, k] = 1.0
        if torch.linalg.matrix_rank(system) < len(basis):
            continue
        values = torch.linalg.lstsq(system, torch.cat([p_c, p_y])[:, None]).solution[:, 0]
        if bool((values >= -1e-9).all()):
            joint = torch.zeros(rows, columns, dtype=torch.float64)
            for (i, j), value in zip(basis, values, strict=True):
                joint[i, j] = value.clamp(min=0.0)
            yield joint


@settings(max_examples=8, deadline=None)
@given(marginals(3), marginals(3))
def test_three_classes_equal_the_best_of_all_vertices(p_c, p_y):
    best = max(float(mutual_information(v)) for v in vertices(p_c, p_y))
    assert float(mutual_information(most_dependent(p_c, p_y))) == pytest.approx(best, abs=1e-9)


@settings(max_examples=50, deadline=None)
@given(st.integers(2, 4).flatmap(marginals), st.integers(2, 4).flatmap(marginals), st.floats(0, 1))
def test_marginals_are_kept_and_nothing_is_negative(p_c, p_y, bias):
    joint = joint_distribution(p_c, p_y, bias)
    assert float((joint.sum(1) - p_c).abs().max()) <= 1e-12
    assert float((joint.sum(0) - p_y).abs().max()) <= 1e-12
    assert float(joint.min()) >= 0.0


@pytest.mark.parametrize("bias", [-0.1, 1.1, float("nan"), "1", None])
def test_a_bias_outside_0_to_1_is_refused(bias):
    with pytest.raises(OptionError, match="from 0"):
        joint_distribution(shares(1, 1), shares(1, 1), bias)


def test_what_is_no_distribution_is_refused():
    with pytest.raises(OptionError, match="sum to 1"):
        joint_distribution(torch.tensor([0.5, 0.6]), shares(1, 1), 0.5)
    with pytest.raises(ShapeError, match="two or more classes"):
        joint_distribution(shares(1, 1), torch.tensor([1.0]), 0.5)


def test_more_classes_than_can_be_searched_are_refused():
    with pytest.raises(OptionError, match="merge rare classes"):
        joint_distribution(shares(*[1] * 6), shares(*[1] * 6), 0.5)
