from dataclasses import dataclass

import numpy as np
import pytest
import torch
from populations import individuals, linear

from fairfox.auxiliary.model import FixedAuxiliary
from fairfox.data.dataset import Dataset
from fairfox.errors import DataError
from fairfox.maps.move import MoveMap
from fairfox.maps.protocol import Mapped, RefittableMap, check_both_groups, fit_maps, resample
from fairfox.maps.rank import RankMap


@dataclass
class Noted:
    """A map of one's own that notes what it was fitted on."""

    seen: torch.Tensor | None = None

    def fit(self, data: Dataset) -> "Noted":
        self.seen = data.x
        return self

    def map(self, data: Dataset) -> Mapped:
        return Mapped(data.x, torch.zeros(len(data), dtype=torch.bool))


DATA = individuals(torch.arange(20.0)[:, None], c=[0.0] * 15 + [1.0] * 4 + [float("nan")])


def test_resampling_draws_with_replacement_within_each_group():
    drawn = resample(DATA, generator=torch.Generator().manual_seed(0))
    np.testing.assert_array_equal(drawn.c, DATA.c)
    assert set(drawn.x[:15, 0].tolist()) < set(range(15))
    assert set(drawn.x[15:19, 0].tolist()) <= set(range(15, 19))
    assert drawn.x[19, 0] == 19


def test_one_fit_uses_the_rows_as_they_are_and_leaves_the_prototype_alone():
    prototype = Noted()
    (fitted,) = fit_maps(prototype, DATA, 1, seed=0)
    assert isinstance(fitted, Noted)
    assert torch.equal(fitted.seen, DATA.x)
    assert prototype.seen is None


def test_several_fits_use_resampled_rows_decided_by_the_seed():
    first, second = ([one.seen for one in fit_maps(Noted(), DATA, 3, seed=7)] for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert not torch.equal(first[0], first[1])
    assert not torch.equal(first[0], fit_maps(Noted(), DATA, 3, seed=8)[0].seen)


def test_a_map_that_can_be_fitted_many_times_at_once_is():
    auxiliary = FixedAuxiliary([linear(1.0), linear(2.0)])
    assert isinstance(MoveMap(auxiliary=auxiliary), RefittableMap)
    assert not isinstance(RankMap(), RefittableMap)
    data = individuals(torch.randn(20, 1, generator=torch.Generator().manual_seed(0)).double())
    assert len(fit_maps(MoveMap(auxiliary=auxiliary), data, 5, seed=0)) == 2
    assert len(fit_maps(MoveMap(auxiliary=auxiliary), data, 1, seed=0)) == 1


def test_fitting_leaves_the_global_generator_alone():
    before = torch.get_rng_state()
    fit_maps(RankMap(), DATA, 3, seed=0)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("prototype", [RankMap(), MoveMap(auxiliary=FixedAuxiliary([linear(1.0)]))])
def test_both_groups_are_needed(prototype):
    check_both_groups(DATA, 0)
    with pytest.raises(
        DataError, match="Nobody in the fitting rows belongs to 'male' of 'sex'; both groups are needed"
    ):
        prototype.fit(individuals(torch.zeros(3, 1).double(), c=[0.0, 0.0, float("nan")]))
