"""Metrics and norms, by hand and against NumPy."""

import numpy as np
import pytest
import torch
from populations import normal

from fairfox.errors import DataError
from fairfox.gradients.alignment import between_metric, covariance_metric, eigen, sensitive_subspace, square_root
from fairfox.maps.ranks import weighted_least_squares

# Two groups of two; the first column alone differs between them
FOUR = torch.tensor([[0.0, 0.0], [0.0, 2.0], [4.0, 0.0], [4.0, 2.0]])
SECOND = torch.tensor([False, False, True, True])


def between_groups(x, member):
    return between_metric(covariance_metric(x), x[member].mean(0) - x[~member].mean(0))


def test_covariance_is_shrunk_by_a_tenth_towards_the_identity():
    # variances 16/3 and 4/3, mean 10/3: 0.9 * 16/3 + 0.1 * 10/3 and 0.9 * 4/3 + 0.1 * 10/3
    expected = torch.diag(torch.tensor([5.1333333, 1.5333333]))
    torch.testing.assert_close(covariance_metric(FOUR), expected)


@pytest.mark.parametrize("shrink", [0.0, 0.3])
def test_weighted_covariance_is_numpy_s(shrink):
    x, weights = normal(50, 4), normal(50, seed=1).square()
    plain = np.cov(x.numpy(), rowvar=False, aweights=weights.numpy())
    expected = (1 - shrink) * plain + shrink * np.trace(plain) / 4 * np.eye(4)
    np.testing.assert_allclose(covariance_metric(x, shrink=shrink, weights=weights), expected)


def test_between_metric_by_hand():
    # gap (4, 0); 0.9 * diag(1, 0) + 0.1 * diag(5.1333, 1.5333) / 6.6667
    torch.testing.assert_close(between_groups(FOUR, SECOND), torch.diag(torch.tensor([0.977, 0.023])))


def test_groups_with_equal_means_leave_only_the_spread():
    crossed = torch.tensor([True, False, False, True])  # means (2, 1) both
    torch.testing.assert_close(between_groups(FOUR, crossed), torch.diag(torch.tensor([0.77, 0.23])))


def test_sensitive_subspace_is_an_orthonormal_basis_of_the_weights():
    weights = normal(3, 6)
    basis = sensitive_subspace(weights)
    torch.testing.assert_close(basis.T @ basis, torch.eye(3, dtype=torch.float64))
    torch.testing.assert_close(weights @ basis @ basis.T, weights)


def test_centred_weights_span_one_dimension_less():
    weights = normal(4, 6).float()
    assert sensitive_subspace(weights - weights.mean(0)).shape == (6, 3)


def test_zero_weights_span_nothing():
    assert sensitive_subspace(torch.zeros(1, 5)).shape == (5, 0)


def failing_first(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Make the first call of a decomposition fail, as LAPACK does on some matrices."""
    found, calls = getattr(torch.linalg, name), []

    def decompose(*given, **options):
        calls.append(name)
        if len(calls) == 1:
            raise torch.linalg.LinAlgError("it failed to converge")
        return found(*given, **options)

    monkeypatch.setattr(torch.linalg, name, decompose)


def test_a_decomposition_that_does_not_converge_is_made_with_a_little_more_on_the_diagonal(monkeypatch):
    metric = torch.tensor([[2.0, 1.0], [1.0, 3.0]])
    failing_first(monkeypatch, "eigh")
    root = square_root(metric)
    torch.testing.assert_close(root @ root.T, metric, rtol=1e-6, atol=1e-6)


def test_a_matrix_that_nothing_decomposes_is_refused_with_its_column():
    with pytest.raises(DataError, match=r"Encoded column 1 \(counted from 0\)"):
        eigen(torch.tensor([[1.0, 0.0], [0.0, torch.nan]]))


def test_least_squares_that_do_not_converge_are_solved_by_eigenvalues(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    columns = torch.randn(40, 3, generator=generator, dtype=torch.float64)
    columns = torch.cat([columns, columns[:, :1]], dim=1)  # of the many solutions the smallest
    values, counts = torch.randn(40, 2, generator=generator, dtype=torch.float64), torch.arange(1.0, 41.0)
    expected = weighted_least_squares(columns, values, counts)
    failing_first(monkeypatch, "lstsq")
    torch.testing.assert_close(weighted_least_squares(columns, values, counts), expected, rtol=1e-6, atol=1e-8)
