"""People of a world with any protected variables, a target model of them, and its true effects."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from fairfox.benchmark.scm import Population, World
from fairfox.benchmark.truth import TargetTraining, train_target
from fairfox.data.contrasts import HIGHER, Contrast, moves
from fairfox.data.dataset import Dataset
from fairfox.data.encoding import Encoding, fit_encoding
from fairfox.data.table import load_table
from fairfox.fairtests.protocol import Measurement
from fairfox.models.protocol import predict
from fairfox.models.torch import TorchModel

PEOPLE = 6000


@dataclass(frozen=True)
class Audited:
    """A target that learned from some people of a world, and others to audit it on."""

    encoding: Encoding
    fitting: Dataset
    people: Dataset
    population: Population  # of the people
    model: TorchModel

    @property
    def contrasts(self) -> tuple[Contrast, ...]:
        return moves(self.people.protected)

    def effect(self, contrast: Contrast) -> Tensor:
        """Return what the prediction of everyone would truly change by (N,), the other variables held."""
        moved = self.encoding.encode(load_table(self.as_if(contrast)))
        return predict(self.model, moved.x) - predict(self.model, self.people.x)

    def as_if(self, contrast: Contrast) -> pa.Table:
        """Return the people where a contrast takes them; those in that class already stay."""
        p, table = self.people.protected[contrast.variable], self.population.table
        if p.is_continuous:
            spread = float(self.fitting.c[:, contrast.variable].std())
            step = spread if contrast.towards == HIGHER else -spread
            return self.population.as_if({p.name: table[p.name].to_numpy() + step})
        if contrast.towards is None:
            own = np.asarray(table[p.name].to_pylist())
            return self.population.as_if({p.name: np.where(own == p.levels[0], p.levels[1], p.levels[0])})
        level = p.levels[contrast.towards]
        return self.population.as_if(dict(zip(p.parts or (p.name,), level.split(" & "), strict=True)))

    def truth(self, measured: Measurement) -> Tensor:
        """Return the true |effect| of each contrast that was measured (N, Q); NaN where it does not count."""
        effects = torch.stack([self.effect(contrast).abs() for contrast in self.contrasts], dim=1)
        places = [measured.contrasts.index(contrast) for contrast in self.contrasts]
        return torch.where(measured.values[:, places].isnan(), torch.nan, effects)


@cache
def audited(world: World, *, intersections: bool = False) -> Audited:
    past, new = world.sample(PEOPLE, seed=0), world.sample(PEOPLE, seed=1)
    encoding = fit_encoding(
        load_table(past.table),
        protected=past.protected,
        label=past.label,
        columns=past.features,
        also=load_table(new.table),
        intersections=intersections,
        contrasts="all",
    )
    fitting, people = (encoding.encode(load_table(p.table)) for p in (past, new))
    return Audited(encoding, fitting, people, new, train_target(fitting, training=TargetTraining(batch_size=256)))
