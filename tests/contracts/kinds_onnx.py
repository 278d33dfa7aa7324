"""Models in ONNX files, built by hand and by skl2onnx, asked through ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
from contracts.kinds import GRANTED, NUMBERS, PEOPLE, Kind, pipeline, rule, same_rule
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from fairfox.models.onnx import OnnxModel


def in_file(proto: Any) -> OnnxModel:
    """Return a model through a file."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(proto.SerializeToString())
        return OnnxModel(path)


def rule_in_doubles() -> Any:
    """Return the pipeline's rule as a graph: one matrix in, one probability out."""
    onnx = import_module("onnx")
    of, double = onnx.helper, onnx.TensorProto.DOUBLE
    weights, bias = rule()
    return of.make_model(
        of.make_graph(
            [
                of.make_node("MatMul", ["people", "weights"], ["weighed"]),
                of.make_node("Add", ["weighed", "bias"], ["logit"]),
                of.make_node("Sigmoid", ["logit"], ["chance"]),
            ],
            "rule",
            [of.make_tensor_value_info("people", double, [None, 3])],
            [of.make_tensor_value_info("chance", double, [None, 1])],
            [of.make_tensor("weights", double, [3, 1], weights.tolist()), of.make_tensor("bias", double, [1], [bias])],
        ),
        opset_imports=[of.make_opsetid("", 17)],
        ir_version=9,
    )


def converted(model: Any, example: Any, **options: Any) -> OnnxModel:
    to_onnx = import_module("skl2onnx").to_onnx
    return in_file(to_onnx(model, example, options=options or None))


def zip_mapped() -> Kind:
    model = converted(pipeline(), NUMBERS.to_numpy(np.float32)[:1])
    return Kind(model, pipeline().predict_proba(NUMBERS.astype(np.float32))[:, 1], exact=False)


def columns() -> pd.DataFrame:
    return PEOPLE[["income", "age", "debt", "job"]].astype({"income": np.float32, "age": np.int64, "debt": np.float32})


def forest_on_columns() -> Kind:
    table = columns()
    coded = make_column_transformer((OneHotEncoder(), ["job"]), remainder="passthrough")
    forest = RandomForestClassifier(12, max_depth=5, random_state=0)
    fitted = make_pipeline(coded, forest).fit(table, np.where(GRANTED, "yes", "no"))
    model = converted(fitted, table[:1], zipmap=False)
    return Kind(model, fitted.predict_proba(table)[:, 1], PEOPLE[["sex", *table]], exact=False)


KINDS: dict[str, Callable[[], Kind]] = {}
if find_spec("onnxruntime") and find_spec("onnx"):
    KINDS["ONNX on a matrix"] = lambda: same_rule(in_file(rule_in_doubles()))
    if find_spec("skl2onnx"):
        KINDS["ONNX with a zip-map"] = zip_mapped
        KINDS["ONNX forest on columns"] = forest_on_columns
