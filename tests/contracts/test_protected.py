"""Every fairness test with every kind of protected variable: many classes, a number, several, crossings."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch import nn

from fairfox.auxiliary.model import AuxiliaryModel, FixedAuxiliary
from fairfox.data.dataset import Dataset
from fairfox.data.encode import fit_encoding
from fairfox.data.table import load_table
from fairfox.errors import OptionError
from fairfox.fairtests.registry import FAIR_TESTS, check_direction, make_test
from fairfox.models.protocol import Model
from fairfox.models.torch_model import TorchModel

PEOPLE = 240
KINDS: dict[str, dict[str, Any]] = {
    "three classes": {"protected": ["race"]},
    "a number": {"protected": ["age"]},
    "two": {"protected": ["sex", "race"]},
    "several": {"protected": ["sex", "race", "age"]},
    "crossed": {"protected": ["sex", "race"], "intersections": True},
    "a reference group": {"protected": ["race"], "reference_group": ["b"]},
}
CANNOT_HOLD = [name for name in FAIR_TESTS if name.partition("/")[0] in ("faux+ng", "faux+ig", "fta", "fta+linear")]


@cache
def individuals(kind: str) -> Dataset:
    """Return people whose income, years and job depend on sex, race and age."""
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
    people = load_table(pa.table(table))
    return fit_encoding(people, **KINDS[kind], columns=["income", "years", "job"], dtype=torch.float64).encode(people)


@cache
def target() -> Model:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(individuals("a number").x.shape[1], 8), nn.Tanh(), nn.Linear(8, 1), nn.Sigmoid())
    return TorchModel(net.double().eval().requires_grad_(False))


@cache
def auxiliary(kind: str) -> FixedAuxiliary:
    trained = AuxiliaryModel(refits=2, width=8, depth=1, max_epochs=6).fit(individuals(kind))
    return FixedAuxiliary(trained.members, trained.held_out)


@cache
def fitted(name: str, kind: str) -> Any:
    return make_test(name, auxiliary=auxiliary(kind), refits=2).fit(individuals(kind))


@cache
def measured(name: str, kind: str) -> Any:
    return fitted(name, kind).measure(target(), individuals(kind))


every = pytest.mark.parametrize("kind", list(KINDS))
pytestmark = pytest.mark.parametrize("name", [name for name, about in FAIR_TESTS.items() if not about.needs_truth])


@every
def test_everyone_gets_a_finite_score_and_the_worst_case_is_named(name: str, kind: str):
    data, found = individuals(kind), measured(name, kind)
    assert torch.isfinite(found.score).all()
    assert float(found.score.max()) > 0
    assert not found.abstained.any()
    assert ((found.variable >= 0) & (found.variable < len(data.protected))).all()
    for v, p in enumerate(data.protected):
        classes = found.klass[found.variable == v]
        assert (classes < max(len(p.levels), 2)).all()
    torch.testing.assert_close(fitted(name, kind).score(target(), data), found.score)


@every
def test_the_score_is_the_worst_over_the_variables(name: str, kind: str):
    data, found = individuals(kind), measured(name, kind)
    each = torch.stack([found.of_variable(v, data).score for v in range(len(data.protected))], dim=1)
    torch.testing.assert_close(each.amax(1), found.score)
    torch.testing.assert_close(each.gather(1, found.variable[:, None])[:, 0], found.score)


@every
def test_scores_follow_their_rows(name: str, kind: str):
    order = torch.randperm(PEOPLE, generator=torch.Generator().manual_seed(0))
    score = fitted(name, kind).score(target(), individuals(kind)[order])
    torch.testing.assert_close(score, measured(name, kind).score[order], atol=1e-6, rtol=1e-4)


@every
def test_people_of_unknown_groups_do_not_disturb_the_others(name: str, kind: str):
    data, found = individuals(kind), measured(name, kind)
    c = data.c.clone()
    c[3] = float("nan")
    blind = fitted(name, kind).measure(target(), replace(data, c=c))
    assert blind.abstained[3].item() is (found.signed is not None)
    others = torch.arange(PEOPLE) != 3
    torch.testing.assert_close(blind.score[others], found.score[others], atol=1e-6, rtol=1e-4)


def test_others_are_held_or_a_test_that_can_is_named(name: str):
    if name in CANNOT_HOLD:
        with pytest.raises(OptionError, match="use rank, move or faux"):
            make_test(name, hold_others=True)
        return
    data = individuals("two")
    test = make_test(name, auxiliary=auxiliary("two"), refits=2, hold_others=True)
    found = test.fit(data).measure(target(), data)
    assert torch.isfinite(found.score).all()
    assert float(found.abstained.double().mean()) < 0.1
    if not name.startswith("faux"):  # which holds the others anyway
        assert not torch.allclose(found.score, measured(name, "two").score, atol=1e-4)


def test_with_a_reference_group_people_are_compared_with_it_only(name: str):
    data, found = individuals("a reference group"), measured(name, "a reference group")
    if found.signed is None:
        with pytest.raises(OptionError, match="use rank, move or faux with a reference group"):
            check_direction(name)
        return
    own = data.c[:, 0]
    assert (found.klass[own != 1] == 1).all()
    assert (found.klass[own == 1] != 1).all()
