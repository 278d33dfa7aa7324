from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairfox.errors import FileError, UntrustedModelError
from fairfox.models.onnx_graph import checked_graph, class_labels

onnx = pytest.importorskip("onnx")
of, T = onnx.helper, onnx.TensorProto


def outside(location: str, **entries: str) -> Any:
    """Return a tensor of three floats that lies in another file."""
    tensor = T(name="w", data_type=T.FLOAT, dims=[3, 1], data_location=T.EXTERNAL)
    for key, value in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=value)
    return tensor


def graph_of(nodes: list[Any], constants: Any = (), outputs: tuple[str, ...] = ("y",)) -> Any:
    x = of.make_tensor_value_info("x", T.FLOAT, [None, 3])
    return of.make_graph(nodes, "graph", [x], [of.make_empty_tensor_value_info(name) for name in outputs], constants)


def written(path: Path, graph: Any) -> Path:
    path.write_bytes(of.make_model(graph).SerializeToString())
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    np.ones(3, np.float32).tofile(tmp_path / "secret.bin")
    np.ones(3, np.float32).tofile(tmp_path / "home" / "w.bin")
    return tmp_path / "home" / "model.onnx"


def test_a_graph_comes_with_the_bytes_it_was_read_from(path: Path):
    content, graph, external = checked_graph(written(path, graph_of([of.make_node("Neg", ["x"], ["y"])])))
    assert content == path.read_bytes()
    assert [node.op_type for node in graph.node] == ["Neg"]
    assert not external


@pytest.mark.parametrize("entries", [{}, {"offset": "0", "length": "12"}, {"offset": "4"}])
def test_weights_in_the_same_folder_are_allowed(path: Path, entries: dict[str, str]):
    node = of.make_node("MatMul", ["x", "w"], ["y"])
    assert checked_graph(written(path, graph_of([node], [outside("w.bin", **entries)])))[2]


def in_an_attribute(tensor: Any) -> Any:
    return graph_of([of.make_node("Constant", [], ["y"], value=tensor)])


def in_a_branch(tensor: Any) -> Any:
    branch = of.make_graph([], "branch", [], [of.make_empty_tensor_value_info("w")], [tensor])
    return graph_of([of.make_node("If", ["x"], ["y"], then_branch=branch, else_branch=branch)])


def in_a_sparse_tensor(tensor: Any) -> Any:
    graph = graph_of([of.make_node("Neg", ["x"], ["y"])])
    graph.sparse_initializer.add().values.CopyFrom(tensor)
    return graph


@pytest.mark.parametrize("place", [in_an_attribute, in_a_branch, in_a_sparse_tensor])
def test_weights_outside_the_folder_are_found_wherever_they_are_named(path: Path, place: Any):
    with pytest.raises(UntrustedModelError, match=r"names weights in '\.\./secret\.bin', outside its own folder"):
        checked_graph(written(path, place(outside("../secret.bin"))))


@pytest.mark.parametrize(
    "entries", [{"length": "13"}, {"offset": "13"}, {"offset": "-4", "length": "4"}, {"offset": "4", "length": "-8"}]
)
def test_weights_that_are_not_there_in_full_are_refused(path: Path, entries: dict[str, str]):
    with pytest.raises(FileError, match=r"needs \d+ bytes of weights in 'w.bin' and finds 12"):
        checked_graph(written(path, in_an_attribute(outside("w.bin", **entries))))


def test_numbers_that_are_none_are_refused(path: Path):
    with pytest.raises(FileError, match="names weights in another file that cannot be read"):
        checked_graph(written(path, in_an_attribute(outside("w.bin", length="many"))))


def test_classes_are_those_nearest_to_the_output():
    first = of.make_node("TreeEnsembleClassifier", ["x"], ["place", "chances"], classlabels_int64s=[0, 1])
    names = of.make_tensor("names", T.STRING, [2], [b"no", b"yes"])
    lookup = of.make_node("ArrayFeatureExtractor", ["names", "place"], ["label"])
    last = of.make_node("ZipMap", ["chances"], ["map"], classlabels_strings=["No", "Yes"])
    graph = graph_of([first, lookup, last], [names], ("label", "map"))
    assert class_labels(graph, "label") == ["no", "yes"]
    assert class_labels(graph, "map") == ["No", "Yes"]
    assert class_labels(graph, "chances") == [0, 1]
    assert class_labels(graph, "x") is None


def test_a_graph_that_runs_in_a_circle_has_no_classes():
    nodes = [of.make_node("Neg", ["b"], ["a"]), of.make_node("Neg", ["a"], ["b"])]
    assert class_labels(graph_of(nodes), "a") is None
