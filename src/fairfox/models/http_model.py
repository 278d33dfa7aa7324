"""Models behind a URL: MLflow's /invocations and the Open Inference Protocol v2."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import narwhals as nw
import numpy as np

from fairfox.data.columns import objects
from fairfox.errors import DataError, FairfoxError, ModelError, OptionError
from fairfox.models.description import Description, Kind
from fairfox.models.http_calls import HttpCalls, check_url
from fairfox.models.protocol import row_blocks

_BATCH_ROWS = 1000
_V2_PATH = ("v2", "models")
_DATATYPES = "BOOL|BYTES|U?INT(8|16|32|64)|FP(16|32|64)"
_KNOWN = (
    "fairfox speaks MLflow (https://host/invocations) and the Open Inference Protocol v2 "
    "(https://host/v2/models/NAME/infer or https://host/v2/models/NAME/versions/V/infer)"
)


def is_url(spec: str) -> bool:
    """Return whether this names a model behind a URL rather than a file or code."""
    return "://" in spec


class Endpoint:
    """A model that is asked over HTTP: MLflow's `/invocations` or the Open Inference Protocol v2.

    MLflow receives the columns of the table (`dataframe_split`), a v2 server what its metadata declare: one matrix
    of numbers, or one input per column. Missing values are sent as null. Where a v2 server takes whole numbers, the
    nearest ones are sent.

    Args:
        url: of the prediction, http or https; no user name or password in it.
        timeout: seconds that one call may take.
        retries: further tries after a connection error, a timeout, or the statuses 429, 502, 503 and 504.
        batch_rows: rows per call.
        max_calls: stop with an error rather than call more often, further tries included.
        auth_env: the environment variable that holds the Authorization header.
        columns: the columns the model takes, in its order; by default those a v2 server names, else all.
        output_name: the output of a v2 server that is audited, where it has several.
        pause: seconds before the second try; they double with each further one.

    Example:
        >>> Endpoint("https://models.example/invocations", max_calls=500)
        Endpoint('https://models.example/invocations')
    """

    def __init__(
        self,
        url: str,
        *,
        timeout: float = 30.0,
        retries: int = 3,
        batch_rows: int = _BATCH_ROWS,
        max_calls: int | None = None,
        auth_env: str | None = None,
        columns: Sequence[str] | None = None,
        output_name: str | None = None,
        pause: float = 0.5,
    ) -> None:
        if batch_rows < 1:
            raise OptionError(f"batch_rows is {batch_rows}; expected at least 1")
        self._calls = HttpCalls(
            url, timeout=timeout, retries=retries, max_calls=max_calls, auth_env=auth_env, pause=pause
        )
        self.batch_rows = batch_rows
        self.columns = None if columns is None else tuple(columns)
        self.output_name = output_name
        path = check_url(url).path.rstrip("/").split("/")
        self._is_v2 = path[-1] == "infer" and tuple(path[-4:-2]) == _V2_PATH and bool(path[-2])
        self._is_v2 |= path[-1] == "infer" and tuple(path[-6:-4]) == _V2_PATH and path[-3] == "versions"
        if not self._is_v2 and path[-1] != "invocations":
            raise OptionError(f"{self.shown} is no address of a model that fairfox knows; {_KNOWN}")

    def __repr__(self) -> str:
        return f"Endpoint({self.shown!r})"

    @property
    def shown(self) -> str:
        """The URL as it may be shown: without its query."""
        return self._calls.shown

    @property
    def calls(self) -> int:
        """How many times predictions have been asked for, repeated tries included."""
        return self._calls.made

    @property
    def max_calls(self) -> int | None:
        """How many calls are allowed at most."""
        return self._calls.max_calls

    def calls_for(self, rows: int) -> int:
        """Return how many calls the predictions of so many rows take."""
        return -(-rows // self.batch_rows)

    def describe(self) -> Description:
        """Return how the model is asked; a v2 server is asked for its metadata the first time."""
        with self._redacting():
            spoken = self._protocol
        return Description(
            self.predict,
            spoken.kind,
            names=spoken.names or self.columns,
            width=spoken.width,
            as_category=spoken.as_category,
        )

    def predict(self, rows: Any) -> np.ndarray:
        """Return the predictions (N, K) for a data frame or a matrix, asked for in batches."""
        with self._redacting():
            return self._predict(rows)

    @contextmanager
    def _redacting(self) -> Iterator[None]:
        """Keep what a server wrote into its names and answers from giving the credentials away in an error."""
        try:
            yield
        except FairfoxError as error:
            raise type(error)(self._calls.redacted(str(error))) from None

    def _predict(self, rows: Any) -> np.ndarray:
        names, columns = _columns_of(rows)
        sent = f"{len(columns)} columns" if names is None else f"the columns {', '.join(names)}"
        parts = []
        for batch in row_blocks(len(rows), self.batch_rows):
            body = self._protocol.question(names, [values[batch] for values in columns])
            answer = self._protocol.answer(self._calls.post(body, sent=sent))
            parts.append(self._numbers(answer, batch.stop - batch.start))
        if len({part.shape[1] for part in parts}) > 1:
            raise ModelError(f"The endpoint {self.shown} returned a different number of columns from batch to batch")
        return np.concatenate(parts) if parts else np.zeros((0, 1))

    @cached_property
    def _protocol(self) -> _Spoken:
        if not self._is_v2:
            return _MLflow(self.shown)
        base = self._calls.url.partition("?")[0].rstrip("/").removesuffix("/infer")
        query = self._calls.url.partition("?")[2]
        declared = self._calls.get(f"{base}?{query}" if query else base)
        return _OpenInference(self.shown, _slots(declared, self.shown), self.output_name)

    def _numbers(self, answer: Any, rows: int) -> np.ndarray:
        """Return an answer as finite numbers (rows, K), or say what it is instead."""
        where = f"The endpoint {self.shown}"
        try:
            found = np.asarray(_without_keys(answer))
            text = found.dtype.kind in "US"
            numbers = found.astype(float) if not text else found  # null becomes NaN
        except (ValueError, TypeError, OverflowError):
            raise ModelError(f"{where} returned predictions of uneven kinds or lengths; expected numbers") from None
        if text:
            first = self._calls.redacted(str(found.reshape(-1)[0]))[:40]  # before it is cut: a part would get through
            raise ModelError(
                f"{where} returned text such as '{first}'; expected numbers: serve the "
                "probabilities, not the class (for MLflow and scikit-learn: pyfunc_predict_fn='predict_proba')"
            )
        if numbers.ndim == 0 or len(numbers) != rows:
            count = "a single number" if numbers.ndim == 0 else f"{len(numbers)} predictions"
            raise ModelError(f"{where} returned {count} for {rows} rows; expected one for each, in order")
        numbers = numbers.reshape(rows, -1)
        bad = ~np.isfinite(numbers).all(1)
        if bad.any():
            raise ModelError(
                f"{where} returned null, NaN or infinity for {int(bad.sum())} of {rows} rows; every row needs a "
                "finite prediction: check missing values in the table, or the model"
            )
        return numbers


def load_endpoint(url: str, **options: Any) -> Endpoint:
    """Return the Endpoint at a URL with its options, once a v2 server has said what it takes."""
    endpoint = Endpoint(url, **options)
    endpoint.describe()
    return endpoint


class _Spoken(Protocol):
    """A protocol: how rows become a question, and where the predictions are in the answer."""

    @property
    def kind(self) -> Kind: ...

    @property
    def names(self) -> tuple[str, ...] | None: ...

    @property
    def width(self) -> int | None: ...

    @property
    def as_category(self) -> frozenset[str]: ...

    def question(self, names: list[str] | None, columns: list[list[Any]]) -> dict[str, Any]: ...

    def answer(self, parsed: Any) -> Any: ...


@dataclass(frozen=True)
class _MLflow:
    """MLflow's scoring protocol."""

    shown: str
    kind: Kind = "table"
    names: tuple[str, ...] | None = None
    width: int | None = None
    as_category: frozenset[str] = frozenset()

    def question(self, names: list[str] | None, columns: list[list[Any]]) -> dict[str, Any]:
        """Return the body of a call: a data frame, or a matrix where the columns have no names."""
        rows = list(map(list, zip(*columns, strict=True)))
        return {"inputs": rows} if names is None else {"dataframe_split": {"columns": names, "data": rows}}

    def answer(self, parsed: Any) -> Any:
        """Return the predictions: under their key, or bare as old servers send them."""
        if isinstance(parsed, dict) and "predictions" in parsed:
            return parsed["predictions"]
        if isinstance(parsed, list):
            return parsed
        raise ModelError(f"The endpoint {self.shown} answered without 'predictions'; {_KNOWN}")


