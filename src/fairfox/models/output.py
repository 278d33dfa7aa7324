"""How raw model outputs become the one number that is audited."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from fairfox.errors import ModelError, OptionError

Returns = Literal["probability", "logit", "value"]  # what a model's raw outputs are
Wanted = Literal["probability", "logit"]  # what is audited
_EDGE = 1e-7  # probabilities are kept this far from 0 and 1 before the logit


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
            return self._convert(self._opposite(raw) if self.column == 0 else raw)
        if self.column is None:
            raise OptionError(
                f"The model returned {raw.shape[1]} columns; say which is audited with positive=<column number>"
            )
        if self.returns == "logit":  # one logit per class: the audited class against all others
            others = torch.cat([raw[:, : self.column], raw[:, self.column + 1 :]], dim=1)
            odds = raw[:, self.column] - torch.logsumexp(others, dim=1)
            return self._convert(odds[:, None])
        return self._convert(raw[:, self.column, None])

    def _opposite(self, raw: Tensor) -> Tensor:
        return 1 - raw if self.returns == "probability" else -raw

    def _convert(self, raw: Tensor) -> Tensor:
        if self.returns == "logit" and self.wanted == "probability":
            return torch.sigmoid(raw)
        if self.returns == "probability" and self.wanted == "logit":
            return torch.logit(raw, eps=_EDGE)
        return raw

    @property
    def unit(self) -> str:
        """What the audited number is: "probability", "logit" or "value"."""
        return "value" if self.returns == "value" else self.wanted


def settle_output(
    raw: Tensor, *, returns: Returns | None, wanted: Wanted, positive: Any = None, classes: list[Any] | None = None
) -> Output:
    """Return the Output for a model, given its raw outputs on the audited rows.

    Outputs within [0, 1] are taken as probabilities, one column of other numbers as values in the model's own
    units; several columns that are no probabilities are ambiguous and refused. Rows with NaN are left to `predict`,
    which names them.
    """
    raw = raw.double().reshape(len(raw), -1)
    width = raw.shape[1]
    if width == 0:
        raise ModelError("The model returned no column; it must return one prediction per individual")
    raw = raw[torch.isfinite(raw).all(1)]
    within = bool(((raw >= 0) & (raw <= 1)).all())
    adds_up = width == 1 or bool(((raw.sum(1) - 1).abs() < 1e-3).all())
    if returns is None and width > 1 and not (within and adds_up):
        raise OptionError(
            f"The model returned {width} columns that are not probabilities; "
            "say what they are with returns='logit' or 'value' (--returns)"
        )
    returns = returns or ("probability" if within else "value")
    if returns == "probability" and not within:
        raise OptionError(
            f"The model returned numbers from {float(raw.min()):.3g} to {float(raw.max()):.3g}; probabilities lie "
            "within 0 and 1: say what they are with returns='logit' or 'value' (--returns)"
        )
    if returns == "value" and width == 1 and positive is not None:
        raise OptionError(f"The model returns values, not classes; leave out positive='{positive}' (--positive)")
    if width == 1 and positive is None:
        return Output(returns, wanted)
    return Output(returns, wanted, class_index(positive, classes or list(range(max(width, 2)))))


def class_index(positive: Any, classes: list[Any]) -> int:
    """Return the place of the audited class among a model's classes; of two the second, unless told."""
    if positive is None:
        if len(classes) == 2:
            return 1
        shown = ", ".join(map(str, classes))
        raise OptionError(
            f"The model has {len(classes)} classes ({shown}); say which is audited with positive=... (--positive)"
        )
    for index, name in enumerate(classes):
        if name == positive or str(name) == str(positive):
            return index
    raise OptionError(f"'{positive}' is not a class of the model; its classes are: {', '.join(map(str, classes))}")
