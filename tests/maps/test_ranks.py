"""Ranks inside a group, the same ranks in another, and couplings of categories."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fairfox.maps.ranks import Ranks, SameRank, couple_rows, maximal_coupling

SHARES = st.lists(st.floats(0, 1), min_size=4, max_size=4).filter(lambda s: sum(s) > 0.1)


@settings(deadline=None, max_examples=60)
@given(own=SHARES, other=SHARES)
def test_a_maximal_coupling_is_a_coupling_with_the_least_movement(own: list[float], other: list[float]):
    p, q = (torch.tensor(s, dtype=torch.float64) / sum(s) for s in (own, other))
    coupling = maximal_coupling(p, q)
    assert float(coupling.min()) >= 0
    torch.testing.assert_close(coupling.sum(1), torch.ones(4).double())
    torch.testing.assert_close(p @ coupling, q, atol=1e-12, rtol=0)
    stays = (p * coupling.diagonal()).sum()
    torch.testing.assert_close(1 - stays, (p - q).abs().sum() / 2, atol=1e-12, rtol=0)  # total variation


def test_equal_shares_move_nobody():
    p = torch.tensor([0.25, 0.75])
    assert torch.equal(maximal_coupling(p, p), torch.eye(2))


def test_answers_known_beforehand_are_those_that_are_worked_out():
    rng = np.random.default_rng(0)
    own, other, x = (torch.as_tensor(rng.integers(20, size=n)).double() for n in (77, 31, 200))
    plain = SameRank(Ranks.of(own), Ranks.of(other))
    assert torch.equal(plain(x), plain.tabled()(x))
    # the mid-rank m of n values is a whole or a half number: place m * 31 / 77, rounded down, in exact fractions
    twice = [int((own < v).sum() + (own <= v).sum()) for v in x]
    places = [min(t * 31 // (2 * 77), 30) for t in twice]
    assert plain(x).tolist() == other.sort().values[places].tolist()


@settings(deadline=None, max_examples=40)
@given(own=SHARES, other=SHARES)
def test_coupled_rows_agree_with_the_maximal_coupling(own: list[float], other: list[float]):
    p, q = (torch.tensor(s, dtype=torch.float64) / sum(s) for s in (own, other))
    rows = torch.cat([torch.eye(4).double(), torch.full((1, 4), 0.25).double(), torch.zeros(1, 4).double()])
    out = couple_rows(rows, p.expand(6, 4), q.expand(6, 4))
    torch.testing.assert_close(out, rows @ maximal_coupling(p, q), atol=1e-12, rtol=0)
