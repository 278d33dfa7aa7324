"""The evidence gate: what the groups do not differ in beyond chance does not move."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from populations import block, individuals, one_hot
from scipy import stats
from torch import Tensor

from fairfox.data.dataset import Dataset, Feature, Protected
from fairfox.maps.gate import chi_square, closed_features, effective, kruskal, rejected, two_samples
from fairfox.maps.protocol import fit_maps
from fairfox.maps.rank import RankMap

AGE = Protected("age", "continuous", ())
JOB = block("job", "abc", start=2)
FEATURES = (Feature("x0", "continuous", 0, 1), Feature("x1", "continuous", 1, 2), JOB)


def test_numbers_are_tested_as_scipy_does():
    rng = np.random.default_rng(0)
    here, there = rng.normal(size=80).round(1), rng.normal(0.5, size=120).round(1)
    assert two_samples(here, there, np.ones(80), np.ones(120)) == pytest.approx(expected_p(here, there), rel=0.03)
    # people who count for nothing change nothing, though then the weighted formula is used; it has no correction for
    # the continuity of ranks
    own, other = np.append(np.ones(80), 0.0), np.append(np.ones(120), 0.0)
    weighted = two_samples(np.append(here, 9.0), np.append(there, -9.0), own, other)
    assert weighted == pytest.approx(expected_p(here, there), rel=0.05)


def expected_p(here: np.ndarray, there: np.ndarray) -> float:
    """Return twice the smaller of the p-values of Kolmogorov-Smirnov's and of Mann and Whitney's test."""
    shift = stats.mannwhitneyu(here, there, method="asymptotic").pvalue
    return min(1.0, 2 * min(stats.ks_2samp(here, there, method="asymp").pvalue, shift))


def test_a_value_that_most_people_share_is_compared_by_how_many_have_it():
    gain = np.concatenate([np.repeat([0.0, 1.0], [950, 50]), np.repeat([0.0, 1.0], [900, 100])])  # 5 and 10 %
    assert stats.ks_2samp(gain[:1000], gain[1000:], method="asymp").pvalue > 0.1
    for ones in (np.ones(1000), np.append(np.ones(999), 1 + 1e-9)):
        assert two_samples(gain[:1000], gain[1000:], ones, ones) < 1e-4


def test_a_number_that_is_the_same_for_everyone_does_not_differ_whatever_the_weights():
    weights = np.random.default_rng(0).random((200, 2, 50))
    assert all(two_samples(np.ones(50), np.ones(50), own, other) == 1 for own, other in weights)


def test_categories_are_tested_as_scipy_does_and_rare_levels_count_together():
    second, codes = np.repeat([False, True], 100), np.tile([0] * 60 + [1] * 40, 2)
    codes[100:130] = 1  # 60 and 40 of the first group, 30 and 70 of the second
    expected = stats.chi2_contingency([[60, 40], [30, 70]], correction=False).pvalue
    assert chi_square(second, codes, np.ones(200)) == pytest.approx(expected)
    codes[[0, 1, 100]] = [2, 3, 4]  # at most one each: fewer than five are expected, so that they are one level
    expected = stats.chi2_contingency([[58, 40, 2], [30, 69, 1]], correction=False).pvalue
    assert chi_square(second, codes, np.ones(200)) == pytest.approx(expected)
    assert chi_square(second, np.zeros(200, dtype=int), np.ones(200)) == 1.0


def test_weights_count_through_the_effective_number_of_people():
    assert effective(np.full(50, 3.0)) == pytest.approx(50)
    assert effective(np.array([1.0, 1.0, 2.0])) == pytest.approx(16 / 6)
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=400), rng.normal(0.3, size=400)
    few = np.where(np.arange(400) < 40, 1.0, 1e-9)  # forty of them count
    weighted = two_samples(x, y, few, few)
    assert weighted == pytest.approx(expected_p(x[:40], y[:40]), rel=0.2)  # ranks are those among all 800
    assert weighted > two_samples(x, y, np.ones(400), np.ones(400))


def test_holms_method_by_hand():
    # of four at .01: the smallest against .0025, then .0033, .005 and .01; the first that is above ends it
    assert rejected([0.004, 0.0024, 0.02, 0.003]).tolist() == [True, True, False, True]
    assert rejected([0.0026, 0.003, 0.004, 0.005]).tolist() == [False] * 4
    assert rejected([0.0001, 0.006, 0.003, 0.9]).tolist() == [True, False, True, False]
    assert rejected([]).tolist() == []


def population(n: int, *, seed: int, push: float = 0.0) -> tuple[Tensor, Tensor]:
    """Return rows of two numbers and a category, and the groups, which push all of them by so much."""
    rng = np.random.default_rng(seed)
    c = rng.integers(2, size=n)
    numbers = np.stack([rng.normal(push * c, 1), rng.exponential(1 + push * c)], axis=1)
    job = one_hot(np.where(rng.random(n) < push * c / 2, 2, rng.integers(3, size=n)), 3)
    return torch.cat([torch.as_tensor(numbers), job], dim=1), torch.as_tensor(c).double()


def moved(data: Dataset, made: RankMap, to: Tensor | None = None) -> list[bool]:
    """Return which features anybody moves in."""
    rows = made.fit(data).map(data, to).rows
    return [bool((rows[:, f.columns] != data.x[:, f.columns]).any()) for f in data.features]


def variants(x: Tensor, c: Tensor) -> dict[str, tuple[Dataset, RankMap, Tensor | None]]:
    """Return data, map and destinations for each kind of comparison."""
    rng = np.random.default_rng(7)
    w, level = torch.as_tensor(rng.normal(size=(len(c), 1))), torch.as_tensor(rng.integers(2, size=len(c)))
    data = individuals(x, c=c, features=FEATURES)
    stratified = replace(data, w=one_hot(level, 2), covariates=(block("w", "ab"),))
    by_number = replace(data, w=w, covariates=(Feature("w", "continuous", 0, 1),))
    number = replace(data, protected=(AGE,), c=c[:, None] + 0.3 * w)
    up = torch.ones(len(c)).double()
    return {
        "groups": (data, RankMap(gate=True), None),
        "strata": (stratified, RankMap(gate=True, given=("w",)), None),
        "given number": (by_number, RankMap(gate=True, given=("w",)), None),
        "protected number": (number, RankMap(gate=True), up),
        "protected and given number": (
            replace(by_number, protected=(AGE,), c=number.c + torch.as_tensor(rng.normal(size=(len(c), 1)))),
            RankMap(gate=True, given=("w",)),
            up,
        ),
    }


COMPARISONS = list(variants(*population(20, seed=0)))


@pytest.mark.parametrize("comparison", COMPARISONS)
def test_with_groups_that_mean_nothing_hardly_anything_moves(comparison: str):
    # at level .01 over all features of a population, about one of a hundred populations has any that moves
    any_moves = sum(any(moved(*variants(*population(600, seed=seed))[comparison])) for seed in range(20))
    assert any_moves <= 2


@pytest.mark.parametrize("comparison", COMPARISONS)
def test_what_differs_between_the_groups_moves(comparison: str):
    assert moved(*variants(*population(1500, seed=0, push=1.0))[comparison]) == [True, True, True]


@pytest.mark.parametrize("comparison", COMPARISONS)
def test_people_who_hardly_count_decide_nothing(comparison: str):
    # the first half counts; the second has the groups the other way round, or is pushed alone
    (pushed, c), (plain, own) = population(1000, seed=0, push=1.0), population(1000, seed=1)
    weights = torch.tensor([1.0, 1e-3]).double().repeat_interleave(1000)
    for x, group, closed in (
        (torch.cat([pushed, pushed]), torch.cat([c, 1 - c]), False),
        (torch.cat([plain, pushed]), torch.cat([own, c]), True),
    ):
        data, made, _ = variants(x, group)[comparison]
        made.prepare(replace(data, weights=weights))
        assert made.plan.closed[0, -1].tolist() == [closed] * 3


def test_numbers_of_many_groups_are_tested_as_scipy_does():
    rng = np.random.default_rng(0)
    values, codes = rng.normal(size=90).round(1), np.arange(90) % 3
    expected = stats.kruskal(*(values[codes == k] for k in range(3))).pvalue
    assert kruskal(values, codes, np.full(90, 2.0)) == pytest.approx(expected)
    assert kruskal(values, np.zeros(90), np.ones(90)) == 1.0


def test_what_given_columns_explain_does_not_open_the_gate():
    rng = np.random.default_rng(0)
    c = torch.as_tensor(rng.integers(2, size=2000)).double()
    level = torch.where(torch.as_tensor(rng.random(2000)) < 0.2 + 0.6 * c, 1, 0)
    w = level + 0.5 * torch.as_tensor(rng.normal(size=2000))
    for given, covariate in ((level.double(), block("w", "ab")), (w, Feature("w", "continuous", 0, 1))):
        x = torch.stack([3 * given, (3 * given).exp(), given > 0.5], dim=1).double()
        x[:, :2] += torch.as_tensor(rng.normal(size=(2000, 2)))
        features = tuple(Feature(f"x{j}", "continuous", j, j + 1) for j in range(3))
        columns = one_hot(level, 2) if covariate.kind == "categorical" else w[:, None]
        data = replace(individuals(x, c=c, features=features), w=columns, covariates=(covariate,))
        assert moved(data, RankMap(gate=True)) == [True, True, True]
        assert moved(data, RankMap(gate=True, given=("w",))) == [False, False, False]


def test_of_three_classes_each_pair_has_its_own_gate():
    rng = np.random.default_rng(0)
    c = torch.arange(900) % 3
    x = torch.as_tensor(rng.normal(np.where(c == 2, 2.0, 0.0), 1))[:, None]
    closed = closed_features(x, c.double(), 3, [FEATURES[0]])[:, :, 0]
    assert closed.tolist() == [[False, True, False], [True, False, False], [False, False, False]]
    race = Protected("race", "categorical", ("a", "b", "c"))
    data = Dataset(x, c.double()[:, None], (race,), (FEATURES[0],))
    fitted = RankMap(gate=True).fit(data)
    for k in (0, 1):
        out = fitted.map(data, torch.full((900,), float(k))).rows
        assert torch.equal(out[c == 1 - k], x[c == 1 - k])
        assert (out[c == 2] != x[c == 2]).all()


def test_only_values_that_people_have_are_compared():
    # more of the second group lack it; those who have it are alike, and what is missing stays missing
    rng = np.random.default_rng(0)
    c = (torch.arange(1000) % 2).double()
    lacks = torch.as_tensor(rng.random(1000)) < 0.1 + 0.3 * c
    value = torch.as_tensor(rng.normal(size=1000))
    number, given = [Feature("x", "continuous", 0, 2)], [Feature("w", "continuous", 2, 3)]
    for push, closed in ((0.0, True), (1.0, False)):
        x = torch.stack([torch.where(lacks, 0.0, value + push * c), lacks.double(), value.roll(1)], dim=1)
        assert bool(closed_features(x, c, 2, number)[0, 1, 0]) is closed
        assert bool(closed_features(x, c, 2, number, given=given)[0, 1, 0]) is closed
    nobody = torch.stack([torch.zeros(1000), torch.ones(1000), value], dim=1).double()
    assert closed_features(nobody, c, 2, number)[0, 1, 0]
    assert closed_features(nobody, c, 2, number, given=given)[0, 1, 0]


def test_the_protected_column_always_moves():
    c = torch.arange(40) % 2
    x = torch.cat([one_hot(c, 2), torch.randn(40, 1, generator=torch.Generator().manual_seed(0)).double()], dim=1)
    features = (block("sex", "fm"), Feature("x", "continuous", 2, 3))
    data = individuals(x, features=features, withheld=torch.tensor([True, True, False]))
    rows = RankMap(gate=True).fit(data).map(data).rows
    assert torch.equal(rows[:, :2], one_hot(1 - c, 2))
    assert torch.equal(rows[:, 2], x[:, 2])


def test_refits_share_one_decision():
    x, c = population(800, seed=1, push=0.35)
    data = individuals(x[:, :1], c=c)
    gates = [fitted.plan.closed for fitted in fit_maps(RankMap(gate=True), data, 4, seed=0)[0]]  # type: ignore[attr-defined]
    assert not gates[0][0, 1, 0]
    assert all(torch.equal(gate, gates[0]) for gate in gates)
