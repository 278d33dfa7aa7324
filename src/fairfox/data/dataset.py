"""Individuals as tensors: features x, labels y, protected variables c, and what the columns mean; folds, resampling."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b, sha256
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from fairfox.data.table import Level
from fairfox.errors import DataError, ShapeError

FeatureKind = Literal["continuous", "categorical"]
ProtectedKind = Literal["binary", "categorical", "continuous"]
MOST_DECIMALS = 9  # of a number that decoding restores exactly
COMBINATIONS = 32  # of categories in `expand_blocks`: exact up to here, else as many draws


@dataclass(frozen=True)
class Feature:
    """One original column and where it sits in x.

    A continuous feature is one standardised column, followed by a 0/1 column "is missing" when values were
    missing in the fitting rows. A categorical one is a one-hot block, one column per level (None: missing).
    """

    name: str
    kind: FeatureKind
    start: int
    stop: int
    levels: tuple[Level, ...] = ()
    mean: float = 0.0
    scale: float = 1.0
    decimals: int | None = None  # that the fitting values had at most, 0: whole numbers; None: more than nine

    def __post_init__(self) -> None:
        if self.decimals is not None and not 0 <= self.decimals <= MOST_DECIMALS:
            raise DataError(f"'{self.name}' has {self.decimals} decimals; expected 0 to {MOST_DECIMALS}")

    @property
    def columns(self) -> slice:
        """The columns of x that hold this feature."""
        return slice(self.start, self.stop)

    @property
    def has_missing(self) -> bool:
        """Whether a second column marks missing values (continuous features only)."""
        return self.kind == "continuous" and self.stop - self.start == 2


@dataclass(frozen=True)
class Protected:
    """One protected variable: its kind, its classes, and the column it was read from.

    In `Dataset.c` a class is its index in `levels`, a continuous variable its value, NaN means unknown.
    """

    name: str
    kind: ProtectedKind = "binary"
    levels: tuple[str, ...] = ("0", "1")  # () for a continuous variable
    source: str | None = None
    reference: int | None = None  # the class that all others are compared with; None: every class with every other
    second: int | None = None  # the class that members of the reference are compared with; None: with every other one
    parts: tuple[str, ...] = ()  # the variables it crosses: "sex x race" of sex and race

    @property
    def outputs(self) -> int:
        """How many outputs the auxiliary has for it: one logit, K centred logits, or one value."""
        return len(self.levels) if self.kind == "categorical" else 1

    @property
    def is_continuous(self) -> bool:
        """Whether it is a number rather than a class."""
        return self.kind == "continuous"


def group_name(variable: str, level: str) -> str:
    """Return a group in words: "sex=Female"; a cut speaks for itself: "age<25", "not age<25"."""
    return level if level in (variable, f"not {variable}") else f"{variable}={level}"


@dataclass(frozen=True)
class Truth:
    """The truth of generated data: each individual as a member of the other group, encoded."""

    counterfactual: Tensor  # (N, D), or (N, Q, D): of each of Q other groups
    dx_dc: Tensor | None = None  # (N, D, K)

    def each(self, change: Callable[[Tensor], Tensor]) -> Truth:
        """Return a copy with a function applied to each tensor."""
        return Truth(change(self.counterfactual), None if self.dx_dc is None else change(self.dx_dc))


@dataclass(frozen=True, repr=False)
class Dataset:
    """Individuals as tensors: features x, protected variables c, labels y.

    Example:
        >>> Dataset.from_arrays([[0.0, 1.0], [1.0, 0.0]], c=[0, 1])
        <Dataset of 2 people, 2 features in 2 columns; c: 1 of 0, 1 of 1>
    """

    x: Tensor  # (N, D)
    c: Tensor  # (N, V): one column per protected variable
    protected: tuple[Protected, ...]
    features: tuple[Feature, ...]
    y: Tensor | None = None  # (N,)
    withheld: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.bool))  # (D,)
    ids: np.ndarray | None = None  # (N,); None: row numbers
    truth: Truth | None = None
    weights: Tensor | None = None  # (N,) how many people each row stands for; None: one
    w: Tensor | None = None  # (N, W): columns that the model does not take, to compare people by
    covariates: tuple[Feature, ...] = ()  # the columns in w

    def __post_init__(self) -> None:
        if self.x.ndim != 2:
            raise ShapeError(f"x has {self.x.ndim} dimensions; give one row per individual and one column per feature")
        if self.withheld.numel() == 0:
            object.__setattr__(self, "withheld", torch.zeros(self.x.shape[1], dtype=torch.bool))
        if self.c.shape != (len(self.x), len(self.protected)):
            raise ShapeError(
                f"c has shape {tuple(self.c.shape)}; expected {(len(self.x), len(self.protected))}: "
                "one row per individual, one column per protected variable"
            )
        if self.y is not None and len(self.y) != len(self.x):
            raise ShapeError(f"{len(self.y)} labels for {len(self.x)} individuals; give one label each")
        if self.weights is not None and self.weights.shape != (len(self.x),):
            raise ShapeError(f"weights have shape {tuple(self.weights.shape)}; expected ({len(self.x)},), one each")

    @classmethod
    def from_arrays(
        cls,
        x: object,
        c: object,
        y: object = None,
        *,
        names: Sequence[str] | None = None,
        protected: Sequence[Protected] | None = None,
    ) -> Dataset:
        """Return a Dataset of plain arrays: every column is continuous and not scaled again.

        Without protected variables (c is None) c has no columns.
        """
        rows = _tensor(x)
        labels = None if y is None else _tensor(y)
        if rows.ndim != 2:
            raise ShapeError(f"x has {rows.ndim} dimensions; give a 2-D array, one row per individual")
        groups = rows.new_zeros(len(rows), 0) if c is None else _tensor(c)
        if groups.ndim == 0 or len(groups) != len(rows):
            found = groups.ndim and len(groups)
            raise ShapeError(f"{found} protected values for {len(rows)} individuals; give one each")
        rows = rows if rows.is_floating_point() else rows.to(torch.get_default_dtype())
        groups = groups.to(rows).reshape(len(rows), 0 if c is None else -1)
        columns = list(names) if names is not None else [f"x{j}" for j in range(rows.shape[1])]
        if len(columns) != rows.shape[1]:
            raise ShapeError(f"{len(columns)} names for {rows.shape[1]} columns; give one name per column")
        features = tuple(Feature(name, "continuous", j, j + 1) for j, name in enumerate(columns))
        if protected is None:
            protected = [
                _inferred(groups[:, v], f"c{v}" if groups.shape[1] > 1 else "c") for v in range(groups.shape[1])
            ]
        return cls(x=rows, c=groups, protected=tuple(protected), features=features, y=labels)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, rows: slice | Tensor | np.ndarray) -> Dataset:
        """Return the chosen individuals."""
        index = torch.as_tensor(rows) if isinstance(rows, np.ndarray) else rows
        ids = None if self.ids is None else self.ids[index if isinstance(index, slice) else index.numpy(force=True)]
        return self._with(lambda tensor: tensor[index], "x", "c", "y", "weights", "w", ids=ids)

    @property
    def names(self) -> tuple[str, ...]:
        """The name of every column of x: `age`, `job=clerk`, `income is missing`."""
        out: list[str] = []
        for f in self.features:
            if f.kind == "categorical":
                out += [f"{f.name}={'missing' if level is None else level}" for level in f.levels]
            else:
                out += [f.name] + [f"{f.name} is missing"] * f.has_missing
        return tuple(out)

    def to(self, target: torch.dtype | torch.device | str) -> Dataset:
        """Return the same individuals with another dtype or on another device."""
        kept = () if isinstance(target, torch.dtype) else ("y", "withheld")  # labels and marks have their own dtypes
        return self._with(lambda tensor: tensor.to(target), "x", "c", "weights", "w", *kept)

    def _with(self, change: Callable[[Tensor], Tensor], *names: str, **more: Any) -> Dataset:
        """Return a copy with a function applied to some of its tensors, and to the truth."""
        held = {name: getattr(self, name) for name in names}
        parts: dict[str, Any] = {name: None if each is None else change(each) for name, each in held.items()}
        return replace(self, **parts, truth=self.truth and self.truth.each(change), **more)

    def split(self, fraction: float, *, seed: int = 0) -> tuple[Dataset, Dataset]:
        """Return two random parts, the first with `fraction` of each protected class."""
        numbers = [v for v, p in enumerate(self.protected) if p.is_continuous]
        block = round(1 / min(fraction, 1 - fraction)) if 0 < fraction < 1 else 1
        order, place = _stratified_order(self.c, seed=seed, numbers=numbers, block=block), torch.arange(len(self))
        taken = ((place + 1) * fraction).floor() > (place * fraction).floor()
        return self[order[taken].sort().values], self[order[~taken].sort().values]

    def __repr__(self) -> str:
        """Return how many people there are, their protected groups and what else the dataset holds; no rows."""
        parts = [f"{len(self):,} people, {len(self.features):,} features in {self.x.shape[1]:,} columns"]
        for v, p in enumerate(self.protected):
            values = self.c[:, v]
            sizes = [(f"of {level}", values == k) for k, level in enumerate(p.levels)]
            sizes = sizes or [("with a number", ~values.isnan())]
            counts = [(int(members.sum()), words) for words, members in [*sizes, ("unknown", values.isnan())]]
            parts.append(f"{p.name}: " + ", ".join(f"{n:,} {words}" for n, words in counts if n))
        known = {"labels": self.y, "weights": self.weights, "true counterfactuals": self.truth}
        parts += [name for name, held in known.items() if held is not None]
        return f"<Dataset of {'; '.join(parts)}>"


def rows_sha256(data: Dataset) -> str:
    """Return the hash of encoded rows and protected values."""
    return tensors_sha256(data.x, data.c)


def tensors_sha256(*parts: Tensor) -> str:
    """Return one hash of all numbers of some tensors."""
    found = sha256()
    for part in parts:
        found.update(part.contiguous().numpy(force=True).tobytes())
    return found.hexdigest()


def missing_columns(data: Dataset) -> Tensor:
    """Return which columns of x (D,) mark missing values."""
    out = torch.zeros(data.x.shape[1], dtype=torch.bool)
    for f in data.features:
        if f.has_missing:
            out[f.start + 1] = True
    return out


def empty_blocks(data: Dataset, features: Sequence[Feature] | None = None) -> Tensor:
    """Return who (N,) bool has a category that no fitting row has: an empty one-hot block."""
    out = torch.zeros(len(data), dtype=torch.bool, device=data.x.device)
    for f in data.features if features is None else features:
        if f.kind == "categorical":
            out |= data.x[:, f.columns].sum(1) < 0.5
    return out


def with_stand_ins(data: Dataset) -> tuple[Dataset, Tensor]:
    """Return people with some category in their empty blocks, which a model may refuse, and who they are (N,) bool."""
    unseen = empty_blocks(data)
    x = data.x.clone() if bool(unseen.any()) else data.x
    for f in data.features if x is not data.x else ():
        x[empty_blocks(data, [f]), f.start] = 1.0
    return replace(data, x=x), unseen


def project_blocks(x: Tensor, features: Sequence[Feature]) -> Tensor:
    """Return x with every one-hot block clipped at 0 and renormalised.

    Where clipping leaves nothing, the largest entry gets everything; blocks of zeros (a category that the encoding
    does not know) stay empty.
    """
    blocks = [f.columns for f in features if f.kind == "categorical"]
    if not blocks:
        return x
    parts, at = [], 0
    for block in blocks:
        parts += [x[:, at : block.start], _on_simplex(x[:, block])]
        at = block.stop
    return torch.cat([*parts, x[:, at:]], dim=1)


def _on_simplex(block: Tensor) -> Tensor:
    clipped = block.clamp(min=0)
    total = clipped.sum(1, keepdim=True)
    shares = clipped / torch.where(total > 0, total, 1.0)
    lost = (total == 0) & (block < 0).any(1, keepdim=True)
    if not lost.any():
        return shares
    largest = torch.zeros_like(block).scatter(1, block.argmax(1, keepdim=True), 1.0)
    return torch.where(lost, largest, shares)


def expand_blocks(x: Tensor, blocks: Sequence[slice], *, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return rows with one category per block (R, D), the weight of each (R,), and whose row each is (R,).

    Blocks of x (N, D) hold shares that sum to 1, or to 0 for an unknown category, which stays unknown. This is the
    product distribution over the blocks: exact up to 32 combinations, else 32 draws with common random numbers (the
    same for everyone, so that neither order nor batches matter).
    """
    support = torch.stack([(x[:, b] > 1e-9).sum(1).clamp(min=1) for b in blocks], dim=1)  # (N, B)
    combinations = support.double().prod(1)
    exact = combinations <= COMBINATIONS
    repeats = torch.where(exact, combinations, float(COMBINATIONS)).long()
    owner = torch.repeat_interleave(torch.arange(len(x), device=x.device), repeats)
    place = torch.arange(len(owner), device=x.device) - (repeats.cumsum(0) - repeats)[owner]  # 0.. for each individual
    rows = x[owner]
    weights = torch.where(exact, 1.0, 1.0 / COMBINATIONS).double()[owner]
    draws = uniform_draws(len(blocks), seed=seed).to(x)[place.clamp(max=COMBINATIONS - 1)]  # (R, B)
    digits = _digits(place, support[owner])
    for j, block in enumerate(blocks):
        share, order = (part[owner] for part in x[:, block].sort(dim=1, descending=True, stable=True))
        drawn = (share.cumsum(1) < draws[:, j, None]).sum(1).minimum(support[owner, j] - 1)
        chosen = torch.where(exact[owner], digits[:, j], drawn)[:, None]
        empty = share[:, :1] <= 0
        counts = exact[owner] & ~empty[:, 0]
        weights = torch.where(counts, weights * share.gather(1, chosen)[:, 0].double(), weights)
        whole = torch.zeros_like(share).scatter_(1, order.gather(1, chosen), 1.0)
        rows[:, block] = torch.where(empty, 0.0, whole)
    return rows, weights, owner


