"""One suite over every fairness test: a new one is covered as soon as it has a name."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from populations import curved, encoded, people
from torch import Tensor

from fairfox.auxiliary.model import AuxiliaryModel, FixedAuxiliary
from fairfox.choices.tests import FAIR_TESTS, lookup_test
from fairfox.data.dataset import Dataset, Truth
from fairfox.errors import NotFittedError, OptionError
from fairfox.fairtests.protocol import MeasuringTest
from fairfox.fairtests.registry import make_test
from fairfox.models.protocol import Model

WITHOUT_FITTING = ("fta", "lic")  # have nothing to learn
# of the names with /a and /s one each: they change a factor or a metric
NAMES = [name for name in FAIR_TESTS if "/" not in name or name in ("rank/a", "faux/s")]
SETTINGS: dict[str, dict[str, object]] = {  # what a test needs, and less work than it would do
    "fliptest": {"steps": 20, "width": 8},
    "counterfactual": {"graph": {"income": ["sex", "age"], "job": ["sex"]}},
    "unfair_map": {"steps": 5},
}


def individuals(name: str) -> Dataset:
    """Return people with numbers, categories and labels, and what a test needs of truth or columns."""
    return _individuals(lookup_test(name).needs_input)


@cache
def _individuals(with_sex: bool) -> Dataset:
    frame = people(80)
    frame["granted"] = (frame["income"] > 3200).astype(int)
    _, data = encoded(frame, label="granted", columns=[*["sex"] * with_sex, "income", "age", "debt", "job"])
    dx_dc = torch.randn(data.x.shape, generator=torch.Generator().manual_seed(0)).to(data.x)
    return replace(data, truth=Truth(data.x + dx_dc * (1 - 2 * data.c), dx_dc[..., None]))


@cache
def target(name: str) -> Model:
    return curved(individuals(name).x.shape[1])


def made(name: str, **options: Any) -> MeasuringTest:
    auxiliary = AuxiliaryModel(refits=2, width=8, depth=1, max_epochs=4, seed=options.get("seed", 0))
    return make_test(name, **({"auxiliary": auxiliary, "refits": 2, "settings": SETTINGS.get(name)} | options))


@cache
def fitted(name: str) -> MeasuringTest:
    return made(name).fit(individuals(name))


@cache
def measured(name: str) -> Any:
    return fitted(name).measure(target(name), individuals(name))


pytestmark = pytest.mark.parametrize("name", NAMES)


def test_everyone_gets_one_finite_score_that_is_not_negative(name: str):
    score = fitted(name).score(target(name), individuals(name))
    assert score.shape == (80,)
    assert torch.isfinite(score).all()
    assert (score >= 0).all()
    assert float(score.max()) > 0
    assert torch.equal(score, measured(name).score)


def test_what_stands_behind_a_score_fits_together(name: str):
    found = measured(name)
    assert found.refits.shape[0] == 80
    assert len(found.reasons) == 80
    assert [reason is not None for reason in found.reasons] == found.abstained.tolist()
    if found.effect is None:
        torch.testing.assert_close(found.refits.mean(1), found.score)
    else:
        torch.testing.assert_close(found.effect.abs(), found.score)
        torch.testing.assert_close(found.refits.mean(1), found.effect)


def test_scores_follow_their_rows(name: str):
    order = torch.randperm(80, generator=torch.Generator().manual_seed(0))
    score = fitted(name).score(target(name), individuals(name)[order])
    torch.testing.assert_close(score, measured(name).score[order], atol=1e-6, rtol=0)


def test_scores_do_not_depend_on_the_batch(name: str):
    rows = slice(0, 21)
    trained = AuxiliaryModel(refits=2, width=8, depth=1, max_epochs=4).fit(individuals(name))
    auxiliary = FixedAuxiliary(trained.members, trained.held_out)
    whole, parts = (
        made(name, auxiliary=auxiliary, batch_size=batch)
        .fit(individuals(name))
        .score(target(name), individuals(name)[rows])
        for batch in (4096, 7)
    )
    torch.testing.assert_close(parts, whole, atol=1e-6, rtol=0)


def test_the_same_seed_gives_the_same_scores_and_nothing_else_changes(name: str):
    data, test = individuals(name), made(name, seed=0)
    x, c = data.x.clone(), data.c.clone()
    state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    assert test.fit(data) is test
    assert torch.equal(test.score(target(name), data), measured(name).score)
    assert torch.equal(data.x, x)
    assert torch.equal(data.c, c)
    assert torch.equal(state, torch.get_rng_state())
    np.testing.assert_array_equal(np.random.get_state()[1], numpy_state)  # noqa: NPY002


def test_labels_are_never_learned_from(name: str):
    labelled = individuals(name)
    assert labelled.y is not None
    blind = replace(labelled, y=None)
    wrong = replace(labelled, y=1 - labelled.y)
    for data in (blind, wrong):
        scored = labelled if lookup_test(name).needs_label else data
        assert torch.equal(made(name).fit(data).score(target(name), scored), measured(name).score)


class Constant:
    """A model that predicts the same for everyone."""

    differentiable = True

    def __call__(self, x: Tensor) -> Tensor:
        return 0.3 + 0 * x[:, :1]


class ConstantBox:
    """The same model, seen from outside."""

    differentiable = False

    def __call__(self, x: Tensor) -> Tensor:
        return torch.full((len(x), 1), 0.3, dtype=x.dtype)


@pytest.mark.parametrize("model", [Constant(), ConstantBox()], ids=["differentiable", "black box"])
def test_a_constant_model_is_fair_to_everyone(name: str, model: Model):
    if lookup_test(name).needs_gradient and not model.differentiable:
        with pytest.raises(OptionError, match=r"needs a differentiable model"):
            fitted(name).measure(model, individuals(name))
        return
    found = fitted(name).measure(model, individuals(name))
    fair = 1.0 if name == "unfair_map" else 0.0  # a ratio of losses
    assert torch.equal(found.score, torch.full((80,), fair).double())
    assert not found.abstained.any()


def test_people_of_unknown_group_are_abstained_where_there_is_a_direction(name: str):
    data = individuals(name)
    c = data.c.clone()
    c[5] = float("nan")
    found = fitted(name).measure(target(name), replace(data, c=c))
    assert torch.isfinite(found.score).all()
    assert found.abstained[5].item() is (found.effect is not None)
    others = torch.arange(80) != 5
    torch.testing.assert_close(found.score[others], measured(name).score[others], atol=1e-3, rtol=0)


def test_settings_that_a_test_does_not_have_are_refused(name: str):
    with pytest.raises(OptionError, match=r"has no setting 'stepz'"):
        made(name, settings={**SETTINGS.get(name, {}), "stepz": 3})


def test_a_test_that_is_not_fitted_says_so(name: str):
    if name in WITHOUT_FITTING:
        assert made(name).score(target(name), individuals(name)).shape == (80,)
        return
    with pytest.raises(NotFittedError, match=r"call fit first"):
        made(name).score(target(name), individuals(name))


def test_every_name_says_what_its_number_means(name: str):
    what = lookup_test(name)
    assert what.meaning.endswith(".")
    assert what.unit
    assert what.delta > 0
