from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

import fairfox.crossfit
from fairfox.auxiliary.linear import LinearMember
from fairfox.auxiliary.model import AuxiliaryModel
from fairfox.crossfit import cross_fit
from fairfox.data.dataset import Dataset
from fairfox.errors import DataError
from fairfox.fairtests.registry import make_test

TARGET = LinearMember(torch.tensor([[1.0, -0.5]]), torch.zeros(1))


def people(n: int = 100, seed: int = 0) -> Dataset:
    generator = torch.Generator().manual_seed(seed)
    c = (torch.arange(n) % 2).float()
    x = torch.randn(n, 2, generator=generator) + c[:, None]
    data = Dataset.from_arrays(x, c=c)
    return Dataset(x=data.x, c=data.c, protected=data.protected, features=data.features, ids=np.arange(n))


def run(data: Dataset, reference: Dataset | None = None, **options: Any) -> Any:
    settings = {"refits": 2, "folds": 4, "seed": 0, "batch_size": 4096} | options
    return cross_fit(TARGET, data, reference, TARGET(data.x)[:, 0], "rank", progress=lambda *_: None, **settings)


@dataclass
class Watch:
    """Records who was learnt from and who was scored, around the real classes."""

    monkeypatch: pytest.MonkeyPatch

    def __post_init__(self) -> None:
        self.trained: list[set[int]] = []
        self.fitted: list[set[int]] = []
        self.scored: list[tuple[int, set[int]]] = []
        watch = self

        class Watched(AuxiliaryModel):
            def fit(self, data: Dataset) -> AuxiliaryModel:
                watch.trained.append(set(data.ids.tolist()))
                return super().fit(data)

        def make(name: str, **options: Any) -> Any:
            test = make_test(name, **options)
            fit, measure = test.fit, test.measure

            def watched_fit(data: Dataset) -> Any:
                watch.fitted.append(set(data.ids.tolist()))
                return fit(data)

            def watched_measure(model: Any, data: Dataset, **more: Any) -> Any:
                watch.scored.append((len(watch.trained) - 1, set(data.ids.tolist())))
                return measure(model, data, **more)

            test.fit, test.measure = watched_fit, watched_measure
            return test

        self.monkeypatch.setattr(fairfox.crossfit, "AuxiliaryModel", Watched)
        self.monkeypatch.setattr(fairfox.crossfit, "make_test", make)


def test_nobody_is_scored_by_an_auxiliary_or_map_that_saw_them(monkeypatch: pytest.MonkeyPatch):
    watch = Watch(monkeypatch)
    run(people())
    assert len(watch.trained) == 4
    for fold, scored in watch.scored:
        assert scored
        assert not scored & watch.trained[fold]
        assert scored | watch.trained[fold] == set(range(100))
    for fitted, (fold, _) in zip(watch.fitted, watch.scored, strict=True):
        assert fitted == watch.trained[fold]


def test_with_a_reference_everyone_is_scored_by_the_reference(monkeypatch: pytest.MonkeyPatch):
    watch = Watch(monkeypatch)
    reference = people(80, seed=1)
    run(people(60), reference)
    assert watch.trained == [set(range(80))]
    assert all(scored == set(range(60)) for _, scored in watch.scored)


def test_parts_come_back_in_the_order_of_the_table():
    data = people()
    readings = run(data)
    mapped = readings.main.counterfactuals.mean(0)
    effect = TARGET(mapped)[:, 0] - TARGET(data.x)[:, 0]  # linear: the mean effect is the effect of the mean row
    torch.testing.assert_close(readings.main.signed, effect, atol=1e-5, rtol=0)
    assert torch.equal(readings.total.signed, readings.main.signed)


def test_identical_seeds_give_identical_readings_and_others_differ():
    one, two, other = run(people()), run(people()), run(people(), seed=1)
    assert torch.equal(one.main.refits, two.main.refits)
    assert torch.equal(one.direct.refits, two.direct.refits)
    assert one.alignment == two.alignment
    assert not torch.equal(one.main.refits, other.main.refits)


def test_a_group_too_small_for_the_folds_is_refused():
    data = people(100)
    few = data[torch.cat([torch.arange(0, 100, 2), torch.tensor([1, 3, 5])])]
    with pytest.raises(DataError, match="Group '1' of 'c' has 3 people"):
        run(few)


def test_many_people_cost_less_and_get_about_the_same_readings(monkeypatch: pytest.MonkeyPatch):
    made: list[tuple[str, Any]] = []

    def make(name: str, **options: Any) -> Any:
        made.append((name, options.get("options")))
        return make_test(name, **options)

    monkeypatch.setattr(fairfox.crossfit, "make_test", make)
    data = people(800)
    usual = run(data)
    assert {settings for _, settings in made} == {None}
    monkeypatch.setattr(fairfox.crossfit, "_MANY", 799)
    made.clear()
    quick = run(data)
    assert made[:2] == [("rank", None), ("move-direct", {"steps": 2})]
    torch.testing.assert_close(quick.main.refits, usual.main.refits, rtol=1e-5, atol=1e-5)  # drawn alike
    torch.testing.assert_close(quick.main.counterfactuals, usual.main.counterfactuals, rtol=1e-5, atol=1e-5)
    same = torch.corrcoef(torch.stack([quick.direct.signed, usual.direct.signed]))[0, 1]
    assert float(same) > 0.95
    assert quick.quality[0].value == pytest.approx(usual.quality[0].value, abs=0.02)
    assert quick.alignment[0].value == pytest.approx(usual.alignment[0].value, abs=0.1)


def test_a_direct_reading_that_was_asked_for_takes_all_its_steps(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(fairfox.crossfit, "_MANY", 10)
    found: list[int] = []

    def make(name: str, **options: Any) -> Any:
        test = make_test(name, **options)
        found.append(getattr(getattr(test, "map", None), "steps", 0))
        return test

    monkeypatch.setattr(fairfox.crossfit, "make_test", make)
    run(people(), people(seed=1), options={"move-direct": {"steps": 5}})
    assert found == [0, 5]
    found.clear()
    data = people()
    cross_fit(
        TARGET, data, people(seed=1), TARGET(data.x)[:, 0], "move-direct",
        refits=2, folds=4, seed=0, batch_size=4096, progress=lambda *_: None,
    )  # fmt: skip
    assert found == [8, 0]


def test_the_alignment_share_of_many_people_is_read_off_a_part_of_them(monkeypatch: pytest.MonkeyPatch):
    asked: list[int] = []
    read = fairfox.crossfit.model_alignment

    def watched(target: Any, people: Dataset, *rest: Any, **options: Any) -> Any:
        asked.append(len(people))
        return read(target, people, *rest, **options)

    monkeypatch.setattr(fairfox.crossfit, "model_alignment", watched)
    monkeypatch.setattr(fairfox.crossfit, "_MANY", 99)
    monkeypatch.setattr(fairfox.crossfit, "_ALIGNED", 40)
    run(people(100))
    assert asked == [10, 10, 10, 10]
