import io
import json
import pickle
import zipfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from populations import people
from safetensors.torch import save_file
from torch import nn

import fairfox
from fairfox.errors import FairfoxError, FileError, OptionError, UntrustedModelError
from fairfox.models.loading import load_model
from fairfox.models.torch_files import save_mlp


def network(*sizes: int) -> nn.Sequential:
    with torch.random.fork_rng():  # the same weights whatever ran before
        torch.manual_seed(0)
        layers = [layer for i, o in pairwise(sizes) for layer in (nn.Linear(i, o), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


# --- safetensors ------------------------------------------------------------------------------------------------------


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
        (None, "'net.safetensors' has no 'net.json' or 'net.toml' beside it; declare the architecture there"),
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
    with pytest.raises(FileError, match=r"'net.safetensors' (is damaged: its header claims|does not hold the network)"):
        load_model(str(path))


def test_the_architecture_may_be_declared_in_toml(tmp_path: Path):
    net = network(3, 4, 1)
    save_mlp(net, tmp_path / "net.safetensors", returns="value")
    (tmp_path / "net.json").unlink()
    (tmp_path / "net.toml").write_text('kind = "mlp"\nsizes = [3, 4, 1]\nreturns = "value"\n')
    model = load_model(str(tmp_path / "net.safetensors"))
    assert isinstance(model, nn.Sequential)
    assert torch.equal(model(torch.ones(1, 3)), net(torch.ones(1, 3)))


def test_a_header_that_claims_more_than_the_file_has_is_refused(tmp_path: Path):
    save_mlp(network(3, 1), tmp_path / "net.safetensors")
    (tmp_path / "net.safetensors").write_bytes((10 * 2**30).to_bytes(8, "little") + b"{}")
    with pytest.raises(FileError, match="its header claims 10737418240 bytes of a file of 10"):
        load_model(str(tmp_path / "net.safetensors"))


# --- what torch writes ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[nn.Module, Path]:
    net = nn.Sequential(network(3, 4, 1), nn.Sigmoid())
    path = tmp_path_factory.mktemp("exported") / "net.pt2"
    rows = {0: torch.export.Dim("rows")}
    torch.export.save(torch.export.export(net, (torch.ones(2, 3),), dynamic_shapes=(rows,)), path)
    return net, path


@pytest.mark.parametrize("rows", [1, 2, 7])
def test_an_exported_network_needs_trust_and_answers_as_before(exported: tuple[nn.Module, Path], rows: int):
    net, path = exported
    with pytest.raises(UntrustedModelError, match=r"'net.pt2' is a torch.export archive .* add --trust-model"):
        load_model(str(path))
    model: Any = load_model(str(path), trust=True)
    x = torch.randn(rows, 3, generator=torch.Generator().manual_seed(0)).requires_grad_()
    torch.testing.assert_close(model(x), net(x))
    assert torch.autograd.grad(model(x).sum(), x)[0].abs().sum() > 0


@pytest.mark.parametrize("test", ["rank", "faux"])
def test_networks_from_files_are_audited_as_they_were_before(
    exported: tuple[nn.Module, Path], scripted: tuple[nn.Module, Path], test: str
):
    table = people(60)[["sex", "income", "age", "debt"]].assign(income=lambda t: t["income"] / 1000)
    for net, path in (exported, scripted):
        model = load_model(str(path), trust=True)
        found, expected = (
            fairfox.audit(m, table, protected="sex", test=test, refits=1, folds=2).scores for m in (model, net)
        )
        torch.testing.assert_close(found, expected)


def rewritten(source: Path, target: Path, changes: dict[str, bytes | None], *, squeeze: bool = False) -> Path:
    """Write an archive with some members changed, added or (None) left out."""
    with zipfile.ZipFile(source) as old:
        members = {name: old.read(name) for name in old.namelist()} | changes
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED if squeeze else zipfile.ZIP_STORED) as new:
        for name, content in members.items():
            if content is not None:
                new.writestr(name, content)
    return target


def saved(value: object) -> bytes:
    torch.save(value, buffer := io.BytesIO())
    return buffer.getvalue()


def test_an_archive_that_is_written_again_is_read(exported: tuple[nn.Module, Path], tmp_path: Path):
    net, path = exported
    model: Any = load_model(str(rewritten(path, tmp_path / "net.pt2", {})), trust=True)
    torch.testing.assert_close(model(torch.ones(2, 3)), net(torch.ones(2, 3)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"net/data/aotinductor/model/wrapper.so": b"ELF"}, "holds the member 'net/data/aotinductor/model/wrapper.so'"),
        ({"net/data/constants/opaque_obj_0": b"x"}, "holds the member 'net/data/constants/opaque_obj_0', unlike"),
        ({"net/data/weights/model.pt": b"x"}, "holds the member 'net/data/weights/model.pt'"),
        ({"other/models/model.json": b"{}"}, "holds no exported program"),
        ({"net/models/model.json": None}, "holds no exported program"),
        ({"net/data/sample_inputs/model.pt": saved(Path("x"))}, "a pickle of more than tensors .'data/sample_inputs"),
        ({"net/data/sample_inputs/model.pt": pickle.dumps([1])}, "a pickle of more than tensors"),
    ],
)
def test_an_archive_that_torch_would_not_write_is_refused_even_when_trusted(
    exported: tuple[nn.Module, Path], tmp_path: Path, changes: dict[str, bytes | None], message: str
):
    path = rewritten(exported[1], tmp_path / "net.pt2", changes)
    with pytest.raises(UntrustedModelError, match=message + ".*even with --trust-model"):
        load_model(str(path), trust=True)


