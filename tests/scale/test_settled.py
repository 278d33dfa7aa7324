import json

import pytest
import torch

from fairfox.certainty import certainty
from fairfox.data.dataset import Dataset, Protected
from fairfox.fairtests.protocol import combine
from fairfox.scale.settled import Scatter, Settled, _quarters, common_scatter, group_names, group_places, sureness
from fairfox.verdicts.intervals import standard_errors


def measured(refits: torch.Tensor):
    """People of two groups with these effects (N, M)."""
    data = Dataset.from_arrays(torch.zeros(len(refits), 1), torch.arange(len(refits)) % 2)
    return combine(refits.T[..., None], data, contrasts=(), signed=True)


@pytest.mark.parametrize("fits", [2, 5])
def test_with_the_scatter_of_the_same_people_everyone_is_as_sure_as_in_memory(fits: int):
    refits = torch.randn(400, fits, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 0.005 + 0.08
    refits[0] = 0.1  # without scatter of one's own
    refits[1] = torch.nan  # abstained
    refits[2:50] -= 0.06
    found = measured(refits)
    scatter = common_scatter(found)
    sure, expected = sureness(found, 0.05, scatter), certainty(found, 0.05, 0.1)
    known = ~found.abstained
    torch.testing.assert_close(torch.stack([sure.lower, sure.upper], 1)[known], expected.interval[known])
    torch.testing.assert_close(sure.p_values[known], expected.p_values[known])
    assert torch.equal(sure.confident, expected.confident_flags)
    assert 0 < int(sure.confident.sum()) < 400


def test_part_of_the_people_are_as_sure_as_with_everyone_beside_them():
    refits = torch.randn(100, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    scatter = common_scatter(measured(refits))
    whole, half = sureness(measured(refits), 0.5, scatter), sureness(measured(refits[50:]), 0.5, scatter)
    assert torch.equal(whole.lower[50:], half.lower)
    own, _ = standard_errors(refits[50:])  # without them, what is common would be another
    assert not torch.allclose(own * 1.5, half.upper - half.lower)


def test_one_refit_tells_nothing_and_no_scatter_is_certain():
    assert sureness(measured(torch.ones(4, 1)), 0.5, Scatter(0.0, 0.0)) is None
    assert common_scatter(measured(torch.ones(4, 1))) == (0.0, 0.0)
    same = measured(torch.tensor([[0.2, 0.2], [0.6, 0.6]]))
    sure = sureness(same, 0.5, common_scatter(same))
    assert sure.p_values.tolist() == [1.0, 0.0]
    assert sure.confident.tolist() == [False, True]


def test_numbers_have_groups_between_cuts_and_classes_their_own():
    age, sex = Protected("age", "continuous", ()), Protected("sex", levels=("f", "m"))
    assert group_names(age, [30.0, 45.0]) == ("below 30", "30 to below 45", "45 and above")
    places = group_places(age, torch.tensor([29.9, 30.0, 44.0, 45.0, torch.nan]), [30.0, 45.0])
    assert places.tolist() == [0, 1, 1, 2, -1]
    assert group_names(age, []) == ("any age",)
    assert group_names(sex, []) == ("f", "m")
    assert group_places(sex, torch.tensor([1.0, torch.nan, 0.0]), []).tolist() == [1, -1, 0]


def test_what_was_settled_survives_json():
    settled = Settled(0.05, "u", {"returns": "value"}, (Scatter(0.1, 2.0),), (0.5,), ((1.0, 2.0), ()), 20, 0.1)
    assert Settled.of_dict(json.loads(json.dumps(settled.as_dict()))) == settled


def test_cuts_are_as_short_as_tells_them_apart():
    ages = torch.tensor([23.456, 31.234, 38.765, 44.321, 52.987])
    close = torch.tensor([1001.0, 1002.0, 1003.0, 1004.0, 1005.0])
    number = Protected("age", "continuous", ())
    assert _quarters(number, ages) == (31.0, 39.0, 44.0)
    assert _quarters(number, close) == (1002.0, 1003.0, 1004.0)
