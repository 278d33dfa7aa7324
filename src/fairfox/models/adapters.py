"""`as_model`: a TargetModel over fairfox's encoded x for a model of any library."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from fairfox.data.encoding import Encoding, numbers_as_text
from fairfox.data.table import is_level, listed, verb
from fairfox.errors import ColumnError, FairfoxError, ModelError, OptionError, first_line
from fairfox.models.boosting import describe_booster, library_of
from fairfox.models.protocol import (
    Described,
    Description,
    Kind,
    Model,
    Output,
    Returns,
    TargetModel,
    Wanted,
    check_rows,
    class_index,
    detect_output,
    row_blocks,
)
from fairfox.models.sklearn import describe_estimator, is_estimator
from fairfox.models.torch import Affine, TorchModel

_ROWS_A_CALL = 65_536  # tree ensembles want large blocks; this bounds the memory of one call
_PEOPLE_A_CALL = 8192  # each may become 32 rows


def describe(obj: object, *, wanted: Wanted = "probability") -> Description | None:
    """Return how a model of a known library is called; None for torch models and plain functions."""
    if isinstance(obj, Described):
        return obj.describe()
    if library_of(obj) is not None:
        return describe_booster(obj, wanted=wanted)
    if is_estimator(obj):
        return describe_estimator(obj, wanted=wanted)
    return None


def as_model(
    obj: object,
    decoder: Encoding | None = None,
    *,
    kind: Kind | None = None,
    positive: Any = None,
    output: Wanted = "probability",
    returns: Returns | None = None,
    example: Tensor | None = None,
) -> TargetModel:
    """Return a TargetModel over fairfox's encoded x for a torch module, an estimator, or any prediction function.

    Args:
        obj: a torch module or function of tensors, a scikit-learn estimator or Pipeline, boosted trees of XGBoost,
            LightGBM or CatBoost, a callable on tables, or a Model (called as it is).
        decoder: the fitted encoding; without one the model receives x itself.
        kind: what the model receives: "table", "matrix" or "encoded". By default torch takes a matrix, boosted
            trees on numbers too; Pipelines and callables take a table, what was fitted on an array a matrix.
        positive: the audited class, where there is more than one column; also by its name in the label.
        output: what is audited, "probability" or "logit".
        returns: what the model returns, "probability", "logit" or "value"; by default detected on `example`.
        example: encoded rows (one category per block) to call the model on, to detect what it returns.
    """
    if kind not in (None, "table", "matrix", "encoded"):
        raise OptionError(f"kind is '{kind}'; expected 'table', 'matrix' or 'encoded'")
    if isinstance(obj, Model) and not isinstance(obj, nn.Module):
        return obj if isinstance(obj, TargetModel) else OwnModel(obj)
    if decoder is None:
        kind = "encoded"
    torch_like = isinstance(obj, nn.Module) or _takes_tensor(obj)
    model: TorchModel | BlackBoxModel
    classes: list[Any] | None = None
    if torch_like and kind != "table":
        model = TorchModel(cast(Callable[[Tensor], Tensor], obj), decoder=decoder, encoded=kind == "encoded")
    elif (described := describe(obj, wanted=output)) is not None:
        classes, own = described.classes, described.returns
        returns = own if described.repaired_with else returns or own  # repairs return what is audited, not raw outputs
        gets = None if decoder is None or kind == "encoded" else decoder.columns
        if gets is not None and described.names is None and described.width not in (None, len(gets)):
            raise ColumnError(  # some libraries would take more in silence
                f"The model was trained on {described.width} columns without names, but gets {len(gets)}: "
                f"{', '.join(gets)}; keep only its own columns, in its order (drop=[...], --drop)"
            )
        model = BlackBoxModel(described.predict, decoder=decoder, kind=kind or described.kind)
    elif callable(obj) and not isinstance(obj, type):
        model = BlackBoxModel(obj, decoder=decoder, kind=kind or "table")
    else:
        what = f"the class {obj.__name__}" if isinstance(obj, type) else f"a {type(obj).__name__}"
        raise OptionError(
            f"This is {what}, not a model; "
            "give a torch module, a scikit-learn estimator or Pipeline, or a function from a table to predictions; "
            "fairfox.load_model reads a file"
        )
    labels = () if decoder is None else decoder.label_values or ()
    if any(is_level(value, positive) for value in labels) and not (
        any(is_level(name, positive) for name in classes) if classes else str(positive).isdigit()
    ):
        positive = None  # a class of the label, which the model has another name for
    if example is None:
        model.output = Output(returns or "value", output, _column(positive, classes))
    else:
        with torch.no_grad():
            raw = model.raw(example)
        model.output = detect_output(raw, returns=returns, wanted=output, positive=positive, classes=classes)
    return model


class OwnModel:
    """A Model that the user wrote on encoded x, with the unit and kind that every target model has."""

    kind: Kind = "encoded"
    unit: Returns = "value"

    def __init__(self, model: Model) -> None:
        self.model = model
        self.differentiable = model.differentiable
        self.blocks: tuple[slice, ...] = tuple(getattr(model, "blocks", ()))
        self.first_affine: Affine | None = getattr(model, "first_affine", None)

    def __call__(self, x: Tensor) -> Tensor:
        """Return what the model returns for encoded x."""
        return self.model(x)


@dataclass(eq=False)
class BlackBoxModel:
    """A prediction function on tables, matrices or encoded rows without gradients.

    Where a one-hot block holds a distribution over categories, the prediction is the expectation over it:
    exact up to 32 combinations of categories, else 32 draws with common random numbers.
    """

    predict: Callable[[Any], Any]
    _: KW_ONLY
    decoder: Encoding | None
    kind: Kind
    output: Output = field(default_factory=Output)
    differentiable = False

    @property
    def unit(self) -> Returns:
        """What the predictions are: "probability", "logit" or "value"."""
        return self.output.unit

    @property
    def blocks(self) -> tuple[slice, ...]:
        """The one-hot blocks among x's columns."""
        return self.decoder.blocks if self.decoder is not None else ()

    def __call__(self, x: Tensor) -> Tensor:
        """Return (N, 1) for encoded x (N, D)."""
        if self.decoder is None or all(bool(((x[:, b] == 0) | (x[:, b] == 1)).all()) for b in self.blocks):
            return self._mean_of(x, torch.ones(len(x)), torch.arange(len(x)), len(x)).to(x)  # whole categories
        batches = []
        for block in row_blocks(len(x), _PEOPLE_A_CALL):
            rows, weights, owner = self.decoder.expand(x[block])
            batches.append(self._mean_of(rows, weights, owner, len(x[block])))
        return torch.cat(batches).to(x) if batches else x.new_zeros(0, 1)

    def raw(self, x: Tensor) -> Tensor:
        """Return what the function itself returns for encoded rows with whole categories."""
        return torch.cat([self._call(x[block]) for block in row_blocks(len(x), _ROWS_A_CALL)])

    def _mean_of(self, rows: Tensor, weights: Tensor, owner: Tensor, people: int) -> Tensor:
        values = self.output(self.raw(rows)).double() if len(rows) else torch.zeros(0, 1, dtype=torch.float64)
        if len(rows) == people:
            return values
        # around one of each person's own values, so that equal values have exactly that mean
        base = torch.zeros(people, 1, dtype=torch.float64).index_copy(0, owner, values)
        return base.index_add(0, owner, (values - base[owner]) * weights[:, None].double())

    def _unusual(self) -> str:
        """Return which columns a model may refuse, and what to do about them."""
        features = () if self.decoder is None else self.decoder.features
        gaps = [f"'{f.name}'" for f in features if f.has_missing or None in f.levels]
        found = [text for f in features if (text := numbers_as_text(f))]
        found += [f"{listed(gaps)} {verb(len(gaps), 'lacks', 'lack')} values"] * bool(gaps)
        return f". {'; '.join(found)}: correct the table, fill the gaps, or leave these rows out" if found else ""

    def _call(self, x: Tensor) -> Tensor:
        if self.decoder is None or self.kind == "encoded":
            return self.ask(x.numpy(force=True), len(x))
        is_table = self.kind == "table"
        return self.ask(self.decoder.table(x) if is_table else self.decoder.matrix(x).numpy(force=True), len(x))

    def ask(self, inputs: Any, people: int) -> Tensor:
        """Return what the function itself returns for so many people, who are a table or a matrix already."""
        try:
            out = np.asarray(self.predict(inputs))
        except FairfoxError:
            raise
        except (Exception, SystemExit) as error:  # a model may raise anything, and must not end the audit
            columns = ", ".join(self.decoder.columns) if self.decoder is not None else f"{inputs.shape[1]} columns"
            raise ModelError(
                f"The model failed on a {self.kind} of {people} rows ({columns}): "
                f"{type(error).__name__}: {first_line(error)}{self._unusual()}"
            ) from error
        if out.dtype.kind not in "fiub":
            raise ModelError(
                f"The model returned {out.dtype} values such as {out.reshape(-1)[:1].tolist()}; expected numbers: "
                "return a probability or a value per individual, not a class name"
            )
        check_rows(out, people)
        return torch.as_tensor(out.astype(np.float64)).reshape(people, -1)


def _column(positive: Any, classes: list[Any] | None) -> int | None:
    """Return the audited column of a model whose outputs are not at hand: a class of the model, or a column number."""
    if classes is not None:
        return class_index(positive, classes)
    if positive is None:
        return None
    try:
        return int(positive)
    except ValueError:
        raise OptionError(f"positive is '{positive}', but the model has no class names; give a column number") from None


def _takes_tensor(obj: object) -> bool:
    """Return whether a function declares that its first argument is a torch tensor."""
    if isinstance(obj, type) or not callable(obj) or is_estimator(obj):
        return False
    try:
        first = next(iter(inspect.signature(obj).parameters.values()), None)
    except (TypeError, ValueError):
        return False
    note = None if first is None else first.annotation
    return note is Tensor or (isinstance(note, str) and note.rsplit(".", 1)[-1] == "Tensor")
