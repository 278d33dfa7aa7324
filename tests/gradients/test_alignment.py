"""Directions, cosines and shares, against torch.linalg.pinv in float64 and by hand."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fairfox.gradients.alignment import (
    SINGLE,
    Head,
    alignment_parts,
    cosine,
    dead_rows,
    inverse_direction,
    products,
    pseudo_solve,
    ratio_of_sums,
)

FLOAT64 = torch.float64
SEVERAL_HEADS = {
    "two binary": [Head(1), Head(1)],
    "binary and categorical": [Head(1), Head(5, centred=True)],
    "two categorical": [Head(3, centred=True), Head(4, centred=True)],
    "categorical and continuous": [Head(10, centred=True), Head(1)],
}


def alignment_share(grad, jac, metric, **heads):
    return ratio_of_sums(*alignment_parts(grad, jac, metric, **heads))


def jacobians(heads, features, *, rows=200, seed=0):
    """Return random J (N, K, D) in float64 whose categorical heads sum to zero."""
    generator = torch.Generator().manual_seed(seed)
    parts = []
    for outputs, centred in heads:
        part = torch.randn(rows, outputs, features, dtype=FLOAT64, generator=generator)
        parts.append(part - part.mean(1, keepdim=True) if centred else part)
    return torch.cat(parts, dim=1)


def spread(features, *, seed=1):
    """Return a well-conditioned covariance (D, D)."""
    rows = torch.randn(4 * features, features, dtype=FLOAT64, generator=torch.Generator().manual_seed(seed))
    return torch.cov(rows.T).reshape(features, features)


def pinv(jac_aux):
    return torch.linalg.pinv(jac_aux, rtol=1e-12)


def pinv_in(metric, jac_aux):
    gram = jac_aux @ metric @ jac_aux.mT
    return metric @ jac_aux.mT @ torch.linalg.pinv(gram, rtol=1e-12, hermitian=True)


def relative_error(found, expected):
    """Return the largest error of any row, relative to its size."""
    assert torch.isfinite(found).all()
    sizes = torch.linalg.matrix_norm(expected)
    return float((torch.linalg.matrix_norm(found - expected) / sizes).max())


def one_head(outputs):
    return [Head(outputs, centred=outputs > 1)]


# Directions


@pytest.mark.parametrize(("outputs", "features"), [(3, 1), (5, 3), (10, 8)])
def test_rank_lost_by_one_is_never_mistaken_for_full_rank(outputs, features):
    # One pivot of the factor is rounding noise here; in about one row of a hundred it is large enough to look real.
    jac = jacobians(one_head(outputs), features, rows=3000, seed=2)
    assert relative_error(inverse_direction(jac, heads=one_head(outputs)), pinv(jac)) < 1e-6


def test_nearly_equal_outputs_keep_their_digits():
    first, second = jacobians([Head(1), Head(1)], 6).split(1, dim=1)
    jac = torch.cat([first, first + 1e-5 * second], dim=1)  # J Jᵀ has a condition number around 1e10
    assert relative_error(inverse_direction(jac), pinv(jac)) < 1e-6


@pytest.mark.parametrize("outputs", [1, 2, 5, 10])
@pytest.mark.parametrize("features", [4, 24])
def test_saturated_rows_keep_all_their_digits(outputs, features):
    jac = jacobians(one_head(outputs), features)
    scale = 10.0 ** torch.linspace(-20, 20, len(jac), dtype=FLOAT64)[:, None, None]
    found = inverse_direction(jac * scale, heads=one_head(outputs))
    assert relative_error(found * scale, pinv(jac)) < 1e-6


@pytest.mark.parametrize("heads", SEVERAL_HEADS.values(), ids=SEVERAL_HEADS)
@pytest.mark.parametrize("ratio", [1e-20, 1.0, 1e20])
def test_heads_of_very_different_scale_do_not_drown_each_other(heads, ratio):
    # A head's scale does not touch its null vector, so that each column of the direction scales by itself.
    jac = jacobians(heads, 24)
    size = torch.ones(jac.shape[1], dtype=FLOAT64)
    size[: heads[0].outputs] = ratio
    found = inverse_direction(jac * size[:, None], heads=heads)
    assert relative_error(found * size, pinv(jac)) < 1e-6


@pytest.mark.parametrize("heads", [one_head(1), one_head(5), SEVERAL_HEADS["binary and categorical"]])
def test_dead_rows_get_a_zero_direction_and_leave_the_others_alone(heads):
    jac = jacobians(heads, 8)
    alive = inverse_direction(jac, heads=heads)
    jac[::3] = 0.0
    found = inverse_direction(jac, heads=heads)
    assert not found[::3].any()
    torch.testing.assert_close(found[1::3], alive[1::3])
    assert dead_rows(jac).tolist() == [row % 3 == 0 for row in range(len(jac))]


@pytest.mark.parametrize("size", [1e-45, 1e-40, 1e-25, 1e-20, 1e-19])
@pytest.mark.parametrize("heads", [one_head(1), one_head(3), [Head(1), Head(1)]])
def test_rows_whose_squares_vanish_in_float32_are_dead(size, heads):
    jac = size * jacobians(heads, 4, rows=20).float().sign()
    assert dead_rows(jac).all()
    assert not inverse_direction(jac, heads=heads).any()


def test_a_dead_head_beside_a_live_one_gets_a_zero_direction():
    heads = [Head(1), Head(3, centred=True)]
    jac = jacobians(heads, 8)
    jac[:, :1] = 0.0
    found = inverse_direction(jac, heads=heads)
    assert not found[:, :, 0].any()
    assert relative_error(found, pinv(jac)) < 1e-6
    assert not dead_rows(jac).any()


@pytest.mark.parametrize("outputs", [1, 2, 5])
def test_float32_is_right_to_its_own_precision(outputs):
    jac = jacobians(one_head(outputs), 24)
    scale = 10.0 ** torch.linspace(-18, 18, len(jac), dtype=FLOAT64)[:, None, None]
    found = inverse_direction((jac * scale).float(), heads=one_head(outputs))
    assert found.dtype == torch.float32
    assert relative_error(found.double() * scale, pinv(jac)) < 1e-4


@pytest.mark.parametrize("outputs", [1, 2, 5, 10])
@pytest.mark.parametrize("features", [4, 24])
def test_direction_in_a_metric_follows_its_formula(outputs, features):
    jac, metric = jacobians(one_head(outputs), features), spread(features)
    found = inverse_direction(jac, metric=metric, heads=one_head(outputs))
    assert relative_error(found, pinv_in(metric, jac)) < 1e-6


@pytest.mark.parametrize("features", [4, 12])
def test_a_metric_may_forbid_columns(features):
    jac, metric = jacobians([Head(5, centred=True)], features), spread(features)
    metric[0] = metric[:, 0] = 0.0
    found = inverse_direction(jac, metric=metric, heads=[Head(5, centred=True)])
    assert not found[:, 0].any()
    assert relative_error(found, pinv_in(metric, jac)) < 1e-6


def test_direction_of_two_features_by_hand():
    jac = torch.tensor([[[3.0, 4.0]]])
    torch.testing.assert_close(inverse_direction(jac), torch.tensor([[[0.12], [0.16]]]))  # (3, 4) / 25
    # S J = (12, 4), J S J = 36 + 16 = 52
    in_metric = inverse_direction(jac, metric=torch.diag(torch.tensor([4.0, 1.0])))
    torch.testing.assert_close(in_metric, torch.tensor([[[12 / 52], [4 / 52]]]))


@given(features=st.integers(1, 8), outputs=st.integers(1, 6), seed=st.integers(0, 999))
@settings(max_examples=60, deadline=None)
def test_nobody_s_direction_depends_on_who_stands_beside_them(features, outputs, seed):
    jac = jacobians(one_head(outputs), features, rows=7, seed=seed)
    jac[2] = 0.0
    order = torch.randperm(7, generator=torch.Generator().manual_seed(seed))
    together = inverse_direction(jac, heads=one_head(outputs))
    torch.testing.assert_close(inverse_direction(jac[order], heads=one_head(outputs)), together[order])
    alone = torch.cat([inverse_direction(row[None], heads=one_head(outputs)) for row in jac])
    torch.testing.assert_close(alone, together, rtol=1e-6, atol=1e-9)


def test_no_people_have_no_directions():
    assert inverse_direction(torch.zeros(0, 1, 3)).shape == (0, 3, 1)
    assert inverse_direction(torch.zeros(0, 4, 3), heads=[Head(4, centred=True)]).shape == (0, 3, 4)


# Derivatives, cosines, worst cases


@pytest.mark.parametrize("dtype", [torch.float32, FLOAT64])
@pytest.mark.parametrize("size", [1e-20, 1e-3, 1e20])
@pytest.mark.parametrize("metric", [None, spread(6)], ids=["identity", "covariance"])
def test_cosine_does_not_see_the_size_of_either_gradient(dtype, size, metric):
    generator = torch.Generator().manual_seed(3)
    grad, jac = torch.randn(50, 6, generator=generator), torch.randn(50, 3, 6, generator=generator)
    grad, jac = grad.to(dtype), jac.to(dtype)
    metric = None if metric is None else metric.to(dtype)
    expected = cosine(grad, jac, metric=metric)
    assert expected.abs().max() <= 1
    for found in (cosine(size * grad, jac, metric=metric), cosine(grad, size * jac, metric=metric)):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_cosine_with_a_zero_gradient_is_zero():
    zero, one = torch.zeros(1, 3), torch.ones(1, 3)
    assert cosine(zero, one[:, None]).item() == 0
    assert cosine(one, zero[:, None]).item() == 0
    assert cosine(zero, zero[:, None], metric=torch.eye(3)).item() == 0


# The alignment share


def test_share_of_two_people_by_hand():
    metric = torch.diag(torch.tensor([4.0, 1.0]))
    grad = torch.tensor([[1.0, 1.0], [0.0, 1.0]])
    jac = torch.tensor([[[1.0, -1.0]], [[1.0, 0.0]]])
    along, whole = alignment_parts(grad, jac, metric)
    # person 1: (g S a)² / a S a = 9 / 5, g S g = 5; person 2: g S a = 0, g S g = 1
    torch.testing.assert_close(along, torch.tensor([1.8, 0.0]))
    torch.testing.assert_close(whole, torch.tensor([5.0, 1.0]))
    assert alignment_share(grad, jac, metric) == pytest.approx(0.3)  # 1.8 / 6
    assert alignment_share(grad[:1], jac[:1], metric) == pytest.approx(0.36)  # the squared cosine, 0.6²


@pytest.mark.parametrize("outputs", [1, 2, 5])
def test_share_is_zero_when_the_target_is_orthogonal_in_the_metric(outputs):
    jac, metric = jacobians(one_head(outputs), 8), spread(8)
    grad = torch.randn(len(jac), 8, dtype=FLOAT64, generator=torch.Generator().manual_seed(5))
    explained = torch.einsum(
        "nd,ndk,nkf->nf", grad, inverse_direction(jac, metric=metric, heads=one_head(outputs)), jac
    )
    assert alignment_share(grad - explained, jac, metric, heads=one_head(outputs)) == pytest.approx(0.0, abs=1e-12)


@given(outputs=st.integers(1, 6), features=st.integers(1, 6), seed=st.integers(0, 999))
@settings(max_examples=60, deadline=None)
def test_share_lies_between_zero_and_one_and_ignores_sizes(outputs, features, seed):
    jac = jacobians(one_head(outputs), features, rows=6, seed=seed)
    grad = torch.randn(6, features, dtype=FLOAT64, generator=torch.Generator().manual_seed(seed + 1))
    metric = spread(features, seed=seed + 2)
    share = alignment_share(grad, jac, metric, heads=one_head(outputs))
    assert 0 <= share <= 1
    resized = alignment_share(1e6 * grad, 1e-9 * jac, 7 * metric, heads=one_head(outputs))
    assert resized == pytest.approx(share, abs=1e-6)


def test_what_is_smaller_than_the_cut_is_noise():
    # the second output is the first plus noise in its seventh digit: as one direction both share it
    jac = torch.tensor([[[1.0, 0.0], [1.0, 1e-7]]], dtype=torch.float64)
    precise, single = inverse_direction(jac), inverse_direction(jac, cut=SINGLE)
    torch.testing.assert_close(precise, torch.linalg.pinv(jac), rtol=1e-6, atol=0)
    torch.testing.assert_close(single, torch.tensor([[[0.5, 0.5], [0.0, 0.0]]], dtype=torch.float64), atol=1e-6, rtol=0)


@given(st.integers(1, 12), st.integers(0, 2**16))
def test_the_solve_inverts_as_lapack_does(size, seed):
    root = torch.randn(5, size, 2 * size + 2, generator=torch.Generator().manual_seed(seed), dtype=FLOAT64)
    gram = root @ root.mT
    found = pseudo_solve(gram, [Head(1)] * size)
    torch.testing.assert_close(found, torch.linalg.inv(gram), rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(found, found.mT, rtol=1e-8, atol=1e-12)


def test_products_by_hand_give_what_the_vectors_do():
    grad_tar, grad_aux = torch.tensor([[2.0, 1.0]]), torch.tensor([[3.0, 4.0, 12.0]])  # a third coordinate of 0
    found = products(grad_tar, grad_aux)
    assert [float(each) for each in found] == pytest.approx([10.0, 5.0, 169.0])
    assert float(found.sensitivity()) == pytest.approx(10 / 169)
    assert float(found.cosine()) == pytest.approx(10 / (13 * 5**0.5))
