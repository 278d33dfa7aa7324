"""Every fairness test with every kind of protected variable: many classes, a number, several, crossings."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from populations import curved, encoded

from fairfox.auxiliary.model import AuxiliaryModel, FixedAuxiliary
from fairfox.choices.tests import FAIR_TESTS, lookup_test
from fairfox.data.dataset import Dataset
from fairfox.errors import OptionError
from fairfox.fairtests.registry import make_test
from fairfox.options import check_compares

PEOPLE = 240
KINDS: dict[str, dict[str, Any]] = {
    "three classes": {"protected": ["race"], "contrasts": "all"},
    "a number": {"protected": ["age"]},
    "two": {"protected": ["sex", "race"]},
    "several": {"protected": ["sex", "race", "age"]},
    "crossed": {"protected": ["sex", "race"], "intersections": True},
    "a reference group": {"protected": ["race"], "reference_group": ["b"]},
}
CANNOT_HOLD = [name for name, what in FAIR_TESTS.items() if not what.holds]


OPTIONS: dict[str, dict[str, object]] = {  # what a test needs, and less work than it would do
    "fliptest": {"steps": 20, "width": 8},
    "unfair_map": {"steps": 5},
}


def individuals(name: str, kind: str) -> Dataset:
    """Return people whose income, years and job depend on sex, race and age."""
    return _individuals(kind, with_protected=lookup_test(name).needs_input)


@cache
def _individuals(kind: str, *, with_protected: bool) -> Dataset:
    rng = np.random.default_rng(0)
    sex, race, age = rng.integers(0, 2, PEOPLE), rng.integers(0, 3, PEOPLE), rng.uniform(18, 70, PEOPLE).round()
    table = {
        "sex": np.where(sex == 1, "m", "f"),
        "race": np.array(["a", "b", "c"])[race],
        "age": age,
        "income": 0.8 * sex + 0.5 * race + 0.03 * age + rng.normal(0, 1, PEOPLE),
        "years": 0.06 * age + rng.normal(0, 1, PEOPLE),
        "job": np.array(["clerk", "nurse", "smith"])[(sex + rng.integers(0, 2, PEOPLE)) % 3],
    }
    table["granted"] = (table["income"] > 2).astype(int)
    columns = [*(KINDS[kind]["protected"] if with_protected else []), "income", "years", "job"]
    return encoded(pa.table(table), **KINDS[kind], label="granted", columns=columns)[1]


@cache
def auxiliary(name: str, kind: str) -> FixedAuxiliary:
    trained = AuxiliaryModel(refits=2, width=8, depth=1, max_epochs=6).fit(individuals(name, kind))
    return FixedAuxiliary(trained.members, trained.held_out)


def made(name: str, kind: str, **more: Any) -> Any:
    own = OPTIONS.get(name.removesuffix("/a"))
    if lookup_test(name).needs_graph:  # all that is protected causes all that is not
        own = {"graph": dict.fromkeys(["income", "years", "job"], KINDS[kind]["protected"])}
    return make_test(name, auxiliary=auxiliary(name, kind), refits=2, settings=own, **more)


@cache
def fitted(name: str, kind: str) -> Any:
    return made(name, kind).fit(individuals(name, kind))


@cache
def measured(name: str, kind: str) -> Any:
    data = individuals(name, kind)
    return fitted(name, kind).measure(curved(data.x.shape[1]), data)


CASES = [
    (name, kind)
    for name, what in FAIR_TESTS.items()
    for kind in KINDS
    if not what.needs_truth and not (what.only_groups and "age" in KINDS[kind]["protected"])
]
every = pytest.mark.parametrize(("name", "kind"), CASES)
each = pytest.mark.parametrize("name", [name for name, what in FAIR_TESTS.items() if not what.needs_truth])


@every
def test_everyone_gets_a_finite_score_and_the_worst_case_is_named(name: str, kind: str):
    data, found = individuals(name, kind), measured(name, kind)
    assert torch.isfinite(found.score).all()
    assert float(found.score.max()) > 0
    assert not found.abstained.any()
    assert ((found.variable >= 0) & (found.variable < len(data.protected))).all()
    for v, p in enumerate(data.protected):
        classes = found.klass[found.variable == v]
        assert (classes < max(len(p.levels), 2)).all()
    torch.testing.assert_close(fitted(name, kind).score(curved(data.x.shape[1]), data), found.score)


@every
def test_the_score_is_the_worst_over_the_variables(name: str, kind: str):
    data, found = individuals(name, kind), measured(name, kind)
    each = torch.stack([found.of_variable(v, data).score for v in range(len(data.protected))], dim=1)
    torch.testing.assert_close(each.amax(1), found.score)
    torch.testing.assert_close(each.gather(1, found.variable[:, None])[:, 0], found.score)


@every
def test_people_of_unknown_groups_do_not_disturb_the_others(name: str, kind: str):
    data, found = individuals(name, kind), measured(name, kind)
    c = data.c.clone()
    c[3] = float("nan")
    blind = fitted(name, kind).measure(curved(data.x.shape[1]), replace(data, c=c))
    assert blind.abstained[3].item() is (found.effect is not None)
    others = torch.arange(PEOPLE) != 3
    torch.testing.assert_close(blind.score[others], found.score[others], atol=1e-6, rtol=1e-4)


@each
def test_others_are_held_or_a_test_that_can_is_named(name: str):
    if name in CANNOT_HOLD:
        with pytest.raises(OptionError, match="use rank, move or faux"):
            made(name, "two", hold_others=True)
        return
    data = individuals(name, "two")
    found = made(name, "two", hold_others=True).fit(data).measure(curved(data.x.shape[1]), data)
    assert torch.isfinite(found.score).all()
    assert float(found.abstained.double().mean()) < 0.1
    if not name.startswith(("faux", "counterfactual", "unawareness")):  # which hold the others anyway
        assert not torch.allclose(found.score, measured(name, "two").score, atol=1e-4)


@pytest.mark.parametrize(("name", "kind"), [(name, kind) for name, kind in CASES if not name.endswith("/a")])
def test_given_columns_are_kept_or_a_test_that_keeps_them_is_named(name: str, kind: str):
    if not lookup_test(name).gives:
        with pytest.raises(OptionError, match=r"takes no given columns.*rank"):
            made(name, kind, given=["income", "job"])
        return
    data = individuals(name, kind)
    test = made(name, kind, given=["income", "job"]).fit(data)
    found = test.measure(curved(data.x.shape[1]), data)
    assert torch.isfinite(found.score).all()
    assert float(found.abstained.double().mean()) < 0.2
    kept = [f.columns for f in data.features if f.name in ("income", "job")]
    for columns in kept:
        rows = test.counterfactuals(data, found.worst)[:, :, columns]
        assert torch.equal(rows, data.x[:, columns].expand_as(rows))


@each
def test_with_a_reference_group_people_are_compared_with_it_only(name: str):
    data, found = individuals(name, "a reference group"), measured(name, "a reference group")
    if found.effect is None:
        with pytest.raises(OptionError, match="use rank, move or faux with a reference group"):
            check_compares(name)
        return
    own = data.c[:, 0]
    assert (found.klass[own != 1] == 1).all()
    assert (found.klass[own == 1] != 1).all()


@each
def test_by_default_people_are_compared_with_the_largest_group(name: str):
    data, found = individuals(name, "two"), measured(name, "two")
    race, own = data.protected[1], data.c[:, 1]
    assert torch.bincount(own.long()).tolist() == [80, 73, 87]
    assert (race.reference, race.second) == (2, 0)
    if found.effect is not None:
        assert (found.of_variable(1, data).klass == torch.where(own == 2, 0, 2)).all()


@pytest.mark.parametrize("name", [name for name, what in FAIR_TESTS.items() if what.only_groups])
def test_tests_that_compare_groups_refuse_a_number(name: str):
    with pytest.raises(OptionError, match=r"is a number.*use rank or move"):
        made(name, "a number").fit(individuals(name, "a number"))
