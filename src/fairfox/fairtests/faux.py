"""fAux: how the prediction moves when the inferred protected variable moves; and tests that share gradients."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from numbers import Integral
from typing import ClassVar, Literal, Protocol, Self, runtime_checkable

import torch
from torch import Tensor

from fairfox.auxiliary.model import Auxiliary, AuxiliaryModel, heads_of
from fairfox.data.contrasts import Contrast, derivatives
from fairfox.data.dataset import Dataset, Protected
from fairfox.errors import NotFittedError, OptionError
from fairfox.fairtests.protocol import Measurement, away_from_own, combine
from fairfox.gradients.alignment import (
    SINGLE,
    Head,
    Products,
    cosine,
    covariance_metric,
    dead_rows,
    inverse_direction,
    sensitivity,
)
from fairfox.gradients.finite_difference import suited_step
from fairfox.gradients.integrated import choose_path, integrated_jacobian
from fairfox.gradients.jacobian import jacobian, slope
from fairfox.gradients.relu import BlockProducts, Pairing, pairing_of, whole_products
from fairfox.maps.protocol import FLAT
from fairfox.models.protocol import Model

_CACHE = 8 << 20  # bytes that a block of rows may take; measured: 1024 to 4096 rows are alike
_LEAST = 1024
_ON_GPU = 2 << 30  # bytes that a block of rows may take there
_BUSY = 1 << 20  # rows that keep a large GPU busy
Block = tuple[list[Tensor], list[Tensor], Tensor]  # of each test values (M, n, Q), dead (n, V); whose are inexact (n,)


@dataclass(kw_only=True)
class FAux:
    """How far the target's prediction moves when the inferred protected variable moves.

    `normalise` compares directions only (fAux+NG), `integrated` replaces both gradients by integrated ones
    (fAux+IG), the metric "covariance" measures moves in the data's own spread (the names with /s).

    Example:
        >>> from fairfox.auxiliary.model import FixedAuxiliary
        >>> from fairfox.auxiliary.linear import LinearMember
        >>> member = LinearMember(torch.tensor([[3.0, 4.0]]), torch.zeros(1))
        >>> target = LinearMember(torch.tensor([[2.0, 1.0]]), torch.zeros(1))
        >>> test = FAux(auxiliary=FixedAuxiliary([member]))
        >>> test.score(target, Dataset.from_arrays(torch.zeros(2, 2), c=[0, 1]))  # (2, 1) . (3, 4) / 25
        tensor([0.4000, 0.4000])
    """

    has_sign: ClassVar[bool] = True

    auxiliary: Auxiliary = field(default_factory=AuxiliaryModel)
    normalise: bool = False
    integrated: bool = False
    metric: Literal["identity", "covariance"] = "identity"
    baseline: Literal["mean", "zero"] | Tensor = "mean"
    steps: int | None = None  # of the integrated gradients' path; None: as many as their error asks for
    batch_size: int = 4096
    matrix: Tensor | None = field(default=None, init=False, repr=False)  # S
    center: Tensor | None = field(default=None, init=False, repr=False)  # (D,) mean of the fitting rows
    protected: tuple[Protected, ...] = field(default=(), init=False, repr=False)

    def __post_init__(self) -> None:
        whole = isinstance(self.steps, Integral) and not isinstance(self.steps, bool)
        if self.steps is not None and not (whole and self.steps >= 1):
            raise OptionError(f"steps is {self.steps!r}; expected a whole number of at least 1, or None to choose it")

    def fit(self, data: Dataset) -> Self:
        """Train the auxiliary on x and c, never y."""
        self.auxiliary.fit(data)
        self.protected = data.protected
        self.center = data.x.mean(0)
        if self.metric == "covariance":
            self.matrix = covariance_metric(data.x, weights=data.weights)
        return self

    def score(self, model: Model, data: Dataset) -> Tensor:
        """Return (N,): higher is less fair."""
        if self.integrated or self._by_slopes(model):
            return self.measure(model, data).score
        self._check_fitted()
        return score_together([self], model, data, batch_size=self.batch_size)[0]

    def measure(self, model: Model, data: Dataset, *, step: float | None = None) -> Measurement:
        """Return the score with its sign and the value of each re-trained auxiliary.

        `step` is that of finite differences of a black box, by default `suited_step` on these people.
        """
        self._check_fitted()
        if self.integrated:
            return self._measure_integrated(model, data)
        if self._by_slopes(model):
            return self._measure_slopes(model, data, step)
        return measure_together([self], model, data, batch_size=self.batch_size, step=step)[0]

    def _check_fitted(self) -> None:
        if not self.auxiliary.members:
            raise NotFittedError("This fairness test is not fitted; call fit first")
        if self.metric == "covariance" and self.matrix is None:
            raise NotFittedError("The covariance metric comes from data; call fit first")

    def _by_slopes(self, model: Model) -> bool:
        """Return whether a black box is asked along dx/dc only."""
        return not model.differentiable and not self.normalise and not getattr(model, "blocks", ())

    @property
    def gradients_of(self) -> Auxiliary:
        """The auxiliary whose Jacobians are wanted."""
        return self.auxiliary

    def contrasts(self, protected: Sequence[Protected]) -> tuple[Contrast, ...]:
        """Return one contrast per protected output."""
        return derivatives(protected)

    def values(self, grad_tar: Tensor, jac_aux: Tensor | None) -> Tensor:
        """Return df/dc or the cosine (n, K)."""
        return self._values(grad_tar, jac_aux, self.matrix)

    @property
    def by_products(self) -> bool:
        """True: inner products in the metric are all it needs."""
        return True

    def in_coordinates(self, grad_tar: Tensor, jac_aux: Tensor) -> Tensor:
        """Return `values` from coordinates in which the metric is the identity."""
        return self._values(grad_tar, jac_aux, None)

    def of_products(self, found: Products) -> Tensor:
        """Return `values` (n, 1) for a single protected output."""
        return found.cosine() if self.normalise else found.sensitivity()

    def _values(self, grad_tar: Tensor, jac_aux: Tensor | None, metric: Tensor | None) -> Tensor:
        assert jac_aux is not None
        if self.normalise:
            return cosine(grad_tar, jac_aux, metric=metric)
        return sensitivity(grad_tar, self._directions(jac_aux, metric))

    def _directions(self, jac_aux: Tensor, metric: Tensor | None) -> Tensor:
        """Return dx/dc (n, D, K): the outputs of all variables are solved together.

        A crossing is solved alone: its outputs cannot change while the variables it crosses stay.
        """
        if not any(p.parts for p in self.protected):
            heads = heads_of(self.protected) if self.protected else None
            return inverse_direction(jac_aux, metric=metric, heads=heads, cut=SINGLE)
        out = torch.empty_like(jac_aux.mT)
        variable = torch.tensor([c.variable for c in derivatives(self.protected)])
        crossings = [[v] for v, p in enumerate(self.protected) if p.parts]
        for family in [[v for v, p in enumerate(self.protected) if not p.parts], *crossings]:
            own = torch.isin(variable, torch.tensor(family)).nonzero()[:, 0].to(jac_aux.device)
            heads = heads_of([self.protected[v] for v in family])
            out[:, :, own] = inverse_direction(jac_aux[:, own], metric=metric, heads=heads, cut=SINGLE)
        return out

    def _measure_integrated(self, model: Model, data: Dataset) -> Measurement:
        if not model.differentiable:
            raise OptionError(
                "faux+ig needs a model that autograd sees through; use rank, move or faux for a black box"
            )
        start, heads = self._baseline(data.x), heads_of(data.protected)
        target, *members = (
            partial(integrated_jacobian, each, path=choose_path(each, start, steps=self.steps))
            for each in (model, *self.auxiliary.members)
        )
        values, dead = [], []
        for rows in data.x.split(self.batch_size):
            grad_tar = target(rows, baseline=start, batch_size=self.batch_size)[:, 0]
            jacs = [member(rows, baseline=start, batch_size=self.batch_size) for member in members]
            values.append(torch.stack([self.values(grad_tar, jac) for jac in jacs]))
            dead.append(torch.stack([dead_variables(jac, heads) for jac in jacs]).any(0))
        return measurement(self, torch.cat(values, dim=1), torch.cat(dead), data)

    def _measure_slopes(self, model: Model, data: Dataset, step: float | None) -> Measurement:
        """Two predictions per direction: the derivative of a black box along dx/dc."""
        step, heads = suited_step(model, data.x) if step is None else step, heads_of(data.protected)
        fits, dead = [], []
        for member in self.auxiliary.members:
            jac = jacobian(member, data.x, batch_size=self.batch_size)
            directions = self._directions(jac, self.matrix)  # (N, D, K)
            fits.append(torch.stack([slope(model, data.x, v, step=step) for v in directions.unbind(2)], dim=1))
            dead.append(dead_variables(jac, heads))
        return measurement(self, torch.stack(fits), torch.stack(dead).any(0), data)

    def _baseline(self, x: Tensor) -> Tensor:
        if isinstance(self.baseline, Tensor):
            return self.baseline.to(x)
        if self.baseline == "zero":
            return torch.zeros_like(x[0])
        if self.baseline != "mean":
            raise OptionError(f"The baseline is '{self.baseline}'; expected 'mean', 'zero' or a row")
        if self.center is None:
            raise NotFittedError("The mean baseline comes from data; call fit first")
        return self.center.to(x)


class GradientTest(Protocol):
    """A test whose values follow from the target's gradient and the auxiliaries' Jacobians."""

    has_sign: ClassVar[bool]

    @property
    def gradients_of(self) -> Auxiliary | None:
        """The auxiliary whose Jacobians are wanted; None for none."""
        ...

    def contrasts(self, protected: Sequence[Protected]) -> tuple[Contrast, ...]:
        """Return what each column of `values` speaks of; () for a test that knows no protected variable."""
        ...

    def values(self, grad_tar: Tensor, jac_aux: Tensor | None) -> Tensor:
        """Return (n, Q) for one block of rows and one member of the auxiliary."""
        ...


@runtime_checkable
class ProductTest(Protocol):
    """A gradient test that needs inner products of the gradients only, in a metric (D, D) or None."""

    @property
    def gradients_of(self) -> Auxiliary | None:
        """As of every gradient test."""
        ...

    @property
    def matrix(self) -> Tensor | None:
        """The metric; None for the identity."""
        ...

    @property
    def by_products(self) -> bool:
        """Whether, with its settings, inner products are enough."""
        ...

    def in_coordinates(self, grad_tar: Tensor, jac_aux: Tensor) -> Tensor:
        """Return the values (n, Q) from gradients in coordinates in which the metric is the identity."""
        ...

    def of_products(self, found: Products) -> Tensor:
        """Return the values (n, 1) for a single protected output."""
        ...


@runtime_checkable
class SteppedTest(Protocol):
    """A test by gradients that takes the step of finite differences of a black box, which else it chooses itself."""

    @property
    def gradients_of(self) -> Auxiliary | None:
        """As of every gradient test."""
        ...

    def measure(self, model: Model, data: Dataset, *, step: float | None = None) -> Measurement:
        """Return the score and its re-fits; without a step, that which suits the first people."""
        ...


def measure_together(
    tests: Sequence[GradientTest], model: Model, data: Dataset, *, batch_size: int = 4096, step: float | None = None
) -> list[Measurement]:
    """Return each test's Measurement; gradients are formed once per block and used by all.

    `step` is that of finite differences of a black box, by default `suited_step` on these people.
    """
    found = _all_values(tests, model, data, batch_size, step=step)
    return [measurement(test, values, dead, data) for test, values, dead in found]


def score_together(
    tests: Sequence[GradientTest], model: Model, data: Dataset, *, batch_size: int = 4096
) -> list[Tensor]:
    """Return each test's scores (N,) as `measure_together` does, and nothing else."""
    scores = []
    for test, values, dead in _all_values(tests, model, data, batch_size):
        size = _counted(test, values, dead, data).mean(0).abs()
        scores.append(torch.where(size.isnan(), 0.0, size).amax(1))
    return scores


