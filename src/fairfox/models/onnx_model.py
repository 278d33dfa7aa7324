"""ONNX files, asked through ONNX Runtime on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np

from fairfox.data.columns import Series, column, missing, numbers, objects
from fairfox.errors import FileError, ModelError, OptionError, did_you_mean
from fairfox.extras import require
from fairfox.models.description import Description
from fairfox.models.onnx_graph import checked_graph, class_labels

_DTYPES: dict[str, type[np.generic]] = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(float16)": np.float16,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(bool)": np.bool_,
    "tensor(string)": np.object_,
}
_MAPS = "seq(map("  # of classes to probabilities, one for each row: what converters call a zip-map
_FLOATS = ("tensor(float)", "tensor(double)", "tensor(float16)")
_WHOLE = ("tensor(int64)", "tensor(int32)", "tensor(bool)")
_WRAP = "call it in a Python function of your own and give that as file.py:function"


class OnnxModel:
    """A model in an ONNX file.

    One input of numbers takes the columns as a matrix, in their order. Several inputs of one column each take the
    columns of the same names, as text or numbers. Of several outputs the probabilities are read, else the first that
    holds floats, unless one is named. Numbers arrive rounded to what the file declares, nearly always float32, so
    predictions differ from the original model's in the seventh digit, and by a whole leaf where a threshold of a tree
    lies that near. No custom operators are loaded, and weights outside the file only from its own folder.

    Args:
        path: the file.
        output: the name of the output that is audited, where the file has several.
    """

    def __init__(self, path: str | Path, *, output: str | None = None) -> None:
        runtime = require("onnxruntime", extra="onnx", why="to read ONNX files")
        self.path = Path(path)
        content, graph, external = checked_graph(self.path)
        options = runtime.SessionOptions()
        options.log_severity_level = 4  # errors are raised: nothing more is to be printed
        options.use_deterministic_compute = True
        if external:  # the bytes that were checked are the ones that are run
            folder = str(self.path.resolve().parent)
            options.add_session_config_entry("session.model_external_initializers_file_folder_path", folder)
        try:
            self.session = runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # the runtime has an exception of its own for each status
            raise FileError(f"ONNX Runtime cannot read '{self.path.name}': {_reason(error)}") from error
        self.inputs: list[Any] = list(self.session.get_inputs())
        self.output = _audited(self.session.get_outputs(), output, self.path.name)
        self.classes = _classes(graph, self.session.get_outputs(), self.output)
        self._check_inputs()

    def describe(self) -> Description:
        """Return how the file is asked: for a matrix, or for the columns that its inputs are named after."""
        if self._is_matrix:
            return Description(self._on_matrix, "matrix", classes=self.classes, width=_width(self.inputs[0]))
        names = None if len(self.inputs) == 1 else tuple(str(i.name) for i in self.inputs)
        return Description(self._on_table, "table", classes=self.classes, names=names)

    @property
    def _is_matrix(self) -> bool:
        return len(self.inputs) == 1 and self.inputs[0].type != "tensor(string)"

    def _check_inputs(self) -> None:
        for i in self.inputs:
            if i.type not in _DTYPES or not 1 <= len(i.shape) <= 2:
                raise OptionError(
                    f"Input '{i.name}' of '{self.path.name}' is a {i.type} with {len(i.shape)} dimensions; expected "
                    f"one or two dimensions of numbers or text: {_WRAP}"
                )
            if len(self.inputs) > 1 and _width(i) not in (None, 1):
                raise OptionError(
                    f"Input '{i.name}' of '{self.path.name}' takes {_width(i)} columns beside other inputs; expected "
                    f"one matrix, or inputs of one column each: {_WRAP}"
                )

    def _on_matrix(self, matrix: np.ndarray) -> np.ndarray:
        only = self.inputs[0]
        return self._ask({only.name: _as_numbers(matrix, only)}, len(matrix))

    def _on_table(self, frame: Any) -> np.ndarray:
        table = nw.from_native(frame, eager_only=True)
        if len(self.inputs) == 1:  # a matrix of text
            texts = np.stack([_as_text(column(table, name)) for name in table.columns], axis=1)
            return self._ask({self.inputs[0].name: texts}, len(table))
        feed = {i.name: _as_input(column(table, i.name), i) for i in self.inputs}
        return self._ask(feed, len(table))

    def _ask(self, feed: dict[str, np.ndarray], rows: int) -> np.ndarray:
        """Return the answers to all rows; a file that takes a fixed number of rows is asked in parts."""
        fixed = next((i.shape[0] for i in self.inputs if isinstance(i.shape[0], int)), None)
        if fixed is None or rows == 0:
            return self._answer(feed)
        parts = []
        for start in range(0, rows, fixed):
            # the last part is filled up with its last row
            taken = np.minimum(np.arange(start, start + fixed), rows - 1)
            parts.append(self._answer({name: values[taken] for name, values in feed.items()}))
        return np.concatenate(parts)[:rows]

    def _answer(self, feed: dict[str, np.ndarray]) -> np.ndarray:
        try:
            (raw,) = self.session.run([self.output.name], feed)
        except Exception as error:  # the runtime has an exception of its own for each status
            raise ModelError(f"'{self.path.name}' failed: {_reason(error)}") from error
        if isinstance(raw, list):
            return np.array([[row[label] for label in self.classes or row] for row in raw])
        return np.asarray(raw)


def _width(given: Any) -> int | None:
    """Return how many columns an input or output declares; None where it leaves that open."""
    if len(given.shape) == 1:
        return 1
    return given.shape[1] if len(given.shape) == 2 and isinstance(given.shape[1], int) else None


def _audited(outputs: list[Any], wanted: str | None, name: str) -> Any:
    """Return the output to audit: the one that is named, else probabilities before other numbers before labels."""
    if wanted is not None:
        found = [o for o in outputs if o.name == wanted]
        if not found:
            raise OptionError(f"'{name}' has no output '{wanted}'.{did_you_mean(wanted, [o.name for o in outputs])}")
        outputs = found
    readable = [o for o in outputs if o.type.startswith(_MAPS) or o.type in (*_FLOATS, *_WHOLE)]
    if not readable:
        kinds = ", ".join(f"{o.name}: {o.type}" for o in outputs)
        raise OptionError(f"'{name}' returns no numbers ({kinds}); export the model with its probabilities")
    return min(readable, key=_preference)


def _preference(output: Any) -> int:
    if output.type.startswith(_MAPS):
        return 0
    if output.type in _FLOATS:
        return 1 if "prob" in output.name.casefold() else 2
    return 3


def _classes(graph: Any, outputs: list[Any], audited: Any) -> list[Any] | None:
    """Return the classes in the order of the audited columns, where the file names them."""
    if audited.type.startswith(_MAPS):
        return class_labels(graph, audited.name)
    labels = [o for o in outputs if o.type in ("tensor(int64)", "tensor(int32)", "tensor(string)")]
    if audited.type not in _FLOATS or not labels:
        return None
    classes = class_labels(graph, labels[0].name)
    if classes is None or _width(audited) in (None, len(classes)) or (_width(audited) == 1 and len(classes) == 2):
        return classes
    return None


def _as_input(series: Series, given: Any) -> np.ndarray:
    """Return a column as the input declares it."""
    if given.type == "tensor(string)":
        values = _as_text(series)
    else:
        if not (series.dtype.is_numeric() or series.dtype == nw.Boolean):
            series = _as_numeric(series, given)
        values = _as_numbers(numbers(series), given)
    return values if len(given.shape) == 1 else values[:, None]


def _as_numeric(series: Series, given: Any) -> Series:
    """Return the numbers in a column of categories or objects."""
    try:
        values = np.array([np.nan if v is None else float(v) for v in objects(series)])
    except (TypeError, ValueError):
        first = next(v for v in objects(series) if isinstance(v, str))
        raise ModelError(f"The model takes '{given.name}' as numbers; the column holds '{first}'") from None
    return nw.new_series(series.name, values, backend=series.implementation)


def _as_numbers(values: np.ndarray, given: Any) -> np.ndarray:
    dtype = np.dtype(_DTYPES[given.type])
    if dtype.kind != "f":
        if np.isnan(values).any():
            raise ModelError(
                f"The model takes '{given.name}' as whole numbers ({given.type}), and some are missing; "
                "fill or drop them first"
            )
        values = np.rint(values)  # a moved value may lie between two whole numbers
    return np.ascontiguousarray(values, dtype=dtype)


def _as_text(series: Series) -> np.ndarray:
    """Return a column as text; what is missing is empty, for ONNX text knows nothing else."""
    gone = missing(series)
    texts = np.array([str(v) for v in objects(series)], dtype=object)
    texts[gone] = ""
    return texts


def _reason(error: Exception) -> str:
    """Return the first line of the runtime's message without its codes."""
    first = (str(error).splitlines() or [type(error).__name__])[0]
    return first.rsplit(" : ", 1)[-1].strip()
