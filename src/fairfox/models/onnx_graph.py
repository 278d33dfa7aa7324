"""What an ONNX file holds, looked at before anything runs it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fairfox.errors import FileError, UntrustedModelError
from fairfox.extras import require

_LABELS = ("classlabels_strings", "classlabels_int64s", "classlabels_ints")


def checked_graph(path: Path) -> tuple[bytes, Any, bool]:
    """Return the bytes of a file, its graph, and whether it has weights in other files, all of them in its folder."""
    onnx = require("onnx", why="to read ONNX files")
    content = path.read_bytes()
    try:
        model = onnx.load_model_from_string(content)
    except Exception as error:  # protobuf has several kinds of its own
        raise FileError(f"'{path.name}' is no ONNX model, or a damaged one") from error
    if not model.graph.output:
        raise FileError(f"'{path.name}' holds no ONNX graph; the file is empty or damaged")
    external = False
    for tensor in _tensors(model, onnx.TensorProto):
        if tensor.data_location == onnx.TensorProto.EXTERNAL or tensor.external_data:
            _check_external(path, {entry.key: entry.value for entry in tensor.external_data})
            external = True
    return content, model.graph, external


def class_labels(graph: Any, output: str) -> list[Any] | None:
    """Return the classes that lead to an output: those nearest to it, where the graph names any."""
    makers = {name: node for node in graph.node for name in node.output}
    constants = {tensor.name: tensor for tensor in graph.initializer}
    ahead, seen = deque([output]), {output}
    while ahead:
        node = makers.get(ahead.popleft())
        if node is None:
            continue
        for attribute in node.attribute:
            if attribute.name in _LABELS and (attribute.strings or attribute.ints):
                return [s.decode("utf-8", "replace") for s in attribute.strings] or list(attribute.ints)
        # classes that are looked up by their place
        if node.op_type in ("ArrayFeatureExtractor", "Gather") and node.input[0] in constants:
            return _values(constants[node.input[0]])
        ahead.extend(name for name in node.input if name not in seen)
        seen.update(node.input)
    return None


def _values(tensor: Any) -> list[Any]:
    values = require("onnx").numpy_helper.to_array(tensor).reshape(-1).tolist()
    return [v.decode("utf-8", "replace") if isinstance(v, bytes) else v for v in values]


def _tensors(message: Any, kind: type) -> Iterator[Any]:
    """Yield every tensor in a protobuf message, however deep: initialisers, attributes, sub-graphs, functions."""
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        for part in [value] if hasattr(value, "ListFields") else value:
            if isinstance(part, kind):
                yield part
            yield from _tensors(part, kind)


def _check_external(path: Path, entry: dict[str, str]) -> None:
    """Refuse weights that lie outside the folder of the model, or that are not there in full."""
    location = entry.get("location", "")
    folder = path.resolve().parent
    try:
        place = (folder / location).resolve()
        start = int(entry.get("offset", 0))
        stop = start + int(entry.get("length", 0))
        inside = not Path(location).is_absolute() and ".." not in Path(location).parts and place.is_relative_to(folder)
        size = place.stat().st_size if inside and place.is_file() else 0
    except (OSError, ValueError, RuntimeError) as error:  # no such name, a loop of links, numbers that are none
        raise FileError(f"'{path.name}' names weights in another file that cannot be read: {error}") from error
    if not inside:
        raise UntrustedModelError(
            f"'{path.name}' names weights in '{location}', outside its own folder, and is not read; "
            "put them beside the model and export it again"
        )
    if not 0 <= start <= stop <= size or size == 0:
        raise FileError(
            f"'{path.name}' needs {max(stop, 1)} bytes of weights in '{location}' and finds {size}; "
            "the file is missing or damaged"
        )