def uniform_draws(blocks: int, *, seed: int) -> Tensor:
    """Return a Latin hypercube of uniforms (32, B), which covers every block's shares evenly."""
    generator = torch.Generator().manual_seed(seed)
    offsets = torch.rand(COMBINATIONS, blocks, generator=generator, dtype=torch.float64)
    order = torch.stack([torch.randperm(COMBINATIONS, generator=generator) for _ in range(blocks)], dim=1)
    return (order + offsets) / COMBINATIONS


def _digits(place: Tensor, support: Tensor) -> Tensor:
    """Return which category each block shows in the combination numbered `place`: its digits in the bases `support`."""
    digits = []
    for base in support.unbind(1):
        digits.append(place % base)
        place = place // base
    return torch.stack(digits, dim=1)


def row_marks(x: Tensor) -> Tensor:
    """Return an integer hash of each row (N,), which does not depend on the other rows."""
    bits = (x.double() + 0.0).view(torch.int64)  # -0.0 is 0.0
    generator = torch.Generator().manual_seed(0)
    odd = torch.randint(2**62, (x.shape[1],), generator=generator).to(x.device) * 2 + 1
    mixed = bits.bitwise_xor(bits >> 29) * odd  # whole numbers wrap around
    return mixed.bitwise_xor(mixed >> 32).sum(1)


