"""Model files made to do harm: none runs code, each is refused with one sentence, and nothing is written."""

from __future__ import annotations

import json
import os
import pickle
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
import torch
from hostile.refusal import refused
from populations import people
from sklearn.preprocessing import FunctionTransformer
from torch import Tensor, nn

from fairfox.models.torch import save_mlp

NUMBERS = people()[["income", "age", "debt"]]
GRANTED = (NUMBERS["income"] > 3100).astype(int)


class Canary:
    """A pickle of it leaves the file `ran` in the current folder when it is loaded."""

    def __reduce__(self) -> tuple[Callable[[Path], None], tuple[Path]]:
        return Path.touch, (Path("ran"),)


# --- files that run code -------------------------------------------------------------------------------------------


def a_pickle(name: str = "model.pkl", **options: Any) -> str:
    Path(name).write_bytes(pickle.dumps(Canary(), **options))
    return name


def a_joblib_file() -> str:
    joblib.dump([np.zeros(3), Canary()], "model.joblib", compress=3)
    return "model.joblib"


def a_saved_module() -> str:
    torch.save([Canary()], "model.pt")
    return "model.pt"


class Script(nn.Module):
    """Leaves the file `ran` when TorchScript loads it."""

    def forward(self, x: Tensor) -> Tensor:
        return x

    @torch.jit.export
    def __getstate__(self) -> tuple[int, bool]:
        return (1, self.training)

    @torch.jit.export
    def __setstate__(self, state: tuple[int, bool]) -> None:
        torch.ops.aten.save(torch.ones(1), "ran")
        self.training = state[1]


@pytest.mark.filterwarnings("ignore:.*deprecated:DeprecationWarning")
def test_torchscript_is_refused_with_the_flag_that_allows_it(folder: Path, capfd: pytest.CaptureFixture[str]):
    torch.jit.save(torch.jit.script(Script()), "model.pt")
    Path("ran").unlink(missing_ok=True)  # saving ran it too
    assert "add --trust-model" in refused(capfd, "model.pt")
    torch.jit.load("model.pt")
    assert Path("ran").exists()  # torch alone runs it


def an_mlflow_folder() -> str:
    Path("served").mkdir()
    a_pickle("served/python_model.pkl")
    flavour = "{python_function: {loader_module: mlflow.pyfunc.model, python_model: python_model.pkl}}"
    Path("served/MLmodel").write_text(f"flavors: {flavour}\n")
    return "served"


@pytest.mark.parametrize(
    "make",
    [
        a_pickle,
        lambda: a_pickle("model.safetensors", protocol=5),
        lambda: a_pickle("model.onnx"),
        lambda: a_pickle("model.cbm", protocol=2),
        lambda: a_pickle("model.pt2"),
        a_joblib_file,
        a_saved_module,
        an_mlflow_folder,
    ],
)
def test_a_file_that_can_run_code_is_refused_with_the_flag_that_allows_it(
    folder: Path, capfd: pytest.CaptureFixture[str], make: Callable[[], str]
):
    assert "add --trust-model" in refused(capfd, make())


@pytest.mark.parametrize("name", ["model.txt", "model.onnx", "model.json", "model.ubj", "model.skops"])
def test_a_pickle_of_the_oldest_kind_under_another_name_runs_nothing(
    folder: Path, capfd: pytest.CaptureFixture[str], name: str
):
    refused(capfd, a_pickle(name, protocol=0), "--trust-model")


def test_skops_with_a_foreign_type_is_refused(folder: Path, capfd: pytest.CaptureFixture[str]):
    skops = pytest.importorskip("skops.io")
    skops.dump(FunctionTransformer(func=os.system, kw_args={"command": "touch ran"}), "model.skops")
    assert "system" in refused(capfd, "model.skops")
    assert "system" in refused(capfd, "model.skops", "--trust-model")


# --- ONNX with weights elsewhere -----------------------------------------------------------------------------------


def onnx_model(location: str, *, rows: int = 3, length: int | None = None) -> str:
    """Write a linear model whose weights lie in another file."""
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    number, of = onnx.TensorProto.FLOAT, onnx.helper
    weights = onnx.TensorProto(name="w", data_type=number, dims=[rows, 1], data_location=onnx.TensorProto.EXTERNAL)
    for key, value in {"location": location, "offset": "0", "length": str(length or 4 * rows)}.items():
        weights.external_data.add(key=key, value=value)
    graph = of.make_graph(
        [of.make_node("MatMul", ["x", "w"], ["y"])],
        "linear",
        [of.make_tensor_value_info("x", number, [None, rows])],
        [of.make_tensor_value_info("y", number, [None, 1])],
        [weights],
    )
    proto = of.make_model(graph, opset_imports=[of.make_opsetid("", 17)], ir_version=9)
    Path("model.onnx").write_bytes(proto.SerializeToString())
    return "model.onnx"


def test_onnx_weights_are_read_from_the_folder_of_the_model_only(folder: Path, capfd: pytest.CaptureFixture[str]):
    secret = folder.parent / "secret.bin"
    np.full(3, 1e-4, np.float32).tofile(secret)
    Path("link.bin").symlink_to(secret)
    Path("inner").mkdir()
    Path("inner/up").symlink_to(folder.parent)
    for place in (str(secret), "../secret.bin", "inner/../../secret.bin", "link.bin", "inner/up/secret.bin"):
        assert "outside its own folder" in refused(capfd, onnx_model(place))
    for place in ("gone.bin", "inner", "", "no\0name"):
        assert "weights in" in refused(capfd, onnx_model(place))


