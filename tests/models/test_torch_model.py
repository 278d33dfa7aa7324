import pytest
import torch
from populations import people, table_of
from torch import Tensor, nn

from fairfox.data.encode import fit_encoding
from fairfox.data.table import load_table
from fairfox.errors import DataError, ModelError
from fairfox.models.output import Output
from fairfox.models.torch_model import TorchModel

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


def test_a_module_in_evaluation_mode_is_used_as_it_is():
    module = nn.Linear(3, 1).eval()
    assert TorchModel(module).module is module


def test_inputs_follow_the_module_and_predictions_follow_x():
    single, double = nn.Linear(3, 1).eval(), nn.Linear(3, 1).double().eval()
    assert TorchModel(single)(X).dtype == torch.float64
    assert TorchModel(double)(X.float()).dtype == torch.float32


def test_the_output_is_converted():
    model = TorchModel(lambda x: 0 * x[:, :1], output=Output("logit"))
    assert model(X[:2]).tolist() == [[0.5], [0.5]]


def test_text_where_the_module_needs_numbers_is_refused():
    table = load_table(people())
    encoding = fit_encoding(table, protected=["sex"])
    with pytest.raises(DataError, match="Column 'job' holds text such as 'clerk', and the model takes a matrix"):
        TorchModel(first_column, decoder=encoding)(encoding.encode(table).x)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            nn.Linear(7, 1).eval(),
            r"failed on a \(120, 3\) tensor with columns income, age, debt: .*; drop what it does not",
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


def test_flat_and_nested_outputs_are_one_row_each():
    assert TorchModel(lambda x: x[:, 0]).raw(X).shape == (120, 1)
    assert TorchModel(lambda x: x.reshape(len(x), 3, 1)).raw(X).shape == (120, 3)


@pytest.mark.parametrize("encoded", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_the_first_layer_and_the_rest_are_the_model(encoded: bool, bias: bool):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4, bias=bias), nn.Tanh(), nn.Linear(4, 1)).double().eval()
    if not encoded:
        net[0].weight.data *= 1e-3  # incomes are thousands
    model = TorchModel(net, decoder=NUMBERS, encoded=encoded, output=Output("logit"))
    assert model.first_affine is not None
    weight, shift, rest = model.first_affine
    torch.testing.assert_close(rest(X @ weight.T + shift), model(X))


def test_other_models_have_no_first_layer():
    table = load_table(people())
    blocks = fit_encoding(table, protected=["sex"])
    net = nn.Sequential(nn.Linear(3, 1)).eval()
    assert TorchModel(first_column).first_affine is None
    assert TorchModel(nn.Sequential(nn.ReLU(), nn.Linear(3, 1)).eval()).first_affine is None
    assert TorchModel(net, decoder=blocks, encoded=True).first_affine is None  # projecting blocks is not affine


def test_chains_within_chains_are_taken_apart_and_those_with_hooks_are_not():
    inner = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    nested, flat = (
        TorchModel(nn.Sequential(nn.Sequential(), inner, nn.Sigmoid())),
        TorchModel(nn.Sequential(*inner, nn.Sigmoid())),
    )
    x = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    for model in (nested, flat):
        assert model.first_affine is not None
        weight, bias, rest = model.first_affine
        torch.testing.assert_close(rest(x @ weight.T + bias), model(x))
        assert [type(layer) for layer in rest.layers] == [nn.ReLU, nn.Linear, nn.Sigmoid]
    inner.register_forward_hook(lambda module, args, out: 2 * out)
    assert TorchModel(nn.Sequential(inner, nn.Sigmoid())).first_affine is None
