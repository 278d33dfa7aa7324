"""What chance alone gives, from shuffles made by hand."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fairfox.statistics.diagnostics import Null, shuffled

NAN = math.nan


def test_delta_is_what_95_of_100_people_stay_below():
    scores = torch.arange(1.0, 101.0)[torch.randperm(100, generator=torch.Generator().manual_seed(0))]
    null = Null(scores[None], torch.zeros(1, 1))
    assert null.delta == 96.0
    assert int((scores < null.delta).sum()) == 95


@given(st.lists(st.floats(0, 1), min_size=1, max_size=60), st.integers(1, 3))
def test_no_more_than_a_twentieth_is_above_delta(scores: list[float], shuffles: int):
    null = Null(torch.tensor([scores] * shuffles), torch.zeros(shuffles, 1))
    above = torch.tensor(scores, dtype=torch.float32).double() > null.delta
    assert float(above.double().mean()) <= 0.05


def test_who_was_abstained_from_does_not_count():
    null = Null(torch.tensor([[0.1, NAN, 0.3], [NAN, NAN, 0.2]]), torch.zeros(2, 1))
    assert null.mean_score == pytest.approx(0.2)
    assert null.delta == pytest.approx(0.3)
    assert math.isnan(Null(torch.tensor([[NAN]]), torch.zeros(1, 1)).delta)


def test_the_p_value_of_an_alignment_share_counts_the_real_one_too():
    null = Null(torch.zeros(4, 1), torch.tensor([[0.1, 0.9], [0.2, 0.9], [0.3, 0.9], [0.4, 0.9]]))
    assert null.p_alignment(0, 0.35) == pytest.approx(2 / 5)
    assert null.p_alignment(0, 0.4) == pytest.approx(2 / 5)  # as large counts as larger
    assert null.p_alignment(0, 0.5) == pytest.approx(1 / 5)  # as small as four shuffles can say
    assert null.p_alignment(1, 0.5) == 1.0


@given(st.integers(0, 2**31), st.integers(1, 50))
def test_a_shuffle_keeps_rows_together_and_everybody_s_values(seed: int, people: int):
    c = torch.stack([torch.arange(float(people)), 10 * torch.arange(float(people))], dim=1)
    before = torch.random.get_rng_state()
    one = shuffled(c, seed)
    assert torch.equal(one, shuffled(c, seed))
    assert torch.equal(one[:, 1], 10 * one[:, 0])
    assert torch.equal(one[:, 0].sort().values, c[:, 0])
    assert torch.equal(torch.random.get_rng_state(), before)
