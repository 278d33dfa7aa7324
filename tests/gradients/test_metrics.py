"""Metrics and norms, by hand and against NumPy."""

import numpy as np
import pytest
import torch

from fairfox.gradients.alignment import between_metric, covariance_metric, gradient_norm, sensitive_subspace

# Two groups of two; the first column alone differs between them
FOUR = torch.tensor([[0.0, 0.0], [0.0, 2.0], [4.0, 0.0], [4.0, 2.0]])
SECOND = torch.tensor([False, False, True, True])


def some_rows(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def between_groups(x, member):
    return between_metric(covariance_metric(x), x[member].mean(0) - x[~member].mean(0))


def test_covariance_without_shrinkage_is_numpy_s():
    x = some_rows(50, 4)
    np.testing.assert_allclose(covariance_metric(x, shrink=0.0), np.cov(x.numpy(), rowvar=False))


def test_covariance_is_shrunk_by_a_tenth_towards_the_identity():
    # variances 16/3 and 4/3, mean 10/3: 0.9 * 16/3 + 0.1 * 10/3 and 0.9 * 4/3 + 0.1 * 10/3
    expected = torch.diag(torch.tensor([5.1333333, 1.5333333]))
    torch.testing.assert_close(covariance_metric(FOUR), expected)


@pytest.mark.parametrize("shrink", [0.0, 0.3])
def test_weighted_covariance_is_numpy_s(shrink):
    x, weights = some_rows(50, 4), some_rows(50, seed=1).square()
    plain = np.cov(x.numpy(), rowvar=False, aweights=weights.numpy())
    expected = (1 - shrink) * plain + shrink * np.trace(plain) / 4 * np.eye(4)
    np.testing.assert_allclose(covariance_metric(x, shrink=shrink, weights=weights), expected)


def test_between_metric_by_hand():
    # gap (4, 0); 0.9 * diag(1, 0) + 0.1 * diag(5.1333, 1.5333) / 6.6667
    torch.testing.assert_close(between_groups(FOUR, SECOND), torch.diag(torch.tensor([0.977, 0.023])))


def test_groups_with_equal_means_leave_only_the_spread():
    crossed = torch.tensor([True, False, False, True])  # means (2, 1) both
    torch.testing.assert_close(between_groups(FOUR, crossed), torch.diag(torch.tensor([0.77, 0.23])))


@pytest.mark.parametrize(("order", "expected"), [(1.0, 7.0), (2.0, 5.0), (float("inf"), 4.0)])
def test_gradient_norm_by_hand(order, expected):
    assert gradient_norm(torch.tensor([[3.0, -4.0]]), order=order).tolist() == [expected]


def test_sensitive_subspace_is_an_orthonormal_basis_of_the_weights():
    weights = some_rows(3, 6)
    basis = sensitive_subspace(weights)
    torch.testing.assert_close(basis.T @ basis, torch.eye(3, dtype=torch.float64))
    torch.testing.assert_close(weights @ basis @ basis.T, weights)


def test_centred_weights_span_one_dimension_less():
    weights = some_rows(4, 6).float()
    assert sensitive_subspace(weights - weights.mean(0)).shape == (6, 3)


def test_zero_weights_span_nothing():
    assert sensitive_subspace(torch.zeros(1, 5)).shape == (5, 0)
