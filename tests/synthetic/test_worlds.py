"""Fairness tests against people whose true counterfactuals are known."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from torch import Tensor

from fairfox.auxiliary.model import AuxiliaryModel, FixedAuxiliary
from fairfox.data.encode import fit_encoding
from fairfox.data.table import load_table
from fairfox.evaluation import spearman
from fairfox.fairtests.registry import make_test
from fairfox.models.protocol import predict
from fairfox.synthetic.scm import World
from fairfox.synthetic.targets import TargetTraining, train_target
from fairfox.synthetic.two_groups import ADDITIVE, CATEGORICAL_PROXIES, HEAVY_TAILS

GRADIENT_TESTS = ["faux", "faux/s", "faux+ng", "faux+ng/s", "faux+ig", "faux+ig/s", "fta", "fta+linear"]


@cache
def measured(world: World) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the true score of everyone, and what each test says, fitted on other people of the same world."""
    past, new = world.sample(6000, seed=0), world.sample(6000, seed=1)
    encoding = fit_encoding(
        load_table(past.table), protected=past.protected, label=past.label, columns=past.features,
        also=load_table(new.table),
    )  # fmt: skip
    fitting, people, others = (encoding.encode(load_table(t)) for t in (past.table, new.table, new.counterfactual))
    model = train_target(fitting, training=TargetTraining(batch_size=64, decay=0.0))
    truth = (predict(model, people.x) - predict(model, others.x)).abs()
    auxiliary = AuxiliaryModel(refits=2).fit(fitting)
    fixed = FixedAuxiliary(auxiliary.members, auxiliary.held_out)
    scores = {
        name: make_test(name, auxiliary=fixed, refits=2).fit(fitting).score(model, people)
        for name in ["rank", *GRADIENT_TESTS]
    }
    return truth, scores


def test_rank_reproduces_an_additive_world():
    truth, scores = measured(ADDITIVE)
    assert spearman(scores["rank"], truth) >= 0.97
    assert float(scores["rank"].mean() / truth.mean()) == pytest.approx(1.0, abs=0.10)


@pytest.mark.parametrize("world", [CATEGORICAL_PROXIES, HEAVY_TAILS], ids=lambda world: world.name)
def test_rank_names_the_right_people_in_mixed_worlds_better_than_any_gradient_test(world: World):
    truth, scores = measured(world)
    rho = {name: spearman(values, truth) for name, values in scores.items()}
    assert rho["rank"] >= 0.60
    assert all(rho["rank"] > rho[name] for name in GRADIENT_TESTS), rho


def test_the_truth_is_not_trivial():
    truth, _ = measured(ADDITIVE)
    assert float(truth.std()) > 0.02
    assert torch.isfinite(truth).all()
