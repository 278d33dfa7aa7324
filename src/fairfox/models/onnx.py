"""ONNX files, called through ONNX Runtime on the CPU."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np

from fairfox.data.table import Series, column, floats, missing, objects
from fairfox.errors import FileError, ModelError, OptionError, UntrustedModelError, did_you_mean, first_line, require
from fairfox.models.boosting import read_apart
from fairfox.models.protocol import Description

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
_LABELS = ("classlabels_strings", "classlabels_int64s", "classlabels_ints")
_WRAP = "wrap it in a Python function and give that as file.py:function"


class OnnxModel:
    """A model in an ONNX file.

    One input of numbers takes the columns as a matrix, in their order. Several inputs of one column each take the
    columns of the same names, as text or numbers. Of several outputs the probabilities are read, else the first that
    holds floats, unless one is named. Inputs are rounded to the file's type, nearly always float32, so predictions
    differ from the original model's in the seventh digit. A tree whose threshold is that near may take another leaf.
    Custom operators are not loaded, and weights outside the file only from its own folder.

    Args:
        path: the file.
        output: the name of the output that is audited, where the file has several.
    """

    def __init__(self, path: str | Path, *, output: str | None = None) -> None:
        runtime = require("onnxruntime", extra="onnx", why="to read ONNX files")
        self.path = Path(path)
        content, graph, external = _checked_graph(self.path)
        read_apart("onnxruntime", self.path)
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
        for i in self.inputs:
            if i.type not in _DTYPES or not 1 <= len(i.shape) <= 2:
                raise OptionError(
                    f"Input '{i.name}' of '{self.path.name}' is a {i.type} with {len(i.shape)} dimensions; expected "
                    f"one or two dimensions of numbers or text: {_WRAP}"
                )
            if (len(self.inputs) > 1 or i.type == "tensor(string)") and _width(i) not in (None, 1):
                raise OptionError(
                    f"Input '{i.name}' of '{self.path.name}' has {_width(i)} columns of text, or others beside it; "
                    f"expected one matrix of numbers, or inputs of one column each: {_WRAP}"
                )

    def describe(self) -> Description:
        """Return how the model is called: with a matrix, or with the columns its inputs are named after."""
        if len(self.inputs) == 1 and self.inputs[0].type != "tensor(string)":
            return Description(self._predict, "matrix", classes=self.classes, width=_width(self.inputs[0]))
        names = tuple(str(i.name) for i in self.inputs)
        return Description(self._predict, "table", classes=self.classes, names=names)

    def _predict(self, people: Any) -> np.ndarray:
        if isinstance(people, np.ndarray):
            return self._ask({self.inputs[0].name: _as_numbers(people, self.inputs[0])}, len(people))
        table = nw.from_native(people, eager_only=True)
        return self._ask({i.name: _as_input(column(table, i.name), i) for i in self.inputs}, len(table))

    def _ask(self, feed: dict[str, np.ndarray], rows: int) -> np.ndarray:
        """Return the predictions for all rows; a file that takes a fixed number of rows gets batches."""
        fixed = next((i.shape[0] for i in self.inputs if isinstance(i.shape[0], int)), None)
        if fixed is None or rows == 0:
            return self._answer(feed)
        batches = []
        for start in range(0, rows, fixed):
            taken = np.minimum(np.arange(start, start + fixed), rows - 1)  # the last batch repeats its last row
            batches.append(self._answer({name: values[taken] for name, values in feed.items()}))
        return np.concatenate(batches)[:rows]

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
    readable = [o for o in outputs if o.type.startswith(_MAPS) or (o.type in _DTYPES and o.type != "tensor(string)")]
    if not readable:
        kinds = ", ".join(f"{o.name}: {o.type}" for o in outputs)
        raise OptionError(f"'{name}' returns no numbers ({kinds}); export the model with its probabilities")
    # a map of classes, then floats, then whole numbers; of those the ones named after probabilities
    return min(
        readable, key=lambda o: (not o.type.startswith(_MAPS), o.type not in _FLOATS, "prob" not in o.name.casefold())
    )


def _classes(graph: Any, outputs: list[Any], audited: Any) -> list[Any] | None:
    """Return the classes in the order of the audited columns, where the file names them."""
    if audited.type.startswith(_MAPS):
        return _class_labels(graph, audited.name)
    labels = [o for o in outputs if o.type in ("tensor(int64)", "tensor(int32)", "tensor(string)")]
    if audited.type not in _FLOATS or not labels:
        return None
    classes = _class_labels(graph, labels[0].name)
    if classes is None or _width(audited) in (None, len(classes)) or (_width(audited) == 1 and len(classes) == 2):
        return classes
    return None


# --- columns -------------------------------------------------------------------------------------------------------


def _as_input(series: Series, given: Any) -> np.ndarray:
    """Return a column as the input declares it."""
    if given.type == "tensor(string)":
        texts = np.array([str(v) for v in objects(series)], dtype=object)
        values = np.where(missing(series), "", texts)  # ONNX has no other mark for what is missing
    elif series.dtype.is_numeric() or series.dtype == nw.Boolean:
        values = _as_numbers(floats(series), given)
    else:  # categories or objects
        try:
            numbers = np.array([np.nan if v is None else float(v) for v in objects(series)])
        except (TypeError, ValueError):
            first = next(v for v in objects(series) if isinstance(v, str))
            raise ModelError(f"The model takes '{given.name}' as numbers, but the column holds '{first}'") from None
        values = _as_numbers(numbers, given)
    return values if len(given.shape) == 1 else values[:, None]


def _as_numbers(values: np.ndarray, given: Any) -> np.ndarray:
    dtype = np.dtype(_DTYPES[given.type])
    if dtype.kind != "f":
        if np.isnan(values).any():
            raise ModelError(f"The model takes '{given.name}' as whole numbers, but some are missing; fill them in")
        values = np.rint(values)  # a moved value may lie between two whole numbers
    return np.ascontiguousarray(values, dtype=dtype)


def _reason(error: Exception) -> str:
    """Return the first line of the runtime's message without its codes."""
    return first_line(error).rsplit(" : ", 1)[-1].strip()


