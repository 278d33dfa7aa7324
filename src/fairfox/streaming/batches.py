"""Arrow record batch in, record batch out: everyone's score, whoever else is in the batch.

Some numbers of an audit are read off all people together: the default delta of a model that returns values, what a
model returns, the variance that re-fits have in common, the alignment share of the tests with /a, and the step of
finite differences of a black box. A stream never has all people together, so these
population constants are computed once, on a pilot sample, and go to every worker with the job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property, lru_cache
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple, Self, TypedDict, Unpack, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor, nn

from fairfox.auxiliary.model import infer_groups
from fairfox.auxiliary.training import centre_and_spread
from fairfox.data.dataset import Dataset, Protected, group_name
from fairfox.data.protected import NumberGroups
from fairfox.data.table import load_table
from fairfox.errors import ColumnError, DataError, FairfoxError, FileError
from fairfox.fairtests.faux import GradientTest
from fairfox.fairtests.fitted import FittedTest, measured_name
from fairfox.fairtests.protocol import Measurement, combine
from fairfox.fairtests.storage import from_bytes, load_test, to_bytes
from fairfox.gradients.finite_difference import suited_step
from fairfox.models.adapters import as_model
from fairfox.models.protocol import Kind, Output, Returns, TargetModel, Wanted, check_predictions, predict
from fairfox.pipeline import Inputs, check_columns, delta_for, score_unit
from fairfox.report.files import booleans_column, numbers_column
from fairfox.result import contrast_effects, contrast_words
from fairfox.statistics.groups import Rule, certainty
from fairfox.statistics.intervals import CommonVariance, common_variance
from fairfox.streaming.sources import ModelSource, ids_of, plain, weights_of

PILOT = 20_000  # people; a table of no more has the constants of all of them
BATCH_ROWS = 16_384  # people at a time: enough for tree ensembles to be quick, few enough for tens of megabytes
GPU_ROWS = 262_144
_ON_GPU = 1 << 30  # bytes there for people's features, at most
_EXAMPLE = 50  # people that go with a job, so that every worker hands models the same kind of table


# --- what scores depend on -----------------------------------------------------------------------------------------


class Scored(NamedTuple):
    """A model and people as a fitted test sees them."""

    target: TargetModel
    data: Dataset  # as they are
    people: Dataset  # with the most probable group of those whose own is unknown
    inferred: Tensor  # (N, V) bool: where it is
    predictions: Tensor  # (N,)


@dataclass(frozen=True)
class PopulationConstants:
    """What the score of a person owes to everyone else; plain numbers and texts, so that JSON can hold it."""

    delta: float
    unit: str  # of the score
    output: dict[str, Any] | None  # fields of the model's Output; None for a model that has none
    common: tuple[CommonVariance, ...]  # of re-fits: of the worst case, then of each protected variable
    shares: tuple[float, ...] | None  # alignment shares of each protected variable; None for tests without /a
    people: int  # in the pilot
    step: float | None = None  # of finite differences; None for models with gradients, and tests that need none

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        """Return what `dataclasses.asdict` gave, also after JSON."""
        return cls(
            **{
                **stored,
                "common": tuple(CommonVariance(*pair) for pair in stored["common"]),
                "shares": None if stored["shares"] is None else tuple(stored["shares"]),
            }
        )


def population_constants(fitted: FittedTest, seen: Scored, *, delta: float | None = None) -> PopulationConstants:
    """Return the constants of the people of a pilot; with the delta that is given, if any."""
    shares = step = None
    if fitted.options.info.aligned:
        shares = tuple(share.value for share in fitted.alignment(seen.target, seen.people))
    if isinstance(fitted.test, GradientTest) and not seen.target.differentiable:
        step = suited_step(seen.target, seen.people.x)
    main = _measured(fitted, seen, step)
    each = [main.of_variable(v, seen.people) for v in range(len(seen.people.protected))]
    output = getattr(seen.target, "output", None)
    return PopulationConstants(
        delta=delta_for(fitted.options, seen.predictions, seen.target.unit) if delta is None else delta,
        unit=score_unit(fitted.options, seen.target.unit),
        output=None if output is None else asdict(output),
        common=tuple(common_variance(measured.refits.cpu()) for measured in (main, *each)),
        shares=shares,
        people=len(seen.data),
        step=step,
    )


def _measured(fitted: FittedTest, seen: Scored, step: float | None) -> Measurement:
    """Return what the test itself measures, before any alignment share."""
    name = measured_name(fitted.options)
    return fitted.measure_one(name, seen.target, seen.people, predictions=seen.predictions, step=step)


class ModelOptions(TypedDict, total=False):
    """How the model is read, as for `fairfox.audit`."""

    positive: Any
    output: Wanted
    returns: Returns | None
    kind: Kind | None


class ScoreOptions(ModelOptions, total=False):
    """Options of scoring the DataFrame of an engine."""

    delta: float | None  # people with a score above it are flagged; by default the test's own
    trust: bool  # load model files that could run code
    constants: PopulationConstants | None  # of other people, as a manifest holds them; by default the pilot's


@dataclass(frozen=True)
class Job:
    """Everything that the score of a batch depends on but the batch; it goes to workers by pickle."""

    test: bytes = field(repr=False)  # the content of a file that `fairfox fit` wrote
    model: ModelSource
    options: ModelOptions
    constants: PopulationConstants
    example: bytes = field(repr=False)  # a few people as an Arrow stream
    device: str = "cpu"  # where people are scored: "cpu", "cuda", "cuda:1"

    @cached_property
    def digest(self) -> str:
        """A hash of all of it: jobs with the same one give the same scores."""
        parts = (
            self.test,
            self.example,
            repr((self.model.identity, self.model.trust, sorted(self.model.endpoint.items()))).encode(),
            repr((sorted(self.options.items()), self.constants, self.device)).encode(),
        )
        return sha256(b"".join(sha256(part).digest() for part in parts)).hexdigest()

    def shipped(self) -> Job:
        """Return the same with the model's file in it, for workers that may not see it."""
        return replace(self, model=self.model.shipped())


