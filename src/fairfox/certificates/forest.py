"""Trees of every library in one form: a split sends the number v to the left where v <= threshold, in float64."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

LEAF = -1


class Tree(NamedTuple):
    """One tree; nodes are numbered from its root 0."""

    feature: np.ndarray  # (Z,) the column a node splits; LEAF at leaves
    threshold: np.ndarray  # (Z,) float64
    left: np.ndarray  # (Z,)
    right: np.ndarray  # (Z,)
    missing_left: np.ndarray  # (Z,) bool
    value: np.ndarray  # (Z,) what a leaf adds


@dataclass(frozen=True)
class Ensemble:
    """Trees one after the other in shared arrays.

    The audited output rises or falls with the sum of the leaves. `slack` says how far a sum may be from the one the
    library itself arrives at; where that many sums are within it of the largest, the model decides. Infinite: sums
    say nothing (several classes).
    """

    nodes: Tree
    roots: np.ndarray  # (T,)
    slack: float

    @property
    def columns(self) -> np.ndarray:
        """The columns that the trees look at."""
        return np.unique(self.nodes.feature[self.nodes.feature != LEAF])


def gathered(trees: Sequence[Tree], *, precision: type[np.floating] = np.float64, comparable: bool = True) -> Ensemble:
    """Return trees as one ensemble; `precision` is what the library sums in."""
    sizes = np.array([len(tree.feature) for tree in trees], dtype=np.int64)
    roots = np.cumsum(sizes) - sizes
    shifted = [
        tree._replace(left=tree.left + root, right=tree.right + root)
        for tree, root in zip(trees, roots.tolist(), strict=True)
    ]
    nodes = Tree(*(np.concatenate(part) for part in zip(*shifted, strict=True)))
    leaves = np.where(nodes.feature == LEAF, np.abs(nodes.value), 0.0)
    scale = float(np.maximum.reduceat(leaves, roots).sum())
    rounding = max(len(trees) * float(np.finfo(precision).eps), 1e-9)
    return Ensemble(nodes, roots, rounding * scale if comparable else np.inf)


def rounded_to_float32(thresholds: np.ndarray) -> np.ndarray:
    """Return the largest float64 v for which float32(v) <= threshold, for each."""
    with np.errstate(over="ignore"):
        below = thresholds.astype(np.float32)
        below = np.where(below > thresholds, np.nextafter(below, np.float32(-np.inf)), below)
        middle = (below.astype(np.float64) + np.nextafter(below, np.float32(np.inf)).astype(np.float64)) / 2
        goes_down = middle.astype(np.float32) <= below  # ties go to the even neighbour
    return np.where(goes_down, middle, np.nextafter(middle, -np.inf))


def seen_in_float32(ensemble: Ensemble, columns: np.ndarray) -> Ensemble:
    """Return the ensemble for numbers of which some columns (C,) bool are rounded to float32 before it gets them."""
    if not columns.any():
        return ensemble
    split = ensemble.nodes.feature != LEAF
    rounded = split & columns[np.where(split, ensemble.nodes.feature, 0)]
    threshold = np.where(rounded, rounded_to_float32(ensemble.nodes.threshold), ensemble.nodes.threshold)
    return replace(ensemble, nodes=ensemble.nodes._replace(threshold=threshold))
