"""Files of boosted trees, and ONNX graphs, that lead their libraries astray where no trial of a few rows gets to."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hostile.refusal import refused
from populations import people

NUMBERS = people()[["income", "age", "debt"]]
GRANTED = (NUMBERS["income"] > 3100).astype(int)


def put(value: Any, *keys: Any) -> Callable[[dict[str, Any]], None]:
    """Return what puts a value into a nested content, at the place of these keys."""

    def change(content: Any) -> None:
        for key in keys[:-1]:
            content = content[key]
        content[keys[-1]] = value

    return change


# --- LightGBM ------------------------------------------------------------------------------------------------------


def lightgbm_text(**options: Any) -> str:
    lgb = pytest.importorskip("lightgbm")
    usual = {"objective": "binary", "num_leaves": 6, "min_data_in_leaf": 5, "num_threads": 1, "verbose": -1}
    text: str = lgb.train(usual | options, lgb.Dataset(NUMBERS, GRANTED), 3).model_to_string()
    return re.sub(r"^tree_sizes=.*\n", "", text, flags=re.MULTILINE)  # trees are found by their lines then


def changed(name: str, wrong: str, *, node: int = -1, **options: Any) -> str:
    """Write a model whose last tree has another value of one node on one of its lines."""
    text = lightgbm_text(**options)
    found = [*re.finditer(rf"^{name}=(.*)$", text, re.MULTILINE)][-1]
    values = found[1].split()
    values[node] = wrong
    Path("model.txt").write_text(text[: found.start(1)] + " ".join(values) + text[found.end(1) :])
    return "model.txt"


def replaced(old: str, new: str, **options: Any) -> str:
    text = lightgbm_text(**options)
    assert re.search(old, text, re.MULTILINE)
    Path("model.txt").write_text(re.sub(old, new, text, flags=re.MULTILINE))
    return "model.txt"


LIGHTGBM = {
    "a child that is not there": partial(changed, "left_child", "70000"),
    "a leaf that is not there": partial(changed, "right_child", "-70000"),
    "a circle": partial(changed, "left_child", "1", node=1),  # that only few people get to
    "a feature that is not there": partial(changed, "split_feature", "99999"),
    "a negative feature": partial(changed, "split_feature", "-99999"),
    "categories that are not there": partial(changed, "decision_type", "1"),
    "options without values": partial(replaced, r"^\[(\w+): .*\]$", r"[\1 5]"),
    "fewer leaves than it says": partial(replaced, r"^num_leaves=\d+$", "num_leaves=9999"),
    "a linear leaf of features that are not there": partial(changed, "leaf_features", "99999", linear_tree=True),
    "more classes than trees": partial(replaced, r"^objective=.*$", "objective=multiclass num_class:5000"),
    "more trees in a round than outputs": partial(replaced, r"^(num_tree_per_iteration)=1$", r"\1=1000000"),
}


# --- XGBoost -------------------------------------------------------------------------------------------------------


def xgboost_model(**options: Any) -> dict[str, Any]:
    xgb = pytest.importorskip("xgboost")
    options = {"objective": "binary:logistic", "nthread": 1, **options}
    content: dict[str, Any] = json.loads(xgb.train(options, xgb.DMatrix(NUMBERS, GRANTED), 3).save_raw("json"))
    return content


def ubjson(value: Any) -> bytes:
    """Return a value as UBJSON, in the few kinds that a model needs."""
    if isinstance(value, dict):
        parts = [ubjson(key)[1:] + ubjson(own) for key, own in value.items()]
        return b"{" + b"".join(parts) + b"}"
    if isinstance(value, list):
        return b"[" + b"".join(map(ubjson, value)) + b"]"
    if isinstance(value, str):
        text = value.encode()
        return b"SL" + len(text).to_bytes(8, "big") + text
    if isinstance(value, float):
        import struct

        return b"d" + struct.pack(">f", value)
    return b"L" + int(value).to_bytes(8, "big", signed=True)


def xgboost_booster(change: Callable[[dict[str, Any]], None], name: str = "model.json", **options: Any) -> str:
    """Write a model that was changed, as JSON or UBJSON by the end of the name."""
    model = xgboost_model(**options)
    change(model["learner"]["gradient_booster"]["model"])
    content = json.dumps(model).encode() if name.endswith("json") else ubjson(model)
    Path(name).write_bytes(content)
    return name


def xgboost_tree(change: Callable[[dict[str, Any]], None], name: str = "model.json") -> str:
    """Write a model whose last tree was changed."""
    return xgboost_booster(lambda booster: change(booster["trees"][-1]), name)


def inner(tree: dict[str, Any]) -> int:
    """Return the last node of a tree that has children."""
    return max(k for k, child in enumerate(tree["left_children"]) if child != -1)


def missing_child(tree: dict[str, Any]) -> None:
    tree["left_children"][inner(tree)] = 70_000


def circle_in(tree: dict[str, Any]) -> None:
    tree["left_children"][inner(tree)] = inner(tree)


def missing_feature(tree: dict[str, Any]) -> None:
    tree["split_indices"][inner(tree)] = 99_999


def missing_categories(tree: dict[str, Any]) -> None:
    tree["split_type"][inner(tree)] = 1
    tree |= {"categories": [1], "categories_nodes": [inner(tree)], "categories_segments": [9_999_999]}
    tree["categories_sizes"] = [9_999_999]


def short_array(tree: dict[str, Any]) -> None:
    tree["split_conditions"] = tree["split_conditions"][:1]


XGBOOST = {
    "a child that is not there": partial(xgboost_tree, missing_child),
    "a circle": partial(xgboost_tree, circle_in),
    "a feature that is not there": partial(xgboost_tree, missing_feature),
    "categories that are not there": partial(xgboost_tree, missing_categories),
    "an array that is too short": partial(xgboost_tree, short_array),
    "a group that is not there": partial(xgboost_booster, put(99_999, "tree_info", -1)),
    "rounds that are not there": partial(xgboost_booster, put(99_999, "iteration_indptr", -1)),
    "too few weights": partial(xgboost_booster, put([1.0], "weights"), booster="gblinear"),
    "a child that is not there, in UBJSON": partial(xgboost_tree, missing_child, "model.ubj"),
    "a circle, in UBJSON": partial(xgboost_tree, circle_in, "model.ubj"),
    "a feature that is not there, in UBJSON": partial(xgboost_tree, missing_feature, "model.ubj"),
}


# --- CatBoost ------------------------------------------------------------------------------------------------------


def catboost_json(change: Callable[[dict[str, Any]], None], **options: Any) -> str:
    cb = pytest.importorskip("catboost")
    options_ = {"iterations": 3, "depth": 2, "verbose": False, "allow_writing_files": False, "thread_count": 1}
    model = cb.CatBoostClassifier(**options_, **options).fit(NUMBERS, GRANTED)
    model.save_model("model.json", format="json")
    content = json.loads(Path("model.json").read_text())
    change(content)
    Path("model.json").write_text(json.dumps(content))
    return "model.json"


def deep_tree(model: dict[str, Any]) -> None:
    model["oblivious_trees"][-1]["splits"] *= 32


def half_a_node(model: dict[str, Any]) -> None:
    del model["trees"][-1]["right"]


def wrong_offsets() -> str:
    cb = pytest.importorskip("catboost")
    options = {"iterations": 3, "verbose": False, "allow_writing_files": False, "thread_count": 1}
    cb.CatBoostClassifier(**options, grow_policy="Lossguide").fit(NUMBERS, GRANTED).save_model("model.cbm")
    content = Path("model.cbm").read_bytes()
    Path("model.cbm").write_bytes(content[:200] + b"\xff" * 200 + content[400:])
    return "model.cbm"


CATBOOST = {
    "offsets that lead nowhere": wrong_offsets,
    "too few leaves": partial(catboost_json, put([0.1], "oblivious_trees", -1, "leaf_values")),
    "a split that is not there": partial(catboost_json, put(99_999, "oblivious_trees", -1, "splits", 0, "split_index")),
    "four billion leaves": partial(catboost_json, deep_tree),
    "half a node": partial(catboost_json, half_a_node, grow_policy="Lossguide"),
}


# --- ONNX ----------------------------------------------------------------------------------------------------------


def onnx_graph(make: Callable[[Any], tuple[list[Any], list[Any]]]) -> str:
    """Write a graph from three numbers to y, of nodes and constants."""
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    of, number = onnx.helper, onnx.TensorProto.FLOAT
    nodes, constants = make(onnx)
    shape = [of.make_tensor_value_info(name, number, [None, None]) for name in "xy"]
    shape[0] = of.make_tensor_value_info("x", number, [None, 3])
    graph = of.make_graph(nodes, "evil", shape[:1], shape[1:], constants)
    sets = [of.make_opsetid("", 17), of.make_opsetid("ai.onnx.ml", 3)]
    Path("model.onnx").write_bytes(of.make_model(graph, opset_imports=sets, ir_version=9).SerializeToString())
    return "model.onnx"


def tree(**wrong: Any) -> str:
    right = {
        "n_targets": 1,
        "nodes_treeids": [0, 0, 0],
        "nodes_nodeids": [0, 1, 2],
        "nodes_featureids": [0, 0, 0],
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
        "nodes_values": [3000.0, 0.0, 0.0],
        "nodes_truenodeids": [1, 0, 0],
        "nodes_falsenodeids": [2, 0, 0],
        "target_treeids": [0, 0],
        "target_nodeids": [1, 2],
        "target_ids": [0, 0],
        "target_weights": [0.1, 0.9],
    }
    return onnx_graph(
        lambda onnx: (
            [onnx.helper.make_node("TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", **{**right, **wrong})],
            [],
        )
    )


def filled(onnx: Any) -> tuple[list[Any], list[Any]]:
    """A constant of forty gigabytes, from twelve bytes."""
    of = onnx.helper
    nodes = [
        of.make_node("ConstantOfShape", ["s"], ["c"]),
        of.make_node("ReduceSum", ["c"], ["r"], keepdims=1),
        of.make_node("Add", ["x", "r"], ["y"]),
    ]
    return nodes, [of.make_tensor("s", onnx.TensorProto.INT64, [1], [10**10])]


def expanded(onnx: Any) -> tuple[list[Any], list[Any]]:
    """Three gigabytes for each person."""
    of = onnx.helper
    nodes = [of.make_node("Expand", ["x", "s"], ["c"]), of.make_node("ReduceSum", ["c", "a"], ["y"], keepdims=0)]
    kind = onnx.TensorProto.INT64
    return nodes, [of.make_tensor("s", kind, [3], [3 * 10**8, 1, 3]), of.make_tensor("a", kind, [1], [0])]


ONNX = {
    "a circle": partial(tree, nodes_modes=["BRANCH_LEQ", "BRANCH_LEQ", "LEAF"], nodes_truenodeids=[1, 0, 0]),
    "a child that is not there": partial(tree, nodes_falsenodeids=[200, 0, 0]),
    "a feature that is not there": partial(tree, nodes_featureids=[10**6, 0, 0]),
    "a negative feature": partial(tree, nodes_featureids=[-(10**6), 0, 0]),
    "a target that is not there": partial(tree, target_ids=[0, 10**6]),
    "an array that is too short": partial(tree, nodes_values=[0.5]),
    "forty gigabytes": partial(onnx_graph, filled),
    "three gigabytes for a person": partial(onnx_graph, expanded),
}
FILES = {"LightGBM": LIGHTGBM, "XGBoost": XGBOOST, "CatBoost": CATBOOST, "ONNX": ONNX}


@pytest.mark.parametrize(
    "write",
    [pytest.param(write, id=f"{library}: {name}") for library, files in FILES.items() for name, write in files.items()],
)
def test_a_file_that_points_to_what_is_not_there_is_refused(
    folder: Path, capfd: pytest.CaptureFixture[str], write: Callable[[], str]
):
    name = write()
    capfd.readouterr()  # what was printed in training
    refused(capfd, name)