def columns_of(fitted: FittedTest) -> tuple[str, ...]:
    """Return the columns that are read where a table has them: those of models, of groups, label, id and weights."""
    e = fitted.encoding
    groups = [name for source in e.sources for name in source.columns]
    return tuple(dict.fromkeys([*e.columns, *groups, *(n for n in (e.label, e.id_column, e.weights) if n is not None)]))


def check_table(fitted: FittedTest, table: pa.Table) -> None:
    """Refuse a table whose columns are not what a test was fitted on."""
    frame = load_table(table)
    check_columns(fitted.encoding, None, frame)
    fitted.encoding.for_table(frame).encode(frame)


def describe_test(fitted: FittedTest, constants: PopulationConstants) -> dict[str, Any]:
    """Return what a summary says of the test."""
    return {
        "test": fitted.options.main,
        "meaning": fitted.options.info.meaning,
        "unit": constants.unit,
        "delta": constants.delta,
        "weighted": fitted.encoding.weights is not None,
        "protected": fitted.known.protected,
        "columns": list(fitted.encoding.columns),
        "reference_rows": len(fitted.known),
    }


def open_test(test: str | Path | bytes | FittedTest) -> tuple[FittedTest, bytes]:
    """Return a fitted test and the content of its file, from either of them or the file's path."""
    if isinstance(test, FittedTest):
        return test, to_bytes(test)
    if isinstance(test, bytes):
        return from_bytes(test), test
    return load_test(test), Path(test).read_bytes()


@contextmanager
def consistent(test: str) -> Iterator[None]:
    """Refuse a test whose tensors turn out to be of wrong shapes: `fairfox fit` has not written it."""
    try:
        yield
    except (RuntimeError, IndexError) as error:
        if isinstance(error, FairfoxError):
            raise
        raise FileError(f"{test} is inconsistent ({type(error).__name__}); write it again with fairfox fit") from error


