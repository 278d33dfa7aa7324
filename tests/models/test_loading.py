import json
import pickle
import sys
from itertools import pairwise
from pathlib import Path

import joblib
import pytest
import torch
from populations import people
from safetensors.torch import save_file
from sklearn.linear_model import LinearRegression
from torch import nn

from fairfox.errors import FileError, ModelError, OptionError, UntrustedModelError
from fairfox.models.loading import load_model, save_mlp


class Canary:
    """A pickle of it writes a file when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return Path.touch, (self.path,)


@pytest.fixture
def song(tmp_path: Path) -> Path:
    return tmp_path / "song"


def network(*sizes: int) -> nn.Sequential:
    layers = [layer for i, o in pairwise(sizes) for layer in (nn.Linear(i, o), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


# --- code ----------------------------------------------------------------------------------------------------------


def test_a_function_in_a_file(tmp_path: Path):
    (tmp_path / "rules.py").write_text("def score(table):\n    return 7\n")
    model = load_model(f"{tmp_path}/rules.py:score")
    assert callable(model)
    assert model(None) == 7


def test_a_function_in_a_module():
    assert load_model("json:dumps") is json.dumps
    assert load_model("os.path:join") is not None


def test_a_module_beside_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "my_rules_7.py").write_text("model = 7\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert load_model("my_rules_7:model") == 7


@pytest.mark.parametrize(
    ("code", "spec", "error", "message"),
    [
        ("score = 1", "rules.py:scor", OptionError, "has no 'scor'. Did you mean 'score'?"),
        ("score = 1", "rules.py", OptionError, "rules.py' is code; name the function in it: .*rules.py:function"),
        ("score = 1", "rules.py:", OptionError, "does not name a function; write module:function or file.py:function"),
        ("score = 1", "other.py:score", FileError, "No file '.*other.py'; give the path of the Python file"),
        ("1 / 0", "rules.py:score", ModelError, "rules.py' failed when imported: ZeroDivisionError: division by zero"),
        ("def (", "rules.py:score", ModelError, "rules.py' failed when imported: SyntaxError"),
    ],
)
def test_code_that_cannot_be_used_is_refused(
    tmp_path: Path, code: str, spec: str, error: type[Exception], message: str
):
    (tmp_path / "rules.py").write_text(code)
    with pytest.raises(error, match=message):
        load_model(f"{tmp_path}/{spec}")


def test_modules_that_cannot_be_used_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "broken_rules_7.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(OptionError, match="No module 'no_such_module_7'"):
        load_model("no_such_module_7:score")
    with pytest.raises(OptionError, match=r"'json' has no 'dumbs'\. Did you mean 'dumps'\?"):
        load_model("json:dumbs")
    with pytest.raises(ModelError, match="The module 'broken_rules_7' failed when imported: ZeroDivisionError"):
        load_model("broken_rules_7:score")


# --- files ---------------------------------------------------------------------------------------------------------


def test_what_is_not_there_is_refused(tmp_path: Path):
    with pytest.raises(
        FileError, match=r"No model at '.*gone.pkl'; give a model file, module:function or file.py:function"
    ):
        load_model(str(tmp_path / "gone.pkl"))
    with pytest.raises(FileError, match="No model at"):
        load_model("m" * 5000)
    with pytest.raises(FileError, match="is a folder; give a model file"):
        load_model(str(tmp_path))


@pytest.mark.parametrize(
    "name", ["model.pkl", "model.PKL", "model.joblib", "model.sav", "model.onnx", "model.safetensors"]
)
@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_a_pickle_runs_nothing_without_trust_whatever_its_name(tmp_path: Path, song: Path, name: str, protocol: int):
    (tmp_path / name).write_bytes(pickle.dumps(Canary(song), protocol=protocol))
    with pytest.raises(
        UntrustedModelError, match=f"'{name}' is a pickle and can run any code when loaded; add --trust"
    ):
        load_model(str(tmp_path / name))
    assert not song.exists()


@pytest.mark.parametrize("name", ["model.txt", "model.safetensors", "model"])
def test_an_old_pickle_under_another_name_runs_nothing(tmp_path: Path, song: Path, name: str):
    (tmp_path / name).write_bytes(pickle.dumps(Canary(song), protocol=0))
    (tmp_path / "model.json").write_text(json.dumps({"kind": "mlp", "sizes": [1, 1]}))
    with pytest.raises((OptionError, FileError)):
        load_model(str(tmp_path / name), trust=True)
    assert not song.exists()


def test_the_canary_sings_when_it_is_trusted(tmp_path: Path, song: Path):
    (tmp_path / "model.pkl").write_bytes(pickle.dumps(Canary(song)))
    load_model(str(tmp_path / "model.pkl"), trust=True)
    assert song.exists()


@pytest.mark.parametrize("name", ["model.pkl", "model.joblib", "model.unknown"])
@pytest.mark.parametrize("dump", [joblib.dump, lambda model, path: path.write_bytes(pickle.dumps(model))])
def test_a_trusted_pickle_is_loaded_however_it_was_written(tmp_path: Path, name: str, dump):
    columns = people()[["age", "debt"]]
    dump(LinearRegression().fit(columns, people()["income"]), tmp_path / name)
    model = load_model(str(tmp_path / name), trust=True)
    assert isinstance(model, LinearRegression)
    assert len(model.predict(columns)) == len(columns)


def test_a_damaged_pickle_is_refused(tmp_path: Path):
    (tmp_path / "model.pkl").write_bytes(pickle.dumps([1, 2, 3])[:-4])
    with pytest.raises(FileError, match=r"'model.pkl' could not be unpickled: "):
        load_model(str(tmp_path / "model.pkl"), trust=True)


@pytest.mark.parametrize("name", ["model.pt", "model.pt2", "model.keras", "model.h5", "model.ckpt"])
@pytest.mark.parametrize("trust", [False, True])
def test_other_files_that_can_run_code_are_not_read(tmp_path: Path, name: str, trust: bool):
    (tmp_path / name).write_bytes(b"PK\x03\x04 and so on")
    with pytest.raises(UntrustedModelError, match=f"'{name}' .* is not read; load it in a Python file of your own"):
        load_model(str(tmp_path / name), trust=trust)


def test_an_unknown_kind_of_file_is_refused(tmp_path: Path):
    (tmp_path / "model.docx").write_text("a model")
    with pytest.raises(OptionError, match=r"'model.docx' is no model file that fairfox knows; it reads safetensors"):
        load_model(str(tmp_path / "model.docx"))


# --- networks ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [(3, 1), (3, 8, 1), (4, 5, 6, 2)])
def test_a_network_comes_back_from_its_file_with_probabilities(tmp_path: Path, sizes: tuple[int, ...]):
    net = network(*sizes)
    save_mlp(net, tmp_path / "net.safetensors")
    model = load_model(str(tmp_path / "net.safetensors"))
    x = torch.randn(5, sizes[0], generator=torch.Generator().manual_seed(0))
    expected = net(x).sigmoid() if sizes[-1] == 1 else net(x).softmax(1)
    assert isinstance(model, nn.Sequential)
    assert not model.training
    torch.testing.assert_close(model(x), expected)


@pytest.mark.parametrize("returns", ["probability", "value"])
def test_a_network_that_returns_no_logit_is_left_as_it_is(tmp_path: Path, returns: str):
    net = network(3, 4, 1)
    save_mlp(net, tmp_path / "net.safetensors", returns=returns)
    model = load_model(str(tmp_path / "net.safetensors"))
    assert isinstance(model, nn.Sequential)
    assert torch.equal(model(torch.ones(1, 3)), net(torch.ones(1, 3)))


def test_loading_a_network_leaves_the_global_generator_alone(tmp_path: Path):
    save_mlp(network(3, 4, 1), tmp_path / "net.safetensors")
    before = torch.get_rng_state()
    load_model(str(tmp_path / "net.safetensors"))
    assert torch.equal(before, torch.get_rng_state())


def test_a_network_whose_file_begins_like_a_pickle_is_read(tmp_path: Path):
    net = network(2, 2, 1)
    path = tmp_path / "net.safetensors"
    save_mlp(net, path)
    for room in range(600):  # the file begins with the length of its header: 640 is 0x80 0x02, as a pickle does
        save_file(net.state_dict(), path, metadata={"note": "x" * room})
        if path.read_bytes()[:2] == b"\x80\x02":
            break
    assert path.read_bytes()[:2] == b"\x80\x02"
    assert isinstance(load_model(str(path)), nn.Sequential)


def test_a_network_that_cannot_be_declared_is_not_saved(tmp_path: Path):
    path = tmp_path / "net.safetensors"
    with pytest.raises(
        OptionError, match=r"The network is Linear, Tanh, Linear; only Linear, ReLU, ..., Linear can be"
    ):
        save_mlp(nn.Sequential(nn.Linear(1, 1), nn.Tanh(), nn.Linear(1, 1)), path)
    with pytest.raises(OptionError, match="returns is 'odds'; expected one of logit, probability, value"):
        save_mlp(network(1, 1), path, returns="odds")
    assert not path.exists()


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        (None, "'net.safetensors' has no 'net.json' beside it; declare the architecture there"),
        ("{", "'net.json' does not declare an architecture: expected kind, sizes, returns"),
        ("[1]", "'net.json' does not declare an architecture"),
        ('{"kind": "mlp"}', "'net.json' does not declare an architecture"),
        (
            '{"kind": "forest", "sizes": [3, 1]}',
            "'net.json' declares an unknown architecture; fairfox knows kind 'mlp'",
        ),
        ('{"kind": "mlp", "sizes": [3]}', "'net.json' declares an unknown architecture"),
        ('{"kind": "mlp", "sizes": [3, 0]}', "'net.json' declares an unknown architecture"),
        ('{"kind": "mlp", "sizes": [3, 1], "activation": "tanh"}', "'net.json' declares an unknown architecture"),
        ('{"kind": "mlp", "sizes": [3, 1], "returns": "odds"}', "declares returns 'odds'; expected one of logit"),
        ('{"kind": "mlp", "sizes": [3, 9, 1]}', "'net.safetensors' does not hold the network declared in 'net.json'"),
        ('{"kind": "mlp", "sizes": [3, 1000000000000]}', "does not hold the network declared in 'net.json'"),
    ],
)
def test_a_declaration_that_does_not_fit_is_refused(tmp_path: Path, declared: str | None, message: str):
    save_mlp(network(3, 1), tmp_path / "net.safetensors")
    beside = tmp_path / "net.json"
    beside.unlink() if declared is None else beside.write_text(declared)
    with pytest.raises(FileError, match=message):
        load_model(str(tmp_path / "net.safetensors"))


@pytest.mark.parametrize("keep", [0, 4, 40, -8])
def test_damaged_safetensors_are_refused(tmp_path: Path, keep: int):
    path = tmp_path / "net.safetensors"
    save_mlp(network(3, 1), path)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(FileError, match=r"'net.safetensors' does not hold the network declared in 'net.json': "):
        load_model(str(path))
