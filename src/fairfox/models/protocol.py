"""The Model protocol: what a model takes and returns, and how its predictions are checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from fairfox.data.dataset import row_marks
from fairfox.data.table import LARGEST, is_level
from fairfox.errors import ModelError, OptionError, ShapeError

Kind = Literal["table", "matrix", "encoded"]  # what a model receives
Returns = Literal["probability", "logit", "value"]  # what a model's raw outputs are
Wanted = Literal["probability", "logit"]  # what is audited

_EDGE = 1e-7  # probabilities are kept this far from 0 and 1 before the logit
_MOSTLY = 0.99  # of rows that differ, above which equal ones are not looked for
_ROUNDING = 1e-6  # how far outside [0, 1] a probability may lie


# --- models --------------------------------------------------------------------------------------------------------


@runtime_checkable
class Model(Protocol):
    """Anything that turns encoded individuals into predictions."""

    differentiable: bool  # when False, fairfox.gradients estimates derivatives from predictions

    def __call__(self, x: Tensor) -> Tensor:
        """Return (N, K) for x (N, D); K is 1 for a target model."""


@runtime_checkable
class TargetModel(Model, Protocol):
    """The model that is audited, as `as_model` returns it."""

    @property
    def kind(self) -> Kind:
        """What the model receives."""

    @property
    def unit(self) -> Returns:
        """What its predictions are."""


@dataclass(frozen=True)
class Description:
    """How a model of some library is called, on what, and what it returns."""

    predict: Callable[[Any], Any]  # a data frame or a matrix in; numbers out, one row per individual
    kind: Kind  # what it takes, unless the user chooses
    returns: Returns | None = None  # None: detected from its outputs
    classes: list[Any] | None = None
    names: tuple[str, ...] | None = None  # the columns it was trained on, in order, where it knows them
    as_category: frozenset[str] = frozenset()  # columns that are categories to it, whatever they are in the table
    width: int | None = None  # how many columns it takes, where it knows
    threshold: float | None = None  # of a yes, where it is not one half
    repaired_with: str | None = None  # the hash of the people that a repair was learnt from

    def describe(self) -> Description:
        """Return itself, so that a Description can stand in for a model."""
        return self

    def columns_among(self, table: Sequence[str]) -> Sequence[str] | None:
        """Return the columns of a table that the model takes; None where it does not say.

        f0, f1, ... may be its own names or made up: the table's columns decide.
        """
        if self.names is None and self.width is not None:
            for stem in ("f", "Column_", ""):
                numbered = [f"{stem}{j}" for j in range(self.width)]
                if set(numbered) <= set(table):
                    return numbered
        return self.names


@runtime_checkable
class Described(Protocol):
    """A model that describes itself: an ONNX file or an endpoint."""

    def describe(self) -> Description:
        """Return how the model is called."""


# --- outputs -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Output:
    """Picks the audited class and converts between probability and logit.

    Example:
        >>> Output(returns="logit")(torch.zeros(2, 1))
        tensor([[0.5000],
                [0.5000]])
    """

    returns: Returns = "value"
    wanted: Wanted = "probability"
    column: int | None = None  # of the audited class; where a model returns one column, that is of class 1

    def __call__(self, raw: Tensor) -> Tensor:
        """Return (N, 1) for raw outputs (N,), (N, 1) or (N, classes)."""
        raw = raw.reshape(len(raw), -1)
        if raw.shape[1] == 1:
            opposite = 1 - raw if self.returns == "probability" else -raw
            raw = opposite if self.column == 0 else raw
        elif self.column is None:
            raise OptionError(f"The model returned {raw.shape[1]} columns; choose one with positive=<column number>")
        elif self.returns == "logit":  # one logit per class: the audited class against all others
            others = torch.cat([raw[:, : self.column], raw[:, self.column + 1 :]], dim=1)
            raw = (raw[:, self.column] - torch.logsumexp(others, dim=1))[:, None]
        else:
            raw = raw[:, self.column, None]
        if (self.returns, self.wanted) == ("logit", "probability"):
            return torch.sigmoid(raw)
        return torch.logit(raw, eps=_EDGE) if (self.returns, self.wanted) == ("probability", "logit") else raw

    @property
    def unit(self) -> Returns:
        """What the audited number is: "probability", "logit" or "value"."""
        return "value" if self.returns == "value" else self.wanted


def detect_output(
    raw: Tensor, *, returns: Returns | None, wanted: Wanted, positive: Any = None, classes: list[Any] | None = None
) -> Output:
    """Return the Output for a model, given its raw outputs on the audited rows.

    Outputs within [0, 1] are taken as probabilities, one column of other numbers as values in the model's own
    units; several columns that are no probabilities are ambiguous and refused. Rows with NaN are left to `predict`,
    which reports them.
    """
    raw = raw.double().reshape(len(raw), -1)
    width = raw.shape[1]
    if width == 0:
        raise ModelError("The model returned no columns; expected one prediction per individual")
    raw = raw[torch.isfinite(raw).all(1)]
    adds_up = width == 1 or bool(((raw.sum(1) - 1).abs() < 1e-3).all())
    if returns is None and width > 1 and not (_within_bounds(raw) and adds_up):
        raise OptionError(
            f"The model returned {width} columns that are not probabilities; "
            "say what they are with returns='logit' or 'value' (--returns)"
        )
    returns = returns or ("probability" if _within_bounds(raw) else "value")
    if returns == "probability":
        check_predictions(raw, "probability")
    if returns == "value" and width == 1 and positive is not None:
        raise OptionError(f"The model returns values, not classes; leave out positive='{positive}' (--positive)")
    if width == 1 and positive is None:
        return Output(returns, wanted)
    return Output(returns, wanted, class_index(positive, classes or list(range(max(width, 2)))))


def class_index(positive: Any, classes: list[Any]) -> int:
    """Return the position of the audited class among a model's classes; of two the second by default."""
    if positive is None:
        if len(classes) == 2:
            return 1
        shown = ", ".join(map(str, classes))
        raise OptionError(f"The model has {len(classes)} classes ({shown}); choose one with positive=... (--positive)")
    for index, name in enumerate(classes):
        if is_level(name, positive):
            return index
    raise OptionError(f"'{positive}' is not a class of the model; its classes are: {', '.join(map(str, classes))}")


