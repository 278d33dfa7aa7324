import pytest
import torch

from fairfox.auxiliary.linear import LinearMember
from fairfox.data.dataset import Dataset, Protected
from fairfox.errors import ShapeError
from fairfox.maps.outputs import check_outputs, moving

SEX, RACE = Protected("sex", "binary", ("f", "m")), Protected("race", "categorical", ("a", "b", "c"))
EACH = LinearMember(torch.tensor([[1.0], [10.0], [200.0], [3000.0]]).double(), torch.zeros(4).double())  # sex, a, b, c
X = torch.ones(1, 1).double()


def test_of_two_groups_one_output_moves_and_of_many_classes_a_difference():
    assert moving(EACH, [SEX, RACE], 0, (0, 1))(X).tolist() == [[1.0]]
    assert moving(EACH, [SEX, RACE], 1, (0, 2))(X).tolist() == [[2990.0]]
    assert moving(EACH, [SEX, RACE], 1, (1, 2))(X).tolist() == [[2800.0]]


def test_an_auxiliary_with_other_outputs_is_refused():
    both = Dataset.from_arrays(X, torch.zeros(1, 2).double(), protected=[SEX, RACE])
    check_outputs(EACH, both)
    one = Dataset.from_arrays(X, torch.zeros(1, 1).double(), protected=[SEX])
    with pytest.raises(ShapeError, match="The auxiliary has 4 outputs; expected 1: "):
        check_outputs(EACH, one)
