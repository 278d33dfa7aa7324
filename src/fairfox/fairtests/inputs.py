"""The inputs of an audit: a table and a model, read and checked, as its tests see them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from fairfox.data.dataset import Dataset, fitting_order, group_name, rows_sha256, tensors_sha256, with_stand_ins
from fairfox.data.encoding import Encoding, check_given_values, fit_encoding, with_covariates
from fairfox.data.frames import to_native_frame
from fairfox.data.protected import find_group, join_protected
from fairfox.data.table import Table, load_table
from fairfox.errors import ColumnError, ModelError, OptionError, did_you_mean, first_line
from fairfox.fairtests.fitted import FittedTest, is_direct_wanted
from fairfox.fairtests.registry import settings_by_test
from fairfox.maps.conditional import check_given_columns
from fairfox.maps.graph import read_graph
from fairfox.models.adapters import BlackBoxModel, as_model, describe
from fairfox.models.protocol import Description, TargetModel, check_finite, check_predictions, predict
from fairfox.options import EVERYONE, AuditOptions

HALF = 0.5  # of a probability: a yes from here on, unless something else is said
_EXAMPLE = 1000  # people whose predictions show what the model returns


def in_order(data: Dataset, options: AuditOptions) -> Dataset:
    """Return rows to fit on; with ids, in an order that does not depend on that of the table."""
    return data if data.ids is None else data[fitting_order(data, seed=options.seed)]


@dataclass(frozen=True)
class Inputs:
    """The model and the people of an audit, as its tests see them."""

    options: AuditOptions
    encoding: Encoding
    target: TargetModel
    described: Description | None  # what the model says about itself
    data: Dataset
    fitting: Dataset | None  # rows to learn from, where they are others
    protected_values: Dataset | None  # their protected values; also of a test that was fitted before
    predictions: Tensor  # (N,)
    hashes: dict[str, str | None]  # of rows and predictions
    matched: int | None = None  # people who are in the other table, which has the protected values

    @classmethod
    def read(
        cls,
        model: object,
        table: object,
        reference: object | None,
        options: AuditOptions,
        *,
        test: FittedTest | None = None,
    ) -> Inputs:
        """Return everyone encoded, and the model's predictions for them; `test` is one that was fitted before."""
        ids = () if options.on else (options.id if test is None else test.encoding.id_column,)  # as the other table's
        people = load_table(table, needed=None if test is None else test.encoding.needed, ids=ids)
        matched, fitting = None, None if reference is None else load_table(reference)
        if test is None and options.protected_from is not None and options.on is not None:
            other = load_table(options.protected_from)
            people, matched = join_protected(people, other, on=options.on, specs=options.protected)
        described = describe(model, wanted=options.output)
        if test is None:
            encoding = read_encoding(people, fitting, described, options)
            learnt = None if fitting is None else in_order(encoding.encode(fitting), options)
            data = encoding.encode(people)
            check_given_columns(data if learnt is None else learnt, options.given)  # refuses what cannot be
        else:
            encoding, data = read_people(test, described, people)
            learnt = test.known
        target = read_model(model, encoding, options, with_stand_ins(data)[0].x)
        hashes = {
            "rows_sha256": rows_sha256(data),
            "reference_sha256": None if learnt is None else test.fitted_on if test else rows_sha256(learnt),
        }
        if test is None:  # a stored test computes in float64
            dtype = torch.float32 if target.differentiable else torch.float64
            data, learnt = data.to(dtype), None if learnt is None else learnt.to(dtype)
        predictions = predictions_of(target, encoding, people, data, options.batch_size)
        return cls(
            options=replace(options, direct=is_direct_wanted(options, target)),
            encoding=encoding,
            target=target,
            described=described,
            data=data,
            fitting=None if test is not None else learnt,
            protected_values=learnt,
            predictions=predictions,
            hashes={**hashes, "predictions_sha256": tensors_sha256(predictions)},
            matched=matched,
        )

    @property
    def fitting_values(self) -> Dataset:
        """The protected values that everything was fitted on."""
        return self.data if self.protected_values is None else self.protected_values

    @property
    def cut(self) -> float | None:
        """As asked, the model's own, or one half of a probability."""
        return cut_of(self.target, self.described, self.options)

    def by_group(self, given: Mapping[str, float]) -> dict[str, float]:
        """Return numbers by the full names of their groups; "" is everyone."""
        out: dict[str, float] = {}
        for text, value in given.items():
            name = EVERYONE
            if text != EVERYONE:
                variable, code = find_group(self.data.protected, text)
                p = self.data.protected[variable]
                name = group_name(p.name, p.levels[code])
            if name in out:
                raise OptionError(f"The group '{name}' is given twice, once as '{text}'; give it once")
            out[name] = value
        return out


