"""What a repair stores: a correction of any model's predictions, so that people and their counterfactual rows agree."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fairfox.data.dataset import Dataset, Protected
from fairfox.fairtests.fitted import FittedTest
from fairfox.models.protocol import Model, predict

_EDGE = 1e-3  # predictions are taken to be so far from 0 and 1 before the log-odds


@dataclass(frozen=True, kw_only=True)
class Correction:
    """How a model is repaired: its prediction is multiplied and a network of the row is added, on the log-odds scale.

    Both are learnt together (remedies/learning). A model without an effect stays as it is.
    """

    test: FittedTest  # has the rank maps
    kept: float = 1.0  # of the prediction's log-odds
    net: nn.Sequential | None = None  # rows, and groups where they are used, to what is added; None: nothing
    scale: tuple[float, float] | None = None  # mean and spread of predictions that are no probabilities
    use_protected: bool = False
    threshold: float | None = None  # the prediction from which on the answer is yes; None: one half of a probability
    model_sha256: str | None = None  # of the model's file

    def predict(self, model: Model, data: Dataset, here: Tensor | None = None) -> Tensor:
        """Return the corrected predictions (N,) of people; `here` are the model's own, where they are known already."""
        here = predict(model, data.x, batch_size=self.test.options.batch_size) if here is None else here
        if self.net is None:
            return here
        c = data.c if self.use_protected else None
        with torch.no_grad():
            added = self.net(network_inputs(data.x, c, data.protected).to(self.net[0].weight))[:, 0]  # type: ignore[arg-type]
        return corrected(here, self.kept, added.to(here), self.scale)


@dataclass(frozen=True)
class CorrectedModel:
    """A model on encoded rows with its repair, which does not take the protected column, as a Model."""

    model: Model
    correction: Correction
    differentiable = False

    def __call__(self, x: Tensor) -> Tensor:
        """Return (N, 1) for rows x (N, D)."""
        test = self.correction.test
        c = torch.full((len(x), len(test.known.protected)), torch.nan, dtype=x.dtype, device=x.device)
        features, withheld = test.encoding.features, test.encoding.withheld
        people = Dataset(x=x, c=c, protected=test.known.protected, features=features, withheld=withheld)
        return self.correction.predict(self.model, people)[:, None]


def network_inputs(x: Tensor, c: Tensor | None, protected: tuple[Protected, ...]) -> Tensor:
    """Return what the network sees (n, D or more): rows, and groups c (n, V) one-hot where they are used."""
    groups = [] if c is None else [
        (c[:, v, None] == torch.arange(len(p.levels), device=c.device)).to(x) for v, p in enumerate(protected)
    ]  # fmt: skip
    return torch.cat([x, *groups], dim=1)


def corrected(here: Tensor, kept: Tensor | float, added: Tensor, scale: tuple[float, float] | None) -> Tensor:
    """Return corrected predictions; those with nothing added and all kept are the model's own."""
    if scale is None:
        inside = here.clamp(_EDGE, 1 - _EDGE)
        return (here + (kept * inside.logit() + added).sigmoid() - inside).clamp(0, 1)
    mean, spread = scale
    return here + (kept - 1) * (here - mean) + spread * added