@dataclass(frozen=True)
class _Slot:
    """An input that a v2 server declares."""

    name: str
    datatype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class _OpenInference:
    """The Open Inference Protocol v2, for one matrix of numbers or one input per column."""

    shown: str
    inputs: tuple[_Slot, ...]
    output_name: str | None

    @property
    def _matrix(self) -> _Slot | None:
        """The only input, where it is a matrix; servers that declare nothing take one as well."""
        if not self.inputs:
            return _Slot("input-0", "FP64", (-1, -1))
        one = self.inputs[0]
        return one if len(self.inputs) == 1 and len(one.shape) == 2 and one.datatype != "BYTES" else None

    @property
    def kind(self) -> Kind:
        """What the server takes."""
        return "table" if self._matrix is None else "matrix"

    @property
    def names(self) -> tuple[str, ...] | None:
        """The columns, where each is an input."""
        return tuple(slot.name for slot in self.inputs) if self._matrix is None else None

    @property
    def width(self) -> int | None:
        """How many columns the server takes, where it says so."""
        matrix = self._matrix
        return len(self.inputs) if matrix is None else matrix.shape[1] if matrix.shape[1] > 0 else None

    @property
    def as_category(self) -> frozenset[str]:
        """The columns that the server takes as text."""
        return frozenset(slot.name for slot in self.inputs if slot.datatype == "BYTES")

    def question(self, names: list[str] | None, columns: list[list[Any]]) -> dict[str, Any]:
        """Return the body of a call."""
        inputs = self._by_column(names, columns) if self._matrix is None else [self._as_matrix(columns, self._matrix)]
        wanted = {} if self.output_name is None else {"outputs": [{"name": self.output_name}]}
        return {"inputs": inputs, **wanted}

    def _as_matrix(self, columns: list[list[Any]], slot: _Slot) -> dict[str, Any]:
        if slot.shape[1] not in (-1, len(columns)):
            raise DataError(
                f"The endpoint {self.shown} takes {slot.shape[1]} columns and the table has {len(columns)} for it; "
                "leave the others out (--drop, drop=[...]), or name those it takes with columns=[...]"
            )
        typed = [self._typed(values, slot.datatype, f"column {i + 1}") for i, values in enumerate(columns)]
        flat = [value for row in zip(*typed, strict=True) for value in row]
        return _tensor(slot, [len(columns[0]), len(columns)], flat)

    def _by_column(self, names: list[str] | None, columns: list[list[Any]]) -> list[dict[str, Any]]:
        given = dict(zip(names or [slot.name for slot in self.inputs], columns, strict=False))
        if set(given) != {slot.name for slot in self.inputs} or len(columns) != len(self.inputs):
            expected = ", ".join(slot.name for slot in self.inputs)
            raise DataError(f"The endpoint {self.shown} takes the columns {expected}; give it these and no others")
        out = []
        for slot in self.inputs:
            values = self._typed(given[slot.name], slot.datatype, f"'{slot.name}'")
            out.append(_tensor(slot, [len(values)] if len(slot.shape) == 1 else [len(values), 1], values))
        return out

    def _typed(self, values: list[Any], datatype: str, what: str) -> list[Any]:
        """Return values as the server's type, null where they are missing."""
        convert = _converter(datatype)
        try:
            return [None if value is None else convert(value) for value in values]
        except (ValueError, TypeError):
            text = next((value for value in values if isinstance(value, str)), None)
            raise DataError(
                f"The endpoint {self.shown} takes {what} as {datatype}, and the table holds '{text}' there; "
                "give numbers, or a server that takes text (BYTES)"
            ) from None

    def answer(self, parsed: Any) -> Any:
        """Return the rows of the audited output."""
        outputs = parsed.get("outputs") if isinstance(parsed, dict) else None
        if not isinstance(outputs, list) or not outputs or not all(isinstance(out, dict) for out in outputs):
            raise ModelError(f"The endpoint {self.shown} answered without 'outputs'; {_KNOWN}")
        chosen = self._chosen(outputs)
        data, shape = chosen.get("data"), chosen.get("shape")
        if not isinstance(data, list):
            raise ModelError(f"The endpoint {self.shown} returned an output without 'data'; expected JSON numbers")
        nested = bool(data) and isinstance(data[0], list)
        if nested or not isinstance(shape, list) or len(shape) < 2:
            return data
        width = int(np.prod([size for size in shape[1:] if isinstance(size, int)]))
        if width < 1 or len(data) != width * shape[0]:
            raise ModelError(f"The endpoint {self.shown} returned {len(data)} numbers for the shape {shape}")
        return [data[start : start + width] for start in range(0, len(data), width)]

    def _chosen(self, outputs: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the output asked for, else the only one, the one named after probabilities, or the only real one."""
        named = [str(out.get("name")) for out in outputs]
        if self.output_name is not None:
            candidates = [[out for out, name in zip(outputs, named, strict=True) if name == self.output_name]]
        else:
            likely = [out for out, name in zip(outputs, named, strict=True) if "prob" in name.casefold()]
            candidates = [outputs, likely, [out for out in outputs if str(out.get("datatype")).startswith("FP")]]
        for found in candidates:
            if len(found) == 1:
                return found[0]
        raise ModelError(
            f"The endpoint {self.shown} returned the outputs {', '.join(named)}; say which is audited with "
            "fairfox.models.http_model.Endpoint(url, output_name=...), given as file.py:name"
        )


def _tensor(slot: _Slot, shape: list[int], data: list[Any]) -> dict[str, Any]:
    return {"name": slot.name, "shape": shape, "datatype": slot.datatype, "data": data}


def _converter(datatype: str) -> Any:
    if datatype == "BYTES":
        return str
    if datatype == "BOOL":
        return lambda value: bool(float(value))
    return float if datatype.startswith("FP") else lambda value: round(float(value))


def _slots(declared: Any, shown: str) -> tuple[_Slot, ...]:
    """Return the inputs that a v2 server's metadata declare, none where it has no metadata."""
    inputs = declared.get("inputs") if isinstance(declared, dict) else None
    try:
        slots = tuple(_Slot(str(i["name"]), str(i["datatype"]), tuple(map(int, i["shape"]))) for i in inputs or ())
    except (TypeError, KeyError, ValueError):
        raise ModelError(
            f"The metadata of {shown} cannot be read; expected inputs with name, datatype and shape"
        ) from None
    for slot in slots:
        if not re.fullmatch(_DATATYPES, slot.datatype):
            raise ModelError(f"The endpoint {shown} takes '{slot.name}' as {slot.datatype}, which fairfox cannot send")
        if not 1 <= len(slot.shape) <= 2 or (len(slots) > 1 and slot.shape[1:] not in ((), (1,), (-1,))):
            raise ModelError(
                f"The endpoint {shown} takes '{slot.name}' in the shape {list(slot.shape)}; fairfox sends one matrix, "
                "or one input per column"
            )
    return slots


def _columns_of(rows: Any) -> tuple[list[str] | None, list[list[Any]]]:
    """Return the names (None for a matrix) and the columns of a data frame or matrix, None where a value is missing."""
    if isinstance(rows, np.ndarray):
        return None, [[None if v != v else v for v in values] for values in rows.T.tolist()]
    frame = nw.from_native(rows, eager_only=True)
    return list(frame.columns), [objects(frame.get_column(name)).tolist() for name in frame.columns]


def _without_keys(answer: Any) -> Any:
    """Return a table written as records, or as columns by name, as a list of rows."""
    if isinstance(answer, dict):  # columns by name
        columns = list(answer.values())
        if not all(isinstance(values, list) for values in columns):
            raise TypeError
        return list(zip(*columns, strict=True))
    if isinstance(answer, list) and answer and all(isinstance(row, dict) for row in answer):
        keys = list(answer[0])
        if any(set(row) != set(keys) for row in answer):
            raise ValueError
        return [[row[key] for key in keys] for row in answer]
    return answer
