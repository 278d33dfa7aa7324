"""Scores of Arrow record batches, which do not depend on who else is in the batch.

Some numbers of an audit come from all people together: the default delta for values, what a model returns, the common
variance of refits, the alignment share (/a), and the step of finite differences. A stream never has all people
together, so these population constants are computed once, on a pilot sample, and sent to every worker with the job.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import Any, Self, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor, nn

from fairfox.assessment import contrast_effects, contrast_words
from fairfox.auxiliary.model import infer_groups
from fairfox.auxiliary.training import centre_and_spread
from fairfox.data.dataset import Dataset, group_name, with_stand_ins
from fairfox.data.encoding import read_weights
from fairfox.data.protected import NumberGroups
from fairfox.data.table import load_table
from fairfox.errors import ColumnError, DataError, OptionError
from fairfox.fairtests.faux import GradientTest
from fairfox.fairtests.fitted import FittedTest, measured_name
from fairfox.fairtests.inputs import Inputs, check_columns, predictions_of
from fairfox.fairtests.protocol import Measurement
from fairfox.fairtests.storage import from_bytes, load_test, to_bytes
from fairfox.gradients.jacobian import suited_step
from fairfox.models.adapters import as_model
from fairfox.models.protocol import Output, TargetModel
from fairfox.report.files import add_columns, booleans_column, end_columns, numbers_column
from fairfox.statistics.groups import certainty, delta_for, is_bounded, score_unit
from fairfox.statistics.intervals import CommonVariance, common_variance
from fairfox.streaming.sources import ModelSource, decoded, ids_of

PILOT = 20_000  # people; a table of no more has the constants of all of them
BATCH_ROWS = 16_384  # people at a time: enough for tree ensembles to be quick, few enough for tens of megabytes
GPU_ROWS = 262_144
_ON_GPU = 1 << 30  # bytes there for people's features, at most
_EXAMPLE = 50  # people that go with a job, so that every worker hands models the same kind of table
_Record = TypeVar("_Record", "Encoded", Measurement)
MODEL_OPTIONS = ("positive", "output", "returns", "kind")  # options that say how the model is read
_OF_EACH = ("score", "effect", "flagged", "confident", "p_value", "possible")  # columns of each of several variables


# --- what scores depend on -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Encoded:
    """A model and encoded people, ready for a fitted test."""

    target: TargetModel
    people: Dataset  # with the most probable group of those whose own is unknown
    inferred: Tensor  # (N, V) bool: where it is
    predictions: Tensor  # (N,)

    def measured(self, fitted: FittedTest, *, step: float | None, shares: Sequence[float] | None) -> Measurement:
        """Return what the test measures, with the population's step and alignment shares."""
        name = measured_name(fitted.options)
        measured = fitted.measure_one(name, self.target, self.people, predictions=self.predictions, step=step)
        drawn = fitted.deviations(name, self.target, self.people, measured, self.predictions)
        measured = replace(measured, deviations=drawn[0] if drawn else None)
        return measured if shares is None else measured.scaled(shares, self.people)


@dataclass(frozen=True)
class PopulationConstants:
    """The numbers of the whole population that scores depend on; plain values, so that JSON can hold them."""

    delta: float
    unit: str  # of the score
    output: dict[str, Any] | None  # fields of the model's Output; None for a model that has none
    common: tuple[CommonVariance, ...]  # of refits: of the worst case, then of each protected variable
    shares: tuple[float, ...] | None  # alignment shares of each protected variable; None for tests without /a
    people: int  # in the pilot
    step: float | None = None  # of finite differences; None for models with gradients, and tests that need none

    @classmethod
    def of(cls, fitted: FittedTest, encoded: Encoded, *, delta: float) -> Self:
        """Return the constants of a pilot's people, with this delta."""
        shares = step = None
        if fitted.options.info.aligned:
            shares = tuple(share.value for share in fitted.alignment(encoded.target, encoded.people))
        if isinstance(fitted.test, GradientTest) and not encoded.target.differentiable:
            step = suited_step(encoded.target, encoded.people.x)
        main = encoded.measured(fitted, step=step, shares=shares)
        each = [main.of_variable(v, encoded.people) for v in range(len(encoded.people.protected))]
        output = getattr(encoded.target, "output", None)
        return cls(
            delta=delta,
            unit=score_unit(fitted.options, encoded.target.unit),
            output=None if output is None else asdict(output),
            common=tuple(common_variance(measured.refits.cpu()) for measured in (main, *each)),
            shares=shares,
            people=len(encoded.people),
            step=step,
        )

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        """Return what `dataclasses.asdict` gave, also after JSON."""
        common = tuple(CommonVariance(*pair) for pair in stored["common"])
        shares = None if stored["shares"] is None else tuple(stored["shares"])
        return cls(**{**stored, "common": common, "shares": shares})