def predictions_of(target: TargetModel, encoding: Encoding, people: Table, data: Dataset, batch_size: int) -> Tensor:
    """Return everyone's prediction (N,); a category that no fitting row has reaches a model on tables as it is."""
    box = target if isinstance(target, BlackBoxModel) and target.kind == "table" else None
    asked, unseen = (data, None) if box is None else with_stand_ins(data)
    out = predict(target, asked.x, batch_size=batch_size)
    if box is not None and unseen is not None and bool(unseen.any()):
        try:
            out[unseen] = ask_table(box, encoding, people[unseen.nonzero()[:, 0].tolist()]).to(out)
        except ModelError as error:
            who = f"the {int(unseen.sum()):,} people with a category that no fitting row has"
            raise ModelError(f"The model does not take {who}; leave them out ({first_line(error)})") from error
    return check_predictions(out, target.unit)


def ask_table(target: BlackBoxModel, encoding: Encoding, people: Table) -> Tensor:
    """Return the predictions (N,) of a model on tables for people as they are in their table."""
    own = to_native_frame(people.select(list(encoding.columns)))
    return check_finite(target.output(target.ask(own, len(people))), len(people))


def cut_of(target: TargetModel, described: Description | None, options: AuditOptions) -> float | None:
    """Return the prediction from which on the answer is yes; None where no prediction is one."""
    own = None if described is None else described.threshold
    if own is not None and isinstance(target, BlackBoxModel):  # it may be asked for another class or unit
        own = float(target.output(torch.tensor([own], dtype=torch.float64)))
    half = HALF if target.unit == "probability" else None
    return next((cut for cut in (options.decision_threshold, own, half) if cut is not None), None)


def read_encoding(
    people: Table, fitting: Table | None, described: Description | None, options: AuditOptions
) -> Encoding:
    """Return how rows become x: columns and categories are the model's own, unless given."""
    categorical: list[str] = list(options.categorical)
    columns: Sequence[str] | None = options.columns
    if described is not None:
        columns = described.columns_among(people.columns) if columns is None else columns
        own = described.as_category & set(people.columns) - {*categorical, *options.continuous}
        categorical += sorted(own)
    names = compared_by(options, people.columns)
    rows, also = (people, None) if fitting is None else (fitting, people)
    check_given_values(rows, options.given)
    same = ("protected", "label", "weights", "drop", "continuous", "intersections", "merge_rare", "reference_group")
    encoding = fit_encoding(
        rows,
        **{name: getattr(options, name) for name in same},
        id_column=options.id,
        hidden=[] if options.on is None else [options.on],
        categorical=categorical,
        columns=columns,
        contrasts=options.contrasts,
        also=also,
        dtype=torch.float64,
    )
    return with_covariates(replace(encoding, seed=options.seed), rows, names, also=also)


def compared_by(options: AuditOptions, columns: Sequence[str]) -> list[str]:
    """Return the columns of a table that people are compared by, beside the label: given ones, those of a graph."""
    for name in options.given:
        if name not in columns:
            raise ColumnError(f"The given column '{name}' is not in the table.{did_you_mean(name, list(columns))}")
    graphs: list[Any] = [settings["graph"] for settings in settings_by_test(options).values() if settings.get("graph")]
    edges = [edge for graph in graphs for edge in read_graph(graph).items()]
    named = dict.fromkeys(name for child, parents in edges for name in (child, *parents))
    return [*options.given, *(name for name in named if name in columns)]


def read_model(model: object, encoding: Encoding, options: AuditOptions, example: Tensor | None) -> TargetModel:
    """Return a model on encoded rows; it is asked about some of the example's rows, to see what it returns."""
    read_as = {name: getattr(options, name) for name in ("kind", "positive", "output", "returns")}
    target = as_model(model, encoding, **read_as, example=None if example is None else example[:_EXAMPLE])
    cut = options.decision_threshold
    if cut is not None and target.unit == "probability" and not 0 < cut <= 1:
        raise OptionError(
            f"decision_threshold is {cut:g}, but predictions are probabilities; give a number above 0 and at most 1"
        )
    return target


def read_people(test: FittedTest, described: Description | None, people: Table) -> tuple[Encoding, Dataset]:
    """Return a table as a fitted test reads it; other columns than the model's or the test's are refused."""
    check_columns(test, described, people)
    encoding = test.encoding.for_table(people)
    return encoding, encoding.encode(people)


def check_columns(test: FittedTest, described: Description | None, people: Table) -> None:
    """Refuse a model or a table that has other columns than a test was fitted on; the label may lack unless given."""
    encoding = test.encoding
    own = None if described is None else described.names
    if own is not None and tuple(own) != encoding.columns:
        raise ColumnError(
            f"The model takes the columns {', '.join(own)}, but the test was fitted on "
            f"{', '.join(encoding.columns)}; fit it on the model's columns, in their order (columns=[...], --columns)"
        )
    there = set(people.columns)
    outside = [f.name for f in encoding.covariates if f.name != encoding.label or f.name in test.options.given]
    lacking = [name for name in (*encoding.columns, *outside) if name not in there]
    if lacking:
        more = f" (and {len(lacking) - 1} more)" if len(lacking) > 1 else ""
        raise ColumnError(
            f"The table has no column '{lacking[0]}'{more}, which the test was fitted on; "
            "give a table with the same columns"
        )
