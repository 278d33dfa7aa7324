from dataclasses import dataclass
from typing import Any

import pytest
import torch
from populations import Function, individuals, linear
from torch import Tensor

from fairfox.data.dataset import Dataset
from fairfox.fairtests.effect import Effect
from fairfox.maps.protocol import Mapped

DATA = individuals(torch.tensor([[0.0], [1.0], [5.0], [7.0]]).double(), c=[0, 0, 1, 1])


@dataclass
class Shift:
    """A map of one's own: everyone is moved by a constant, and some are not mapped."""

    by: float = 1.0
    skipped: int | None = None
    variable: int = 0

    def fit(self, data: Dataset) -> "Shift":
        return self

    def map(self, data: Dataset, to: Tensor | None = None) -> Mapped:
        gone = torch.zeros(len(data), dtype=torch.bool)
        if self.skipped is not None:
            gone[self.skipped] = True
        return Mapped(data.x + self.by, gone, {"has no counterpart": gone})


def measured(model: Any, data: Dataset = DATA, **options: Any) -> Any:
    return Effect(**({"refits": 1} | options)).fit(data).measure(model, data)


def test_the_effect_is_the_change_of_the_prediction_under_the_map():
    found = measured(linear(0.5))
    assert found.effect.tolist() == [2.5, 3.0, -2.5, -3.0]  # 0 -> 5, 1 -> 7, 5 -> 0, 7 -> 1; halved
    assert found.score.tolist() == [2.5, 3.0, 2.5, 3.0]
    assert found.klass.tolist() == [1, 1, 0, 0]  # towards the other group
    assert not found.abstained.any()
    assert found.counterfactual[:, 0].tolist() == [5, 7, 0, 1]


def test_who_is_not_mapped_is_abstained_with_the_reason():
    found = measured(linear(2.0), map=Shift(skipped=2))
    assert found.abstained.tolist() == [False, False, True, False]
    assert found.reasons == (None, None, "has no counterpart", None)
    assert found.score.tolist() == [2.0, 2.0, 0.0, 2.0]


def test_one_extra_prediction_is_asked_for_per_person_and_refit():
    model = Function(lambda x: 0.5 * x[:, :1], differentiable=False)
    test = Effect(refits=3).fit(DATA)
    here = 0.5 * DATA.x[:, 0]
    found = test.measure(model, DATA, predictions=here)
    assert sum(model.calls) == 3 * 4
    torch.testing.assert_close(found.effect, test.measure(linear(0.5), DATA).effect)


def test_equal_numbers_are_shared_out_over_what_stands_at_their_ranks():
    # 60 of 100 women and 40 of 100 men have 0, the others 1: a third of the women with 0 would have 1, as men
    women, men = torch.arange(100) >= 60, torch.arange(100) >= 40
    repeated = torch.cat([women, men]).double()[:, None]
    nobodys = torch.linspace(0, 1, 200).double()[:, None]  # makes people differ, so that they differ in their draws
    data = individuals(torch.cat([repeated, nobodys], dim=1), torch.arange(200) // 100)
    found = measured(linear(1.0, 0.0), data, refits=1).effect
    assert float(found[:60].mean()) == pytest.approx(1 / 3, abs=0.03)
    assert float(found[60:100].abs().max()) == 0
    assert float(found[140:].mean()) == pytest.approx(-1 / 3, abs=0.03)
    assert float(found[100:140].abs().max()) == 0
