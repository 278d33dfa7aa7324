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
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from fairfox.data.dataset import Dataset, Truth
from fairfox.data.encoding import Encoding, fit_encoding
from fairfox.data.table import load_table
from fairfox.errors import OptionError, ShapeError

_STEP = 1e-4  # of the protected variable, for the true derivative

Values = NDArray[np.float64]
Noise = Callable[[np.random.Generator, int], Values]
Mechanism = Callable[..., Values]  # (one argument per parent, by name, and `noise`) -> values


def normal(generator: np.random.Generator, n: int) -> Values:
    """Return standard normal noise (n,)."""
    return generator.standard_normal(n)


def uniform(generator: np.random.Generator, n: int) -> Values:
    """Return noise spread evenly over [0, 1) (n,): what a category is chosen by."""
    return generator.random(n)


def student(generator: np.random.Generator, n: int) -> Values:
    """Return heavy-tailed noise (n,): Student's t with four degrees of freedom."""
    return generator.standard_t(4, n)


def exponential(generator: np.random.Generator, n: int) -> Values:
    """Return skewed noise (n,): exponential, its mean at 0."""
    return generator.exponential(1.0, n) - 1.0


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
        moved = self.world.moved()
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

    def __post_init__(self) -> None:
        declared: set[str] = set()
        for v in self.variables:
            if missing := [p for p in v.parents if p not in declared]:
                raise OptionError(
                    f"'{v.name}' depends on '{missing[0]}', which does not come before it; put parents first"
                )
            declared.add(v.name)
        if self.label not in declared:
            raise OptionError(f"No variable is named '{self.label}'; the label must be one of the variables")
        if strangers := [name for name in self.protected if name not in declared]:
            raise OptionError(f"No variable is named '{strangers[0]}'; protected ones must be among the variables")

    def sample(self, n: int, *, seed: int = 0) -> Population:
        """Return n people, each with noise of their own."""
        generator = np.random.default_rng(seed)
        return Population(self, {v.name: v.noise(generator, n) for v in self.variables})

    def at(self, bias: float) -> World:
        """Return the world in which the effects of the carriers are multiplied by the bias."""
        if not 0.0 <= bias <= 1.0:
            raise OptionError(f"The bias is {bias}; expected a number from 0 (none) to 1 (all of it)")
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
            if held is not None and v.name in held:
                values[v.name] = held[v.name]
            else:
                values[v.name] = v.mechanism(noise=noise[v.name], **{p: values[p] for p in v.parents})
        return values

    def chosen(self, names: tuple[str, ...]) -> tuple[Variable, ...]:
        """Return the variables with these names."""
        return tuple(v for v in self.variables if v.name in names)

    def moved(self) -> set[str]:
        """Return the protected variables and all that they act on, directly or through others."""
        moved = set(self.protected)
        for v in self.variables:
            if moved.intersection(v.parents):
                moved.add(v.name)
        return moved

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


@dataclass(frozen=True)
class Drawn:
    """People of a world, encoded: some to learn from, others whose truth is known."""

    fitting: Dataset
    people: Dataset
    legitimate: Tensor  # (D, P): x @ legitimate is what no protected variable acts on


def draw_people(world: World, fitting: int, people: int, *, seed: int = 0) -> Drawn:
    """Return people of a world with one protected variable that is a category.

    The truth of people of K classes holds them as members of each other one, (N, K - 1, D), and of two classes of the
    other, (N, D). It has the derivative dx/dc where there are two and no feature is a category.
    """
    past, new = (world.sample(n, seed=2 * seed + index) for index, n in enumerate((fitting, people)))
    encoding = fit_encoding(
        load_table(past.table),
        protected=past.protected,
        label=past.label,
        columns=past.features,
        contrasts="all",
        also=load_table(new.table),
    )
    learned, judged = (encoding.encode(load_table(sample.table)) for sample in (past, new))
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
