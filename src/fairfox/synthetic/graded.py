"""Worlds with as much bias as asked for, and their people as data with a known truth.

Bias goes from 0, where the protected variable acts on nothing, to 1, where it acts as the world says: every path from
it carries that part of what it would. Truly treated unfairly is who would get a prediction that differs by more than
`DELTA` as a member of another group. A threshold from a model trained without bias, as for fused tables, would be 0
here: without bias everyone is their own counterfactual.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import wraps

import numpy as np
import torch
from torch import Tensor

from fairfox.data.dataset import Dataset, Truth
from fairfox.data.encode import Encoding, fit_encoding
from fairfox.data.table import load_table
from fairfox.errors import OptionError
from fairfox.synthetic.difficulties import CONFOUNDED, INTERACTION, LABEL_BIAS, LONG_TAILED, SKEWED
from fairfox.synthetic.scm import Mechanism, Population, Values, World
from fairfox.synthetic.two_groups import ADDITIVE, CATEGORICAL_PROXIES, HEAVY_TAILS, LENDING
from fairfox.synthetic.worlds import THREE_CLASSES

DELTA = 0.01  # of a prediction: one point, about what fused tables have (0.001 to 0.02)
_STEP = 1e-4  # of the protected variable, for the true derivative


@dataclass(frozen=True)
class Graded:
    """A world whose bias is chosen.

    Example:
        >>> half = Graded(ADDITIVE).at(0.5).sample(3)
        >>> moved = half.counterfactual["experience"].to_numpy() - half.table["experience"].to_numpy()
        >>> np.abs(moved).round(6)  # half of 1.0
        array([0.5, 0.5, 0.5])
    """

    world: World
    carriers: tuple[str, ...] = ()  # all paths from the protected variables lead through these; (): themselves

    def at(self, bias: float) -> World:
        """Return the world in which the carriers reach what depends on them times the bias."""
        if not 0.0 <= bias <= 1.0:
            raise OptionError(f"The bias is {bias}; expected a number from 0 (none) to 1 (all of it)")
        carriers = self.carriers or self.world.protected
        variables = (
            replace(v, mechanism=_weakened(v.mechanism, carriers, bias)) if set(carriers) & set(v.parents) else v
            for v in self.world.variables
        )
        return replace(self.world, variables=tuple(variables))


def _weakened(mechanism: Mechanism, carriers: tuple[str, ...], bias: float) -> Mechanism:
    @wraps(mechanism)  # its signature names the parents
    def weaker(**values: Values) -> Values:
        return mechanism(**{name: bias * v if name in carriers else v for name, v in values.items()})

    return weaker


# In the world of three classes race acts through two latent variables: classes are names, and cannot be multiplied.
WORLDS: dict[str, Graded] = {
    "additive": Graded(ADDITIVE),
    SKEWED.name: Graded(SKEWED),
    LONG_TAILED.name: Graded(LONG_TAILED),
    LENDING.name: Graded(LENDING),
    CATEGORICAL_PROXIES.name: Graded(CATEGORICAL_PROXIES),
    HEAVY_TAILS.name: Graded(HEAVY_TAILS),
    INTERACTION.name: Graded(INTERACTION),
    THREE_CLASSES.name: Graded(THREE_CLASSES, ("head_start", "remoteness")),
    CONFOUNDED.name: Graded(CONFOUNDED),
    LABEL_BIAS.name: Graded(LABEL_BIAS),
}


@dataclass(frozen=True)
class Drawn:
    """People of a world, encoded: some to learn from, others whose truth is known."""

    fitting: Dataset
    people: Dataset
    legitimate: Tensor  # (D, P): x @ legitimate is what no protected variable acts on


def draw(world: World, fitting: int, people: int, *, seed: int = 0) -> Drawn:
    """Return people of a world with one protected variable that is a category.

    The truth of people of K classes holds them as members of each other one, (N, K - 1, D), and of two classes of the
    other, (N, D). It has the derivative dx/dc where there are two and no feature is a category.
    """
    past, new = (world.sample(n, seed=2 * seed + place) for place, n in enumerate((fitting, people)))
    encoding = fit_encoding(
        load_table(past.table),
        protected=past.protected,
        label=past.label,
        columns=past.features,
        contrasts="all",
        also=load_table(new.table),
    )
    learned, judged = (encoding.encode(load_table(one.table)) for one in (past, new))
    truth = Truth(_counterfactuals(new, judged, encoding), _derivative(new, judged))
    return Drawn(learned, replace(judged, truth=truth), _columns(judged, past.legitimate))


def _counterfactuals(population: Population, people: Dataset, encoding: Encoding) -> Tensor:
    """Return everyone as a member of each other class (N, K - 1, D), or of the other one (N, D)."""
    (p,) = people.protected
    each = [encoding.encode(load_table(population.as_if({p.name: level}))).x for level in p.levels]
    steps = torch.arange(1, len(each))
    other = (people.c[:, :1].long() + steps) % len(each)  # (N, K - 1)
    rows = torch.stack(each, dim=1)[torch.arange(len(people))[:, None], other]
    return rows[:, 0] if len(each) == 2 else rows


def _derivative(population: Population, people: Dataset) -> Tensor | None:
    """Return the true dx/dc (N, D, 1) from the first level to the second, by central differences in a relaxed c."""
    (p,) = people.protected
    if p.kind != "binary" or any(f.kind == "categorical" for f in people.features):
        return None
    world, own = population.world, population.values[p.name]
    (protected,) = world.chosen((p.name,))
    towards = _STEP if protected.levels == p.levels else -_STEP
    up, down = (world.evaluate(population.noise, {p.name: own + step}) for step in (towards, -towards))
    slopes = [(up[f.name] - down[f.name]) / (2 * _STEP * f.scale) for f in people.features]
    return torch.as_tensor(np.stack(slopes, axis=1)).to(people.x)[:, :, None]


def _columns(people: Dataset, names: tuple[str, ...]) -> Tensor:
    """Return the projection (D, P) onto the columns of some features."""
    kept = [j for f in people.features if f.name in names for j in range(f.start, f.stop)]
    return torch.eye(people.x.shape[1], dtype=people.x.dtype)[:, kept]