# --- predictions ---------------------------------------------------------------------------------------------------


def row_blocks(rows: int, size: int) -> Iterator[slice]:
    """Yield slices of at most `size` rows."""
    for start in range(0, rows, size):
        yield slice(start, min(start + size, rows))


def check_rows(out: Tensor | np.ndarray, people: int, *, who: str = "The model") -> None:
    """Raise unless a model's outputs have one row per individual."""
    if out.ndim == 0 or len(out) != people:
        found = "a single number" if out.ndim == 0 else f"{len(out)} predictions"
        raise ModelError(f"{who} returned {found} for {people} individuals; return one row each, in order")


def predict(model: Model, x: Tensor, *, batch_size: int = 4096) -> Tensor:
    """Return one finite prediction per individual (N,); raise where the model returned anything else."""
    # A black box batches its own calls: tree ensembles want large blocks.
    size = batch_size if model.differentiable else max(len(x), 1)
    with torch.no_grad():
        batches = [check_finite(model(x[rows]), len(x[rows]), rows.start) for rows in row_blocks(len(x), size)]
    return torch.cat(batches) if batches else x.new_zeros(0)


def predict_once(model: Model, x: Tensor, batch_size: int) -> Tensor:
    """Return one prediction per individual (N,); equal rows are predicted once, unless few are equal."""
    generator = torch.Generator().manual_seed(0)
    at = torch.rand(x.shape[1], 2, generator=generator, dtype=torch.float64).to(x.device)
    sums = (x.double() @ at).view(torch.int64)  # (N, 2): rows with equal ones are equal but once in 10^18 pairs
    _, place = (row_marks(x) if bool(x.isnan().any()) else sums[:, 0] * 31 + sums[:, 1]).unique(return_inverse=True)
    count = int(place.max()) + 1 if len(x) else 0
    if count > _MOSTLY * len(x):
        return predict(model, x, batch_size=batch_size)
    first = torch.zeros(count, dtype=torch.long, device=x.device)
    first[place] = torch.arange(len(x), device=x.device)
    first, order = first.sort()  # rows are then read in their order
    found = predict(model, x.T.index_select(1, first).T, batch_size=batch_size)
    return torch.empty_like(found).index_copy_(0, order, found)[place]


def check_finite(out: Tensor, people: int, first: int = 0) -> Tensor:
    """Return one finite prediction per individual (N,), or raise; `first` is the row of the first one."""
    check_rows(out, people)
    if out.ndim == 2 and out.shape[1] != 1:
        raise ShapeError(f"The model returned {out.shape[1]} columns; choose the audited class (positive=...)")
    out = out.reshape(people)
    largest = min(LARGEST, torch.finfo(out.dtype).max ** 0.5) if out.is_floating_point() else LARGEST
    bad = ~(out.abs() <= largest)  # NaN, infinity, and what is infinite when it is squared
    if bad.any():
        row = first + int(bad.nonzero()[0, 0])
        found = f"numbers above {largest:.2g}" if bool(out.isfinite().all()) else "NaN or infinity"
        raise ModelError(
            f"The model returned {found} for {int(bad.sum())} of {people} individuals (first: row {row}); every "
            "individual needs a finite prediction: check missing values in the table, or the model"
        )
    return out


def check_predictions(predictions: Tensor, unit: Returns) -> Tensor:
    """Return predictions, with probabilities clipped to [0, 1]; raise where they are outside by more than rounding."""
    if unit != "probability":
        return predictions
    if not _within_bounds(predictions):
        raise OptionError(
            f"The model returned numbers from {float(predictions.min()):.3g} to {float(predictions.max()):.3g}; "
            "probabilities lie within 0 and 1: say what they are with returns='logit' or 'value' (--returns)"
        )
    return predictions.clamp(0, 1)


def _within_bounds(predictions: Tensor) -> bool:
    return bool(((predictions >= -_ROUNDING) & (predictions <= 1 + _ROUNDING)).all())