def fitting_order(data: Dataset, *, seed: int) -> Tensor:
    """Return the order (N,) in which rows are fitted: by a seeded hash of their ids, else as they are.

    With ids, the fit does not depend on the order of the table.
    """
    if data.ids is None:
        return torch.arange(len(data))
    words = (f"{seed} {int(one) if isinstance(one, float) and one.is_integer() else one}" for one in data.ids.tolist())
    hashes = [blake2b(word.encode(errors="replace"), digest_size=8).digest() for word in words]
    marks = row_marks(data.x).tolist()  # where an id is there twice
    return torch.tensor(sorted(range(len(data)), key=lambda row: (hashes[row], marks[row])), dtype=torch.long)


def assign_folds(c: Tensor, folds: int, *, seed: int, numbers: Sequence[int] = ()) -> Tensor:
    """Return a fold number per individual (N,), every protected class spread evenly over the folds.

    `numbers` are the columns of c that hold no classes: people with neighbouring values are dealt to all folds.
    """
    fold = torch.empty(len(c), dtype=torch.long)
    fold[_stratified_order(c, seed=seed, numbers=numbers, block=folds)] = torch.arange(len(c)) % folds
    return fold


def resample(data: Dataset, *, generator: torch.Generator) -> Dataset:
    """Return a bootstrap sample of the same size, in which each protected group keeps its size.

    Weighted people are drawn in proportion to their weights, and then count equally: a group's size is then its share
    of all weights, and at least one. Equal weights are ignored.
    """
    return replace(data[resampled_rows(data, generator=generator)], weights=None)


