from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from populations import people
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from support import audited

from fairfox.errors import ColumnError, FileError, ModelError, OptionError
from fairfox.models.loading import load_model
from fairfox.models.onnx import OnnxModel

pytestmark = pytest.mark.brief

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
of, T = onnx.helper, onnx.TensorProto

PEOPLE = people(60).astype({"income": np.float32, "debt": np.float32})
MATRIX = PEOPLE[["income", "age", "debt"]].to_numpy(np.float32)
LABELS = np.where(PEOPLE["income"] > 3100, "yes", "no")


def written(path: Path, nodes: list[Any], inputs: list[Any], outputs: list[Any], constants: Any = ()) -> Path:
    """Write a graph; inputs and outputs are (name, type, shape)."""
    values = [[of.make_tensor_value_info(*value) for value in values] for values in (inputs, outputs)]
    own = [of.make_opsetid("", 17), of.make_opsetid("ai.onnx.ml", 3)]
    graph = of.make_graph(nodes, "graph", *values, list(constants))
    path.write_bytes(of.make_model(graph, opset_imports=own, ir_version=9).SerializeToString())
    return path


def converted(path: Path, model: Any, example: Any = MATRIX[:1], **options: Any) -> OnnxModel:
    to_onnx = pytest.importorskip("skl2onnx").to_onnx
    path.write_bytes(to_onnx(model, example, options=options or None).SerializeToString())
    return OnnxModel(path)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.onnx"


# --- one matrix ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("labels", [LABELS, (LABELS == "yes").astype(int)], ids=["text", "numbers"])
@pytest.mark.parametrize("zipmap", [True, False])
@pytest.mark.parametrize(
    "model", [LogisticRegression(max_iter=2000), RandomForestClassifier(4, max_depth=3, random_state=0)]
)
def test_probabilities_are_read_in_the_order_of_the_classes(path: Path, model: Any, zipmap: bool, labels: np.ndarray):
    fitted = model.fit(MATRIX, labels)
    described = converted(path, fitted, zipmap=zipmap).describe()
    assert described.kind == "matrix"
    assert described.names is None
    assert described.width == 3
    assert described.classes == fitted.classes_.tolist()
    out = described.predict(MATRIX.astype(float))
    np.testing.assert_allclose(out, fitted.predict_proba(MATRIX), atol=1e-5)


def test_the_audited_class_can_be_named(path: Path):
    fitted = LogisticRegression(max_iter=2000).fit(MATRIX, LABELS)
    model = converted(path, fitted, zipmap=False)
    yes, no = (audited(model, PEOPLE.drop(columns="job"), protected="sex", refits=1, positive=p) for p in ("yes", "no"))
    np.testing.assert_allclose(yes.predictions.numpy(), fitted.predict_proba(MATRIX)[:, 1], atol=1e-5)
    np.testing.assert_allclose(no.predictions.numpy(), fitted.predict_proba(MATRIX)[:, 0], atol=1e-5)


@pytest.mark.parametrize("rows", [1, 4, 7])
def test_a_file_that_takes_a_fixed_number_of_rows_is_asked_in_parts(path: Path, rows: int):
    written(path, [of.make_node("Neg", ["x"], ["y"])], [("x", T.FLOAT, [4, 2])], [("y", T.FLOAT, [4, 2])])
    x = np.arange(2.0 * rows).reshape(rows, 2)
    np.testing.assert_array_equal(OnnxModel(path).describe().predict(x), -x)


@pytest.mark.parametrize(
    ("kind", "given", "seen"),
    [
        (T.DOUBLE, 0.1, 0.1),
        (T.FLOAT, 0.1, np.float32(0.1)),
        (T.FLOAT16, 0.1, np.float16(0.1)),
        (T.INT64, 2.6, 3),
        (T.INT32, -2.6, -3),
    ],
)
def test_numbers_arrive_as_the_file_declares_them(path: Path, kind: int, given: float, seen: float):
    written(path, [of.make_node("Identity", ["x"], ["y"])], [("x", kind, [None, 1])], [("y", kind, [None, 1])])
    assert OnnxModel(path).describe().predict(np.array([[given]]))[0, 0] == seen


