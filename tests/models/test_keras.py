"""Keras files, written by h5py as Keras 2 and Keras 3 lay them out; the oracle is a forward pass in NumPy."""

from __future__ import annotations

import io
import json
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from populations import people
from support import audited

from fairfox.errors import FileError, MissingExtraError
from fairfox.models.loading import load_model

h5py = pytest.importorskip("h5py")
RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 3)).astype(np.float32)
W1, B1 = RNG.normal(size=(3, 5)), RNG.normal(size=5)
GAMMA, BETA, MEAN, VARIANCE = RNG.normal(size=5), RNG.normal(size=5), RNG.normal(size=5), RNG.uniform(0.5, 2.0, 5)
W2 = RNG.normal(size=(5, 4))
W3, B3 = RNG.normal(size=(4, 2)), RNG.normal(size=2)
LAYERS: list[tuple[str, dict[str, Any], dict[str, np.ndarray]]] = [
    ("InputLayer", {"batch_shape": [None, 3]}, {}),
    ("Dense", {"units": 5, "activation": "relu", "use_bias": True}, {"kernel": W1, "bias": B1}),
    (
        "BatchNormalization",
        {"axis": -1, "epsilon": 0.001, "center": True, "scale": True},
        {"gamma": GAMMA, "beta": BETA, "moving_mean": MEAN, "moving_variance": VARIANCE},
    ),
    ("Dropout", {"rate": 0.5}, {}),
    ("Dense", {"units": 4, "activation": "linear", "use_bias": False}, {"kernel": W2}),
    ("Activation", {"activation": "tanh"}, {}),
    ("Dense", {"units": 2, "activation": "softmax", "use_bias": True}, {"kernel": W3, "bias": B3}),
]


def forward(x: np.ndarray) -> np.ndarray:
    hidden = np.maximum(x.astype(np.float64) @ W1 + B1, 0)
    hidden = (hidden - MEAN) / np.sqrt(VARIANCE + 0.001) * GAMMA + BETA
    out = np.exp(np.tanh(hidden @ W2) @ W3 + B3)
    return out / out.sum(1, keepdims=True)


def named(layers: Any, *, functional: bool = False, keras: int = 3) -> tuple[dict[str, Any], list[str]]:
    """Return the description of a network, and the names of its layers."""
    names = [f"my_{kind.lower()}_{k}" for k, (kind, _, _) in enumerate(layers)]
    described = []
    for k, (kind, settings, _) in enumerate(layers):
        layer: dict[str, Any] = {"class_name": kind, "config": {"name": names[k], **settings}}
        history = [names[k - 1], 0, 0]
        if functional and keras == 3:
            tensor = {"class_name": "__keras_tensor__", "config": {"shape": [None, 3], "keras_history": history}}
            layer["inbound_nodes"] = [{"args": [tensor], "kwargs": {}}] if k else []
        elif functional:
            layer["inbound_nodes"] = [[[*history, {}]]] if k else []
        described.append(layer)
    config = {"name": "net", "layers": described, "output_layers": [[names[-1], 0, 0]]}
    return {"class_name": "Functional" if functional else "Sequential", "config": config}, names


def write_h5(path: Path, layers: Any = LAYERS, **options: Any) -> Path:
    """Write a network as Keras 2 and Keras 3 write .h5 files: weights under the names of their layers."""
    keras = options.get("keras", 2)
    described, names = named(layers, **options)
    with h5py.File(path, "w") as file:
        file.attrs["model_config"] = json.dumps(described)
        for name, (_, _, weights) in zip(names, layers, strict=True):
            group = file.create_group(f"model_weights/{name}")
            paths = [f"{name}/{part}:0" if keras == 2 else f"net/{name}/{part}" for part in weights]
            group.attrs["weight_names"] = [each.encode() for each in paths]
            for each, array in zip(paths, weights.values(), strict=True):
                group[each] = array.astype(np.float32)
        file["optimizer_weights/adam/kernel:0"] = np.zeros((7, 7), np.float32)
    return path


def write_keras(path: Path, layers: Any = LAYERS, *, within: str = "layers", **options: Any) -> Path:
    """Write a network as .keras archives have it: weights under the kinds of their layers, counted."""
    described, _ = named(layers, **options)
    counts: dict[str, int] = {}
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        for kind, _, weights in layers:
            snake = {"BatchNormalization": "batch_normalization", "InputLayer": "input_layer"}.get(kind, kind.lower())
            own = f"{snake}_{counts[snake]}" if snake in counts else snake
            counts[snake] = counts.get(snake, 0) + 1
            group = file.create_group(f"{within}/{own}/vars")
            for k, array in enumerate(weights.values()):
                group[str(k)] = array.astype(np.float32)
        file["optimizer/vars/0"] = np.float32(1.0)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("metadata.json", "{}")
        archive.writestr("config.json", json.dumps(described))
        archive.writestr("model.weights.h5", buffer.getvalue())
    return path


