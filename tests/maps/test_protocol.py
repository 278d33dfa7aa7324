from dataclasses import dataclass, replace

import pytest
import torch
from populations import individuals

from fairfox.data.dataset import Dataset, Protected
from fairfox.errors import DataError, OptionError, ShapeError
from fairfox.maps.protocol import Mapped, check_groups_present, fit_maps, number_reached, where_to
from fairfox.maps.rank import RankMap


@dataclass
class Noted:
    """A map of one's own that notes what it was fitted on."""

    seen: torch.Tensor | None = None
    variable: int = 0

    def fit(self, data: Dataset) -> "Noted":
        self.seen = data.x
        return self

    def map(self, data: Dataset, to: torch.Tensor | None = None) -> Mapped:
        return Mapped(data.x, torch.zeros(len(data), dtype=torch.bool))


DATA = individuals(torch.arange(20.0)[:, None], c=[0.0] * 15 + [1.0] * 4 + [float("nan")])


def test_one_fit_uses_the_rows_as_they_are_and_leaves_the_prototype_alone():
    prototype = Noted()
    ((fitted,),) = fit_maps(prototype, DATA, 1, seed=0)
    assert isinstance(fitted, Noted)
    assert torch.equal(fitted.seen, DATA.x)
    assert prototype.seen is None


def test_several_fits_use_resampled_rows_decided_by_the_seed():
    first, second = ([one.seen for one in fit_maps(Noted(), DATA, 3, seed=7)[0]] for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert not torch.equal(first[0], first[1])
    assert not torch.equal(first[0], fit_maps(Noted(), DATA, 3, seed=8)[0][0].seen)


SEX, RACE, AGE = Protected("sex"), Protected("race", "categorical", ("a", "b", "c")), Protected("age", "continuous", ())


def several() -> Dataset:
    c = torch.stack([torch.arange(30) % 2, torch.arange(30) % 3, torch.arange(30)], dim=1).float()
    return Dataset.from_arrays(torch.arange(60.0).reshape(30, 2), c=c, protected=[SEX, RACE, AGE])


def test_every_protected_variable_has_its_maps():
    prototype = RankMap(hold_others=True)
    fitted = fit_maps(prototype, several(), 2, seed=0)
    assert [[one.variable for one in maps] for maps in fitted] == [[0, 0], [1, 1], [2, 2]]
    assert all(one.hold_others for maps in fitted for one in maps)
    assert prototype == RankMap(hold_others=True)


def test_the_maps_of_all_variables_learn_from_the_same_rows():
    data = several()
    twice = Dataset(
        x=data.x, c=data.c[:, [1, 1]], protected=(RACE, Protected("r", "categorical", RACE.levels)),
        features=data.features,
    )  # fmt: skip
    to = torch.zeros(30)
    for first, second in zip(*fit_maps(RankMap(), twice, 3, seed=0), strict=True):
        assert torch.equal(first.map(twice, to).rows, second.map(twice, to).rows)


def test_weighted_rows_are_resampled_in_proportion_even_once():
    weights = torch.zeros(20)
    weights[[0, 15]] = 1.0  # nobody else counts
    data = Dataset(x=DATA.x, c=DATA.c, protected=DATA.protected, features=DATA.features, weights=weights)
    ((fitted,),) = fit_maps(Noted(), data, 1, seed=0)
    # half of all weight each, and the last group has none
    assert fitted.seen[:, 0].tolist() == [0.0] * 10 + [15.0] * 10


def test_a_class_without_people_and_a_number_that_does_not_vary_are_refused():
    check_groups_present(several(), 1)
    check_groups_present(several(), 2)
    some = several()[torch.tensor([0, 1, 3, 4])]  # races a and b only
    with pytest.raises(DataError, match="Nobody in the fitting rows belongs to 'c' of 'race'"):
        RankMap(variable=1).fit(some)
    with pytest.raises(DataError, match="The fitting rows have fewer than two values of 'age'; at least"):
        RankMap(variable=2).fit(several()[:1])


def test_a_number_in_a_wide_gap_goes_on_to_the_next_value_that_anybody_has():
    values = torch.tensor([0.0, 1.0, 1.2, 5.0])
    c = torch.tensor([0.0, 0.0, 1.2, 5.0, 5.0, 1.0, float("nan"), 0.0])
    step = torch.tensor([1.0, 1.1, 1.5, -1.5, 0.1, -1.5, 1.0, 0.9])
    # 1, 1.1 and 0.9 are near somebody; 2.7 goes on to 5, 3.5 down to 1.2; 5.1, -0.5 and the unknown are nowhere
    expected = torch.tensor([1.0, 1.1, 5.0, 1.2, float("nan"), float("nan"), float("nan"), 0.9])
    torch.testing.assert_close(number_reached(c, step, values), expected, equal_nan=True)


def test_everyone_goes_to_the_other_of_two_groups_or_to_their_destination():
    c = torch.tensor([0.0, 1.0, float("nan")])
    data = individuals(torch.zeros(3, 1), c=c)
    torch.testing.assert_close(where_to(data, 0, None), torch.tensor([1.0, 0.0, float("nan")]), equal_nan=True)
    to = where_to(data, 0, torch.tensor([1, 1, 0]))
    assert to.dtype == c.dtype
    assert to.tolist() == [1, 1, 0]
    with pytest.raises(ShapeError, match=r"`to` has shape \(2,\); expected \(3,\): one destination each"):
        where_to(data, 0, torch.ones(2))


@pytest.mark.parametrize(
    ("protected", "found"), [(RACE, "'race' has 3 classes"), (Protected("age", "continuous", ()), "'age' is a number")]
)
def test_where_there_is_no_one_other_group_destinations_are_needed(protected: Protected, found: str):
    data = replace(individuals(torch.zeros(6, 1)), protected=(protected,))
    with pytest.raises(OptionError, match=f"{found}; give destinations in `to`"):
        where_to(data, 0, None)
