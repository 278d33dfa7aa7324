"""Given columns: they stay as they are, with all that they explain of the others."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from populations import block, individuals, one_hot
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.neural_network import MLPClassifier
from torch import Tensor

from fairfox.benchmark.scm import SEX, Values, Variable, World, choose, happens, uniform
from fairfox.data.dataset import Dataset, Feature, Protected
from fairfox.data.encoding import fit_encoding
from fairfox.data.table import load_table
from fairfox.errors import ColumnError, DataError, OptionError
from fairfox.fairtests.effect import Effect
from fairfox.maps.conditional import is_stepped
from fairfox.maps.given import check_given, remaining_metric
from fairfox.maps.protocol import TOO_FEW, UNSHARED
from fairfox.maps.rank import RankMap

PEOPLE = 6000  # half to learn from, half to score


class Sklearn:
    """A fitted classifier as a target."""

    differentiable = False

    def __init__(self, classifier: Any) -> None:
        self.classifier = classifier

    def __call__(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.classifier.predict_proba(x.numpy())[:, 1:]).to(x)


def of_sex(size: float) -> Callable[..., Values]:
    return lambda sex, noise: size * sex + noise


def by_both(hours: Values, income: Values, noise: Values) -> Values:
    return happens(noise, hours + income - 1.2)


def by_hours(hours: Values, noise: Values) -> Values:
    return happens(noise, hours - 0.7)


def by_income(income: Values, noise: Values) -> Values:
    return happens(noise, income - 0.7)


def own_noise(noise: Values) -> Values:
    return noise


def world(name: str, income: Callable[..., Values], label: Callable[..., Values], hours: float = 1.5) -> World:
    variables = (SEX, Variable("hours", of_sex(hours)), Variable("income", income), Variable("paid", label, uniform))
    return World(name, variables, "paid")


def _education(sex: Values, noise: Values) -> Values:
    return choose(noise, 6 - 5 * sex, 2.0, 1 + 5 * sex)


def _job(education: Values, noise: Values) -> Values:
    return choose(noise, np.exp(1.2 * (1 - education)), 1.0, np.exp(1.2 * (education - 1)))


def _by_job(job: Values, noise: Values) -> Values:
    return happens(noise, 1.2 * (job - 1))


CATEGORIES = World(
    "categories",
    (
        SEX,
        Variable("hours", lambda sex, noise: _education(sex, noise), uniform, ("low", "middle", "high")),
        Variable("income", lambda hours, noise: _job(hours, noise), uniform, ("clerk", "nurse", "smith")),
        Variable("paid", lambda income, noise: _by_job(income, noise), uniform),
    ),
    "paid",
)
WHOLE = world("all of it through hours", own_noise, by_hours)
HALF = world("one half through hours, one through income", of_sex(1.2), by_both, hours=1.2)
THROUGH = world("hours, then income", lambda hours, noise: hours + noise, by_income)
BENT = world(
    "hours, then income, bent",
    lambda hours, noise: 1.5 * np.sin(1.5 * hours) + 0.3 * hours**2 + (0.5 + 0.25 * np.tanh(hours)) * noise,
    by_income,
)
UNRELATED = world("all of it through income", of_sex(1.5), by_income, hours=0.0)
STEPS = world("whole numbers", lambda hours, noise: np.maximum(0, np.round(1.5 * hours + noise - 1)), by_income)


class Sampled(NamedTuple):
    fitting: Dataset
    people: Dataset
    truth: Tensor  # the people with the other sex, what is given as it was
    y: np.ndarray


@cache
def sampled(world: World, seed: int = 0) -> Sampled:
    population = world.sample(PEOPLE, seed=seed)
    held = {"sex": 1 - population.values["sex"], "hours": population.values["hours"]}
    there = world.observed(world.evaluate(population.noise, held))
    table = load_table(population.table)
    encoding = fit_encoding(table, protected=["sex"], label="paid", dtype=torch.float64)
    data, truth = encoding.encode(table), encoding.encode(load_table(there)).x
    half = PEOPLE // 2
    return Sampled(data[:half], data[half:], truth[half:], population.y)


@cache
def target(world: World, kind: str) -> Sklearn:
    found = sampled(world)
    classifier = LogisticRegression() if kind == "linear" else MLPClassifier((8,), max_iter=60, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it need not converge
        return Sklearn(classifier.fit(found.fitting.x.numpy(), found.y[: len(found.fitting)]))


def mean_score(world: World, kind: str, *given: str) -> float:
    found = sampled(world)
    test = Effect(map=RankMap(given=given), refits=2).fit(found.fitting)
    return float(test.score(target(world, kind), found.people).mean())


def fall(world: World, kind: str) -> float:
    """Return the share of the mean score that is gone once hours are given."""
    return 1 - mean_score(world, kind, "hours") / mean_score(world, kind)


@pytest.mark.parametrize("kind", ["linear", "network"])
@pytest.mark.parametrize("world", [WHOLE, THROUGH, BENT, CATEGORIES, STEPS], ids=lambda world: world.name)
def test_nine_tenths_of_the_score_are_gone_where_the_whole_effect_is_given(world: World, kind: str):
    assert fall(world, kind) >= 0.9


@pytest.mark.parametrize("kind", ["linear", "network"])
def test_the_score_stays_where_what_is_given_is_the_same_in_all_groups(kind: str):
    assert abs(fall(UNRELATED, kind)) < 0.05


@pytest.mark.parametrize("world", [HALF, UNRELATED], ids=lambda world: world.name)
def test_people_become_what_the_causal_model_makes_of_them_with_given_columns_held(world: World):
    found = sampled(world)
    rows = RankMap(given=("hours",)).fit(found.fitting).map(found.people).rows
    assert torch.equal(rows[:, 0], found.people.x[:, 0])
    moved, truth = (part[:, 1] - found.people.x[:, 1] for part in (rows, found.truth))
    assert float((moved - truth).abs().mean()) < 0.1 * float(truth.abs().mean())


def test_a_group_in_which_hours_pay_less_is_lifted_to_what_they_pay_in_the_other():
    x = torch.randn(2000, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    own = torch.arange(2000) % 2
    noise = 0.1 * torch.randn(2000, 1, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    data = individuals(torch.cat([x, (1.0 + own[:, None]) * x + noise], dim=1))
    rows = RankMap(given=("x0",)).fit(data).map(data).rows
    expected = (2.0 - own) * data.x[:, 0] + noise[:, 0]
    assert float((rows[:, 1] - expected).abs().mean()) < 0.03


def test_what_is_a_function_of_given_columns_stays():
    x = torch.linspace(-2, 2, 400, dtype=torch.float64)[:, None]
    data = individuals(torch.cat([x, 3 * x + 1, torch.randn(400, 1, dtype=torch.float64)], dim=1))
    rows = RankMap(given=("x0",)).fit(data).map(data).rows
    torch.testing.assert_close(rows[:, :2], data.x[:, :2], atol=1e-6, rtol=0)


def test_missing_numbers_stay_missing_and_a_missing_given_one_is_one_more_value():
    gen = torch.Generator().manual_seed(0)
    own = torch.arange(1200) % 2
    hours, income = torch.randn(2, 1200, generator=gen, dtype=torch.float64)
    lacks_hours, lacks_income = torch.rand(2, 1200, generator=gen) < 0.2
    income = income + own + 3.0 * lacks_hours  # who does not say earns more
    columns = [hours.where(~lacks_hours, 0), lacks_hours, income.where(~lacks_income, 0), lacks_income]
    features = (Feature("hours", "continuous", 0, 2), Feature("income", "continuous", 2, 4))
    data = individuals(torch.stack([c.double() for c in columns], dim=1), features=features)
    out = RankMap(given=("hours",)).fit(data).map(data)
    assert not out.abstained.any()
    assert torch.equal(out.rows[:, [0, 1, 3]], data.x[:, [0, 1, 3]])
    assert torch.equal(out.rows[lacks_income], data.x[lacks_income])
    moved = (out.rows - data.x)[~lacks_income, 2]
    assert float((moved - (1.0 - 2 * own[~lacks_income])).abs().mean()) < 0.1


def test_the_protected_column_itself_is_set_to_the_other_group_and_not_explained():
    sex = one_hot(torch.arange(200) % 2, 2)
    numbers = torch.randn(200, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    features = (block("sex", "fm"), Feature("a", "continuous", 2, 3), Feature("b", "continuous", 3, 4))
    withheld = torch.tensor([True, True, False, False])
    data = individuals(torch.cat([sex, numbers], dim=1), features=features, withheld=withheld)
    rows = RankMap(given=("a",)).fit(data).map(data).rows
    assert torch.equal(rows[:, :2], sex.flip(1))
    assert torch.equal(rows[:, 2], numbers[:, 0])


@settings(max_examples=10, deadline=None)
@given(scale=st.floats(0.01, 100), shift=st.floats(-10, 10), seed=st.integers(0, 100))
def test_units_of_columns_and_the_order_of_rows_do_not_matter(scale: float, shift: float, seed: int):
    data = sampled(THROUGH).people[:400]
    rows = RankMap(given=("hours",)).fit(data).map(data).rows
    order = torch.randperm(400, generator=torch.Generator().manual_seed(seed))
    other = Dataset(scale * data.x[order] + shift, data.c[order], data.protected, data.features)
    moved = RankMap(given=("hours",)).fit(other).map(other).rows
    torch.testing.assert_close(moved, scale * rows[order] + shift, atol=1e-5 * scale, rtol=1e-5)


def of_kind(protected: Protected, c: Tensor, others: tuple[Protected, ...] = (), more: Tensor | None = None) -> Dataset:
    """Return people whose hours go with c, whose pay is their hours, and whose height is c and nothing else."""
    gen = torch.Generator().manual_seed(0)
    noise = torch.randn(3, len(c), generator=gen, dtype=torch.float64)
    hours = c + noise[0]
    x = torch.stack([hours, hours + 0.5 * noise[1], c + 0.5 * noise[2]], dim=1)
    names = tuple(Feature(name, "continuous", j, j + 1) for j, name in enumerate(("hours", "pay", "height")))
    values = c[:, None] if more is None else torch.stack([c, more], dim=1)
    return Dataset(x, values, (protected, *others), names)


def test_of_three_classes_each_is_compared_at_the_same_given_values():
    c = (torch.arange(3000) % 3).double()
    data = of_kind(Protected("race", "categorical", ("a", "b", "c")), c)
    to = (c + 1) % 3
    out = RankMap(given=("hours",)).fit(data).map(data, to)
    moved = (out.rows - data.x)[~out.abstained]
    assert torch.equal(moved[:, 0], torch.zeros(3000, dtype=torch.float64))
    assert float(moved[:, 1].abs().mean()) < 0.08
    assert float((moved[:, 2] - (to - c)).abs().mean()) < 0.08


def test_a_protected_number_is_moved_at_the_same_given_values():
    c = torch.randn(3000, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    data = of_kind(Protected("age", "continuous", ()), c)
    out = RankMap(given=("hours",)).fit(data).map(data, torch.ones_like(c))
    moved = (out.rows - data.x)[~out.abstained]
    assert float(out.abstained.double().mean()) < 0.25
    assert float(moved[:, 0].abs().max()) == 0
    assert float(moved[:, 1].abs().mean()) < 0.08
    assert float((moved[:, 2] - c.std()).abs().mean()) < 0.1


def test_other_protected_variables_are_held_and_small_strata_are_not_compared():
    c = (torch.arange(2000) % 2).double()
    more = torch.where(torch.arange(2000) < 1900, 0.0, 1.0).double()
    data = of_kind(Protected("sex"), c, (Protected("home"),), more)
    out = RankMap(given=("hours",), hold_others=True).fit(data).map(data)
    assert not out.abstained.any()
    few = data[torch.arange(2000) < 1906]
    out = RankMap(given=("hours",), hold_others=True).fit(few).map(few)
    assert (int(out.abstained.sum()), out.reason) == (6, TOO_FEW)


def test_a_given_category_that_nobody_there_has_leaves_nobody_to_compare_with():
    level = torch.tensor([0, 1, 0, 1] * 50 + [2, 0, 2, 0])  # the third level in the first group alone
    pay = torch.randn(204, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    data = individuals(
        torch.cat([one_hot(level, 3), pay], dim=1),
        c=[0, 0, 1, 1] * 50 + [0, 0, 0, 0],
        features=(block("education", "abc"), Feature("pay", "continuous", 3, 4)),
    )
    out = RankMap(given=("education",)).fit(data).map(data)
    assert out.abstained.nonzero()[:, 0].tolist() == [200, 202]
    assert out.reason == UNSHARED
    assert torch.equal(out.rows[200], data.x[200])


def test_too_few_people_to_learn_from_are_refused():
    data = individuals(torch.randn(7, 3, dtype=torch.float64))
    with pytest.raises(DataError, match="7 people are too few to learn what 2 given"):
        RankMap(given=("x0", "x1")).fit(data)


def test_what_cannot_be_given_is_refused_in_a_sentence():
    data = individuals(torch.randn(20, 2))
    with pytest.raises(OptionError, match="'sex' cannot be given: the protected variable 'sex' is read from it"):
        given_features(data, ["sex"])
    with pytest.raises(ColumnError, match=r"'x00' is none that the model takes. Did you mean 'x0'\?"):
        given_features(data, ["x00"])
    with pytest.raises(OptionError, match="All columns of the model are given"):
        given_features(data, ["x0", "x1"])
    assert [f.name for f in given_features(data, ["x1", "x1"])] == ["x1"]


def test_the_remaining_metric_is_the_covariance_of_regression_residuals():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(500, 4)) @ rng.normal(size=(4, 4))
    given = torch.tensor([False, True, False, True])
    found = remaining_metric(torch.cov(torch.from_numpy(x).T), given)
    residual = x[:, [0, 2]] - LinearRegression().fit(x[:, [1, 3]], x[:, [0, 2]]).predict(x[:, [1, 3]])
    np.testing.assert_allclose(found[~given][:, ~given], np.cov(residual.T), atol=1e-9)
    assert float(found[given].abs().max()) == 0
    assert float(found[:, given].abs().max()) == 0


NUMBERS = [Feature("a", "continuous", 0, 1), Feature("b", "continuous", 1, 2)]


def drawn(n: int = 1000, columns: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    """Return rows, two groups in turn, and noise."""
    gen = torch.Generator().manual_seed(0)
    x, noise = (torch.randn(n, k, generator=gen, dtype=torch.float64) for k in (columns, 1))
    return x, (torch.arange(n) % 2).double(), noise


def fitted(values: Tensor, x: Tensor, c: Tensor, features: list[Feature] = NUMBERS) -> Regressions:
    return Regressions.of(values, x, c, bending_terms(GroupTerms.of(c, 2), features, x), [1] * values.shape[1])


def test_few_values_or_one_that_stands_out_make_a_staircase():
    many = torch.linspace(0, 1, 300)
    assert is_stepped(torch.arange(300).double() % 15)
    assert not is_stepped(many)
    assert is_stepped(torch.cat([torch.zeros(200), many]))
