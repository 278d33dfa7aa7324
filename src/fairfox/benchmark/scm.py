"""Small structural causal models: people whose true counterfactuals are known.

Every variable is a function of its parents and of its own noise. The noise of a person is drawn once; evaluating the
same functions with another protected value and the same noise gives that person as a member of that group.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, wraps
from inspect import signature

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from fairfox.choices.kinds import Number
from fairfox.errors import OptionError, ShapeError

Values = NDArray[np.float64]
Noise = Callable[[np.random.Generator, int], Values]
Mechanism = Callable[..., Values]  # (one argument per parent, by name, and `noise`) -> values


def normal(generator: np.random.Generator, n: int) -> Values:
    """Return standard normal noise (n,)."""
    return generator.standard_normal(n)


def uniform(generator: np.random.Generator, n: int) -> Values:
    """Return noise spread evenly over [0, 1) (n,): what a category is chosen by."""
    return generator.random(n)


def choose(noise: Values, *weights: Values | float) -> Values:
    """Return the index of a category per person (N,): the one whose share of [0, 1) holds the person's noise.

    One weight per category, each a number or one value per person; they need not sum to one. Because the noise is
    fixed, a person keeps the category unless its share moves away: counterfactuals are not random.
    """
    shares = np.stack([np.broadcast_to(w, noise.shape) for w in weights])  # (L, N)
    upper = np.cumsum(shares, axis=0) / shares.sum(axis=0)
    return np.asarray((noise >= upper[:-1]).sum(axis=0), dtype=np.float64)


def sigmoid(z: Values) -> Values:
    """Return the logistic function of z."""
    return 1.0 / (1.0 + np.exp(-z))


def happens(noise: Values, logit: Values) -> Values:
    """Return 1.0 for the people whose noise lies under the probability, 0.0 for the others."""
    return (noise < sigmoid(logit)).astype(np.float64)


def per_level(index: Values, *effects: float) -> Values:
    """Return the effect of each person's category (N,)."""
    return np.asarray(effects)[index.astype(np.int64)]


@dataclass(frozen=True)
class Variable:
    """One variable of a world: its mechanism and its noise.

    The mechanism is a function whose arguments are named after the variable's parents, besides its own `noise`. With
    `levels` the variable is a category and the mechanism returns indices into them. A `latent` variable acts on others
    and is never observed.
    """

    name: str
    mechanism: Mechanism
    noise: Noise = normal
    levels: tuple[str, ...] = ()
    latent: bool = False

    @property
    def parents(self) -> tuple[str, ...]:
        """The variables it depends on."""
        return tuple(name for name in signature(self.mechanism).parameters if name != "noise")

    def given(self, values: str | float | ArrayLike, n: int) -> Values:
        """Return n values as mechanisms receive them, from one for everyone or one each: numbers, levels by name."""
        array = np.asarray(values)
        if array.ndim and array.shape != (n,):
            raise ShapeError(f"{len(array)} values of '{self.name}' for {n} people; give one for all or one each")
        if self.levels:
            equal = array.astype(str)[..., None] == np.asarray(self.levels)  # (N, L), or (L,) for everyone
            if len(unknown := array[~equal.any(-1)]):
                raise OptionError(f"'{self.name}' is never '{unknown[0]}'; its levels are {', '.join(self.levels)}")
            array = equal.argmax(-1)
        return np.broadcast_to(array.astype(np.float64), (n,))


