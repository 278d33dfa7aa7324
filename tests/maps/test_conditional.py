"""Conditional ranks: what people would show in another group, at given or at changed values of other columns."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from populations import block, individuals, one_hot
from torch import Tensor

from fairfox.data.dataset import Dataset, Feature
from fairfox.maps import conditional
from fairfox.maps.graph import GraphMap
from fairfox.maps.rank import RankMap

WORLDS = {  # of the group, a given number, and noise
    "straight": lambda c, w, e: 1.5 * c + w + e,
    "bent": lambda c, w, e: torch.sin(2 * w) + 0.5 * c * w**2 + e,
    "spreading": lambda c, w, e: c + w + (0.5 + c) * torch.exp(0.4 * w) * e,
}


def drawn(n: int, *, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Return two groups, a number that goes with them, and noise."""
    w, e = torch.randn(2, n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    c = (torch.arange(n) % 2).double()
    return c, w + 0.5 * c, e


def moved_given(w: Tensor, x: Tensor, c: Tensor) -> Tensor:
    """Return what x (n,) becomes in the other group, the number w (n,) given, which the model does not take."""
    return RankMap(given=("w",)).fit(beside(w, x, c)).map(beside(w, x, c)).rows[:, 0]


def beside(w: Tensor, x: Tensor, c: Tensor) -> Dataset:
    return replace(individuals(x[:, None], c=c), w=w[:, None], covariates=(Feature("w", "continuous", 0, 1),))


@pytest.mark.parametrize("world", WORLDS)
def test_location_and_scale_at_given_values_are_those_of_the_world(world: str):
    c, w, e = drawn(6000)
    x, truth = (WORLDS[world](own, w, e) for own in (c, 1 - c))
    error = (moved_given(w, x, c) - truth).abs()
    assert float(error.median()) < 0.07 * float(truth.std())
    assert float(error.quantile(0.95)) < 0.25 * float(truth.std())


def test_counts_keep_their_rank_among_people_with_the_same_given_values():
    c, w, e = drawn(6000)
    rank = torch.distributions.Normal(0.0, 1.0).cdf(e)

    def count(own: Tensor) -> Tensor:
        """Return the Poisson counts that stand at everyone's rank."""
        rate = torch.exp(0.4 * w + 0.7 * own)
        ends = torch.exp(torch.distributions.Poisson(rate[:, None]).log_prob(torch.arange(60.0))).cumsum(1)
        return (ends < rank[:, None]).sum(1).double()

    x, truth = count(c), count(1 - c)
    found = moved_given(w, x, c)
    error = (found - truth).abs()
    assert float((error <= 1).double().mean()) > 0.9  # of equal counts the middle one stands for all
    assert abs(float((found - truth).mean())) < 0.05
    for group in (0, 1):
        assert set(found[c == group].tolist()) <= set(x[c != group].tolist())


def test_a_spike_stays_a_spike_with_the_share_that_the_other_group_has():
    # nothing for 70 % of the first group and 40 % of the second, else what the given number says
    c, w, e = drawn(6000)
    nothing = torch.rand(6000, generator=torch.Generator().manual_seed(9)) < 0.7 - 0.3 * c
    found = moved_given(w, torch.where(nothing, 0.0, torch.exp(w + 0.3 * e)), c)
    for group, share in ((0, 0.4), (1, 0.7)):
        # everyone without anything has the same rank, so that all of them go or none: at ranks .35 and .2
        at_zero = found[(c == group) & nothing] == 0
        assert float(at_zero.double().mean()) > 0.95
        earns = found[(c == group) & ~nothing] > 0
        assert float(earns.double().mean()) == pytest.approx(min(1.0, (1 - share) / (1 - (0.7, 0.4)[group])), abs=0.05)


def test_categories_follow_their_shares_at_given_values():
    c, w, _ = drawn(8000)
    gen = torch.Generator().manual_seed(3)

    def share(own: Tensor) -> Tensor:
        return torch.sigmoid(w + 1.5 * own - 0.5)

    second = torch.rand(8000, generator=gen, dtype=torch.float64) < share(c)
    features = (block("job", "ab"),)
    data = individuals(one_hot(second.long(), 2), c=c, features=features)
    data = replace(data, w=w[:, None], covariates=(Feature("w", "continuous", 0, 1),))
    found = RankMap(given=("w",)).fit(data).map(data).rows
    # who is b stays b with min(1, p'/p), who is a with min(1, (1 - p') / (1 - p))
    p, q = share(c), share(1 - c)
    expected = torch.where(second, (q / p).clamp(max=1), 1 - ((1 - q) / (1 - p)).clamp(max=1))
    torch.testing.assert_close(found.sum(1), torch.ones(8000).double())
    assert float((found[:, 1] - expected).abs().mean()) < 0.02


@settings(deadline=None, max_examples=12)
@given(seed=st.integers(0, 10**6), kind=st.sampled_from(["number", "category", "graph"]), groups=st.integers(2, 3))
def test_nothing_leaves_what_the_other_group_shows(seed: int, kind: str, groups: int):
    rng = np.random.default_rng(seed)
    n, c = 240, rng.integers(groups, size=240)
    w = rng.normal(c, 1.0)
    numbers = np.stack([w, np.exp(w + c * rng.normal(size=n)), rng.poisson(2 + c), np.maximum(0, w - 1)], axis=1)
    job = one_hot(rng.integers(1 + c, 4), 4)  # the higher the class, the fewer the jobs
    features = tuple(Feature(f"x{j}", "continuous", j, j + 1) for j in range(4))
    x = torch.cat([torch.as_tensor(numbers), job], dim=1)
    data = Dataset.from_arrays(x, c=c.astype(float))
    data = replace(data, features=(*features, block("job", "abcd", start=4)))
    graph = {"x0": ["c"], "x1": ["c", "x0"], "x2": ["c", "x1", "job"], "x3": ["c", "x2"], "job": ["c", "x0"]}
    made = GraphMap(graph) if kind == "graph" else RankMap(given=("x0" if kind == "number" else "job",))
    to = torch.as_tensor((c + 1) % groups).double()
    rows = made.fit(data).map(data, to).rows
    for g in range(groups):
        shown, found = x[torch.as_tensor(c == (g + 1) % groups)], rows[torch.as_tensor(c == g)]
        for j in range(1 if kind == "number" else 0, 4):
            assert set(found[:, j].tolist()) <= set(shown[:, j].tolist())
        if kind != "category":
            assert not (found[:, 4:] > 1e-9)[:, shown[:, 4:].sum(0) == 0].any()


@pytest.mark.parametrize("apart", [0.0, 2.0], ids=["shares that add up", "shares that do not"])
def test_products_that_cannot_pay_are_not_fitted_and_all_others_are(apart: float, monkeypatch: pytest.MonkeyPatch):
    c, w, e = drawn(400)
    c, w = c[:, None], (w > 0).double()[:, None]
    codes = (c + w - 1 + apart * (2 * c - 1) * (2 * w - 1) + e[:, None] > 0).long()[:, 0]
    terms = torch.cat([c, w, c * w], dim=1)
    quick = conditional.logistic(terms, codes, 2, [2, 3])
    monkeypatch.setattr(conditional, "_least_loss", lambda *_: 0.0)  # everything is tried
    assert torch.equal(quick, conditional.logistic(terms, codes, 2, [2, 3]))
    assert bool(quick[2].any()) == (apart > 0)
