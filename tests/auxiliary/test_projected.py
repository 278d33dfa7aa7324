"""Auxiliaries behind a projection."""

from dataclasses import replace
from functools import cache

import pytest
import torch
from fused import KEEP_C, KEEP_Y, fused

from fairfox.auxiliary.model import AuxiliaryModel, ProjectedAuxiliary
from fairfox.benchmark.truth import TargetTraining, train_target
from fairfox.data.dataset import Dataset
from fairfox.errors import ShapeError
from fairfox.fairtests.registry import make_test
from fairfox.gradients.jacobian import jacobian
from fairfox.models.protocol import Model

DATA = fused(400, bias=0.5, seed=0)


def small(**options) -> AuxiliaryModel:
    return AuxiliaryModel(**({"refits": 2, "width": 8, "depth": 1, "max_epochs": 6} | options))


def test_members_equal_those_trained_on_the_projected_rows():
    inner = small().fit(Dataset.from_arrays(DATA.x @ KEEP_C, DATA.c, protected=DATA.protected))
    outer = ProjectedAuxiliary(KEEP_C, small()).fit(DATA)
    assert len(outer.members) == 2
    for one, expected in zip(outer.members, inner.members, strict=True):
        torch.testing.assert_close(one(DATA.x), expected(DATA.x @ KEEP_C))
    jac = jacobian(outer.members[0], DATA.x)
    assert (jac[:, 0, 2:] == 0).all()  # off the projection
    assert float(jac[:, 0, :2].abs().mean()) > 0.1


def test_the_held_out_rows_are_those_of_the_data_itself():
    plain, projected = small(seed=3).fit(DATA), ProjectedAuxiliary(KEEP_C, small(seed=3)).fit(DATA)
    assert torch.equal(projected.held_out.x, plain.held_out.x)
    assert projected.held_out.features == DATA.features


def test_withheld_columns_and_columns_that_never_vary_do_not_enter():
    x = DATA.x.clone()
    x[:, 2] = 1.0
    withheld = torch.tensor([True, False, False, False, False])
    fitted = ProjectedAuxiliary(torch.eye(5), small()).fit(replace(DATA, x=x, withheld=withheld))
    used = jacobian(fitted.members[0], x)[:, 0].abs().amax(0) > 0
    assert used.tolist() == [False, True, False, True, True]


@cache
def target(*, fair: bool) -> Model:
    training = TargetTraining(max_epochs=10)
    return train_target(DATA, width=8, depth=1, projection=KEEP_Y if fair else None, training=training)


@pytest.mark.parametrize("name", ["faux", "faux+ng", "faux+ig", "faux/s", "move", "move/a", "move-direct", "rank/a"])
def test_fairness_tests_take_it_for_any_other_auxiliary(name: str):
    test = make_test(name, auxiliary=ProjectedAuxiliary(KEEP_C, small()), refits=2).fit(DATA)
    unfair_score, fair_score = (test.score(target(fair=fair), DATA) for fair in (False, True))
    assert torch.isfinite(unfair_score).all()
    assert float(unfair_score.mean()) > float(fair_score.mean())
    if name in ("faux", "faux+ng", "faux+ig", "move-direct"):  # which move along columns the fair target does not see
        torch.testing.assert_close(fair_score, torch.zeros(400), atol=1e-6, rtol=0)


def test_a_projection_of_other_columns_is_refused():
    with pytest.raises(ShapeError, match=r"The projection has shape \(4, 2\), but x has 5 columns"):
        ProjectedAuxiliary(torch.eye(4)[:, :2]).fit(DATA)
