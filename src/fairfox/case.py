"""The case of an audit: the model and the people a question is asked about, as its tests see them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fairfox.data.columns import Table
from fairfox.data.dataset import Dataset, Protected, group_name
from fairfox.data.encode import Encoding, fit_encoding
from fairfox.data.joins import join_protected
from fairfox.data.protected import find_group
from fairfox.data.table import load_table
from fairfox.errors import OptionError
from fairfox.maps.legitimate import legitimate_features
from fairfox.models.description import Description
from fairfox.models.protocol import Model, predict
from fairfox.models.wrap import as_model, describe
from fairfox.question import Question

_LOOKED_AT = 1000  # people on whom it is found out what the model returns


class Tables(NamedTuple):
    """The people, the rows to learn from where they are others, and how many people another table knew."""

    people: Table
    fitting: Table | None
    matched: int | None


def read_tables(table: object, reference: object | None, protected_from: object | None, question: Question) -> Tables:
    """Return the tables of an audit, people with the protected columns that another table has."""
    people, fitting = load_table(table), None if reference is None else load_table(reference)
    people, matched = _with_protected(people, protected_from, question.on, question.specs)
    return Tables(people, fitting, matched)


def _with_protected(
    people: Table, other: object | None, on: str | None, specs: Sequence[str]
) -> tuple[Table, int | None]:
    """Return the people with the protected columns of another table, and how many were found there."""
    if (other is None) != (on is None):
        raise OptionError(
            "Protected values from another table need both: the table (protected_from, --protected-from) and the "
            "column that names people in both tables (on, --on)"
        )
    if other is None or on is None:
        return people, None
    joined = join_protected(people, load_table(other), on=on, specs=specs)
    return joined.table, joined.matched


@dataclass(frozen=True)
class Case:
    """The model and the people of an audit, as its tests see them."""

    question: Question
    encoding: Encoding
    model: str  # the class of what was given
    target: Model
    data: Dataset
    known: Dataset | None  # rows to learn from, where they are others
    predictions: Tensor  # (N,)
    deltas: dict[str, float]  # by the full names of groups
    limits: dict[str, float]
    matched: int | None
    described: Description | None

    @classmethod
    def of(cls, model: object, question: Question, tables: Tables) -> Case:
        """Return everyone encoded, and the model's predictions for them."""
        q, described = question, describe(model, wanted=question.output)
        encoding = _encoding(tables, described, q)
        data = encoding.encode(tables.people)
        legitimate_features(data, q.legitimate_names)  # refuses what cannot be
        deltas, limits = (_by_group(given, data.protected) for given in (q.deltas, q.limits))
        seen = data.x[:_LOOKED_AT]
        target = as_model(
            model, encoding, kind=q.kind, positive=q.positive, output=q.output, returns=q.returns, example=seen
        )
        dtype = torch.float32 if target.differentiable else torch.float64
        data = data.to(dtype)
        case = cls(
            question=q,
            encoding=encoding,
            model=type(model).__name__,
            target=target,
            data=data,
            known=None if tables.fitting is None else encoding.encode(tables.fitting).to(dtype),
            predictions=predict(target, data.x, batch_size=q.batch_size),
            deltas=deltas,
            limits=limits,
            matched=tables.matched,
            described=described,
        )
        case._check_guess()
        return case

    @property
    def unit(self) -> str:
        """What the audited number is: "probability", "logit" or "value"."""
        unit: str = getattr(getattr(self.target, "output", None), "unit", "value")
        return unit

    @property
    def kind(self) -> str:
        """What the model receives: "table", "matrix" or "encoded"."""
        kind: str = getattr(self.target, "kind", "encoded" if getattr(self.target, "encoded", True) else "matrix")
        return kind

    def _check_guess(self) -> None:
        """Refuse predictions that are no probabilities where the first ones were taken for such."""
        told = self.question.returns is not None or (self.described is not None and self.described.returns is not None)
        if not told and self.unit == "probability" and not ((self.predictions >= 0) & (self.predictions <= 1)).all():
            raise OptionError(
                f"The first {_LOOKED_AT} predictions lie within 0 and 1 and others do not; say what the model returns: "
                "returns='probability', 'logit' or 'value' (--returns)"
            )


def _encoding(tables: Tables, described: Description | None, question: Question) -> Encoding:
    """Return how rows become x: columns and categories are the model's own, unless told otherwise."""
    q, (people, fitting, _) = question, tables
    categorical, continuous = ([n] if isinstance(n, str) else list(n) for n in (q.categorical, q.continuous))
    columns = q.columns
    if described is not None:
        columns = _columns_of(described, people.columns) if columns is None else columns
        categorical += sorted(described.as_category & set(people.columns) - {*categorical, *continuous})
    return fit_encoding(
        people if fitting is None else fitting,
        protected=q.specs,
        label=q.label,
        id_column=q.id,
        weights=q.weights,
        drop=q.drop,
        hidden=[] if q.on is None else [q.on],
        categorical=categorical,
        continuous=continuous,
        columns=columns,
        intersections=q.intersections,
        merge_rare=q.merge_rare,
        reference_group=q.reference_group or (),
        contrasts=q.contrasts,
        also=None if fitting is None else people,
        dtype=torch.float64,
        seed=q.seed,
    )


def _columns_of(described: Description, table: Sequence[str]) -> Sequence[str] | None:
    """Return the columns a model takes; f0, f1, ... may be its own names or made up: the table's columns decide."""
    if described.names is None and described.width is not None:
        for stem in ("f", "Column_", ""):
            counted = [f"{stem}{j}" for j in range(described.width)]
            if set(counted) <= set(table):
                return counted
    return described.names


def _by_group(given: Mapping[str, float] | None, protected: Sequence[Protected]) -> dict[str, float]:
    """Return numbers by the full names of their groups; "" is everyone."""
    out: dict[str, float] = {}
    for text, value in (given or {}).items():
        name = ""
        if text:
            variable, code = find_group(protected, text)
            name = group_name(protected[variable].name, protected[variable].levels[code])
        if name in out:
            raise OptionError(f"The group '{name}' is given twice, once as '{text}'; give it once")
        out[name] = float(value)
    return out