def prepare_job(
    test: tuple[FittedTest, bytes],
    source: ModelSource,
    pilot: pa.Table,
    *,
    delta: float | None = None,
    constants: PopulationConstants | None = None,
    options: ModelOptions,
    device: str = "cpu",
) -> Job:
    """Return the job of scoring tables like the pilot, with its constants unless others are given.

    Whatever is wrong with the test, the model or the columns shows here, before any worker starts.
    """
    fitted, content = test
    if not pilot.column_names:
        first = fitted.encoding.columns[0]
        raise ColumnError(
            f"The table has no column that the test was fitted on, such as '{first}'; give one that has them"
        )
    if not len(pilot):
        raise DataError("The table has column names and no rows; give at least one row per individual")
    pilot = plain(pilot)
    with consistent("The test"):
        seen = _seen(fitted, source.load(), pilot, options)
        constants = population_constants(fitted, seen, delta=delta) if constants is None else constants
    # the first people, and one for each column that misses values: the types of a data frame depend on that
    holes = [column.is_null().index(True).as_py() for column in pilot.columns]
    rows = sorted({*range(min(len(pilot), _EXAMPLE)), *(row for row in holes if row >= 0)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pilot.schema) as writer:
        writer.write_table(pilot.take(rows))
    return Job(content, source, options, constants, bytes(sink.getvalue()), device)


def _seen(fitted: FittedTest, model: object, table: pa.Table, options: ModelOptions) -> Scored:
    inputs = Inputs.scored(fitted, model, table, fitted.options.scoring(dict(options)))
    groups = infer_groups(inputs.data, fitted.auxiliary, fitted.known)
    return Scored(inputs.target, inputs.data, *groups, inputs.predictions)


def job_for(
    test: str | Path | bytes | FittedTest,
    model: object,
    read_pilot: Callable[[tuple[str, ...]], pa.Table],
    *,
    dumps: Callable[[object], bytes],
    **options: Unpack[ScoreOptions],
) -> Job:
    """Return the job of scoring people that an engine has as a DataFrame.

    Args:
        test: a fitted test, or the path of a file that `fairfox fit` wrote, or that file's content.
        model: what `fairfox score` takes (a file goes to the workers with the job), or a model that pickles.
        read_pilot: reads some people: those of these columns that the table has.
        dumps: pickles a model, also one of a notebook, as the engine's workers read it.
        options: those of `ScoreOptions`.
    """
    given: dict[str, Any] = dict(options)
    trust, delta, constants = (given.pop(name, None) for name in ("trust", "delta", "constants"))
    source = (
        ModelSource(str(model), bool(trust)).shipped()
        if isinstance(model, str | Path)
        else ModelSource(type(model).__name__, pickled=dumps(model))
    )
    opened = open_test(test)
    pilot = read_pilot(columns_of(opened[0])).slice(0, PILOT)
    return prepare_job(opened, source, pilot, delta=delta, constants=constants, options=cast(ModelOptions, given))


# --- scoring -------------------------------------------------------------------------------------------------------


class BatchScorer:
    """Scores people batch by batch: the same numbers for everyone, however people are put into batches."""

    def __init__(self, job: Job) -> None:
        self.constants = job.constants
        self.device = job.device
        self.fitted = from_bytes(job.test, device=job.device)
        self.protected: tuple[Protected, ...] = self.fitted.known.protected
        self.example = pa.ipc.open_stream(job.example).read_all()
        frame = load_table(self.example)
        encoding = self.fitted.encoding.for_table(frame)
        labelled = self.fitted.options.info.needs_label
        self.id_column, self.weights = encoding.id_column, encoding.weights  # read here, without Python objects
        self.encoding = replace(encoding, id_column=None, weights=None, label=encoding.label if labelled else None)
        named = self.id_column in self.example.column_names
        self.id_type = self.example.schema.field(self.id_column).type if named else pa.int64()
        output = job.constants.output
        options: dict[str, Any] = dict(job.options) | ({} if output is None else {"returns": output["returns"]})
        model = job.model.load()
        self.target = as_model(
            model.to(job.device) if isinstance(model, nn.Module) else model,
            self.encoding,
            **options,
            example=self.encoding.encode(frame).x.to(job.device),
        )
        if output is not None:
            self.target.output = Output(**output)  # type: ignore[attr-defined]
        known = self.fitted.known
        self.groups = [
            NumberGroups.of(known.c[:, v]) if p.is_continuous else None for v, p in enumerate(self.protected)
        ]
        self._one_at_a_time = Lock()  # tests and models remember the last people they were given

    @property
    def batch_rows(self) -> int:
        """How many people to give it at a time: a GPU is idle with few, and its memory is shared."""
        if self.device == "cpu":
            return BATCH_ROWS
        fitting = _ON_GPU // (16 * max(self.encoding.width, 1))  # in double precision, and twice in single
        return max(BATCH_ROWS, min(GPU_ROWS, fitting))

    @cached_property
    def coded_schema(self) -> pa.Schema:
        """The columns of what `score` returns with `coded=True`."""
        return self.score(self.example.combine_chunks().to_batches()[0], coded=True).schema

    @property
    def schema(self) -> pa.Schema:
        """The columns of what `score` returns."""
        return plain(self.coded_schema.empty_table()).schema

    def score(
        self, batch: pa.RecordBatch, *, row_numbers: pa.Array | None = None, coded: bool = False
    ) -> pa.RecordBatch:
        """Return one row per person, in order.

        The columns are those of `AuditResult.scores_table` without the direct reading and the list of discoveries,
        and with the prediction, the own group and the weight, so that a summary needs nothing else. `row_numbers`
        become row_id where there is no id column; by default they count from 0. With `coded`, columns of few words
        are dictionaries, which are quicker to write.
        """
        table = plain(pa.Table.from_batches([batch]))
        with self._one_at_a_time:
            seen = self._see(table)
            measured = _measured(self.fitted, seen, self.constants.step)
        if self.device != "cpu":
            seen, measured = _on_cpu(seen, measured)
        if self.constants.shares is not None:
            factors = measured.each.new_tensor([self.constants.shares[c.variable] for c in measured.contrasts])
            scaled = measured.each * factors
            measured = combine(scaled, seen.people, contrasts=measured.contrasts, signed=True, reasons=measured.reasons)
        row_numbers = pa.array(np.arange(len(table))) if row_numbers is None else row_numbers
        columns = dict(self._worst_case(table, seen, measured, row_numbers))
        for v in range(len(self.protected)):
            for name, column in self._variable(v, seen, measured):
                while name in columns:  # two variables and classes whose names together read the same
                    name += "'"
                columns[name] = column
        if not coded:
            columns = {n: c.dictionary_decode() if pa.types.is_dictionary(c.type) else c for n, c in columns.items()}
        return pa.RecordBatch.from_pydict(columns)

    def _see(self, table: pa.Table) -> Scored:
        frame = load_table(table)
        check_columns(self.encoding, None, frame)
        data = self.encoding.encode(frame, device=self.device)
        data = data if self.device == "cpu" else replace(data, c=data.c.to(self.device))
        predictions = predict(self.target, data.x, batch_size=self.batch_rows)
        predictions = check_predictions(predictions, self.target.unit)
        return Scored(self.target, data, *infer_groups(data, self.fitted.auxiliary, self.fitted.known), predictions)

    def _worst_case(
        self, table: pa.Table, seen: Scored, measured: Measurement, row_numbers: pa.Array
    ) -> Iterator[tuple[str, pa.Array]]:
        """Yield the columns about the worst case over all protected variables."""
        away, names = measured.abstained.numpy(force=True), [p.name for p in self.protected]
        nameless = away if measured.contrasts else np.ones_like(away)
        worst = measured.variable.numpy(force=True)
        named = self.id_column is not None and self.id_column in table.column_names
        yield "row_id", ids_of(table, str(self.id_column), self.id_type) if named else row_numbers
        yield "score", numbers_column(measured.score, away)
        yield "signed", numbers_column(measured.signed, away)
        yield from self._certainty(measured, self.constants.common[0], away)
        yield "variable", _words(names, worst, nameless)
        alone = len(self.protected) == 1
        each = [
            self._towards(v, seen, measured if alone else measured.of_variable(v, seen.people))
            for v in range(len(self.protected))
        ]
        if alone:
            yield "towards", each[0]
        else:
            texts = [column.dictionary_decode() for column in each]
            yield "towards", pc.choose(pa.array(worst, pa.int64(), mask=away), *texts)
        yield "prediction", pa.array(seen.predictions.double().numpy(force=True))
        if self.weights is not None:
            yield "weight", weights_of(table, self.weights)
        yield "group_inferred", pa.array(seen.inferred.any(1).numpy(force=True))
        yield "abstained", pa.array(away)
        yield "reason", pa.array(measured.reasons, pa.string())

    def _certainty(
        self, measured: Measurement, common: CommonVariance, away: np.ndarray
    ) -> Iterator[tuple[str, pa.Array]]:
        refitted = measured.refits.shape[1] > 1
        sure = certainty(measured, self.constants.delta, Rule().fdr, common=common if refitted else None)
        lower, upper = (None, None) if sure.interval is None else sure.interval.unbind(1)
        yield "lower", numbers_column(lower, away)
        yield "upper", numbers_column(upper, away)
        yield "flag", booleans_column(sure.flags, away)
        yield "confident", booleans_column(sure.confident_flags, away)
        yield "p_value", numbers_column(sure.p_values, away)

    def _variable(self, v: int, seen: Scored, measured: Measurement) -> Iterator[tuple[str, pa.Array]]:
        """Yield the columns about one protected variable: the own group, and its own score where there is a choice."""
        p, own, groups = self.protected[v], seen.people.c[:, v], self.groups[v]
        codes = (torch.where(own.isnan(), -1.0, own).long().cpu() if groups is None else groups.assign(own)).numpy()
        yield f"group[{p.name}]", _words(p.levels if groups is None else groups.names, codes, codes < 0)
        if len(self.protected) == 1 and len(p.levels) == 2:
            return
        measured = measured.of_variable(v, seen.people)
        away = measured.abstained.numpy(force=True)
        yield f"score[{p.name}]", numbers_column(measured.score, away)
        yield f"signed[{p.name}]", numbers_column(measured.signed, away)
        sure = dict(self._certainty(measured, self.constants.common[1 + v], away))
        yield f"flag[{p.name}]", sure["flag"]
        yield f"confident[{p.name}]", sure["confident"]
        yield f"inferred[{p.name}]", pa.array(seen.inferred[:, v].numpy(force=True))
        yield f"towards[{p.name}]", self._towards(v, seen, measured)
        words = contrast_words(measured, p, self._spread(v))
        for word, values in zip(words, contrast_effects(measured, p, own).unbind(1), strict=True):
            name = group_name(p.name, word) if word in p.levels else word
            yield f"effect[{name}]", numbers_column(values, away)

    def _towards(self, v: int, seen: Scored, measured: Measurement) -> pa.DictionaryArray:
        """Return the contrast that attained everyone's score, in words."""
        p = self.protected[v]
        words = contrast_words(measured, p, self._spread(v))
        if not words:
            return _words((), np.zeros(len(seen.data), dtype=int), np.ones(len(seen.data), dtype=bool))
        positions = (measured.klass if p.kind == "binary" else measured.worst).cpu()
        same = (seen.people.c[:, v].cpu() == positions) & (not p.is_continuous)
        positions = torch.where(same, positions + len(words), positions)
        both = (*words, *(f"away from {word}" for word in words))
        return _words(both, positions.numpy(force=True), measured.abstained.numpy(force=True))

    def _spread(self, v: int) -> float:
        return float(centre_and_spread(self.fitted.known.c[:, v], self.fitted.known.weights)[1])


@lru_cache(maxsize=4)
def _scorers(digest: str) -> list[BatchScorer]:
    return []


def scorer_for(job: Job) -> BatchScorer:
    """Return the scorer of a job, made once in each worker process; torch computes in one thread from then on.

    Workers are as many as there are cores, and threads of each would only slow the others down.
    """
    made = _scorers(job.digest)
    if not made:
        torch.set_num_threads(1)
        made.append(BatchScorer(job))
    return made[0]


def _on_cpu(seen: Scored, measured: Measurement) -> tuple[Scored, Measurement]:
    """Return the same in the processor's memory, but for the features, which nothing needs any more."""
    values: dict[str, Any] = {f.name: getattr(measured, f.name) for f in fields(measured)}
    here: dict[str, Any] = {name: value.cpu() if isinstance(value, Tensor) else value for name, value in values.items()}
    return seen._replace(
        data=replace(seen.data, c=seen.data.c.cpu()),
        people=replace(seen.people, c=seen.people.c.cpu()),
        inferred=seen.inferred.cpu(),
        predictions=seen.predictions.cpu(),
    ), Measurement(**here)


def _words(names: Sequence[str], positions: np.ndarray, hidden: np.ndarray) -> pa.DictionaryArray:
    """Return the name at each position (N,), null where hidden."""
    indices = pa.array(np.where(hidden, 0, positions), pa.int32(), mask=hidden)
    return pa.DictionaryArray.from_arrays(indices, pa.array(names, pa.string()))