@pytest.mark.parametrize("functional", [False, True], ids=["sequential", "functional"])
@pytest.mark.parametrize("keras", [2, 3])
@pytest.mark.parametrize("kind", ["h5", "keras"])
def test_predictions_are_those_of_a_forward_pass(tmp_path: Path, kind: str, keras: int, functional: bool):
    write = write_h5 if kind == "h5" else write_keras
    net: Any = load_model(str(write(tmp_path / f"model.{kind}", keras=keras, functional=functional)))
    np.testing.assert_allclose(net(torch.as_tensor(X)).detach().numpy(), forward(X), atol=1e-6)


def test_the_first_archives_of_keras_2_are_read(tmp_path: Path):
    net: Any = load_model(str(write_keras(tmp_path / "model.keras", within="_layer_checkpoint_dependencies")))
    np.testing.assert_allclose(net(torch.as_tensor(X)).detach().numpy(), forward(X), atol=1e-6)


def test_autograd_sees_through_a_network_that_is_audited(tmp_path: Path):
    layers = [
        LAYERS[0],
        ("Dense", {"units": 1, "activation": "sigmoid", "use_bias": True}, {"kernel": W1[:, :1], "bias": B1[:1]}),
    ]
    model = load_model(str(write_h5(tmp_path / "model.h5", layers)))
    table = people()[["sex", "income", "age", "debt"]]
    table = table.assign(**{name: (table[name] - table[name].mean()) / table[name].std() for name in table.columns[1:]})
    result = audited(model, table, protected="sex", drop="sex", refits=1, test="faux")
    numbers = table[["income", "age", "debt"]].to_numpy()
    np.testing.assert_allclose(result.predictions.numpy(), 1 / (1 + np.exp(-(numbers @ W1[:, 0] + B1[0]))), rtol=1e-5)


def with_layer(kind: str, **settings: Any) -> list[Any]:
    return [*LAYERS[:2], (kind, settings, {}), *LAYERS[2:]]


REFUSED = {
    "it has a layer of the kind 'Lambda'": with_layer("Lambda", function=["4wEAAAA", None, None]),
    "it has a layer of the kind 'Conv1D'": with_layer("Conv1D"),
    "it has the activation 'selu'": with_layer("Activation", activation="selu"),
    r"it has the activation \['touch ran'\]": with_layer("Activation", activation=["touch ran"]),
    "a ReLU in it has 'max_value' 6": with_layer("ReLU", max_value=6),
    "a Softmax in it has 'axis' 2": with_layer("Softmax", axis=2),
    "it has 0 arrays for the kernel of its layer 'my_dense_2'": with_layer("Dense", units=5, use_bias=True),
    "it takes more than one row of numbers": [("InputLayer", {"batch_shape": [None, 3, 2]}, {}), *LAYERS[1:]],
    "RuntimeError: mat1 and mat2": [*LAYERS[:2], LAYERS[-1]],
    "it is a 'Sequential' of 1001 layers": [LAYERS[0], *[LAYERS[3]] * 1000],
}


@pytest.mark.parametrize(("message", "layers"), REFUSED.items())
def test_what_is_no_chain_of_dense_layers_is_refused_by_name(tmp_path: Path, message: str, layers: list[Any]):
    path = write_h5(tmp_path / "model.h5", layers)
    with pytest.raises(FileError, match=f"^'model.h5' is not a Keras model fairfox can read: {message}.*; expected"):
        load_model(str(path))


def test_branches_are_refused(tmp_path: Path):
    described, names = named(LAYERS, functional=True)
    described["config"]["layers"][4]["inbound_nodes"][0]["args"][0]["config"]["keras_history"][0] = names[1]
    path = write_h5(tmp_path / "model.h5", functional=True)
    with h5py.File(path, "a") as file:
        file.attrs["model_config"] = json.dumps(described)
    with pytest.raises(FileError, match="its layer 'my_dense_4' does not follow the one before it"):
        load_model(str(path))
    described, _ = named(LAYERS, functional=True)
    described["config"]["output_layers"].insert(0, [names[1], 0, 0])
    with h5py.File(path, "a") as file:
        file.attrs["model_config"] = json.dumps(described)
    with pytest.raises(FileError, match="it has outputs before its last layer"):
        load_model(str(path))


def test_without_h5py_a_sentence_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = write_h5(tmp_path / "model.h5")
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(
        MissingExtraError, match=r"'h5py' is needed to read 'model.h5' .* run: pip install 'fairfox\[keras\]'"
    ):
        load_model(str(path))