def measurement(test: GradientTest, values: Tensor, dead: Tensor, data: Dataset) -> Measurement:
    """Return the Measurement of values (M, N, Q), given for which protected variables an auxiliary is dead (N, V)."""
    contrasts = test.contrasts(data.protected)
    counted = _counted(test, values, dead, data)
    return combine(counted, data, contrasts=contrasts, signed=test.has_sign, reasons=FLAT)


def dead_variables(jac_aux: Tensor, heads: Sequence[Head]) -> Tensor:
    """Return for which protected variables (N, V) J is numerically zero: no evidence about them there."""
    blocks = jac_aux.split([h.outputs for h in heads], dim=1)
    return torch.stack([dead_rows(block) for block in blocks], dim=1)


def _counted(test: GradientTest, values: Tensor, dead: Tensor, data: Dataset) -> Tensor:
    """Return the values (M, N, Q), turned away from the own group, NaN where they do not count."""
    contrasts = test.contrasts(data.protected)
    if test.has_sign:
        values = values * away_from_own(data, contrasts)
    if contrasts and bool(dead.any()):
        values = torch.where(dead[:, [contrast.variable for contrast in contrasts]], torch.nan, values)
    return values


def _all_values(
    tests: Sequence[GradientTest], model: Model, data: Dataset, batch_size: int, *, step: float | None = None
) -> Iterator[tuple[GradientTest, Tensor, Tensor]]:
    """Yield each test with its values (M, N, Q), and for which variables an auxiliary is dead (N, V)."""
    if step is None and not model.differentiable:
        step = suited_step(model, data.x)
    heads = heads_of(data.protected)
    plain = [test for test in tests if isinstance(test, ProductTest) and test.by_products]
    pairing = _pairing(plain, model, data.x) if len(plain) == len(tests) else None
    if pairing is not None:
        batch_size = block_rows(data.x, pairing, batch_size)
    if pairing is not None and all(member.outputs == 1 for member in pairing.members):
        found = [(data.x, _of_products(plain, pairing, data.x, heads, batch_size))]
    elif pairing is not None:
        found = [(x, _short_block(plain, pairing, x, heads)) for x in data.x.split(batch_size)]
    else:
        found = [(x, _block(tests, model, x, heads, step)) for x in data.x.split(batch_size)]
    blocks = []
    for x, (values, dead, inexact) in found:
        for rows in inexact.nonzero()[:, 0].split(batch_size) if bool(inexact.any()) else ():
            _replace(values, dead, _block(tests, model, x[rows], heads, step), rows)
        blocks.append((values, dead))
    for i, test in enumerate(tests):
        together = torch.cat([values[i] for values, _ in blocks], dim=1)
        yield test, together, torch.cat([dead[i] for _, dead in blocks])


