"""Each feature as the probabilities of its modes: one Gaussian mixture per feature."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fairfox.errors import DataError, OptionError
from fairfox.options import Number


@dataclass(frozen=True)
class ModeEncoding:
    """One Gaussian mixture for each of F features, all with G modes: (N, F) -> (N, F * G), each block summing to 1.

    A feature with fewer than G different values has as many modes as values; the others have weight 0 and are never
    probable. So a constant feature is always in its one mode.

    Example:
        >>> encoding = ModeEncoding.fit(torch.tensor([[0.0], [0.1], [9.0], [9.1]]), modes=2)
        >>> encoding.encode(torch.tensor([[0.05], [9.05]])).sort().values.round().tolist()
        [[0.0, 1.0], [0.0, 1.0]]
    """

    centre: Tensor  # (F,) the features are standardised before the mixtures see them
    scale: Tensor  # (F,)
    weights: Tensor  # (F, G)
    means: Tensor  # (F, G)
    variances: Tensor  # (F, G)

    @classmethod
    def fit(cls, x: Tensor, *, modes: int, seed: int = 0) -> ModeEncoding:
        """Return the mixtures of the columns of x (N, F), in double precision."""
        whole_number("modes", modes)
        if not bool(x.isfinite().all()):
            raise DataError("x holds values that are not finite; drop those rows or fill them in first")
        values = x.double().cpu()
        centre, scale = values.mean(0), values.std(0, correction=0)
        scale = torch.where(scale > 1e-12 * (1.0 + centre.abs()), scale, 1.0)  # constant but for rounding
        standard = ((values - centre) / scale).numpy()
        fitted = [_mixture(standard[:, [f]], modes, seed) for f in range(x.shape[1])]
        weights, means, variances = (torch.from_numpy(np.stack(column)) for column in zip(*fitted, strict=True))
        return cls(centre, scale, weights, means, variances)

    @property
    def features(self) -> int:
        """F, the number of original features."""
        return len(self.weights)

    @property
    def modes(self) -> int:
        """G, the number of modes that every feature has."""
        return self.weights.shape[1]

    def encode(self, x: Tensor) -> Tensor:
        """Return the probability of every mode (N, F * G), feature after feature."""
        standard = (x.to(self.centre) - self.centre) / self.scale
        squares = (standard[:, :, None] - self.means).square() / self.variances  # (N, F, G)
        logits = self.weights.log() - 0.5 * (self.variances.log() + squares)
        return logits.softmax(2).flatten(1).to(x)


def _mixture(values: np.ndarray, modes: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return weights, means and variances (G,) of one feature's values (N, 1)."""
    from sklearn.mixture import GaussianMixture

    used = min(modes, len(np.unique(values.round(9))))
    # values that pile up on a few points leave k-means little to choose: more starts find all of them
    mixture = GaussianMixture(used, random_state=seed, max_iter=500, n_init=3).fit(values)
    weights, means, variances = np.zeros(modes), np.zeros(modes), np.ones(modes)
    weights[:used], means[:used] = mixture.weights_, mixture.means_[:, 0]
    variances[:used] = mixture.covariances_[:, 0, 0]
    return weights, means, variances


def whole_number(name: str, value: object, *, least: int = 1) -> int:
    """Return an option that must be a whole number, or raise an OptionError that names it."""
    return int(_checked(Number(least, whole=True), name, value))


def positive_number(name: str, value: object) -> float:
    """Return an option that must be a finite number above 0, or raise an OptionError."""
    return float(_checked(Number(0, low_open=True), name, value))


def _checked(kind: Number, name: str, value: object) -> float:
    if value is None:
        raise OptionError(f"{name} is None; expected {kind.words}")
    number: float = kind.check(name, value)
    return number
