"""skops files made to run code, to take forever, or to make compiled code read beside its arrays."""

from __future__ import annotations

import functools
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sklearn
from hostile.refusal import refused
from populations import people
from sklearn.ensemble import GradientBoostingClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.svm import SVC

skops_io = pytest.importorskip("skops.io")
NUMBERS = people()[["income", "age", "debt"]]
GRANTED = (NUMBERS["income"] > 3100).astype(int)
Node = dict[str, Any]


def node(loader: str, name: str, **more: Any) -> Node:
    module, _, own = name.rpartition(".")
    return {"__module__": module, "__class__": own, "__loader__": loader, **more}


def value(content: object) -> Node:
    return node("JsonNode", "builtins.str", content=json.dumps(content))


def sequence(*content: Node, kind: str = "List") -> Node:
    return node(f"{kind}Node", f"builtins.{kind.lower()}", content=[*content])


def mapping(content: dict[str, Node], *kinds: Node) -> Node:
    own = kinds or [node("TypeNode", "builtins.str")] * len(content)
    return node("DictNode", "builtins.dict", content=content, key_types=sequence(*own))


def calls(function: Node) -> Node:
    """A dict whose key is made by a call of the function with the key."""
    return mapping({"touch ran": value(1)}, function)


def system_by_attributes(kind: str) -> Node:
    """`os.system`, from a name that begins like harmless ones do, attribute by attribute."""
    found = node(kind, "sklearn._loss.loss.np")
    for name in ("_pytesttester", "os", "system"):
        found = node("MethodNode", "sklearn._loss.loss.np", content={"func": name, "obj": found})
    return found


def estimator(name: str, **attributes: Node) -> Node:
    return node("ObjectNode", f"sklearn.{name}", content=mapping(attributes))


def partial(function: Node, *arguments: Node) -> Node:
    parts = {
        "func": function,
        "args": sequence(*arguments, kind="Tuple"),
        "kwds": mapping({}),
        "namespace": value(None),
    }
    return node("PartialNode", "functools.partial", content=parts)


def same_number_twice() -> Node:
    """A harmless node that stands for an earlier one of the same number, which calls its key."""
    evil = {**node("FunctionNode", "posix.system"), "__id__": 7}
    return sequence(evil, mapping({"touch ran": value(1)}, {**node("TypeNode", "builtins.str"), "__id__": 7}))


def laughs() -> Node:
    """Thirty lists, each of which holds the one before it ten times."""
    inner = {**sequence(value("ha")), "__id__": 1}
    for number in range(2, 32):
        again = [{"__id__": number - 1, "__loader__": "ListNode", "__module__": "builtins", "__class__": "list"}] * 9
        inner = {**sequence(inner, *again), "__id__": number}
    return inner


