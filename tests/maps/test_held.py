import torch
from sklearn.linear_model import LinearRegression

from fairfox.data.dataset import Dataset, Protected
from fairfox.maps.held import counts, held_columns, regression
from fairfox.maps.surfaces import Bent

VARIABLES = [
    Protected("sex", "binary", ("f", "m")),
    Protected("race", "categorical", ("a", "b", "c")),
    Protected("age", "continuous", ()),
]


def test_classes_but_the_first_and_numbers_are_held_as_columns():
    c = torch.tensor([[0.0, 0.0, 30.0], [1.0, 1.0, 40.0], [1.0, 2.0, float("nan")]]).double()
    data = Dataset.from_arrays(torch.zeros(3, 2).double(), c, protected=VARIABLES)
    nothing = Bent.of([], data.x)
    held = held_columns(data, [1, 2], nothing)
    assert held.tolist() == [[0.0, 0.0, 30.0], [1.0, 0.0, 40.0], [0.0, 1.0, 0.0]]  # what is unknown is 0
    assert held_columns(data, [0], nothing).tolist() == [[0.0], [1.0], [1.0]]
    assert held_columns(data, [], nothing).shape == (3, 0)


def test_both_coefficients_are_scikit_learn_s():
    generator = torch.Generator().manual_seed(0)
    values, held, weights = (torch.randn(50, k, generator=generator).double() for k in (3, 2, 1))
    member = torch.eye(2).double()[torch.arange(50) % 2]
    weights = weights[:, 0].square()
    own, rest = regression(values, member, held, weights)
    oracle = LinearRegression(fit_intercept=False)
    oracle.fit(torch.cat([member, held], dim=1).numpy(), values.numpy(), sample_weight=weights.numpy())
    expected = torch.from_numpy(oracle.coef_).mT
    torch.testing.assert_close(torch.cat([own, rest]), expected)


def test_every_row_is_one_person_unless_told():
    like = torch.zeros(2, 3)
    assert counts(None, like).tolist() == [1.0, 1.0]
    assert counts(torch.tensor([2.0, 0.5]).double(), like).dtype == torch.float32
