"""Models behind a URL: MLflow's /invocations and the Open Inference Protocol v2."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import narwhals as nw
import numpy as np

from fairfox.choices.kinds import Number
from fairfox.data.table import objects
from fairfox.errors import DataError, ModelError, OptionError
from fairfox.models.http_client import LONGEST_QUOTE, JsonClient
from fairfox.models.protocol import Description, check_rows, row_blocks

_DATATYPES = "BOOL|BYTES|U?INT(8|16|32|64)|FP(16|32|64)"
_PROTOCOLS = (
    "expected MLflow (https://host/invocations) or the Open Inference Protocol v2 "
    "(https://host/v2/models/NAME/infer or https://host/v2/models/NAME/versions/V/infer)"
)


def is_url(spec: str) -> bool:
    """Return whether this names a model behind a URL rather than a file or code."""
    return "://" in spec


class Endpoint:
    """A model that is called over HTTP: MLflow's `/invocations` or the Open Inference Protocol v2.

    MLflow receives the columns of the table (`dataframe_split`); a v2 server receives what its metadata declare, one
    matrix of numbers or one input per column. Missing values are sent as null. Where a v2 server takes whole numbers,
    the nearest ones are sent.

    Args:
        url: of the prediction, http or https; no user name or password in it.
        timeout: seconds that one call may take.
        retries: how often to try again after a connection error, a timeout, or the statuses 429, 502, 503 and 504.
        batch_rows: rows per call.
        max_calls: stop with an error after this many calls, retries included.
        auth_env: the environment variable that holds the Authorization header.
        columns: the columns the model takes, in order; by default those a v2 server names, else all.
        output_name: the output of a v2 server that is audited, where it has several.
        pause: seconds between tries: none before the second try, two pauses before the third, then four, eight, ...;
            a server that says how long to wait (Retry-After) gets up to a minute.

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
        batch_rows: int = 1000,
        max_calls: int | None = None,
        auth_env: str | None = None,
        columns: Sequence[str] | None = None,
        output_name: str | None = None,
        pause: float = 0.5,
    ) -> None:
        Number(1, whole=True).required("batch_rows", batch_rows)
        Number(0, whole=True).required("retries", retries)
        Number(1, whole=True).check("max_calls", max_calls)
        Number(0, low_open=True).required("timeout", timeout)
        Number(0).required("pause", pause)
        self._client = JsonClient(url, timeout, retries, max_calls, auth_env, pause)
        self.batch_rows = batch_rows
        self.columns = None if columns is None else tuple(columns)
        self.output_name = output_name
        path = urlsplit(url).path.rstrip("/")
        self._is_v2 = re.search(r"/v2/models/[^/]+(/versions/[^/]+)?/infer$", path) is not None
        if not self._is_v2 and not path.endswith("/invocations"):
            raise OptionError(f"{self.shown} is not a model address that fairfox supports; {_PROTOCOLS}")

    def __repr__(self) -> str:
        return f"Endpoint({self.shown!r})"

    @property
    def shown(self) -> str:
        """The URL as it may be shown: without its query, which may hold keys."""
        return self._client.shown

    @property
    def calls(self) -> int:
        """How many prediction requests were sent, retries included."""
        return self._client.calls

    def describe(self) -> Description:
        """Return how the model is called; the first call asks a v2 server for its metadata."""
        with self._client.redacting():
            return self._protocol.describe(self.predict, self.columns)

    def predict(self, rows: Any) -> np.ndarray:
        """Return the predictions (N, K) for a data frame or a matrix, in batches."""
        with self._client.redacting():
            names, columns = _columns_of(rows)
            sent = f"{len(columns)} columns" if names is None else f"the columns {', '.join(names)}"
            batches = []
            for batch in row_blocks(len(rows), self.batch_rows):
                body = self._protocol.body(names, [values[batch] for values in columns])
                found = self._protocol.predictions(self._client.post(body, sent=sent))
                batches.append(self._numbers(found, batch.stop - batch.start))
            if len({numbers.shape[1] for numbers in batches}) > 1:
                raise ModelError(f"The endpoint {self.shown} returned different numbers of columns per batch")
            return np.concatenate(batches) if batches else np.zeros((0, 1))

    @cached_property
    def _protocol(self) -> _MLflow | _OpenInference:
        if not self._is_v2:
            return _MLflow(self.shown)
        url = urlsplit(self._client.url)
        declared = self._client.get(urlunsplit(url._replace(path=url.path.rstrip("/").removesuffix("/infer"))))
        return _OpenInference(self._client, _declared_inputs(declared, self._client), self.output_name)

    def _numbers(self, predictions: Any, rows: int) -> np.ndarray:
        """Return predictions as numbers (rows, K), null as NaN, or say what they are instead."""
        where = f"The endpoint {self.shown}"
        try:
            if isinstance(predictions, list) and predictions and isinstance(predictions[0], dict):  # records
                predictions = [[row[key] for key in predictions[0]] for row in predictions]
            found = np.asarray(predictions)
            numbers = found if found.dtype.kind in "US" else found.astype(float)
        except (ValueError, TypeError, KeyError, OverflowError):
            raise ModelError(f"{where} returned predictions of mixed types or lengths; expected numbers") from None
        if numbers.dtype.kind != "f":
            raise ModelError(
                f"{where} returned text such as '{self._client.quoted(str(found.reshape(-1)[0]), 40)}'; expected "
                "numbers: serve the probabilities, not the class (for MLflow and scikit-learn: "
                "pyfunc_predict_fn='predict_proba')"
            )
        check_rows(numbers, rows, who=where)
        return numbers.reshape(rows, -1)


