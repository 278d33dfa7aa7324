"""Who they probably are: unknown protected values, by hand."""

from dataclasses import replace

import pytest
import torch

from fairfox.auxiliary.linear import LinearMember
from fairfox.auxiliary.model import FixedAuxiliary, infer_groups
from fairfox.data.dataset import Dataset, Protected

SEX = Protected("sex", "binary", ("w", "m"))
RACE = Protected("race", "categorical", ("a", "b", "c"))
AGE = Protected("age", "continuous", ())
BOTH = Protected("sex x race", "categorical", ("w a", "w b", "m a", "m b"), parts=("sex", "race"))
NAN = torch.nan


def member(*weights, bias=None):
    rows = torch.tensor(weights, dtype=torch.float64)
    return LinearMember(rows, torch.zeros(len(rows)) if bias is None else torch.tensor(bias))


def people(x, c, protected, **fields):
    return replace(Dataset.from_arrays(torch.tensor(x).double(), torch.tensor(c), protected=protected), **fields)


def test_unknown_groups_are_the_most_probable_ones():
    data = people([[-1.0], [2.0], [2.0], [-1.0]], [NAN, NAN, 0.0, 1.0], [SEX])
    found, inferred = infer_groups(data, FixedAuxiliary([member([1.0])]), data)
    assert found.c[:, 0].tolist() == [0.0, 1.0, 0.0, 1.0]  # known values are never overruled
    assert inferred[:, 0].tolist() == [True, True, False, False]
    assert data.c[:2].isnan().all()  # the people given are left as they are


def test_members_are_averaged_by_their_probabilities():
    # logits 10 and -1, -1: probabilities 1.00, 0.27 and 0.27, mean 0.51; the logits' signs say the opposite
    sure, doubtful = member([10.0]), member([-1.0])
    data = people([[1.0], [-1.0]], [NAN, 0.0], [SEX])
    found, _ = infer_groups(data, FixedAuxiliary([sure, doubtful, doubtful]), data)
    assert found.c[0].tolist() == [1.0]
    found, _ = infer_groups(data, FixedAuxiliary([member([1.0]), doubtful, doubtful]), data)
    assert found.c[0].tolist() == [0.0]


def test_several_variables_are_told_by_their_own_heads():
    # sex x0; race (x0, x1, -x0 - x1); age (x0 + x1) / 2 standard deviations of 20 from 50
    outputs = member([1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [-1.0, -1.0], [0.5, 0.5])
    fitting = people([[0.0, 0.0]] * 3, [[0, 0, 30], [1, 1, 70], [1, 2, NAN]], [SEX, RACE, AGE])
    data = people([[3.0, 1.0], [-2.0, 4.0], [-1.0, -2.0]], [[NAN] * 3, [1, NAN, NAN], [NAN, 1, 33]], [SEX, RACE, AGE])
    found, inferred = infer_groups(data, FixedAuxiliary([outputs]), fitting)
    assert found.c.tolist() == [[1, 0, 90], [1, 1, 70], [0, 1, 33]]
    assert inferred.tolist() == [[True, True, True], [False, True, True], [True, False, False]]


def test_numbers_have_the_units_of_the_weighted_fitting_rows():
    # 10, 10, 10, 50: mean 20, standard deviation 300 ** 0.5; the prediction is two of them
    fitting = people([[0.0], [0.0]], [10.0, 50.0], [AGE], weights=torch.tensor([3.0, 1.0]))
    found, _ = infer_groups(people([[2.0]], [NAN], [AGE]), FixedAuxiliary([member([1.0])]), fitting)
    assert float(found.c) == pytest.approx(20 + 2 * 300**0.5)


def test_a_crossing_follows_its_parts_where_their_like_was_seen():
    # outputs: sex x0, race (x1, -x1, 0), the crossing always "w a"
    outputs = member(
        [1.0, 0.0], [0.0, 1.0], [0.0, -1.0], *[[0.0, 0.0]] * 5, bias=[0.0, 0.0, 0.0, -9.0, 5.0, 0.0, 0.0, 0.0]
    )
    cells = [[0, 0, 0], [0, 1, 1], [1, 0, 2], [1, 1, 3]]
    fitting = people([[0.0, 0.0]] * 4, cells, [SEX, RACE, BOTH])
    data = people([[1.0, 1.0], [-1.0, 1.0], [1.0, -1.0]], [[1, NAN, NAN], [1, NAN, NAN], [NAN] * 3], [SEX, RACE, BOTH])
    found, inferred = infer_groups(data, FixedAuxiliary([outputs]), fitting)
    assert found.c.tolist() == [[1, 0, 2], [1, 0, 2], [1, 1, 3]]
    assert inferred[:, 2].all()
    unseen, inferred = infer_groups(data, FixedAuxiliary([outputs]), fitting[:2])  # no men to be compared with
    assert unseen.c[:, 2].isnan().all()
    assert not inferred[:, 2].any()
