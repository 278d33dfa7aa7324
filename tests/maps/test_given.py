"""Given columns: they stay as they are, with all that they explain of the others."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from populations import block, individuals, normal, one_hot
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from torch import Tensor

from fairfox.benchmark.scm import SEX, Values, Variable, World, choose, happens, uniform
from fairfox.data.dataset import Dataset, Feature, Protected
from fairfox.data.encoding import fit_encoding
from fairfox.data.table import load_table
from fairfox.errors import DataError, OptionError
from fairfox.fairtests.effect import Effect
from fairfox.maps.conditional import check_given_columns
from fairfox.maps.protocol import TOO_FEW, UNKNOWN_GIVEN
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


def levels_by_sex(sex: Values, noise: Values) -> Values:
    return choose(noise, 6 - 5 * sex, 2.0, 1 + 5 * sex)


def levels_by_hours(hours: Values, noise: Values) -> Values:
    return choose(noise, np.exp(1.2 * (1 - hours)), 1.0, np.exp(1.2 * (hours - 1)))


CATEGORIES = World(
    "categories",
    (
        SEX,
        Variable("hours", levels_by_sex, uniform, ("low", "middle", "high")),
        Variable("income", levels_by_hours, uniform, ("clerk", "nurse", "smith")),
        Variable("paid", lambda income, noise: happens(noise, 1.2 * (income - 1)), uniform),
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


@pytest.mark.parametrize(
    ("world", "kind"),
    [*((world, "linear") for world in (WHOLE, THROUGH, BENT, CATEGORIES, STEPS)), (BENT, "network")],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_nine_tenths_of_the_score_are_gone_where_the_whole_effect_is_given(world: World, kind: str):
    assert fall(world, kind) >= 0.9


def test_the_score_stays_where_what_is_given_is_the_same_in_all_groups():
    assert abs(fall(UNRELATED, "linear")) < 0.05


@pytest.mark.parametrize("world", [HALF, UNRELATED], ids=lambda world: world.name)
def test_people_become_what_the_causal_model_makes_of_them_with_given_columns_held(world: World):
    found = sampled(world)
    rows = RankMap(given=("hours",)).fit(found.fitting).map(found.people).rows
    assert torch.equal(rows[:, 0], found.people.x[:, 0])
    moved, truth = (part[:, 1] - found.people.x[:, 1] for part in (rows, found.truth))
    assert float((moved - truth).abs().mean()) < 0.1 * float(truth.abs().mean())


def outside(covariate: Tensor, c: Tensor, income: Tensor) -> Dataset:
    """Return people whose income alone the model takes, beside a covariate that it does not."""
    data = individuals(income[:, None], c=c)
    return replace(data, w=covariate[:, None], covariates=(Feature("covariate", "continuous", 0, 1),))


def remaining(data: Dataset, *, gate: bool = True) -> float:
    """Return the share of the mean displacement that is left once the covariate is given."""
    sizes = []
    for names in ((), ("covariate",)):
        out = RankMap(given=names, gate=gate).fit(data).map(data)
        assert not out.abstained.any()
        sizes.append(float((out.rows - data.x).abs().mean()))
    return sizes[1] / sizes[0]


@pytest.mark.parametrize("seed", range(3))
def test_a_legitimate_covariate_that_the_model_does_not_take_removes_its_whole_effect(seed: int):
    noise = torch.randn(2, 6000, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    c = (torch.arange(6000) % 2).double()
    hours = 2 * c + noise[0]
    whole, half = outside(hours, c, hours + noise[1]), outside(hours, c, hours + 2 * c + noise[1])
    assert remaining(whole) <= 0.05
    assert remaining(whole, gate=False) <= 0.1  # what sampling noise is left
    assert 0.45 <= remaining(half) <= 0.55


def test_a_confounder_outside_the_model_explains_what_sex_does_not():
    gen = torch.Generator().manual_seed(0)
    age, noise = torch.randn(2, 6000, generator=gen, dtype=torch.float64)
    c = (torch.rand(6000, generator=gen) < torch.sigmoid(1.5 * age)).double()  # more of the old are men
    income = torch.sin(age) + 0.5 * age + 0.5 * noise
    assert remaining(outside(age, c, income)) <= 0.1
    gap = outside(age, c, income + c)
    out = RankMap(given=("covariate",), gate=True).fit(gap).map(gap)
    moved = (out.rows - gap.x)[:, 0]
    assert float((moved - (1 - 2 * c)).abs().median()) < 0.1  # what sex itself does stays


def test_a_group_in_which_hours_pay_less_is_lifted_to_what_they_pay_in_the_other():
    x = torch.randn(2000, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    own = torch.arange(2000) % 2
    noise = 0.1 * torch.randn(2000, 1, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    data = individuals(torch.cat([x, (1.0 + own[:, None]) * x + noise], dim=1))
    rows = RankMap(given=("x0",)).fit(data).map(data).rows
    expected = (2.0 - own) * data.x[:, 0] + noise[:, 0]
    assert float((rows[:, 1] - expected).abs().mean()) < 0.03


def test_what_is_a_function_of_given_columns_goes_to_the_nearest_value_of_the_other_group():
    x = torch.linspace(-2, 2, 400, dtype=torch.float64)[:, None]
    noise = normal(400, 1)
    data = individuals(torch.cat([x, 3 * x + 1, noise], dim=1))
    rows = RankMap(given=("x0",)).fit(data).map(data).rows
    assert torch.equal(rows[:, 0], data.x[:, 0])
    torch.testing.assert_close(rows[:, 1], data.x[:, 1], atol=12 / 399 + 1e-9, rtol=0)  # neighbours are of both groups


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
    noise = normal(3, len(c))
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


def test_other_protected_variables_are_held_and_few_people_learn_from_the_others():
    c = (torch.arange(2000) % 2).double()
    more = torch.where(torch.arange(2000) < 1990, 0.0, 1.0).double()  # ten people with a home: five women, five men
    data = of_kind(Protected("sex"), c, (Protected("home"),), more)
    out = RankMap(given=("hours",), hold_others=True).fit(data).map(data)
    assert not out.abstained.any()
    moved = (out.rows - data.x)[:, 2]
    assert float((moved - (1 - 2 * c)).abs().mean()) < 0.08
    assert float((moved - (1 - 2 * c))[1990:].abs().max()) < 0.3


def with_education(level: list[int], c: list[float], pay: Tensor) -> Dataset:
    features = (block("education", "abc"), Feature("pay", "continuous", 3, 4))
    return individuals(torch.cat([one_hot(level, 3), pay[:, None]], dim=1), c=c, features=features)


@pytest.mark.parametrize("times", [20, 40], ids=["regressed", "strata"])
@pytest.mark.parametrize("only", [0, 1])
def test_a_level_of_one_group_is_displaced_by_the_mean_of_the_shared_levels_wherever_it_lies(times: int, only: int):
    # the second group is 1, 3 and 2 higher at levels a, b and d: by 2 on average; c, which one group lacks, lies high
    base, higher = torch.tensor([0.0, 4.0, 10.0, 10.0]), torch.tensor([1.0, 3.0, 2.0, 2.0])
    cells = [(level, c) for level in range(4) for c in range(2) if (level, c) != (2, 1 - only)]
    level, c = torch.tensor(cells).repeat_interleave(times, dim=0).T
    noise = torch.linspace(-0.5, 0.5, times, dtype=torch.float64).repeat(len(cells))
    pay = base[level] + c * higher[level] + noise
    features = (block("education", "abcd"), Feature("pay", "continuous", 4, 5), block("job", "uv", start=5))
    job = torch.arange(len(pay)) % 4 < 1 + 2 * c  # v: a quarter of the first group, three of the second
    x = torch.cat([one_hot(level, 4), pay[:, None], one_hot(job.long(), 2)], dim=1)
    data = individuals(x, c=c.double(), features=features)
    out = RankMap(given=("education",)).fit(data).map(data)
    assert not out.abstained.any()
    assert out.borrowed is not None
    assert torch.equal(out.borrowed, level == 2)
    assert set(out.rows[level == 2, 4].tolist()) <= set(data.x[c == 1 - only, 4].tolist())
    moved = (out.rows - data.x)[level == 2]
    torch.testing.assert_close(moved[:, 4], torch.full((times,), 2.0 - 4.0 * only).double(), atol=0.06, rtol=0)
    # who is rarer there stays with (1/4) / (3/4): u of the first group, v of the second
    expected = torch.where(job[level == 2] == bool(only), 2 / 3 * (1 - 2 * only), 0.0).double()
    torch.testing.assert_close(moved[:, 6], expected, atol=0.1, rtol=0)


@pytest.mark.parametrize("gate", [True, False])
def test_two_given_categories_that_act_together_explain_what_they_do_together(gate: bool):
    gen = torch.Generator().manual_seed(0)
    a, b = torch.randint(0, 2, (2, 2000), generator=gen)
    c = (torch.rand(2000, generator=gen) < torch.where((a == 1) & (b == 1), 0.8, 0.4)).double()
    b[:10] = 2  # a rare level: its cells are too small for strata
    pay = 2.0 * a * (b == 1) + torch.randn(2000, generator=gen, dtype=torch.float64)
    data = individuals(pay[:, None], c=c)
    data = replace(data, w=torch.cat([one_hot(a, 2), one_hot(b, 3)], dim=1))
    data = replace(data, covariates=(block("a", "01"), block("b", "012", start=2)))
    plain, held = (RankMap(given=names, gate=gate).fit(data).map(data).rows - data.x for names in ((), ("a", "b")))
    assert float(held.abs().mean()) <= (0.0 if gate else 0.1 * float(plain.abs().mean()))


def test_classes_that_never_share_a_given_value_have_too_few_to_compare_with():
    # a and b share the first level, b and c the second: nobody of a can be compared with anybody of c
    level = [0] * 80 + [1] * 80
    c = ([0.0] * 40 + [1.0] * 40) + ([1.0] * 40 + [2.0] * 40)
    data = with_education(level, c, torch.linspace(0, 1, 160, dtype=torch.float64))
    data = Dataset(data.x, data.c, (Protected("race", "categorical", ("a", "b", "c")),), data.features)
    fitted = RankMap(given=("education",)).fit(data)
    out = fitted.map(data, torch.full((160,), 2.0))
    assert torch.equal(out.abstained, data.c[:, 0] != 1)
    assert out.reason == TOO_FEW
    assert not fitted.map(data, torch.full((160,), 1.0)).abstained[data.c[:, 0] == 0].any()


def test_who_lacks_the_given_value_is_abstained_and_teaches_nothing():
    c = (torch.arange(800) % 2).double()
    x = (c + normal(800))[:, None]
    label = one_hot(torch.arange(800) // 2 % 2, 2)
    label[:5], x[:5] = 0.0, 1e3
    data = replace(individuals(x, c=c), w=label, covariates=(block("paid", "ny"),))
    out = RankMap(given=("paid",)).fit(data).map(data)
    assert out.abstained.nonzero()[:, 0].tolist() == [0, 1, 2, 3, 4]
    assert out.reason == UNKNOWN_GIVEN
    assert torch.equal(out.rows[:5], x[:5])
    assert float(out.rows[5:].max()) < 10
    number = replace(data, w=x.masked_fill(torch.arange(800)[:, None] < 5, torch.nan), covariates=data.features)
    number = replace(number, covariates=(Feature("score", "continuous", 0, 1),))
    out = RankMap(given=("score",)).fit(number).map(number)
    assert (out.abstained.nonzero()[:, 0].tolist(), out.reason) == ([0, 1, 2, 3, 4], UNKNOWN_GIVEN)


def test_too_few_people_to_learn_from_are_refused():
    data = individuals(normal(7, 3))
    with pytest.raises(DataError, match="7 people are too few to learn what 2 given"):
        RankMap(given=("x0", "x1")).fit(data)


@pytest.mark.parametrize("minority", [2, 8])
def test_a_column_that_tells_everyones_group_cannot_be_given(minority: int):
    c = (torch.arange(400) % minority == 0).double()
    noise = torch.rand(400, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    columns = {"near": c + 2 * noise, "apart": 2 * c + noise, "age": c + noise, "sex code": c}
    data = individuals(torch.stack(list(columns.values()), dim=1), c=c)
    data = replace(data, w=torch.cat([data.x, one_hot(c.long(), 2)], dim=1))
    features = [Feature(name, "continuous", j, j + 1) for j, name in enumerate(columns)]
    data = replace(data, covariates=(*features, block("title", ("Ms", "Mr"), start=4)))
    assert check_given_columns(data, ["near"]) == ["near"]
    for name in ("apart", "age", "sex code", "title"):
        with pytest.raises(OptionError, match=f"'{name}' cannot be given: it reveals everyone's 'sex'"):
            check_given_columns(data, [name])
    number = replace(data, protected=(Protected("years", "continuous", ()),), c=3 * data.w[:, :1] + 1)
    with pytest.raises(OptionError, match="'near' cannot be given: it reveals everyone's 'years'"):
        check_given_columns(number, ["near"])
