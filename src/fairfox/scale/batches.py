"""Arrow record batch in, record batch out: everyone's score, whoever else is in the batch."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from functools import cached_property, lru_cache
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor, nn

from fairfox.auxiliary.inference import infer_groups
from fairfox.data.dataset import Protected, group_name
from fairfox.data.table import load_table
from fairfox.fairtests.protocol import Measurement, combine
from fairfox.fairtests.registry import about
from fairfox.findings import contrast_words, effects_of
from fairfox.fitted import Scored, check_probabilities, unit_of
from fairfox.models.output import Output
from fairfox.models.protocol import predict
from fairfox.models.wrap import as_model
from fairfox.report.scores import booleans_column, numbers_column
from fairfox.scale.ids import ids_of, weights_of
from fairfox.scale.job import Job, from_stream, plain
from fairfox.scale.settled import Scatter, Settled, group_names, group_places, is_aligned, sureness
from fairfox.scale.wording import towards_of
from fairfox.storage import from_bytes
from fairfox.thresholds import flag

BATCH_ROWS = 16_384  # people at a time: enough for tree ensembles to be quick, few enough for tens of megabytes
GPU_ROWS = 262_144
_ON_GPU = 1 << 30  # bytes there for people's features, at most


class BatchScorer:
    """Scores people batch by batch: the same numbers for everyone, however people are put into batches."""

    def __init__(self, job: Job) -> None:
        self.settled: Settled = job.settled
        self.device = job.device
        self.fitted = from_bytes(job.test, device=job.device)
        if is_aligned(self.fitted):  # the share of the model was settled; a batch must not have its own
            test = copy.copy(self.fitted.test)
            test.aligned = False  # type: ignore[attr-defined]
            self.fitted = replace(self.fitted, tests={**self.fitted.tests, self.fitted.name: test})
        self.example = pa.ipc.open_stream(job.example).read_all()
        frame = from_stream(job.example)
        encoding = self.fitted.encoding_of(frame)
        labelled = about(self.fitted.name, self.fitted.options).needs_label
        self.id_column, self.weights = encoding.id_column, encoding.weights  # read here, without Python objects
        self.encoding = replace(encoding, id_column=None, weights=None, label=encoding.label if labelled else None)
        named = self.id_column in self.example.column_names
        self.id_type = self.example.schema.field(self.id_column).type if named else pa.int64()
        output = job.settled.output
        returns = job.options.get("returns") if output is None else output["returns"]
        model = job.model.load()
        self.target = as_model(
            model.to(job.device) if isinstance(model, nn.Module) else model,
            self.encoding,
            **{**job.options, "returns": returns},
            example=self.encoding.encode(frame).x.to(job.device),
        )
        if output is not None:
            self.target.output = Output(**output)  # type: ignore[attr-defined]
        self.guessed = job.options.get("returns") is None and unit_of(self.target) == "probability"
        self._one_at_a_time = Lock()  # tests and models remember what they were asked last

    @property
    def batch_rows(self) -> int:
        """How many people to give it at a time: a GPU is idle with few, and its memory is shared."""
        if self.device == "cpu":
            return BATCH_ROWS
        fitting = _ON_GPU // (16 * max(self.encoding.width, 1))  # in double precision, and twice in single
        return max(BATCH_ROWS, min(GPU_ROWS, fitting))

    @cached_property
    def coded_schema(self) -> pa.Schema:
        """The columns of what `coded` returns."""
        return self.coded(self.example.combine_chunks().to_batches()[0]).schema

    @property
    def schema(self) -> pa.Schema:
        """The columns of what `score` returns."""
        return plain(self.coded_schema.empty_table()).schema

    def score(self, batch: pa.RecordBatch, *, numbers: pa.Array | None = None) -> pa.RecordBatch:
        """Return one row per person, in order.

        The columns are those of `AuditResult.scores_table` without the direct reading and the list of discoveries,
        and with the prediction, the own group and the weight, so that a summary needs nothing else. `numbers` stand
        in row_id where there is no id column; by default they count from 0.
        """
        return decoded(self.coded(batch, numbers=numbers))

    def coded(self, batch: pa.RecordBatch, *, numbers: pa.Array | None = None) -> pa.RecordBatch:
        """Return what `score` does, with columns of few words as dictionaries: quick to count and to write."""
        table = plain(pa.Table.from_batches([batch]))
        with self._one_at_a_time:
            seen = self._seen(table)
            found = self.fitted.measured(self.fitted.name, seen, step=self.settled.step)
        if self.device != "cpu":
            seen, found = _seen_here(seen), _found_here(found)
        if self.settled.shares is not None:
            found = _times(found, self.settled.shares, seen)
        numbers = pa.array(np.arange(len(table))) if numbers is None else numbers
        columns = dict(self._of_everyone(table, seen, found, numbers))
        for v, p in enumerate(self.known):
            for name, column in self._of_variable(v, p, seen, found):
                while name in columns:  # two variables and classes whose names together read the same
                    name += "'"
                columns[name] = column
        return pa.RecordBatch.from_pydict(columns)

    @property
    def known(self) -> tuple[Protected, ...]:
        """The protected variables."""
        return self.fitted.known.protected

    @property
    def two_groups(self) -> bool:
        """Whether there is one protected variable with two classes, so that no worst case needs a name."""
        return len(self.known) == 1 and len(self.known[0].levels) == 2

    def _seen(self, table: pa.Table) -> Scored:
        frame = load_table(table)
        self.fitted.check_has_columns(frame)
        data = self.encoding.encode(frame, device=self.device)
        data = data if self.device == "cpu" else replace(data, c=data.c.to(self.device))
        predictions = predict(self.target, data.x, batch_size=self.batch_rows)
        if self.guessed:
            check_probabilities(predictions)
        return Scored(self.target, data, *infer_groups(data, self.fitted.auxiliary, self.fitted.known), predictions)

    def _of_everyone(
        self, table: pa.Table, seen: Scored, found: Measurement, numbers: pa.Array
    ) -> Iterator[tuple[str, pa.Array]]:
        """Yield the columns about the worst case over all protected variables."""
        away, names = found.abstained.numpy(force=True), [p.name for p in self.known]
        nameless = away if found.contrasts else np.ones_like(away)
        worst = found.variable.numpy(force=True)
        if self.id_column is None or self.id_column not in table.column_names:
            yield "row_id", numbers
        else:
            yield "row_id", ids_of(table, self.id_column, self.id_type)
        yield "score", numbers_column(found.score, away)
        yield "signed", numbers_column(found.signed, away)
        yield from self._sure(found, self.settled.scatter[0], away)
        yield "variable", _named(names, worst, nameless)
        each = [
            self._towards(v, p, seen, found.of_variable(v, seen.people) if len(self.known) > 1 else found)
            for v, p in enumerate(self.known)
        ]
        yield "towards", _chosen(each, worst, away)
        yield "prediction", pa.array(seen.predictions.double().numpy(force=True))
        if self.weights is not None:
            yield "weight", weights_of(table, self.weights)
        yield "group_inferred", pa.array(seen.inferred.any(1).numpy(force=True))
        yield "abstained", pa.array(away)
        yield "reason", pa.array(found.reasons, pa.string())

    def _sure(self, found: Measurement, scatter: Scatter, away: np.ndarray) -> Iterator[tuple[str, pa.Array]]:
        sure = sureness(found, self.settled.delta, scatter)
        yield "lower", numbers_column(None if sure is None else sure.lower, away)
        yield "upper", numbers_column(None if sure is None else sure.upper, away)
        yield "flag", booleans_column(flag(found.score, self.settled.delta, abstained=found.abstained), away)
        yield "confident", booleans_column(None if sure is None else sure.confident, away)
        yield "p_value", numbers_column(None if sure is None else sure.p_values, away)

    def _of_variable(self, v: int, p: Protected, seen: Scored, found: Measurement) -> Iterator[tuple[str, pa.Array]]:
        """Yield the columns about one protected variable: the own group, and its own score where there is a choice."""
        own, cuts = seen.people.c[:, v], self.settled.cuts[v]
        places = group_places(p, own, cuts).numpy()
        yield f"group[{p.name}]", _named(group_names(p, cuts), places, places < 0)
        if self.two_groups:
            return
        found = found.of_variable(v, seen.people)
        away = found.abstained.numpy(force=True)
        yield f"score[{p.name}]", numbers_column(found.score, away)
        yield f"signed[{p.name}]", numbers_column(found.signed, away)
        sure = dict(self._sure(found, self.settled.scatter[1 + v], away))
        yield f"flag[{p.name}]", sure["flag"]
        yield f"confident[{p.name}]", sure["confident"]
        yield f"inferred[{p.name}]", pa.array(seen.inferred[:, v].numpy(force=True))
        yield f"towards[{p.name}]", self._towards(v, p, seen, found)
        words = contrast_words(found, p, self._spread(v))
        for word, values in zip(words, effects_of(found, p, own).unbind(1), strict=True):
            if p.by_size and p.levels.index(word) not in (p.reference, p.second):
                continue  # nobody is compared with it
            name = group_name(p.name, word) if word in p.levels else word
            yield f"effect[{name}]", numbers_column(values, away)

    def _towards(self, v: int, p: Protected, seen: Scored, found: Measurement) -> pa.Array:
        words, places = towards_of(found, p, seen.people.c[:, v], contrast_words(found, p, self._spread(v)))
        return _named(words, places.numpy(force=True), found.abstained.numpy(force=True) | (len(words) == 0))

    def _spread(self, v: int) -> float:
        from fairfox.auxiliary.model import centre_and_spread

        return float(centre_and_spread(self.fitted.known.c[:, v], self.fitted.known.weights)[1])


@lru_cache(maxsize=4)
def _scorer_of(digest: str) -> list[BatchScorer]:
    return []


def scorer_for(job: Job) -> BatchScorer:
    """Return the scorer of a job, made once in each worker process; torch computes in one thread from then on.

    Workers are as many as there are cores, and threads of each would only stand in each other's way.
    """
    made = _scorer_of(job.digest)
    if not made:
        torch.set_num_threads(1)
        made.append(BatchScorer(job))
    return made[0]


def _seen_here(seen: Scored) -> Scored:
    """Return people and predictions in the processor's memory, but for the features, which nobody asks for again."""
    return seen._replace(
        data=replace(seen.data, c=seen.data.c.cpu()),
        people=replace(seen.people, c=seen.people.c.cpu()),
        inferred=seen.inferred.cpu(),
        predictions=seen.predictions.cpu(),
    )