SYSTEM = node("FunctionNode", "os.system")
SCHEMAS: dict[str, Callable[[], Any]] = {
    "attributes of a module": lambda: calls(system_by_attributes("FunctionNode")),
    "attributes of a type": lambda: calls(system_by_attributes("TypeNode")),
    "a function": lambda: calls(SYSTEM),
    "a function as a type": lambda: calls(node("TypeNode", "os.system")),
    "a function of the oldest files": lambda: {
        **calls(node("FunctionNode", "numpy.exp", content={"module_path": "os", "function": "system"})),
        "protocol": 0,
    },
    "a harmless function as a type of keys": lambda: calls(node("FunctionNode", "numpy.exp")),
    "a partial": lambda: calls(partial(SYSTEM)),
    "a partial of a type": lambda: sequence(partial(node("TypeNode", "builtins.str"), value("touch ran"))),
    "a transformer": lambda: estimator("preprocessing._function_transformer.FunctionTransformer", func=SYSTEM),
    "a constructor": lambda: node(
        "ConstructorFromReduceNode", "subprocess.Popen", content=sequence(value("touch ran"), kind="Tuple")
    ),
    "a loss": lambda: node(
        "LossNode",
        "subprocess.Popen",
        __reduce__={"args": sequence(value(["touch", "ran"]), kind="Tuple")},
        content=mapping({}),
    ),
    "an operator": lambda: node(
        "OperatorFuncNode", "operator.methodcaller", attrs=sequence(value("system"), value("touch ran"), kind="Tuple")
    ),
    "a tuple with a constructor": lambda: node("TupleNode", "pathlib.Path", content=[value("ran")]),
    "a method of an estimator": lambda: node(
        "MethodNode",
        "sklearn.pipeline.Pipeline",
        content={"func": "__init_subclass__", "obj": estimator("pipeline.Pipeline")},
    ),
    "a dict of defaults": lambda: node(
        "DefaultDictNode", "collections.defaultdict", content={"main": mapping({}), "default_factory": SYSTEM}
    ),
    "one number for two nodes": same_number_twice,
    "lists within lists": laughs,
    "a deep list": lambda: json.loads('{"__loader__": "ListNode", "content": [' * 400 + "]}" * 400),
    "a name of several lines": lambda: node("ObjectNode", "evil\n\x1b[31m.Type"),
    "a loader that is none": lambda: node("ObjectNode", "a.b") | {"__loader__": ["ObjectNode"]},
    "no node": lambda: [1, 2, 3],
    "a generator of its own": lambda: estimator(
        "linear_model._logistic.LogisticRegression",
        random_state=node("RandomGeneratorNode", "os.system", content=mapping({})),
        coef_=SYSTEM,
    ),
    "a method of its own": lambda: estimator(
        "linear_model._logistic.LogisticRegression",
        predict_proba=node("FunctionNode", "numpy.exp"),
        _sklearn_version=value(sklearn.__version__),
    ),
}


@pytest.mark.parametrize("schema", SCHEMAS.values(), ids=SCHEMAS)
def test_a_schema_that_would_do_more_than_hold_an_estimator_is_refused(
    folder: Path, capfd: pytest.CaptureFixture[str], schema: Callable[[], Any]
):
    made = schema()
    with zipfile.ZipFile("model.skops", "w") as archive:
        text = json.dumps({"protocol": 2, "_skops_version": "0.16.0", **made} if isinstance(made, dict) else made)
        archive.writestr("schema.json", text)
    refused(capfd, "model.skops")
    refused(capfd, "model.skops", "--trust-model")


def test_the_type_that_is_not_known_is_named(folder: Path, capfd: pytest.CaptureFixture[str]):
    with zipfile.ZipFile("model.skops", "w") as archive:
        archive.writestr("schema.json", json.dumps({**sequence(system_by_attributes("FunctionNode")), "protocol": 2}))
    assert "safe list: sklearn._loss.loss.np, sklearn._loss.loss.np._pytesttester, " in refused(capfd, "model.skops")


# --- arrays --------------------------------------------------------------------------------------------------------


def changed(model: Any, change: Callable[[Any], None]) -> None:
    """Write a fitted model whose arrays were changed."""
    change(model)
    skops_io.dump(model, "model.skops")


def forest(field: str, wrong: int) -> None:
    tree = RandomForestClassifier(3, max_depth=3, random_state=0).fit(NUMBERS, GRANTED)
    state = tree.estimators_[2].tree_.__getstate__()
    state["nodes"][field][0] = wrong
    tree.estimators_[2].tree_.__setstate__(state)
    skops_io.dump(tree, "model.skops")