def test_onnx_with_operators_of_its_own_is_refused(folder: Path, capfd: pytest.CaptureFixture[str]):
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    of = onnx.helper
    shape = [of.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [None, 3]) for name in "xy"]
    graph = of.make_graph([of.make_node("Evil", ["x"], ["y"], domain="evil")], "evil", shape[:1], shape[1:])
    own = [of.make_opsetid("", 17), of.make_opsetid("evil", 1)]
    Path("model.onnx").write_bytes(of.make_model(graph, opset_imports=own, ir_version=9).SerializeToString())
    assert "evil" in refused(capfd, "model.onnx")


# --- files that claim more than they are, or are cut short ---------------------------------------------------------


def claiming_safetensors(header: bytes) -> str:
    save_mlp(nn.Sequential(nn.Linear(3, 1)), "model.safetensors")
    Path("model.safetensors").write_bytes(header)
    return "model.safetensors"


def claiming_weights() -> str:
    tensors = {"0.weight": {"dtype": "F32", "shape": [1, 2_500_000_000], "data_offsets": [0, 10_000_000_000]}}
    header = json.dumps(tensors).encode()
    return claiming_safetensors(len(header).to_bytes(8, "little") + header + bytes(16))


def claiming_onnx() -> str:
    Path("weights.bin").write_bytes(bytes(12))
    return onnx_model("weights.bin", rows=2_500_000_000)


def claiming_ubj() -> str:
    content = b"{L" + (7).to_bytes(8, "big") + b"learner[$L#L" + (10**10).to_bytes(8, "big")
    Path("model.ubj").write_bytes(content)
    return "model.ubj"


def claiming_cbm() -> str:
    Path("model.cbm").write_bytes(b"CBM1" + b"\xff\xff\xff\xff" + bytes(64))
    return "model.cbm"


@pytest.mark.parametrize(
    "make",
    [
        lambda: claiming_safetensors((10 * 2**30).to_bytes(8, "little") + b"{}"),
        lambda: claiming_safetensors(b"\xff" * 8),
        claiming_weights,
        claiming_onnx,
        claiming_ubj,
        claiming_cbm,
    ],
)
def test_a_file_that_claims_ten_gigabytes_is_refused_before_they_are_taken(
    folder: Path, capfd: pytest.CaptureFixture[str], make: Callable[[], str]
):
    path = make()
    refused(capfd, path)  # and what is imported on the way is there
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refused(capfd, path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # kilobytes


def safetensors_file() -> str:
    save_mlp(nn.Sequential(nn.Linear(3, 1)), "model.safetensors")
    return "model.safetensors"


def onnx_file() -> str:
    name = onnx_model("weights.bin")
    onnx = pytest.importorskip("onnx")
    np.ones(3, np.float32).tofile("weights.bin")
    onnx.save(onnx.load(name), name)  # the weights inside
    return name


def xgboost_file(name: str) -> str:
    xgb = pytest.importorskip("xgboost")
    options = {"objective": "binary:logistic", "max_depth": 2, "nthread": 1}
    xgb.train(options, xgb.DMatrix(NUMBERS, GRANTED), 2).save_model(name)
    return name


def lightgbm_file() -> str:
    lgb = pytest.importorskip("lightgbm")
    options = {"objective": "binary", "verbose": -1, "num_leaves": 4, "num_threads": 1}
    lgb.train(options, lgb.Dataset(NUMBERS, GRANTED), 2).save_model("model.txt")
    return "model.txt"


def catboost_file(name: str) -> str:
    cb = pytest.importorskip("catboost")
    options = {"iterations": 2, "depth": 2, "verbose": False, "allow_writing_files": False, "thread_count": 1}
    model = cb.CatBoostClassifier(**options).fit(NUMBERS, GRANTED)
    model.save_model(name, format=name.rpartition(".")[2])
    return name


@pytest.mark.parametrize(
    "make",
    [
        safetensors_file,
        onnx_file,
        lambda: xgboost_file("model.json"),
        lambda: xgboost_file("model.ubj"),
        lightgbm_file,
        lambda: catboost_file("model.cbm"),
        lambda: catboost_file("model.json"),
    ],
    ids=["safetensors", "onnx", "xgboost-json", "xgboost-ubj", "lightgbm", "catboost-cbm", "catboost-json"],
)
def test_a_file_that_is_cut_short_is_refused(folder: Path, capfd: pytest.CaptureFixture[str], make: Callable[[], str]):
    name = make()
    whole = Path(name).read_bytes()
    capfd.readouterr()
    for share in (0.0, 0.5, 0.9):
        Path(name).write_bytes(whole[: int(len(whole) * share)])
        refused(capfd, name)


@pytest.mark.parametrize("content", ["null", '{"learner": 1}', '{"a":' * 200_000, "\ufeff{}"])
def test_json_that_is_neither_xgboost_nor_catboost_is_refused(
    folder: Path, capfd: pytest.CaptureFixture[str], content: str
):
    Path("model.json").write_text(content, encoding="utf-8")
    refused(capfd, "model.json")
