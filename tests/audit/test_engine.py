"""The engine of every audit: who is learnt from, who is measured, and what comes back in which order."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

import fairfox.fairtests.fitted as engine
import fairfox.fairtests.readings as readings
from fairfox.auxiliary.linear import LinearMember
from fairfox.auxiliary.model import AuxiliaryModel
from fairfox.choices.tests import FAIR_TESTS
from fairfox.data.dataset import Dataset, Protected
from fairfox.errors import OptionError
from fairfox.fairtests.registry import applicable, make_test
from fairfox.options import AuditOptions
from fairfox.statistics.groups import agreement

TARGET = LinearMember(torch.tensor([[1.0, -0.5]]), torch.zeros(1))


def people(n: int = 100, seed: int = 0) -> Dataset:
    generator = torch.Generator().manual_seed(seed)
    c = (torch.arange(n) % 2).float()
    x = torch.randn(n, 2, generator=generator) + c[:, None]
    data = Dataset.from_arrays(x, c=c)
    return Dataset(x=data.x, c=data.c, protected=data.protected, features=data.features, ids=np.arange(n))


def run(data: Dataset, reference: Dataset | None = None, *, others: Any = (), **options: Any) -> readings.Readings:
    chosen = AuditOptions(**{"protected": "c", "refits": 2, "folds": 4} | options)
    folds = engine.fit_folds(data, reference, None, chosen, others=others, progress=lambda *_: None)  # type: ignore[arg-type]
    here = TARGET(data.x)[:, 0]
    return readings.measure_folds(folds, TARGET, data, here, others=others, progress=lambda *_: None)


@dataclass
class Watch:
    """Records who was learnt from and who was measured, around the real classes."""

    monkeypatch: pytest.MonkeyPatch

    def __post_init__(self) -> None:
        self.trained: list[set[int]] = []
        self.fitted: list[set[int]] = []
        self.pairs: list[tuple[set[int], set[int]]] = []  # learnt from, measured
        watch = self

        class Watched(AuxiliaryModel):
            def fit(self, data: Dataset) -> AuxiliaryModel:
                watch.trained.append(set(data.ids.tolist()))
                return super().fit(data)

        def make(name: str, **options: Any) -> Any:
            test = make_test(name, **options)
            fit, measure = test.fit, test.measure

            def watched_fit(data: Dataset) -> Any:
                test.learnt = set(data.ids.tolist())
                watch.fitted.append(test.learnt)
                fit(data)
                return test

            def watched_measure(model: Any, data: Dataset, **more: Any) -> Any:
                watch.pairs.append((test.learnt, set(data.ids.tolist())))
                return measure(model, data, **more)

            test.fit, test.measure = watched_fit, watched_measure
            return test

        self.monkeypatch.setattr(engine, "AuxiliaryModel", Watched)
        self.monkeypatch.setattr(engine, "make_test", make)


@pytest.mark.parametrize("test", ["rank", "move"])
def test_nobody_is_scored_by_a_map_that_saw_them_nor_by_its_auxiliary(monkeypatch: pytest.MonkeyPatch, test: str):
    watch = Watch(monkeypatch)
    run(people(), test=test)
    assert len(watch.trained) == 4  # rank has no auxiliary: they are those of the alignment share, 12 in four fits
    assert test == "rank" or all(fitted in watch.trained for fitted in watch.fitted)
    assert len(watch.pairs) == (8 if test == "rank" else 12)  # with the direct and the total reading, in four folds
    for learnt, measured in watch.pairs:
        assert measured
        assert not measured & learnt
        assert measured | learnt == set(range(100))


@pytest.mark.brief
def test_the_folds_of_a_protected_number_depend_on_the_seed():
    data = people()
    age = replace(data, c=torch.arange(100.0)[:, None], protected=(Protected("age", "continuous", ()),))
    first, other = (
        engine.fit_folds(age, None, None, AuditOptions(protected="age", refits=1, seed=seed), progress=lambda *_: None)
        for seed in (0, 1)
    )
    assert not any(torch.equal(one.rows, two.rows) for one, two in zip(first, other, strict=True))


def test_with_a_reference_everyone_is_scored_by_the_reference(monkeypatch: pytest.MonkeyPatch):
    watch = Watch(monkeypatch)
    run(people(60), people(80, seed=1))
    assert watch.trained == [set(range(80))] * 4
    assert all(measured == set(range(60)) for _, measured in watch.pairs)


def test_people_come_back_in_the_order_of_the_table():
    data = people()
    readings = run(data)
    mapped = readings.main.counterfactuals.mean(0)
    effect = TARGET(mapped)[:, 0] - TARGET(data.x)[:, 0]  # linear: the mean effect is the effect of the mean row
    torch.testing.assert_close(readings.main.effect, effect, atol=1e-5, rtol=0)
    assert torch.equal(readings.total.effect, readings.main.effect)
    assert readings.moved is readings.main


def test_a_test_without_a_map_shows_the_rows_of_the_total_reading():
    readings = run(people(), test="faux")
    assert readings.main.counterfactuals is None
    assert readings.moved is readings.total
    assert readings.total.counterfactuals is not None


def test_many_people_get_about_the_same_readings_in_fewer_steps(monkeypatch: pytest.MonkeyPatch):
    data = people(800)
    usual = run(data)
    monkeypatch.setattr(engine, "_MANY", 500)
    quick = run(data)
    torch.testing.assert_close(quick.main.refits, usual.main.refits, rtol=1e-5, atol=1e-5)  # drawn alike
    same = torch.corrcoef(torch.stack([quick.direct.effect, usual.direct.effect]))[0, 1]
    assert 0.95 < float(same) < 1
    assert quick.alignment[0].value == pytest.approx(usual.alignment[0].value, abs=0.1)


def test_another_test_that_cannot_be_run_is_left_out_with_its_reason():
    readings = run(people(), others=["fta", "unfair_map"])
    assert list(readings.others) == ["rank", "fta"]
    assert set(readings.failures) == {"unfair_map"}  # there are no labels
    assert set(readings.seconds) == {"rank", "fta"}


def where_everything_is_given(*protected: Protected, **options: Any) -> tuple[list[str], dict[str, str]]:
    data = Dataset.from_arrays(torch.zeros(4, 1), torch.zeros(4, len(protected)), protected=protected, y=[0, 1, 0, 1])
    data = replace(data, withheld=torch.tensor([True]))
    chosen = AuditOptions(protected="sex", test="all", settings={"graph": {"x0": ["sex"]}}, **options)
    return applicable(chosen, data, gradient=True)


SEX, AGE = Protected("sex"), Protected("age", "continuous", ())


def test_everything_but_lic_a_and_what_is_slow_applies_where_everything_is_given():
    tests, skipped = where_everything_is_given(SEX)
    assert tests == [name for name, info in FAIR_TESTS.items() if name not in ("lic", "fliptest") and not info.aligned]
    assert skipped == {
        "lic": "it needs the truth, which only generated people have",
        "fliptest": "it takes minutes; run it by its name (--test fliptest)",
    }


def test_what_is_slow_is_run_beside_the_others_where_it_is_named():
    plain = Dataset.from_arrays(torch.zeros(4, 1), [0, 1, 0, 1])
    chosen = AuditOptions(protected="c", test="all", settings={"fliptest.steps": 5})
    assert "fliptest" in applicable(chosen, plain, gradient=True)[0]


def test_tests_that_would_take_too_long_are_left_out_and_the_chosen_one_is_run():
    found = run(people(), others=["rank", "move", "fta"], max_minutes=1e-6)
    assert set(found.others) == {"rank"}
    assert set(found.failures) == {"move", "fta"}
    assert found.failures["fta"] == "it would take longer than 1e-06 minutes in total (--max-minutes)"


def test_what_is_lacking_leaves_tests_out_with_a_reason():
    plain = Dataset.from_arrays(torch.zeros(4, 1), [0, 1, 0, 1])
    _, skipped = applicable(AuditOptions(protected="c", test="all"), plain, gradient=False)
    lacking = {"faux+ig", "faux+ig/s", "unfair_map", "unawareness", "counterfactual"}
    assert set(skipped) == {"lic", "fliptest", *lacking}
    assert skipped["faux+ig"] == "the model is not differentiable"
    _, skipped = where_everything_is_given(SEX, AGE)
    assert skipped["transport"] == skipped["fliptest"] == "it compares groups, but 'age' is a number"
    _, skipped = where_everything_is_given(SEX, reference_group="1")
    assert set(skipped) == {"lic", "fliptest", "fta", "fta+linear", "unfair_map"}
    tests, skipped = applicable(AuditOptions(protected="c", test="all", given="x0"), plain, gradient=True)
    assert tests == ["rank"]
    assert skipped["move"] == skipped["faux"] == "it takes no given columns"


def test_settings_of_a_test_that_is_not_run_are_refused():
    plain = Dataset.from_arrays(torch.zeros(4, 1), [0, 1, 0, 1])
    chosen = AuditOptions(protected="c", test="all", settings={"unfair_map.steps": 5})
    with pytest.raises(OptionError, match="unfair_map has settings but is not run"):
        applicable(chosen, plain, gradient=True)


def test_agreement_is_spearman_over_the_people_whom_both_judge():
    scores = torch.randn(50, 3, generator=torch.Generator().manual_seed(0)).double()
    scores[:10, 1] = math.nan
    found = agreement(scores)
    assert found[0, 2] == pytest.approx(spearmanr(scores[:, 0], scores[:, 2]).statistic)
    assert found[1, 0] == found[0, 1] == pytest.approx(spearmanr(scores[10:, 0], scores[10:, 1]).statistic)
    torch.testing.assert_close(found.diagonal(), torch.ones(3).double())
    nobody = torch.tensor([[1.0, math.nan], [2.0, math.nan], [math.nan, 1.0]])
    assert agreement(nobody).isnan().all()