# --- graphs --------------------------------------------------------------------------------------------------------


def _checked_graph(path: Path) -> tuple[bytes, Any, bool]:
    """Return the bytes of a file, its graph, and whether it has weights in other files, all of them in its folder."""
    onnx = require("onnx", why="to read ONNX files")
    content = path.read_bytes()
    try:
        model = onnx.load_model_from_string(content)
    except Exception as error:  # protobuf has several kinds of its own
        raise FileError(f"'{path.name}' is not an ONNX model, or is damaged; export it again") from error
    if not model.graph.output:
        raise FileError(f"'{path.name}' holds no ONNX graph; export the model again")
    external = False
    for tensor in _tensors(model, onnx.TensorProto):
        if tensor.data_location == onnx.TensorProto.EXTERNAL or tensor.external_data:
            _check_external(path, next((e.value for e in tensor.external_data if e.key == "location"), ""))
            external = True
    return content, model.graph, external


def _class_labels(graph: Any, output: str) -> list[Any] | None:
    """Return the classes that lead to an output: those nearest to it, where the graph names any."""
    makers = {name: node for node in graph.node for name in node.output}
    constants = {tensor.name: tensor for tensor in graph.initializer}
    ahead, visited = deque([output]), {output}
    while ahead:
        node = makers.get(ahead.popleft())
        if node is None:
            continue
        for attribute in node.attribute:
            if attribute.name in _LABELS and (attribute.strings or attribute.ints):
                return [s.decode("utf-8", "replace") for s in attribute.strings] or list(attribute.ints)
        if node.op_type in ("ArrayFeatureExtractor", "Gather") and node.input[0] in constants:  # looked up by index
            values = require("onnx").numpy_helper.to_array(constants[node.input[0]]).reshape(-1).tolist()
            return [v.decode("utf-8", "replace") if isinstance(v, bytes) else v for v in values]
        ahead.extend(name for name in node.input if name not in visited)
        visited.update(node.input)
    return None


def _tensors(message: Any, kind: type) -> Iterator[Any]:
    """Yield every tensor in a protobuf message, however deep: initialisers, attributes, sub-graphs, functions."""
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        for part in [value] if hasattr(value, "ListFields") else value:
            if isinstance(part, kind):
                yield part
            yield from _tensors(part, kind)


def _check_external(path: Path, location: str) -> None:
    """Refuse weights that are in no file of the model's own folder."""
    folder = path.resolve().parent
    try:
        weights = (folder / location).resolve()
        inside = (
            not Path(location).is_absolute() and ".." not in Path(location).parts and weights.is_relative_to(folder)
        )
        found = inside and weights.is_file()
    except (OSError, ValueError, RuntimeError) as error:  # no such name, a loop of links
        raise FileError(f"'{path.name}' has weights in another file that cannot be read: {error}") from error
    if not inside:
        raise UntrustedModelError(
            f"'{path.name}' has weights in '{location}', outside its own folder, and is not read; "
            "put them beside the model and export it again"
        )
    if not found:
        raise FileError(f"'{path.name}' has weights in '{location}', which is not a file beside it; copy it there")
