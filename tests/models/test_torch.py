from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from populations import people, table_of
from safetensors.torch import save_file
from torch import Tensor, nn

from fairfox.data.encoding import fit_encoding
from fairfox.data.table import load_table
from fairfox.errors import FileError, ModelError, OptionError
from fairfox.models.loading import load_model
from fairfox.models.torch import TorchModel, save_mlp

pytestmark = pytest.mark.brief

NUMBERS = fit_encoding(load_table(people()), protected=["sex"], drop=["job"], dtype=torch.float64)
X = NUMBERS.encode(load_table(people())).x


def first_column(x: Tensor) -> Tensor:
    return x[:, :1]


def test_a_module_receives_the_columns_in_their_own_units():
    assert torch.equal(TorchModel(first_column, decoder=NUMBERS)(X)[:, 0], torch.tensor(people()["income"]))


def test_an_encoded_module_receives_x_itself():
    assert torch.equal(TorchModel(first_column, decoder=NUMBERS, encoded=True)(X), X[:, :1])
    assert torch.equal(TorchModel(first_column)(X), X[:, :1])


def test_autograd_sees_through_the_scaling():
    x = X[:5].clone().requires_grad_()
    (grad,) = torch.autograd.grad(TorchModel(first_column, decoder=NUMBERS)(x).sum(), x)
    torch.testing.assert_close(grad[:, 0], torch.full((5,), NUMBERS.features[0].scale, dtype=torch.float64))
    assert torch.equal(grad[:, 1:], torch.zeros(5, 2).double())


def test_blocks_are_projected_in_front_of_the_module():
    table = table_of(job=["a", "b", "a"])
    encoding = fit_encoding(table, protected=["c"])
    model = TorchModel(first_column, decoder=encoding, encoded=True)
    assert model(torch.tensor([[3.0, 1.0], [-1.0, 0.5]])).tolist() == [[0.75], [0.0]]


def test_a_module_in_training_mode_is_copied_and_left_alone():
    module = nn.Sequential(nn.Dropout(0.9), nn.Linear(3, 1)).train()
    model = TorchModel(module)
    assert module.training
    assert model.module is not module
    assert torch.equal(model(X), model(X))


def test_inputs_follow_the_module_and_predictions_follow_x():
    single, double = nn.Linear(3, 1).eval(), nn.Linear(3, 1).double().eval()
    assert TorchModel(single)(X).dtype == torch.float64
    assert TorchModel(double)(X.float()).dtype == torch.float32


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            nn.Linear(7, 1).eval(),
            r"failed on a \(120, 3\) tensor with columns income, age, debt: .*; drop columns it does not",
        ),
        (lambda x: x.numpy(), "returned ndarray; expected a tensor with one row per individual"),
        (lambda x: (x, x), "returned tuple; expected a tensor"),
        (lambda x: x.mean(), "returned a single number for 120 individuals; return one row each, in order"),
        (lambda x: x[1:, :1], "returned 119 predictions for 120 individuals; return one row each, in order"),
    ],
)
def test_what_is_no_prediction_is_refused(function: object, message: str):
    with pytest.raises(ModelError, match=message):
        TorchModel(function, decoder=NUMBERS).raw(X)  # type: ignore[arg-type]


# --- files ------------------------------------------------------------------------------------------------------------


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


def test_a_network_whose_file_begins_like_a_pickle_is_read(tmp_path: Path):
    net = network(2, 2, 1)
    path = tmp_path / "net.safetensors"
    save_mlp(net, path)
    save_file(net.state_dict(), path, metadata={"note": ""})
    room = 640 - int.from_bytes(path.read_bytes()[:8], "little")  # the length of the header comes first: 0x80 0x02
    save_file(net.state_dict(), path, metadata={"note": "x" * room})
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
        (None, "'net.safetensors' needs 'net.json' beside it, with its kind, sizes and returns"),
        ("{", "'net.json' does not declare kind, sizes and returns"),
        ('{"kind": "mlp"}', "'net.json' does not declare kind"),
        (
            '{"kind": "forest", "sizes": [3, 1]}',
            "'net.json' declares an unknown architecture; fairfox knows kind 'mlp'",
        ),
        ('{"kind": "mlp", "sizes": [3, 0]}', "'net.json' declares an unknown architecture"),
        ('{"kind": "mlp", "sizes": [3, 1], "activation": "tanh"}', "'net.json' declares an unknown architecture"),
        ('{"kind": "mlp", "sizes": [3, 1], "returns": "odds"}', "'net.json' declares an unknown architecture"),
        ('{"kind": "mlp", "sizes": [3, 9, 1]}', "'net.safetensors' does not hold the network of 'net.json'"),
        ('{"kind": "mlp", "sizes": [3, 1000000000000]}', "does not hold the network of 'net.json'"),
    ],
)
def test_a_declaration_that_does_not_fit_is_refused(tmp_path: Path, declared: str | None, message: str):
    save_mlp(network(3, 1), tmp_path / "net.safetensors")
    beside = tmp_path / "net.json"
    beside.unlink() if declared is None else beside.write_text(declared)
    with pytest.raises(FileError, match=message):
        load_model(str(tmp_path / "net.safetensors"))


# --- what torch writes ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[nn.Module, Path]:
    net = nn.Sequential(network(3, 4, 1), nn.Sigmoid())
    path = tmp_path_factory.mktemp("exported") / "net.pt2"
    rows = {0: torch.export.Dim("rows")}
    torch.export.save(torch.export.export(net, (torch.ones(2, 3),), dynamic_shapes=(rows,)), path)
    return net, path


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[nn.Module, Path]:
    net = network(3, 1)
    path = tmp_path_factory.mktemp("saved") / "net.pth"
    torch.save(net, path)
    return net, path


@pytest.mark.parametrize("name", ["exported", "scripted", "saved"])
def test_what_torch_writes_answers_as_before_and_is_refused_when_cut_short(
    request: pytest.FixtureRequest, tmp_path: Path, name: str
):
    net, path = request.getfixturevalue(name)
    model: Any = load_model(str(path), trust=True)
    for rows in (1, 2, 7):
        x = torch.randn(rows, 3, generator=torch.Generator().manual_seed(0)).requires_grad_()
        torch.testing.assert_close(model(x), net(x))
        assert torch.autograd.grad(model(x).sum(), x)[0].abs().sum() > 0
    part = tmp_path / path.name
    for keep in (0, 100, -40, -1):
        part.write_bytes(path.read_bytes()[:keep])
        with pytest.raises(FileError, match=f"'{path.name}' is not a .* file that torch can read"):
            load_model(str(part), trust=True)


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> tuple[nn.Module, Path]:
    net = network(3, 4, 1)
    path = tmp_path_factory.mktemp("scripted") / "net.pt"
    with pytest.warns(DeprecationWarning, match="is deprecated"):
        torch.jit.save(torch.jit.trace(net, torch.ones(2, 3)), path)
    return net, path


def test_weights_without_their_network_are_refused(tmp_path: Path):
    torch.save(network(3, 1).state_dict(), tmp_path / "net.ckpt")
    with pytest.raises(OptionError, match=r"'net.ckpt' holds a OrderedDict, not a module; build the network in a"):
        load_model(str(tmp_path / "net.ckpt"), trust=True)
