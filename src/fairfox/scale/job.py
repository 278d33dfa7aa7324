"""What a worker needs to score people: a fitted test, a model, and what was settled; it travels by pickle."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa

from fairfox.data.table import load_table
from fairfox.errors import ColumnError, DataError, FairfoxError, FileError
from fairfox.fitted import FittedTest
from fairfox.models.http_model import is_url, load_endpoint
from fairfox.models.loading import load_model
from fairfox.scale.settled import PILOT, Settled, settle
from fairfox.scale.specs import file_of, hash_of
from fairfox.storage import from_bytes, load_test, to_bytes

_EXAMPLE = 50  # people that go with a job, so that every worker hands models the same kind of table


@dataclass(frozen=True)
class ModelSource:
    """Where a worker gets the model from: what names it, and the file's content where workers may not see the file."""

    spec: str
    trust: bool = False
    endpoint: Mapping[str, Any] = field(default_factory=dict)  # options of a model behind a URL
    content: bytes | None = field(default=None, repr=False)
    pickled: bytes | None = field(default=None, repr=False)  # a model that was given as an object

    def shipped(self) -> ModelSource:
        """Return the same with the file's content beside its name, where it names one file."""
        path = self.file
        if self.content is not None or path is None:
            return self
        return replace(self, content=path.read_bytes())

    @property
    def file(self) -> Path | None:
        """The file that is named: a model, or the Python file of `file.py:function`; None for anything else."""
        return None if is_url(self.spec) or self.pickled is not None else file_of(self.spec)[0]

    @property
    def identity(self) -> dict[str, str]:
        """What tells two models apart: the name, and a hash of the file, the folder or the module it stands for.

        What a module imports is not in its hash. URLs are told by their names alone.
        """
        path = self.file
        if self.pickled is None and self.content is None and path is None:
            found = hash_of(self.spec)
            return {"name": self.spec} | ({} if found is None else {"sha256": found})
        content = self.pickled or self.content or (b"" if path is None else path.read_bytes())
        return {"name": Path(self.spec).name, "sha256": sha256(content).hexdigest()}

    def load(self) -> object:
        """Return the model."""
        if self.pickled is not None:
            return pickle.loads(self.pickled)  # of the caller's own making, sent to the caller's own workers
        if is_url(self.spec):
            return load_endpoint(self.spec, **self.endpoint)
        if self.content is None:
            return load_model(self.spec, trust=self.trust)
        path, rest = file_of(self.spec)
        with TemporaryDirectory(prefix="fairfox-", ignore_cleanup_errors=True) as folder:
            copy = Path(folder) / Path(self.spec.removesuffix(rest)).name if path is None else Path(folder) / path.name
            copy.write_bytes(self.content)
            return load_model(f"{copy}{rest}", trust=self.trust)


@dataclass(frozen=True)
class Job:
    """Everything that the score of a batch depends on but the batch."""

    test: bytes = field(repr=False)  # the content of a file that `fairfox fit` wrote
    model: ModelSource
    options: Mapping[str, Any]  # positive, output, returns and kind, as for `fairfox.audit`
    settled: Settled
    example: bytes = field(repr=False)  # a few people as an Arrow stream
    device: str = "cpu"  # where people are scored: "cpu", "cuda", "cuda:1"

    @cached_property
    def digest(self) -> str:
        """A hash of all of it: jobs with the same one give the same scores."""
        parts = (
            self.test,
            self.example,
            repr((self.model.identity, self.model.trust, sorted(self.model.endpoint.items()))).encode(),
            repr((sorted(self.options.items()), self.settled, self.device)).encode(),
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
    fitted.encoding_of(frame).encode(frame)


def prepare(
    test: bytes,
    fitted: FittedTest,
    source: ModelSource,
    pilot: pa.Table,
    *,
    delta: float | None = None,
    settled: Settled | None = None,
    options: Mapping[str, Any],
    device: str = "cpu",
) -> Job:
    """Return the job of scoring tables like the pilot; `settled` is what was settled before, where it was.

    Whatever is wrong with the test, the model or the columns shows here, before any worker starts.
    """
    if not pilot.column_names:
        first = fitted.encoding.columns[0]
        raise ColumnError(
            f"The table has no column that the test was fitted on, such as '{first}'; give one that has them"
        )
    if not len(pilot):
        raise DataError("The table has column names and no rows; give at least one row per individual")
    pilot = plain(pilot)
    try:
        seen = fitted.seen(source.load(), pilot, **options)
        settled = settle(fitted, seen, delta=delta) if settled is None else settled
    except (RuntimeError, IndexError) as error:
        if isinstance(error, FairfoxError):
            raise
        raise FileError(
            f"The test does not fit together ({type(error).__name__}); write it again with fairfox fit"
        ) from error
    return Job(test, source, dict(options), settled, to_stream(_example(pilot)), device)


def job_for(
    test: str | Path | bytes | FittedTest,
    model: object,
    pilot: Callable[[tuple[str, ...]], pa.Table],
    *,
    dumps: Callable[[object], bytes],
    delta: float | None = None,
    trust: bool = False,
    settled: Settled | None = None,
    **options: Any,
) -> Job:
    """Return the job of scoring people that an engine has as a table of its own.

    Args:
        test: a fitted test, or the path of a file that `fairfox fit` wrote, or that file's content.
        model: what `fairfox score` takes (a file goes to the workers with the job), or a model that pickles.
        pilot: reads some people: those of these columns that the table has.
        dumps: pickles a model, also one of a notebook, as the engine's workers read it.
        delta: people with a score above it are flagged; by default the test's own.
        trust: load model files that could run code.
        settled: what was settled before on other people; by default it is settled on the pilot.
        options: positive, output, returns and kind, as for `fairfox.audit`.
    """
    source = (
        ModelSource(str(model), trust).shipped()
        if isinstance(model, str | Path)
        else ModelSource(type(model).__name__, pickled=dumps(model))
    )
    if isinstance(test, FittedTest):
        fitted, content = test, to_bytes(test)
    elif isinstance(test, bytes):
        fitted, content = from_bytes(test), test
    else:
        fitted, content = load_test(test), Path(test).read_bytes()
    people = pilot(columns_of(fitted)).slice(0, PILOT)
    return prepare(content, fitted, source, people, delta=delta, settled=settled, options=options)


def plain(table: pa.Table) -> pa.Table:
    """Return the table with dictionaries as the values they stand for, and views as copies.

    Each batch would have its own dictionary, and Arrow takes no rows from views.
    """
    return table.cast(pa.schema([f.with_type(_plain_type(f.type)) for f in table.schema]))


def _plain_type(kind: pa.DataType) -> pa.DataType:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    views = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
    return views.get(kind, kind)


def to_stream(table: pa.Table) -> bytes:
    """Return a table as the bytes of an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def from_stream(content: bytes) -> Any:
    """Return the table of `to_stream`, as a narwhals frame."""
    return load_table(pa.ipc.open_stream(content).read_all())


def _example(pilot: pa.Table) -> pa.Table:
    """Return the first people, and one for each column that misses values: a data frame's types depend on that."""
    holes = [column.is_null().index(True).as_py() for column in pilot.columns]
    rows = sorted({*range(min(len(pilot), _EXAMPLE)), *(row for row in holes if row >= 0)})
    return pilot.take(rows)
