"""The joint distribution of c and y: its ends, its marginals, and nothing beyond."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fairfox.benchmark.fusion import joint_distribution, most_dependent, mutual_information
from fairfox.errors import OptionError


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


@settings(max_examples=50, deadline=None)
@given(marginals(2), marginals(2), st.floats(0, 1))
def test_marginals_are_kept_and_nothing_is_negative(p_c, p_y, bias):
    joint = joint_distribution(p_c, p_y, bias)
    assert float((joint.sum(1) - p_c).abs().max()) <= 1e-12
    assert float((joint.sum(0) - p_y).abs().max()) <= 1e-12
    assert float(joint.min()) >= 0.0


@pytest.mark.parametrize("bias", [-0.1, 1.1, float("nan"), "1", None])
def test_a_bias_outside_0_to_1_is_refused(bias):
    with pytest.raises(OptionError, match="from 0"):
        joint_distribution(shares(1, 1), shares(1, 1), bias)