def resampled_rows(data: Dataset, *, generator: torch.Generator) -> Tensor:
    """Return the row numbers of the people that `resample` draws."""
    classes = [v for v, p in enumerate(data.protected) if not p.is_continuous]
    group = torch.zeros(len(data), dtype=torch.long)
    if classes:
        for own in data.c[:, classes].cpu().nan_to_num(nan=-1.0).unbind(1):
            group = (group * len(own) + own.unique(return_inverse=True)[1]).unique(return_inverse=True)[1]
    weights = None if data.weights is None else data.weights.cpu().double()
    if weights is not None and float(weights.max()) > float(weights.min()):
        return _weighted_rows(group, weights, generator)
    rows = torch.arange(len(data))
    for g in group.unique():
        members = (group == g).nonzero()[:, 0]
        rows[members] = members[torch.randint(len(members), (len(members),), generator=generator)]
    return rows


def _weighted_rows(group: Tensor, weights: Tensor, generator: torch.Generator) -> Tensor:
    """Return rows drawn in proportion to their weights, from each group as its weight wants it."""
    rows = []
    for g in group.unique():
        members = (group == g).nonzero()[:, 0]
        ends = weights[members].cumsum(0)
        if float(ends[-1]) > 0:
            size = max(1, round(len(weights) * float(ends[-1] / weights.sum())))
            draws = torch.rand(size, generator=generator, dtype=torch.float64) * ends[-1]
            rows.append(members[torch.searchsorted(ends, draws, right=True).clamp(max=len(members) - 1)])
    return torch.cat(rows)