@dataclass(frozen=True)
class Job:
    """Everything that scores depend on except the batch; it is pickled for the workers."""

    test: bytes = field(repr=False)  # the content of a file that `fairfox fit` wrote
    model: ModelSource
    options: Mapping[str, Any]  # how the model is read
    constants: PopulationConstants
    example: bytes = field(repr=False)  # a few people as an Arrow stream
    device: str = "cpu"  # where people are scored: "cpu", "cuda", "cuda:1"

    @cached_property
    def digest(self) -> str:
        """A hash of the job: equal hashes mean equal scores."""
        parts = (
            self.test,
            self.example,
            repr((self.model.identity, self.model.trust, sorted(self.model.endpoint.items()))).encode(),
            repr((sorted(self.options.items()), self.constants, self.device)).encode(),
        )
        return sha256(b"".join(sha256(part).digest() for part in parts)).hexdigest()


def model_options(fitted: FittedTest, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the checked options for reading the model; by default those of the fit."""
    for name in given:
        if name not in MODEL_OPTIONS:
            raise OptionError(f"{name} is no option for streams; give {', '.join(MODEL_OPTIONS)}, or score in memory")
    chosen = fitted.options.scoring(dict(given))
    return {name: getattr(chosen, name) for name in MODEL_OPTIONS}


def group_names(fitted: FittedTest) -> dict[str, tuple[str, ...]]:
    """Return the names of the groups of each protected variable, in the order of an audit's."""
    known = fitted.known
    return {
        p.name: NumberGroups.of(known.c[:, v]).names if p.is_continuous else p.levels
        for v, p in enumerate(known.protected)
    }


def check_table(fitted: FittedTest, table: pa.Table) -> None:
    """Raise where a table does not have the columns a test was fitted on."""
    frame = load_table(table)
    check_columns(fitted, None, frame)
    replace(fitted.encoding.for_table(frame), weights=None).encode(frame)  # weights may be 0 for all of some people


def open_test(test: str | Path | FittedTest) -> tuple[FittedTest, bytes]:
    """Return a fitted test and the content of its file, from the test or the file's path."""
    return (test, to_bytes(test)) if isinstance(test, FittedTest) else (load_test(test), Path(test).read_bytes())


def prepare_job(
    test: tuple[FittedTest, bytes],
    source: ModelSource,
    pilot: pa.Table,
    *,
    delta: float | None = None,
    max_flagged: float | Mapping[str, float] | None = None,
    constants: PopulationConstants | None = None,
    options: Mapping[str, Any],
    device: str = "cpu",
) -> Job:
    """Return the job of scoring tables like the pilot, with its constants unless others are given.

    Problems with the test, the model, the columns or the limits are raised here, before any worker starts.
    """
    fitted, content = test
    if not pilot.column_names:
        first = fitted.encoding.columns[0]
        raise ColumnError(f"The table has none of the test's columns, such as '{first}'; give one that has them")
    if not len(pilot):
        raise DataError("The table has column names but no rows; give one row per individual")
    pilot, options = decoded(pilot), model_options(fitted, options)
    chosen = fitted.options.scoring(options, delta=delta, max_flagged=max_flagged)
    inputs = Inputs.read(source.load(), pilot, None, chosen, test=fitted)
    inputs.by_group(chosen.limits)
    delta = delta_for(chosen, inputs.predictions, inputs.target.unit)
    if constants is None:
        groups = infer_groups(inputs.data, fitted.auxiliary, fitted.known)
        encoded = Encoded(inputs.target, *groups, inputs.predictions)
        constants = PopulationConstants.of(fitted, encoded, delta=delta)
    # the first people, and one for each column that misses values: the types of a data frame depend on that
    holes = [column.is_null().index(True).as_py() for column in pilot.columns]
    rows = sorted({*range(min(len(pilot), _EXAMPLE)), *(row for row in holes if row >= 0)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pilot.schema) as writer:
        writer.write_table(pilot.take(rows))
    return Job(content, source, options, constants, bytes(sink.getvalue()), device)


def job_for(
    test: str | Path | FittedTest,
    model: object,
    read_pilot: Callable[[tuple[str, ...]], pa.Table],
    *,
    dumps: Callable[[object], bytes],
    delta: float | None = None,
    trust: bool = False,
    constants: PopulationConstants | None = None,
    **options: Any,
) -> Job:
    """Return the job of scoring an engine's DataFrame of people.

    Args:
        test: a fitted test, or the path of a file that `fairfox fit` wrote.
        model: what `fairfox score` takes (a file goes to the workers with the job), or a model that pickles.
        read_pilot: reads some people: those of these columns that the table has.
        dumps: pickles a model, also one of a notebook, as the engine's workers read it.
        delta: people with a score above it are flagged; by default the test's own.
        trust: load model files that could run code.
        constants: those of other people, as a manifest holds them; by default the pilot's.
        options: how the model is read: positive, output, returns and kind, as for `fairfox.audit`.
    """
    source = (
        ModelSource(str(model), trust).shipped()
        if isinstance(model, str | Path)
        else ModelSource(type(model).__name__, pickled=dumps(model))
    )
    opened = open_test(test)
    pilot = some_people(read_pilot(opened[0].encoding.needed))
    return prepare_job(opened, source, pilot, delta=delta, constants=constants, options=options)


def some_people(table: pa.Table) -> pa.Table:
    """Return people drawn at random, in their order; everyone where there are no more than `PILOT`."""
    if len(table) <= PILOT:
        return table
    return table.take(pa.array(np.sort(np.random.default_rng(0).permutation(len(table))[:PILOT])))


# --- scoring -------------------------------------------------------------------------------------------------------


class BatchScorer:
    """Scores people batch by batch, with the same numbers for any batching."""

    def __init__(self, job: Job) -> None:
        self.constants = job.constants
        self.device = job.device
        self.fitted = from_bytes(job.test, device=job.device)
        known = self.fitted.known
        self.protected = known.protected
        self.example = pa.ipc.open_stream(job.example).read_all()
        frame = load_table(self.example)
        encoding = self.fitted.encoding.for_table(frame)
        self.id_column, self.weights = encoding.id_column, encoding.weights  # read here, without Python objects
        self.encoding = replace(encoding, id_column=None, weights=None)
        named = self.id_column in self.example.column_names
        self.id_type = self.example.schema.field(self.id_column).type if named else pa.int64()
        model, output = job.model.load(), job.constants.output
        self.target = as_model(
            model.to(job.device) if isinstance(model, nn.Module) else model,
            self.encoding,
            **{**job.options, **({} if output is None else {"returns": output["returns"]})},
            example=with_stand_ins(self.encoding.encode(frame))[0].x.to(job.device),
        )
        if output is not None:
            self.target.output = Output(**output)  # type: ignore[attr-defined]
        values = known.c.unbind(1)
        self.ranges = [
            NumberGroups.of(c) if p.is_continuous else None for c, p in zip(values, self.protected, strict=True)
        ]
        self.spreads = [float(centre_and_spread(c, known.weights)[1]) for c in values]
        self._one_at_a_time = Lock()  # tests and models remember the last people they were given

    @property
    def batch_rows(self) -> int:
        """How many people to score at a time: a GPU is idle with few, and its memory is shared."""
        if self.device == "cpu":
            return BATCH_ROWS
        fitting = _ON_GPU // (24 * max(self.encoding.width, 1))  # twice in double precision, and twice in single
        return max(BATCH_ROWS, min(GPU_ROWS, fitting))

    @cached_property
    def coded_schema(self) -> pa.Schema:
        """The columns of what `coded` returns."""
        return self.coded(self.example.combine_chunks().to_batches()[0]).schema

    @property
    def schema(self) -> pa.Schema:
        """The columns of what `score` returns."""
        return decoded(self.coded_schema.empty_table()).schema

    def score(self, batch: pa.RecordBatch, *, row_numbers: pa.Array | None = None) -> pa.RecordBatch:
        """Return what `coded` does, with plain texts."""
        return decoded(pa.Table.from_batches([self.coded(batch, row_numbers=row_numbers)])).to_batches()[0]

    def coded(self, batch: pa.RecordBatch, *, row_numbers: pa.Array | None = None) -> pa.RecordBatch:
        """Return one row per person, in order, with texts as codes: they are added up and written in half the time.

        The columns are those of `fairfox.report.files.scores_table` without the direct reading and the list.
        Added is what the verdict and the groups need: the prediction, the group, the weight, the p-value where ranks
        carry over exactly, and whose interval then reaches beyond delta. `row_numbers` become row_id where there is no
        id column; by default they count from 0.
        """
        table = decoded(pa.Table.from_batches([batch]))
        if self.id_column in table.column_names:
            ids = ids_of(table, str(self.id_column), self.id_type)
        else:
            ids = pa.array(np.arange(len(table))) if row_numbers is None else row_numbers
        with self._one_at_a_time:
            encoded = self._encode(table)
            measured = encoded.measured(self.fitted, step=self.constants.step, shares=self.constants.shares)
        if self.device != "cpu":  # features stay, as nothing needs them any more
            encoded = _on_cpu(replace(encoded, people=replace(encoded.people, c=encoded.people.c.cpu())))
            measured = _on_cpu(measured)
        return pa.RecordBatch.from_pydict({"row_id": ids, **self._columns(table, encoded, measured)})

    def _encode(self, table: pa.Table) -> Encoded:
        frame = load_table(table)
        check_columns(self.fitted, None, frame)
        data = self.encoding.encode(frame, device=self.device)
        data = data if self.device == "cpu" else replace(data, c=data.c.to(self.device))
        predictions = predictions_of(self.target, self.encoding, frame, data, self.batch_rows)
        return Encoded(self.target, *infer_groups(data, self.fitted.auxiliary, self.fitted.known), predictions)

    def _columns(self, table: pa.Table, encoded: Encoded, measured: Measurement) -> dict[str, pa.Array]:
        """Return the columns of the worst case over all protected variables, then those of each."""
        variables, common = range(len(self.protected)), self.constants.common
        each = [measured] if len(variables) == 1 else [measured.of_variable(v, encoded.people) for v in variables]
        towards = [self._towards(v, encoded.people, own) for v, own in enumerate(each)]
        away, worst = measured.abstained.numpy(), measured.variable.numpy()
        numbers = self._numbers(measured, common[0], encoded.predictions)
        nameless = away if measured.contrasts else np.ones_like(away)
        columns = {
            **numbers,
            "variable": _words([p.name for p in self.protected], worst, nameless),
            "towards": towards[0] if len(variables) == 1 else _chosen(towards, worst, away),
            "prediction": pa.array(encoded.predictions.double().numpy()),
            **({} if self.weights is None else {"weight": pa.array(read_weights(load_table(table), self.weights))}),
            "group_inferred": pa.array(encoded.inferred.any(1).numpy()),
            "abstained": pa.array(away),
            "reason": pa.array(measured.reasons, pa.string()),
        }
        for v, p in enumerate(self.protected):
            own, ranges = encoded.people.c[:, v], self.ranges[v]
            codes = (torch.where(own.isnan(), -1.0, own).long() if ranges is None else ranges.assign(own)).numpy()
            more = {f"group[{p.name}]": _words(p.levels if ranges is None else ranges.names, codes, codes < 0)}
            if len(variables) > 1 or len(p.levels) != 2:
                mine = numbers if len(variables) == 1 else self._numbers(each[v], common[1 + v], encoded.predictions)
                more |= {f"{name}[{p.name}]": mine[name] for name in _OF_EACH}
                more[f"inferred[{p.name}]"] = pa.array(encoded.inferred[:, v].numpy())
                more[f"towards[{p.name}]"] = towards[v]
                words, gone = contrast_words(each[v], p, self.spreads[v]), each[v].abstained.numpy()
                for word, values in zip(words, contrast_effects(each[v], p, own).unbind(1), strict=True):
                    name = group_name(p.name, word) if word in p.levels else word
                    more[f"effect[{name}]"] = numbers_column(values, gone)
            add_columns(columns, more.items())
        return columns

    def _numbers(self, measured: Measurement, common: CommonVariance, predictions: Tensor) -> dict[str, pa.Array]:
        """Return everyone's effect, and how sure it is."""
        away = measured.abstained.numpy()
        within = predictions.to(measured.score) if is_bounded(self.fitted.options, self.target.unit) else None
        known = common if measured.refits.shape[1] > 1 else None
        sure = certainty(measured, self.constants.delta, None, common=known, within=within)
        return {
            "score": numbers_column(measured.score, away),
            "effect": numbers_column(measured.effect, away),
            **end_columns({"": sure.interval, "sampling_": sure.sampling}, away),
            "flagged": booleans_column(sure.flagged, away),
            "confident": booleans_column(sure.confident, away),
            "p_value": numbers_column(sure.p_values, away),
            "possible": booleans_column(sure.possible, away),
        }

    def _towards(self, v: int, people: Dataset, measured: Measurement) -> pa.Array:
        """Return the contrast that attained everyone's score, in words."""
        p, away = self.protected[v], measured.abstained.numpy()
        words = contrast_words(measured, p, self.spreads[v])
        positions = measured.klass if p.kind == "binary" else measured.worst
        same = (people.c[:, v] == positions) & (not p.is_continuous)
        positions = torch.where(same, positions + len(words), positions)
        both = (*words, *(f"away from {word}" for word in words))
        return _words(both, positions.numpy(), away if words else np.ones_like(away))


_SCORERS: dict[str, BatchScorer] = {}  # the last job's, of a worker process


def scorer_for(job: Job) -> BatchScorer:
    """Return the scorer of a job, made once in each worker process; torch computes in one thread from then on.

    There is a worker per core, so more threads would only slow the others down.
    """
    made = _SCORERS.get(job.digest)
    if made is None:
        torch.set_num_threads(1)
        made = BatchScorer(job)
        _SCORERS.clear()
        _SCORERS[job.digest] = made
    return made


def _on_cpu(record: _Record) -> _Record:
    """Return the same with its tensors in the processor's memory."""
    values: dict[str, Any] = {f.name: getattr(record, f.name) for f in fields(record)}
    moved: dict[str, Any] = {name: value.cpu() for name, value in values.items() if isinstance(value, Tensor)}
    return replace(record, **moved)


def _words(names: Sequence[str], positions: np.ndarray, hidden: np.ndarray) -> pa.DictionaryArray:
    """Return the name at each position (N,), null where hidden."""
    return pa.DictionaryArray.from_arrays(pa.array(positions, pa.int32(), mask=hidden), pa.array(names, pa.string()))


def _chosen(columns: Sequence[pa.DictionaryArray], which: np.ndarray, hidden: np.ndarray) -> pa.DictionaryArray:
    """Return everyone's text in the column of theirs (N,), null where hidden."""
    texts = [column.dictionary_decode() for column in columns]
    return pc.choose(pa.array(which, pa.int64(), mask=hidden), *texts).dictionary_encode()