# --- one input for each column -------------------------------------------------------------------------------------

COLUMNS = PEOPLE[["income", "age", "job"]]


@pytest.fixture
def pipe() -> Any:
    coded = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), ["job"]), (StandardScaler(), ["income"]))
    return make_pipeline(coded, LogisticRegression()).fit(COLUMNS, LABELS)


@pytest.mark.parametrize("zipmap", [True, False])
def test_inputs_of_one_column_take_the_columns_of_their_names(path: Path, pipe: Any, zipmap: bool):
    described = converted(path, pipe, COLUMNS[:1], zipmap=zipmap).describe()
    assert described.kind == "table"
    assert described.names == ("income", "age", "job")
    assert described.classes == ["no", "yes"]
    expected = pipe.predict_proba(COLUMNS)
    shuffled = COLUMNS[["job", "age", "income"]]
    for frame in (shuffled, pl.from_pandas(shuffled), COLUMNS.astype({"job": "category", "income": float})):
        np.testing.assert_allclose(described.predict(frame), expected, atol=1e-5)


def test_an_audit_takes_the_columns_of_the_file_from_a_larger_table(path: Path, pipe: Any):
    model = converted(path, pipe, COLUMNS[:1])
    result = audited(model, PEOPLE.drop(columns="age").assign(age=PEOPLE["age"]), protected="sex", refits=1)
    np.testing.assert_allclose(result.predictions.numpy(), pipe.predict_proba(COLUMNS)[:, 1], atol=1e-5)
    assert result.settings["columns"] == ["income", "age", "job"]
    assert float(result.scores.max()) > 0.01
    with pytest.raises(ColumnError, match=r"has no column 'age'.* The model needs it"):
        audited(model, PEOPLE.drop(columns="age"), protected="sex")


def echo(path: Path, **kinds: int) -> OnnxModel:
    """Write a file that returns the first of its inputs."""
    inputs = [(name, kind, [None, 1]) for name, kind in kinds.items()]
    first = next(iter(kinds))
    nodes = [of.make_node("Identity", [first], ["y"])]
    return OnnxModel(written(path, nodes, inputs, [("y", kinds[first], [None, 1])]))


@pytest.mark.parametrize(
    ("values", "kind", "seen"),
    [
        ([1, 2], T.FLOAT, [1, 2]),
        ([True, False], T.BOOL, [True, False]),
        ([True, False], T.INT64, [1, 0]),
        (pd.array([1, 2], dtype="Int64"), T.INT64, [1, 2]),
        (pd.Categorical([10, 20]), T.INT64, [10, 20]),
        ([1.5, None], T.FLOAT, [1.5, np.nan]),
        (pd.Categorical([1.5, None]), T.DOUBLE, [1.5, np.nan]),
    ],
)
def test_columns_become_numbers(path: Path, values: Any, kind: int, seen: list[float]):
    model = echo(path, a=kind, b=T.FLOAT)
    out = model.describe().predict(pd.DataFrame({"a": values, "b": [0.0, 0.0]}))
    np.testing.assert_array_equal(out[:, 0], seen)