def load_endpoint(url: str, **options: Any) -> Endpoint:
    """Return the Endpoint at a URL with its options, once a v2 server has declared what it takes."""
    endpoint = Endpoint(url, **options)
    endpoint.describe()
    return endpoint


# --- protocols -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _MLflow:
    """MLflow's scoring protocol."""

    shown: str

    def describe(self, predict: Callable[[Any], Any], columns: tuple[str, ...] | None) -> Description:
        return Description(predict, "table", names=columns)

    def body(self, names: list[str] | None, columns: list[list[Any]]) -> dict[str, Any]:
        """Return the body of a call: a data frame, or a matrix where the columns have no names."""
        rows = list(map(list, zip(*columns, strict=True)))
        return {"inputs": rows} if names is None else {"dataframe_split": {"columns": names, "data": rows}}

    def predictions(self, answer: Any) -> Any:
        """Return the predictions: under their key, or bare as old servers send them."""
        if isinstance(answer, dict) and "predictions" in answer:
            return answer["predictions"]
        if isinstance(answer, list):
            return answer
        raise ModelError(f"The endpoint {self.shown} answered without 'predictions'; {_PROTOCOLS}")


@dataclass(frozen=True)
class _Input:
    """An input that a v2 server declares."""

    name: str
    datatype: str
    shape: tuple[int, ...]

    def filled(self, shape: list[int], columns: list[list[Any]]) -> dict[str, Any]:
        """Return the input with rows of these columns, each value as the server's type, null where it is missing."""
        data = [self._typed(value) for row in zip(*columns, strict=True) for value in row]
        return {"name": self.name, "shape": shape, "datatype": self.datatype, "data": data}

    def _typed(self, value: Any) -> Any:
        if value is None or self.datatype == "BYTES":
            return None if value is None else str(value)
        try:
            number = value if isinstance(value, int) else float(value)
        except (ValueError, TypeError):
            raise DataError(
                f"The endpoint takes '{self.name}' as {self.datatype}, but the table holds '{value}' there; "
                "give numbers, or a server that takes text (BYTES)"
            ) from None
        if self.datatype == "BOOL":
            return bool(number)
        return float(number) if self.datatype.startswith("FP") else round(number)