def _block(tests: Sequence[GradientTest], model: Model, x: Tensor, heads: Sequence[Head], step: float | None) -> Block:
    grad_tar = jacobian(model, x, batch_size=len(x), step=step)[:, 0]  # (n, D)
    jacobians: dict[int, tuple[list[Tensor], Tensor]] = {}  # of each auxiliary, and where one of them is dead
    values, dead = [], []
    for test in tests:
        auxiliary = test.gradients_of
        if auxiliary is None:
            values.append(test.values(grad_tar, None)[None])
            dead.append(torch.zeros(len(x), len(heads), dtype=torch.bool, device=x.device))
            continue
        if id(auxiliary) not in jacobians:
            jacs = [jacobian(member, x, batch_size=len(x)) for member in auxiliary.members]
            jacobians[id(auxiliary)] = jacs, torch.stack([dead_variables(jac, heads) for jac in jacs]).any(0)
        jacs, flat = jacobians[id(auxiliary)]
        values.append(torch.stack([test.values(grad_tar, jac) for jac in jacs]))
        dead.append(flat)
    return values, dead, dead[0].new_zeros(len(x))


def block_rows(x: Tensor, pairing: Pairing, most: int) -> int:
    """Return how many rows to take at once: what they need is to stay in a processor's cache, calls to be worth it.

    A GPU is idle with as few as a processor's cache holds: there it is a million, or `most` where that is more, as far
    as memory for them goes.
    """
    chains = (pairing.target, *pairing.members)
    units, outputs = max(sum(map(len, each.weights[1:])) for each in chains), max(each.outputs for each in chains)
    if x.device.type != "cpu":
        units += max(len(each.first) for each in chains)
        return min(max(most, _BUSY), _fitting(_ON_GPU, x, units, outputs))
    return min(most, _fitting(_CACHE, x, units, outputs))