def _found_here(found: Measurement) -> Measurement:
    """Return what was measured in the processor's memory."""
    values: dict[str, Any] = {field.name: getattr(found, field.name) for field in fields(found)}
    here: dict[str, Any] = {name: value.cpu() if isinstance(value, Tensor) else value for name, value in values.items()}
    return Measurement(**here)


def _times(found: Measurement, shares: Sequence[float], seen: Scored) -> Measurement:
    """Return effects times the alignment share of their protected variable."""
    factors = found.each.new_tensor([shares[contrast.variable] for contrast in found.contrasts])
    return combine(found.each * factors, seen.people, contrasts=found.contrasts, signed=True, reasons=found.reasons)


def _named(names: Sequence[str], places: np.ndarray, hidden: np.ndarray) -> pa.DictionaryArray:
    """Return the name at each place (N,), null where hidden."""
    indices = pa.array(np.where(hidden, 0, places), pa.int32(), mask=hidden)
    return pa.DictionaryArray.from_arrays(indices, pa.array(names, pa.string()))


def decoded(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch with words in the place of dictionaries."""
    columns = [c.dictionary_decode() if isinstance(c, pa.DictionaryArray) else c for c in batch.columns]
    return pa.RecordBatch.from_arrays(columns, batch.schema.names)


def _chosen(columns: Sequence[pa.DictionaryArray], which: np.ndarray, hidden: np.ndarray) -> pa.Array:
    """Return for each person the value of one of the columns, null where hidden."""
    if len(columns) == 1:
        return columns[0]
    texts = [column.dictionary_decode() for column in columns]
    return pc.choose(pa.array(which, pa.int64(), mask=hidden), *texts)
