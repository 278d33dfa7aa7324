"""Config files, causal graphs, declared networks, fitted tests and reports that were not written by their programs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hostile.refusal import refused, refuses
from populations import people
from safetensors.torch import load, save
from support import header_of
from torch import nn

import fairfox
from fairfox.fairtests import storage
from fairfox.models.torch import save_mlp

pytestmark = pytest.mark.brief

DOTS = ".".join("a" * 100_000)
LINES = 'model = "model.py:score"\ntable = "people.csv"\nprotected = ["sex"]\n'


# --- TOML ----------------------------------------------------------------------------------------------------------

TOML = {
    "a key of 100,000 dots": f"{DOTS} = 1",
    "a table of 100,000 dots": f"[{DOTS}]",
    "500 keys of 1,000 dots": "\n".join(f"k{k}." + ".".join("a" * 1000) + " = 1" for k in range(500)),
    "a deep list": "drop = " + "[" * 5000 + "]" * 5000,
    "deep tables": "drop = " + "{a=" * 5000 + "1" + "}" * 5000,
    "three megabytes": f"id = '{'a' * 3_000_000}'",
    "a number of 5,000 digits": f"seed = {'9' * 5000}",
    "no text": "id = '\ud800'",
}
CONFIGS = {
    **{name: text if "[a" in text[:2] else LINES + text for name, text in TOML.items()},
    "a name of two lines": LINES + 'drop = ["in\\ncome"]',
    "a key of two lines": LINES + '"in\\ncome" = 1',
    "codes for the terminal": LINES + 'id = "\\u001b[31mred"',
    "a path with a null": LINES + 'reference = "a\\u0000b"',
    "trust": LINES + "trust-model = true",
    "trust, spelt another way": LINES + "trust_model = true",
    "a place for results": LINES + 'out = "../elsewhere"',
    "the name of a secret": LINES + 'auth_env = "HOME"',
    "an infinite delta": LINES + "delta = inf",
    "a date": LINES + "seed = 1979-05-27",
}


@pytest.mark.parametrize("text", CONFIGS.values(), ids=CONFIGS)
def test_a_config_file_is_refused(folder: Path, capfd: pytest.CaptureFixture[str], text: str):
    Path("model.py").write_text("from pathlib import Path\nPath('ran').touch()\n")
    Path("evil.toml").write_text(text, encoding="utf-8", errors="surrogatepass")
    refuses(capfd, "audit", "--config", "evil.toml")


def test_a_config_file_that_never_ends_is_refused(folder: Path, capfd: pytest.CaptureFixture[str]):
    assert "is larger than 1 MiB" in refuses(capfd, "audit", "--config", "/dev/zero")


@pytest.mark.parametrize("text", TOML.values(), ids=TOML)
def test_a_graph_is_refused(folder: Path, capfd: pytest.CaptureFixture[str], text: str):
    Path("evil.toml").write_text("[parents]\n" + text, encoding="utf-8", errors="surrogatepass")
    Path("model.py").write_text("def score(table):\n    return table['income'] > 3000\n")
    graph = ("--test", "counterfactual", "--graph", "evil.toml")
    refuses(capfd, "audit", "model.py:score", "people.csv", "-c", "sex", *graph)


# --- declared networks ---------------------------------------------------------------------------------------------

DECLARED = {
    "a million layers": json.dumps({"kind": "mlp", "sizes": [3] * 1_000_000}),
    "a hundred thousand layers": json.dumps({"kind": "mlp", "sizes": [3] * 100_000}),
    "enormous layers": json.dumps({"kind": "mlp", "sizes": [10**12, 10**12]}),
    "layers beyond numbers": json.dumps({"kind": "mlp", "sizes": [10**30, 1]}),
    "negative layers": json.dumps({"kind": "mlp", "sizes": [3, -1]}),
    "nested deep": "[" * 200_000,
    "thirty megabytes": json.dumps({"kind": "mlp", "sizes": [3, 1], "note": "a" * 30_000_000}),
    "other layers": json.dumps({"kind": "mlp", "sizes": [3, 7, 1]}),
    "code": json.dumps({"kind": "os.system", "sizes": [3, 1]}),
}


@pytest.mark.parametrize("text", DECLARED.values(), ids=DECLARED)
def test_a_declared_network_is_refused(folder: Path, capfd: pytest.CaptureFixture[str], text: str):
    save_mlp(nn.Sequential(nn.Linear(3, 1)), "model.safetensors")
    Path("model.json").write_text(text)
    assert "model." in refuses(capfd, "audit", "model.safetensors", "people.csv", "-c", "sex", "--drop", "job")


# --- fitted tests --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def content() -> bytes:
    return storage.to_bytes(fairfox.fit(people()[["sex", "income", "age"]], protected="sex", options={"refits": 1}))


def set_in(name: str, **values: Any) -> Callable[[dict[str, Any]], None]:
    def change(about: dict[str, Any]) -> None:
        next(node[1] for node in about["nodes"] if node[0] == name).update(values)

    return change


FEATURE = "data.dataset.Feature"
TESTS = {
    "very many decimals": set_in(FEATURE, decimals=10**9),
    "negative decimals": set_in(FEATURE, decimals=-400),
    "half a decimal": set_in(FEATURE, decimals=2.5),
    "a class of another module": lambda about: about["nodes"].insert(0, ["os.system", {"command": "touch ran"}]),
    "a column without end": set_in(FEATURE, stop=10**12),
    "refits without end": set_in("options.AuditOptions", refits=10**12),
    "a seed beyond numbers": set_in("options.AuditOptions", seed=10**40),
    "nodes that are numbers": lambda about: about.update(nodes=[1, 2, 3]),
    "lists within lists": lambda about: about.update(
        nodes=[["list", ["ha"]], *[["list", [{"node": k}] * 10] for k in range(40)]]
    ),
}


@pytest.mark.parametrize("change", TESTS.values(), ids=TESTS)
def test_a_fitted_test_is_refused(
    folder: Path, capfd: pytest.CaptureFixture[str], content: bytes, change: Callable[[dict[str, Any]], None]
):
    about, tensors = header_of(content), load(content)
    change(about)
    text = json.dumps(about)
    Path("evil.fox").write_bytes(save(tensors, {storage._KEY: storage._checksum(text, tensors) + text}))
    Path("model.py").write_text("def score(table):\n    return table['income'] * 0\n")
    assert "evil.fox" in refuses(capfd, "score", "evil.fox", "model.py:score", "people.csv")


# --- reports -------------------------------------------------------------------------------------------------------

REPORTS = {
    "nested deep": "[" * 200_000,
    "deep objects": '{"kind": ' * 200_000,
    "a kind that is a list": '{"kind": [["audit"]], "format": 2}',
    "nothing but a kind": '{"kind": "audit", "format": 2}',
    "a kind of code": '{"kind": "__import__", "format": 2}',
    "a format beyond numbers": '{"kind": "audit", "format": 1e999}',
    "no text": "\xff\xfe",
}


@pytest.mark.parametrize("text", REPORTS.values(), ids=REPORTS)
def test_a_report_is_refused(folder: Path, capfd: pytest.CaptureFixture[str], text: str):
    Path("result").mkdir()
    Path("result/report.json").write_bytes(text.encode("latin-1"))
    assert "report.json" in refuses(capfd, "report", "result")


# --- Keras ---------------------------------------------------------------------------------------------------------


def keras_file(change: Callable[[Any, Any], None], settings: dict[str, Any] | None = None) -> None:
    """Write a network of one layer, and change its file."""
    h5py = pytest.importorskip("h5py")
    dense = {"name": "d", "units": 1, "activation": "sigmoid", "use_bias": False, **(settings or {})}
    layers = [{"class_name": "Dense", "config": dense}]
    with h5py.File("model.h5", "w") as file:
        file.attrs["model_config"] = json.dumps({"class_name": "Sequential", "config": {"layers": layers}})
        file["model_weights/d/d/kernel:0"] = np.ones((3, 1), np.float32)
        change(h5py, file)


def kernel(make: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    """Put other weights in the place of the right ones."""

    def change(h5py: Any, file: Any) -> None:
        del file["model_weights/d/d/kernel:0"]
        make(h5py, file)

    return change


def external_storage(h5py: Any, file: Any) -> None:
    np.ones(3, np.float32).tofile("../secret.bin")
    file.create_dataset("model_weights/d/d/kernel:0", (3, 1), "f4", external=[("../secret.bin", 0, 12)])


def external_link(h5py: Any, file: Any) -> None:
    with h5py.File("../secret.h5", "w") as other:
        other["kernel"] = np.ones((3, 1), np.float32)
    file["model_weights/d/d/kernel:0"] = h5py.ExternalLink("../secret.h5", "kernel")


def virtual(h5py: Any, file: Any) -> None:
    with h5py.File("../secret.h5", "w") as other:
        other["kernel"] = np.ones((3, 1), np.float32)
    layout = h5py.VirtualLayout((3, 1), "f4")
    layout[:] = h5py.VirtualSource("../secret.h5", "kernel", (3, 1))
    file.create_virtual_dataset("model_weights/d/d/kernel:0", layout)


def enormous(h5py: Any, file: Any) -> None:
    file.create_dataset("model_weights/d/d/kernel:0", (3 * 10**6, 10**6), "f4", chunks=(1000, 1000))


def described(text: str) -> Callable[[Any, Any], None]:
    return lambda h5py, file: file.attrs.modify("model_config", text)


KERAS = {
    "weights in another file": kernel(external_storage),
    "a link to another file": kernel(external_link),
    "a view of another file": kernel(virtual),
    "weights of twelve terabytes": kernel(enormous),
    "a description nested deep": described("[" * 60_000),
    "a description that is none": described("{}"),
    "a layer of code": described(
        json.dumps(
            {"class_name": "Sequential", "config": {"layers": [{"class_name": "Lambda", "config": {"name": "l"}}]}}
        )
    ),
    "a model of its own": described(json.dumps({"class_name": "Evil", "config": {"layers": []}})),
}


@pytest.mark.parametrize("change", KERAS.values(), ids=KERAS)
def test_a_keras_file_is_refused(folder: Path, capfd: pytest.CaptureFixture[str], change: Callable[[Any, Any], None]):
    keras_file(change)
    refused(capfd, "model.h5")


def test_a_keras_file_whose_bytes_were_changed_is_refused_or_gives_numbers(
    folder: Path, capfd: pytest.CaptureFixture[str]
):
    keras_file(lambda h5py, file: None)
    whole = Path("model.h5").read_bytes()
    for cut in (0, 100, len(whole) // 2):
        Path("model.h5").write_bytes(whole[:cut])
        refused(capfd, "model.h5")
    Path("model.h5").write_bytes(whole[:96] + b"\xff" * 400 + whole[496:])
    refused(capfd, "model.h5")
