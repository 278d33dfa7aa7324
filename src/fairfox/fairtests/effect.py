"""One test for every counterfactual map: the effect f(T(x)) - f(x)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Self

import torch
from torch import Tensor

from fairfox.auxiliary.model import Auxiliary, AuxiliaryModel
from fairfox.data.dataset import Dataset
from fairfox.errors import NotFittedError
from fairfox.fairtests.protocol import Measurement, combine
from fairfox.fairtests.share import model_alignment
from fairfox.maps.protocol import CounterfactualMap, fit_maps
from fairfox.maps.rank import RankMap
from fairfox.models.protocol import Model, predict
from fairfox.similarity import covariance_metric


@dataclass(kw_only=True)
class Effect:
    """How the prediction would change if the person were a member of the other group, as a map tells it.

    One extra prediction per person and re-fit, so that any model will do. With `aligned` the effect is multiplied
    by the model's alignment share (the names with /a): that compares people across models.

    Example:
        >>> data = Dataset.from_arrays([[0.0], [1.0], [5.0], [7.0]], c=[0, 0, 1, 1])
        >>> from fairfox.auxiliary.linear import LinearMember
        >>> half = LinearMember(torch.tensor([[0.5]]), torch.zeros(1))
        >>> Effect(map=RankMap(), refits=1).fit(data).measure(half, data).signed
        tensor([ 2.5000,  3.0000, -2.5000, -3.0000])
    """

    has_sign: ClassVar[bool] = True

    map: CounterfactualMap = field(default_factory=RankMap)
    refits: int = 5
    aligned: bool = False
    auxiliary: Auxiliary = field(default_factory=AuxiliaryModel)  # for the alignment share only
    seed: int = 0
    batch_size: int = 4096
    fitted: list[CounterfactualMap] = field(default_factory=list, init=False, repr=False)
    metric: Tensor | None = field(default=None, init=False, repr=False)

    def fit(self, data: Dataset) -> Self:
        """Fit the map `refits` times on x and c, never y."""
        self.fitted = fit_maps(self.map, data, self.refits, seed=self.seed)
        if self.aligned:
            self.auxiliary.fit(data)
            self.metric = covariance_metric(data.x)
        return self

    def score(self, model: Model, data: Dataset) -> Tensor:
        """Return (N,): higher is less fair."""
        return self.measure(model, data).score

    def measure(self, model: Model, data: Dataset, *, predictions: Tensor | None = None) -> Measurement:
        """Return the signed effect with the value and the counterfactual rows of each re-fit.

        `predictions` are f(x) where they are known already.
        """
        if not self.fitted:
            raise NotFittedError("This fairness test is not fitted; call fit first")
        here = predict(model, data.x, batch_size=self.batch_size) if predictions is None else predictions
        mapped = [one.map(data) for one in self.fitted]
        effects = torch.stack([predict(model, m.rows, batch_size=self.batch_size) - here for m in mapped])  # (M, N)
        if self.aligned:
            assert self.metric is not None
            share = model_alignment(
                model, data, self.auxiliary, self.metric, seed=self.seed, batch_size=self.batch_size
            )
            effects = effects * share[0].value
        overshoot = [m.overshoot for m in mapped if m.overshoot is not None]
        return combine(
            effects[..., None],
            data,
            signed=True,
            abstained=torch.stack([m.abstained for m in mapped]).any(0),
            reason=mapped[0].reason,
            counterfactuals=torch.stack([m.rows for m in mapped]),
            overshoot=torch.stack(overshoot).amax(0) if overshoot else None,
        )