def _fitting(memory: int, x: Tensor, units: int, outputs: int) -> int:
    """Return for how many rows so many bytes are enough, as a power of two, or how many make a call worth it."""
    fitting = max(1, memory // (x.element_size() * (x.shape[1] * outputs + 2 * units)))
    return max(_LEAST, 1 << fitting.bit_length() - 1)


def _pairing(tests: Sequence[ProductTest], model: Model, x: Tensor) -> Pairing | None:
    """Return the target and the auxiliary as chains, where inner products in one metric are all the tests need."""
    asked = {id(test.gradients_of): test.gradients_of for test in tests if test.gradients_of is not None}
    if len(asked) != 1 or len({id(test.matrix) for test in tests}) > 1:
        return None
    (auxiliary,) = asked.values()
    return pairing_of(model, auxiliary.members, x, metric=tests[0].matrix)


def _of_products(
    tests: Sequence[ProductTest], pairing: Pairing, x: Tensor, heads: Sequence[Head], batch_size: int
) -> Block:
    """Return what `_block` does for everyone, from inner products with the gradient of a single protected output.

    Blocks are as small as a processor's cache; what is made of a few numbers a person is made of all at once.
    """
    kept: list[list[BlockProducts]] = [[] for _ in pairing.members]
    for block in x.split(batch_size):
        grad = pairing.gradient(block)
        for m, each in enumerate(kept):
            each.append(pairing.pieces(grad, pairing.jacobian(m, block)))
    found = [whole_products(each) for each in kept]
    inexact = torch.stack([products.doubtful() for products in found]).any(0)
    values = [torch.stack([test.of_products(products) for products in found[_asked(test)]]) for test in tests]
    return values, [inexact.new_zeros(len(x), len(heads)) for _ in tests], inexact


def _short_block(tests: Sequence[ProductTest], pairing: Pairing, x: Tensor, heads: Sequence[Head]) -> Block:
    """Return what `_block` does, without gradients as long as x."""
    grad = pairing.gradient(x)
    flat = torch.zeros(len(x), len(heads), dtype=torch.bool, device=x.device)
    each: list[list[Tensor]] = [[] for _ in tests]
    for m in range(len(pairing.members)):
        slope, rows = pairing.whole(grad, pairing.jacobian(m, x))
        flat |= dead_variables(rows, heads)
        for kept, test in zip(each, tests, strict=True):
            kept.append(test.in_coordinates(slope, rows))
    stacked = [torch.stack(kept[_asked(test)]) for test, kept in zip(tests, each, strict=True)]
    return stacked, [flat.clone() for _ in tests], flat.new_zeros(len(x))


def _asked(test: ProductTest) -> slice:
    """Return which members of the auxiliary a test asks: all, or one where their gradients do not matter."""
    return slice(1) if test.gradients_of is None else slice(None)


def _replace(values: list[Tensor], dead: list[Tensor], found: Block, rows: Tensor) -> None:
    """Put values and dead variables of some rows in the place of what is there."""
    for i, (value, flat) in enumerate(zip(found[0], found[1], strict=True)):
        values[i][:, rows], dead[i][rows] = value, flat