@pytest.mark.parametrize(
    ("values", "seen"),
    [
        (["smith", None, ""], [2, 0, 0]),
        (pd.Categorical(["clerk", None, "smith"]), [1, 0, 2]),
        ([True, False, True], [3, 0, 3]),
        ([7, 8, 7], [4, 0, 4]),
    ],
)
def test_columns_become_text_and_what_is_missing_is_empty(path: Path, values: Any, seen: list[int]):
    texts = [b"clerk", b"smith", b"True", b"7"]
    code = of.make_node(
        "LabelEncoder",
        ["a"],
        ["y"],
        domain="ai.onnx.ml",
        keys_strings=texts,
        values_floats=[1.0, 2.0, 3.0, 4.0],
        default_float=0.0,
    )
    inputs = [("a", T.STRING, [None, 1]), ("b", T.FLOAT, [None, 1])]
    model = OnnxModel(written(path, [code], inputs, [("y", T.FLOAT, [None, 1])]))
    out = model.describe().predict(pd.DataFrame({"a": values, "b": np.zeros(3)}))
    np.testing.assert_array_equal(out[:, 0], seen)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (
            [("x", T.FLOAT, [None, 2]), ("z", T.FLOAT, [None, 1])],
            "Input 'x' .* has 2 columns of text, or others beside it",
        ),
        ([("x", T.FLOAT, [None, 2, 3])], "Input 'x' .* is a tensor.float. with 3 dimensions; expected one or two"),
        ([("x", T.UINT8, [None, 2])], "Input 'x' .* is a tensor.uint8. with 2 dimensions"),
    ],
)
def test_inputs_that_are_no_columns_are_refused(path: Path, inputs: list[Any], message: str):
    written(path, [of.make_node("Cast", ["x"], ["y"], to=T.FLOAT)], inputs, [("y", T.FLOAT, inputs[0][2])])
    with pytest.raises(OptionError, match=message + ".*file.py:function"):
        OnnxModel(path)


# --- several outputs -----------------------------------------------------------------------------------------------


def several(path: Path, *outputs: tuple[str, int]) -> Path:
    """Write a file whose outputs are the input times 1, times 2 and so on, under these names and types."""
    nodes, constants = [], []
    for factor, (name, kind) in enumerate(outputs, start=1):
        constants.append(of.make_tensor(f"by{name}", T.FLOAT, [1], [float(factor)]))
        nodes += [
            of.make_node("Mul", ["x", f"by{name}"], [f"times{name}"]),
            of.make_node("Cast", [f"times{name}"], [name], to=kind),
        ]
    declared = [(name, kind, [None, 1]) for name, kind in outputs]
    return written(path, nodes, [("x", T.FLOAT, [None, 1])], declared, constants)


@pytest.mark.parametrize(
    ("outputs", "read"),
    [
        ([("label", T.INT64), ("scores", T.FLOAT), ("probabilities", T.FLOAT)], 3),
        ([("label", T.INT64), ("hidden", T.FLOAT), ("other", T.FLOAT)], 2),
        ([("name", T.STRING), ("label", T.INT64)], 2),
    ],
)
def test_probabilities_are_read_before_other_numbers_and_those_before_labels(path: Path, outputs: Any, read: int):
    assert OnnxModel(several(path, *outputs)).describe().predict(np.ones((1, 1)))[0, 0] == read


def test_an_output_can_be_named(path: Path):
    several(path, ("scores", T.FLOAT), ("probabilities", T.FLOAT), ("Identity:0", T.FLOAT))
    for name, read in (("scores", 1), ("Identity:0", 3)):
        model: Any = load_model(f"{path}#{name}")
        assert model.describe().predict(np.ones((1, 1)))[0, 0] == read
    with pytest.raises(OptionError, match=r"'model.onnx' has no output 'score'\. Did you mean 'scores'\?"):
        load_model(f"{path}#score")


def test_a_file_that_returns_names_only_is_refused(path: Path):
    with pytest.raises(OptionError, match=r"returns no numbers .name: tensor.string.*; export the model with its prob"):
        OnnxModel(several(path, ("name", T.STRING)))


# --- files ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"", b"{}", b"no graph at all", bytes(100)])
def test_a_file_that_is_no_model_is_refused(path: Path, content: bytes):
    path.write_bytes(content)
    with pytest.raises(FileError, match=r"'model.onnx' (is not an ONNX model|holds no ONNX graph)"):
        OnnxModel(path)


def test_a_model_that_fails_on_people_says_so_in_one_line(path: Path):
    shape = [of.make_tensor("shape", T.INT64, [2], [5, 5])]
    nodes = [of.make_node("Reshape", ["x", "shape"], ["y"])]
    written(path, nodes, [("x", T.FLOAT, [None, 1])], [("y", T.FLOAT, None)], shape)
    with pytest.raises(ModelError, match=r"'model.onnx' failed: ") as failure:
        OnnxModel(path).describe().predict(np.ones((2, 1)))
    assert "\n" not in str(failure.value)
