"""Gradients of two plain networks in few coordinates: their inner products need no vector as long as x.

The gradient of a network is W1ᵀ d, W1 (H, D) its first layer and d (H,) the slope by that layer's outputs. In an
orthonormal basis that starts with the span of the target's W1ᵀ, the target's gradient has at most H coordinates, an
auxiliary's at most as many as both first layers have outputs, and inner products stay what they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from fairfox.alignment import Products, products, square_root
from fairfox.gradients.chain import Chain, chain_of
from fairfox.models.protocol import Model


class Pieces(NamedTuple):
    """The inner products of a block of rows, but for factors (n, 1) of both gradients; None for no factor."""

    bare: Products
    scale: Tensor | None  # of the target's gradient
    factor: Tensor | None  # of the auxiliary's


def whole_products(pieces: Sequence[Pieces]) -> Products:
    """Return the inner products (N, 1) of everyone, block after block, with their factors."""
    found = Products(*map(torch.cat, zip(*(each.bare for each in pieces), strict=True)))
    scales = [each.scale for each in pieces if each.scale is not None]
    factors = [each.factor for each in pieces if each.factor is not None]
    if scales:
        scale = torch.cat(scales)
        found = Products(found.inner * scale, found.tar * scale.square(), found.aux)
    if factors:
        factor = torch.cat(factors)
        found = Products(found.inner * factor, found.tar, found.aux * factor.square())
    return found


class Pairing:
    """A target and one auxiliary after the other, as chains, with the way to common coordinates."""

    def __init__(self, target: Chain, members: Sequence[Chain], *, metric: Tensor | None = None) -> None:
        self.target, self.members = target, members
        for member in members:
            member.memory = target.memory  # one works after the other: what stays in the cache is used again
        own, others = short_factors(target.weight, [member.weight for member in members], metric=metric)
        self.own, self.others = own.to(target.weight), [f.to(m.weight) for f, m in zip(others, members, strict=True)]

    def gradient(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the target's gradient (n, E) but for a factor (n, 1); the next call overwrites it."""
        grad, scale = _pulled("target", self.target, self.own, x)
        return grad[:, 0], scale

    def jacobian(self, member: int, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return an auxiliary's Jacobian (n, K, E) but for a factor; its first coordinates are the target's."""
        return _pulled("member", self.members[member], self.others[member], x)

    def pieces(self, grad: tuple[Tensor, Tensor | None], jac: tuple[Tensor, Tensor | None]) -> Pieces:
        """Return the inner products of what `gradient` and the `jacobian` of a single output returned.

        The latter is overwritten.
        """
        (slope, scale), (row, factor) = grad, jac
        return Pieces(products(slope, row[:, 0]), scale, factor)

    def whole(self, grad: tuple[Tensor, Tensor | None], jac: tuple[Tensor, Tensor | None]) -> tuple[Tensor, Tensor]:
        """Return both with their factors, in coordinates of the same number: (n, F) and (n, K, F)."""
        (slope, scale), (rows, factor) = grad, jac
        slope = slope if scale is None else slope * scale
        rows = rows if factor is None else rows * factor[:, :, None]
        return F.pad(slope, (0, rows.shape[2] - slope.shape[1])), rows


def pairing_of(target: Model, members: Sequence[Model], x: Tensor, *, metric: Tensor | None = None) -> Pairing | None:
    """Return the target paired with auxiliaries; None where one of them is no plain network."""
    chains = [chain_of(model, x.shape[1]) for model in (target, *members)]
    known = [chain for chain in chains if chain is not None]
    if len(known) < len(chains) or known[0].outputs != 1:
        return None
    return Pairing(known[0], known[1:], metric=metric)


def short_factors(
    target: Tensor, others: Sequence[Tensor], *, metric: Tensor | None = None
) -> tuple[Tensor, list[Tensor]]:
    """Return for first layers (H, D) what takes slopes to short coordinates (H, E), E at most D.

    With a metric S = R Rᵀ inner products are those in the metric: of Rᵀ times the gradients.
    """
    root = None if metric is None else square_root(metric.double())
    first, *rest = (each.double() if root is None else each.double() @ root for each in (target, *others))
    if len(first) >= first.shape[1]:
        return first, rest
    basis, triangle = torch.linalg.qr(first.T)  # (D, H), (H, H)
    factors = []
    for each in rest:
        along = each @ basis
        apart = torch.linalg.qr((each - along @ basis.T).T, mode="r").R.T  # (H, at most H)
        room = min(apart.shape[1], first.shape[1] - len(first))
        if room < apart.shape[1]:  # what is apart from H of D directions lies in the other D - H
            outside = torch.linalg.qr(first.T, mode="complete").Q[:, len(first) :]
            apart = each @ outside
        factors.append(torch.cat([along, apart], dim=1))
    return triangle.T, factors


def _pulled(name: str, chain: Chain, factor: Tensor, x: Tensor) -> tuple[Tensor, Tensor | None]:
    width = factor.shape[1]
    out = chain.buffer(name, len(x), chain.outputs * width).view(len(x), chain.outputs, width)
    scale = chain.pull(x, factor, out)
    return out.to(x), None if scale is None else scale.to(x)