def _stratified_order(c: Tensor, *, seed: int, numbers: Sequence[int], block: int) -> Tensor:
    """Return a random order of the rows in which equal protected values stand together, and close ones near.

    Variables with few values come first, so that one that is different for everyone does not split the classes. Along
    columns that are numbers, every `block` neighbours of the same classes stand in random order.
    """
    shuffled = torch.randperm(len(c), generator=torch.Generator().manual_seed(seed))
    if c.shape[1] == 0:
        return shuffled
    values = c[shuffled].cpu().double().nan_to_num(nan=-1.0)
    fewest_first = sorted(values.unbind(1), key=lambda column: len(column.unique()))
    _, group = torch.unique(torch.stack(fewest_first, dim=1), dim=0, return_inverse=True)
    order = shuffled[torch.argsort(group, stable=True)]
    if numbers:  # without ties, the order so far is the same for every seed
        classes = c[order].cpu()[:, [v for v in range(c.shape[1]) if v not in numbers]].nan_to_num(nan=-1.0).long()
        _, near = torch.cat([torch.arange(len(c))[:, None] // block, classes], dim=1).unique(dim=0, return_inverse=True)
        order[near.argsort(stable=True)] = order[shuffled[near[shuffled].argsort(stable=True)]]
    return order


def _tensor(values: object) -> Tensor:
    """Return a tensor: arrays keep their dtype, plain lists get torch's."""
    if isinstance(values, Tensor):
        return values
    tensor = torch.as_tensor(np.asarray(values))
    plain = isinstance(values, list | tuple) and tensor.is_floating_point()
    return tensor.to(torch.get_default_dtype()) if plain else tensor


def _inferred(values: Tensor, name: str) -> Protected:
    known = torch.unique(values[~values.isnan()])
    if len(known) < 2:
        raise DataError(f"The protected variable '{name}' has {len(known)} value(s); at least two groups are needed")
    whole = bool((known == known.round()).all()) and float(known.min()) == 0 and len(known) == int(known.max()) + 1
    if whole and len(known) == 2:
        return Protected(name, "binary", ("0", "1"))
    if whole and len(known) <= 20:
        return Protected(name, "categorical", tuple(str(int(k)) for k in known))
    return Protected(name, "continuous", ())