@dataclass(frozen=True)
class _OpenInference:
    """The Open Inference Protocol v2, for one matrix of numbers or one input per column."""

    client: JsonClient
    inputs: tuple[_Input, ...]
    output_name: str | None

    @property
    def _is_matrix(self) -> bool:
        first = self.inputs[0]
        return len(self.inputs) == 1 and len(first.shape) == 2 and first.datatype != "BYTES"

    def describe(self, predict: Callable[[Any], Any], columns: tuple[str, ...] | None) -> Description:
        if self._is_matrix:
            width = self.inputs[0].shape[1]
            return Description(predict, "matrix", names=columns, width=width if width > 0 else None)
        texts = frozenset(given.name for given in self.inputs if given.datatype == "BYTES")
        names = tuple(given.name for given in self.inputs)
        return Description(predict, "table", names=names, width=len(names), as_category=texts)

    def body(self, names: list[str] | None, columns: list[list[Any]]) -> dict[str, Any]:
        """Return the body of a call."""
        rows = len(columns[0])
        if self._is_matrix:
            inputs = [self.inputs[0].filled([rows, len(columns)], columns)]
        else:
            values = dict(zip(names or [given.name for given in self.inputs], columns, strict=True))
            inputs = [given.filled([rows, 1][: len(given.shape)], [values[given.name]]) for given in self.inputs]
        wanted = {} if self.output_name is None else {"outputs": [{"name": self.output_name}]}
        return {"inputs": inputs, **wanted}

    def predictions(self, answer: Any) -> Any:
        """Return the rows of the audited output."""
        outputs = answer.get("outputs") if isinstance(answer, dict) else None
        if not isinstance(outputs, list) or not outputs or not all(isinstance(out, dict) for out in outputs):
            raise ModelError(f"The endpoint {self.client.shown} answered without 'outputs'; {_PROTOCOLS}")
        chosen = self._chosen(outputs)
        try:
            return np.reshape(chosen["data"], chosen.get("shape", -1))
        except (KeyError, ValueError, TypeError):
            raise ModelError(f"The endpoint {self.client.shown} returned data that do not fit their shape") from None

    def _chosen(self, outputs: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the named output, else the only one, the one named after probabilities, or the only real one."""
        if self.output_name is not None:
            candidates = [[out for out in outputs if out.get("name") == self.output_name]]
        else:
            likely = [out for out in outputs if "prob" in str(out.get("name")).casefold()]
            candidates = [outputs, likely, [out for out in outputs if str(out.get("datatype")).startswith("FP")]]
        if chosen := next((found[0] for found in candidates if len(found) == 1), None):
            return chosen
        named = self.client.quoted(", ".join(str(out.get("name")) for out in outputs), LONGEST_QUOTE)
        raise ModelError(
            f"The endpoint {self.client.shown} returned the outputs {named}; choose one with "
            "fairfox.Endpoint(url, output_name=...), given as file.py:name"
        )


def _declared_inputs(declared: Any, client: JsonClient) -> tuple[_Input, ...]:
    """Return the inputs that a v2 server's metadata declare; one matrix where it declares nothing."""
    inputs = declared.get("inputs") if isinstance(declared, dict) else None
    try:
        found = tuple(_Input(str(i["name"]), str(i["datatype"]), tuple(map(int, i["shape"]))) for i in inputs or ())
        narrow = len(found) == 1 or all(given.shape[1:] in ((), (1,), (-1,)) for given in found)
        right = all(re.fullmatch(_DATATYPES, given.datatype) and 1 <= len(given.shape) <= 2 for given in found)
    except (TypeError, KeyError, ValueError):
        right = False
    if not (right and narrow):
        raise ModelError(
            f"The endpoint {client.shown} declares inputs that fairfox cannot send, "
            f"{client.quoted(str(inputs), LONGEST_QUOTE)}; expected name, datatype and shape of one matrix, or of one "
            "input per column"
        )
    return found or (_Input("input-0", "FP64", (-1, -1)),)


def _columns_of(rows: Any) -> tuple[list[str] | None, list[list[Any]]]:
    """Return the names (None for a matrix) and the columns of a data frame or matrix, None where a value is missing."""
    if isinstance(rows, np.ndarray):
        return None, [[None if v != v else v for v in values] for values in rows.T.tolist()]
    frame = nw.from_native(rows, eager_only=True)
    return list(frame.columns), [objects(frame.get_column(name)).tolist() for name in frame.columns]