def test_a_weight_that_is_a_pickle_of_code_is_refused_even_when_trusted(
    exported: tuple[nn.Module, Path], tmp_path: Path
):
    config = "net/data/weights/model_weights_config.json"
    with zipfile.ZipFile(exported[1]) as archive:
        declared = json.loads(archive.read(config))
    next(iter(declared["config"].values()))["use_pickle"] = True
    changes: dict[str, bytes | None] = {config: json.dumps(declared).encode()}
    first = next(iter(declared["config"].values()))["path_name"]
    path = rewritten(exported[1], tmp_path / "net.pt2", changes | {f"net/data/weights/{first}": saved(Path("x"))})
    with pytest.raises(UntrustedModelError, match=f"a pickle of more than tensors .'data/weights/{first}'"):
        load_model(str(path), trust=True)
    path = rewritten(exported[1], tmp_path / "net.pt2", {config: b"{"})
    with pytest.raises(FileError, match=r"is damaged: 'data/weights/model_weights_config.json' cannot be read"):
        load_model(str(path), trust=True)


def test_an_archive_that_unpacks_to_more_than_it_has_is_refused(exported: tuple[nn.Module, Path], tmp_path: Path):
    bomb = {"net/data/weights/weight_0": bytes(10**7)}
    path = rewritten(exported[1], tmp_path / "net.pt2", bomb, squeeze=True)
    with pytest.raises(FileError, match=r"'net.pt2' would unpack its \d+ bytes to 100\d+, and is not read"):
        load_model(str(path), trust=True)


def test_an_exported_program_that_is_damaged_is_refused(exported: tuple[nn.Module, Path], tmp_path: Path):
    path = rewritten(exported[1], tmp_path / "net.pt2", {"net/models/model.json": b"{}"})
    with pytest.raises(FileError, match=r"'net.pt2' is no torch.export file that torch can read"):
        load_model(str(path), trust=True)


@pytest.mark.parametrize("keep", [0, 100, -40, -1])
def test_an_exported_program_that_is_cut_short_is_refused(exported: tuple[nn.Module, Path], tmp_path: Path, keep: int):
    path = tmp_path / "net.pt2"
    path.write_bytes(exported[1].read_bytes()[:keep])
    with pytest.raises(FairfoxError, match=r"'net.pt2' is (no zip archive, or a damaged one|not an archive of)"):
        load_model(str(path), trust=True)


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> tuple[nn.Module, Path]:
    net = network(3, 4, 1)
    path = tmp_path_factory.mktemp("scripted") / "net.pt"
    with pytest.warns(DeprecationWarning, match="is deprecated"):
        torch.jit.save(torch.jit.trace(net, torch.ones(2, 3)), path)
    return net, path


def test_torchscript_needs_trust_and_answers_as_before(scripted: tuple[nn.Module, Path]):
    net, path = scripted
    with pytest.raises(UntrustedModelError, match=r"'net.pt' is a TorchScript archive .* add --trust-model"):
        load_model(str(path))
    model: Any = load_model(str(path), trust=True)
    torch.testing.assert_close(model(torch.ones(5, 3)), net(torch.ones(5, 3)))


def test_damaged_torchscript_is_refused(scripted: tuple[nn.Module, Path], tmp_path: Path):
    with zipfile.ZipFile(scripted[1]) as archive:
        name = next(name for name in archive.namelist() if name.endswith("data.pkl"))
    path = rewritten(scripted[1], tmp_path / "net.pt", {name: b"?"})
    with pytest.raises(FileError, match=r"'net.pt' is no TorchScript file that torch can read"):
        load_model(str(path), trust=True)


def test_a_saved_module_needs_trust(tmp_path: Path):
    net = network(3, 1)
    torch.save(net, tmp_path / "net.pth")
    with pytest.raises(UntrustedModelError, match=r"'net.pth' is a torch.save file .* add --trust-model"):
        load_model(str(tmp_path / "net.pth"))
    model: Any = load_model(str(tmp_path / "net.pth"), trust=True)
    assert torch.equal(model(torch.ones(2, 3)), net(torch.ones(2, 3)))


def test_weights_without_their_network_are_refused(tmp_path: Path):
    torch.save(network(3, 1).state_dict(), tmp_path / "net.ckpt")
    with pytest.raises(OptionError, match=r"'net.ckpt' holds a OrderedDict, not a module; build the network in a"):
        load_model(str(tmp_path / "net.ckpt"), trust=True)