def rewritten(change: Callable[[Node], None]) -> None:
    """Write a forest in whose schema something was changed."""
    skops_io.dump(RandomForestClassifier(1, max_depth=2, random_state=0).fit(NUMBERS, GRANTED), "whole.skops")
    with zipfile.ZipFile("whole.skops") as old, zipfile.ZipFile("model.skops", "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name == "schema.json":
                schema = json.loads(content)
                change(schema)
                content = json.dumps(schema).encode()
            new.writestr(name, content)


def trees_of(schema: Any) -> list[Node]:
    if isinstance(schema, list):
        return [found for part in schema for found in trees_of(part)]
    if not isinstance(schema, dict):
        return []
    own = [schema] if schema.get("__loader__") == "TreeNode" else []
    return own + trees_of(list(schema.values()))


def many_outputs(schema: Node) -> None:
    trees_of(schema)[0]["__reduce__"]["args"]["content"][2]["content"] = "1000000000"


def narrow_tree(model: Any) -> None:
    """The last tree has more features than the forest looks for."""
    model.estimators_[2] = RandomForestClassifier(1, random_state=0).fit(NUMBERS.assign(z=1), GRANTED).estimators_[0]


def wide_stages(model: Any) -> None:
    model.estimators_ = np.concatenate([model.estimators_] * 5, axis=1)


def hist(field: str, wrong: int) -> None:
    def change(model: Any) -> None:
        nodes = model._predictors[1][0].nodes.copy()
        nodes[field][0] = wrong
        model._predictors[1][0].nodes = nodes

    options = {"max_iter": 3, "max_leaf_nodes": 4}
    changed(HistGradientBoostingClassifier(**options).fit(NUMBERS, GRANTED), change)


def short_coefficients(model: Any) -> None:
    model._dual_coef_ = model._dual_coef_[:, :1].copy()


def wrong_columns(model: Any) -> None:
    model[0]._n_features_outs = [1]


def claimed_array() -> None:
    """An array whose file is far smaller than it says."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": (10**11,)})
    with zipfile.ZipFile("model.skops", "w") as archive:
        archive.writestr("a.npy", file.getvalue())
        array = node("NdArrayNode", "numpy.ndarray", type="numpy", file="a.npy")
        archive.writestr("schema.json", json.dumps({**sequence(array), "protocol": 2}))


def array_many_times() -> None:
    """An array of a hundred megabytes that is named fifty times, in a file of some kilobytes."""
    file = io.BytesIO()
    np.save(file, np.zeros(12_500_000))
    with zipfile.ZipFile("model.skops", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.npy", file.getvalue())
        array = node("NdArrayNode", "numpy.ndarray", type="numpy", file="a.npy")
        archive.writestr("schema.json", json.dumps({**sequence(*[array] * 50), "protocol": 2}))


def many_brackets() -> None:
    with zipfile.ZipFile("model.skops", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("schema.json", '{"protocol": 2, "content": [' + "[]," * 10_000_000 + "[]]}")


ARRAYS: dict[str, Callable[[], None]] = {
    "a child that is not there": functools.partial(forest, "left_child", 10**9),
    "a circle": functools.partial(forest, "right_child", 0),
    "a negative child": functools.partial(forest, "right_child", -5),
    "a feature that is not there": functools.partial(forest, "feature", 10**9),
    "more outputs than classes": functools.partial(rewritten, many_outputs),
    "a tree of more features": lambda: changed(RandomForestClassifier(3).fit(NUMBERS, GRANTED), narrow_tree),
    "more trees than outputs": lambda: changed(
        GradientBoostingClassifier(n_estimators=2).fit(NUMBERS, GRANTED), wide_stages
    ),
    "a leaf of a histogram's tree that is not there": functools.partial(hist, "left", 10**9),
    "a circle in a histogram's tree": functools.partial(hist, "left", 0),
    "a feature of a histogram's tree that is not there": functools.partial(hist, "feature_idx", 10**9),
    "categories that no column has": functools.partial(hist, "is_categorical", 1),
    "too few coefficients": lambda: changed(SVC().fit(NUMBERS, GRANTED), short_coefficients),
    "too few columns": lambda: changed(
        make_pipeline(OneHotEncoder(), LogisticRegression()).fit(NUMBERS[:50].round(-3), GRANTED[:50]), wrong_columns
    ),
    "an array larger than its file": claimed_array,
    "an array that is named fifty times": array_many_times,
    "ten million lists": many_brackets,
}


@pytest.mark.parametrize("write", ARRAYS.values(), ids=ARRAYS)
def test_arrays_that_lead_compiled_code_astray_are_refused(
    folder: Path, capfd: pytest.CaptureFixture[str], write: Callable[[], None]
):
    write()
    refused(capfd, "model.skops")