@dataclass(frozen=True)
class Population:
    """People sampled from a world, and the same people, row by row, with other protected values.

    Example:
        >>> from fairfox.benchmark.worlds import LENDING
        >>> people = LENDING.sample(1000, seed=0)
        >>> set(people.as_if({"sex": "Male"})["sex"].to_pylist())
        {'Male'}
    """

    world: World
    noise: Mapping[str, Values]  # what is each person's own

    def __len__(self) -> int:
        return len(self.noise[self.label])

    @cached_property
    def values(self) -> dict[str, Values]:
        """Every variable of everyone as they are, latent ones too; categories as indices."""
        return self.world.evaluate(self.noise)

    @cached_property
    def table(self) -> pa.Table:
        """Everyone as they are: the observed variables."""
        return self.world.observed(self.values)

    @cached_property
    def counterfactual(self) -> pa.Table:
        """Everyone as a member of the other group, in a world whose one protected variable has two."""
        first, *more = self.world.chosen(self.protected)
        if more or len(first.levels) != 2:
            raise OptionError(f"The world '{self.world.name}' has no single other group; ask as_if for one")
        return self.as_if({first.name: _names(1.0 - self.values[first.name], first.levels)})

    def as_if(self, changes: Mapping[str, str | float | ArrayLike]) -> pa.Table:
        """Return the same people, their noise unchanged, had they had these protected values.

        A value is one class or number for everyone, or one each. Protected variables that are not changed stay as
        they are, also where they depend on one that is.
        """
        held = {name: self.values[name] for name in self.protected}
        if unknown := [name for name in changes if name not in held]:
            raise OptionError(f"'{unknown[0]}' is not protected here; change {' or '.join(map(repr, held))}")
        changed = {v.name: v.given(changes[v.name], len(self)) for v in self.world.chosen(tuple(changes))}
        return self.world.observed(self.world.evaluate(self.noise, held | changed))

    @property
    def protected(self) -> tuple[str, ...]:
        """The protected columns."""
        return self.world.protected

    @property
    def label(self) -> str:
        """The column that a model learns to predict."""
        return self.world.label

    @property
    def features(self) -> tuple[str, ...]:
        """The columns a model may learn from: all but the protected ones and the label, in the table's order."""
        apart = (*self.protected, self.label)
        return tuple(v.name for v in self.world.variables if not v.latent and v.name not in apart)

    @property
    def legitimate(self) -> tuple[str, ...]:
        """The features that no protected variable acts on: the same whatever the protected values."""
        moved = set(self.protected)
        for v in self.world.variables:
            if moved.intersection(v.parents):
                moved.add(v.name)
        return tuple(name for name in self.features if name not in moved)

    @property
    def y(self) -> Values:
        """The label as numbers (N,)."""
        return self.values[self.label]


@dataclass(frozen=True)
class World:
    """A structural causal model: variables in causal order, parents first, some of them protected.

    A protected variable is a category or a number, and may have parents like any other. Mechanisms receive
    categories as indices into their levels.

    Example:
        >>> from fairfox.benchmark.worlds import LENDING
        >>> people = LENDING.sample(1000, seed=0)
        >>> len(people), people.protected, people.label
        (1000, ('sex',), 'approved')
    """

    name: str
    variables: tuple[Variable, ...]
    label: str
    protected: tuple[str, ...] = ("sex",)
    carriers: tuple[str, ...] = ()  # all paths from the protected variables lead through these; (): themselves

    def sample(self, n: int, *, seed: int = 0) -> Population:
        """Return n people, each with noise of their own."""
        generator = np.random.default_rng(seed)
        return Population(self, {v.name: v.noise(generator, n) for v in self.variables})

    def at(self, bias: float) -> World:
        """Return the world in which the effects of the carriers are multiplied by the bias."""
        Number(0, 1).required("bias", bias)
        carriers = self.carriers or self.protected
        variables = (
            replace(v, mechanism=_weakened(v.mechanism, carriers, bias)) if set(carriers) & set(v.parents) else v
            for v in self.variables
        )
        return replace(self, variables=tuple(variables))

    def evaluate(self, noise: Mapping[str, Values], held: Mapping[str, Values] | None = None) -> dict[str, Values]:
        """Return every variable, latent ones too, of people with the given noise.

        Variables in `held` have the given values instead of their mechanism's: do(variable = values).
        """
        values: dict[str, Values] = {}
        for v in self.variables:
            given = None if held is None else held.get(v.name)
            parents = {name: values[name] for name in v.parents}
            values[v.name] = v.mechanism(noise=noise[v.name], **parents) if given is None else given
        return values

    def chosen(self, names: tuple[str, ...]) -> tuple[Variable, ...]:
        """Return the variables with these names."""
        return tuple(v for v in self.variables if v.name in names)

    def observed(self, values: Mapping[str, Values]) -> pa.Table:
        """Return the table of people's observed variables, with categories by name."""
        columns = {}
        for v in self.variables:
            if not v.latent:
                columns[v.name] = _names(values[v.name], v.levels) if v.levels else pa.array(values[v.name])
        columns[self.label] = pa.array(values[self.label].astype(np.int64))
        return pa.table(columns)


def _names(index: Values, levels: tuple[str, ...]) -> pa.Array:
    return pa.array(np.asarray(levels, dtype=object)[index.astype(np.int64)], type=pa.string())


SEX = Variable("sex", lambda noise: (noise < 0.5).astype(np.float64), uniform, ("Female", "Male"))
ABILITY = Variable("ability", lambda noise: noise, latent=True)  # the same in all groups


def _weakened(mechanism: Mechanism, carriers: tuple[str, ...], bias: float) -> Mechanism:
    @wraps(mechanism)  # its signature names the parents
    def weaker(**values: Values) -> Values:
        return mechanism(**{name: bias * v if name in carriers else v for name, v in values.items()})

    return weaker
