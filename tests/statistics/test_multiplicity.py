"""Lists with few false entries."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fairfox.statistics.multiplicity import benjamini_hochberg, holm

CHANCES = st.lists(st.floats(0, 1), min_size=1, max_size=30)


def test_a_later_p_value_within_its_limit_takes_earlier_ones_along():
    # Limits 0.025, 0.05, 0.075, 0.1: the third is within its own, so the second, which is not, is listed too.
    p = torch.tensor([0.001, 0.07, 0.06, 0.9])
    assert benjamini_hochberg(p, 0.1).tolist() == [True, True, True, False]


@given(CHANCES, st.randoms())
def test_the_order_of_people_does_not_matter(values, random):
    order = random.sample(range(len(values)), len(values))
    p = torch.tensor(values, dtype=torch.float64)
    assert torch.equal(benjamini_hochberg(p[order], 0.2), benjamini_hochberg(p, 0.2)[order])
    assert holm([values[i] for i in order]) == [holm(values)[i] for i in order]


def test_who_has_no_p_value_does_not_count():
    p = torch.tensor([0.04, float("nan"), float("nan")])
    assert benjamini_hochberg(p, 0.05).tolist() == [True, False, False]  # one p-value: the limit is 0.05, not 0.05 / 3


def test_nobody_gives_an_empty_list():
    assert benjamini_hochberg(torch.zeros(0), 0.1).tolist() == []
    assert benjamini_hochberg(torch.tensor([0.5, 0.9]), 0.1).tolist() == [False, False]


def test_the_share_of_false_entries_is_at_most_the_level_on_average():
    generator = torch.Generator().manual_seed(0)
    shares = []
    for _ in range(200):
        p = torch.rand(200, generator=generator)
        p[:50] = p[:50] ** 8  # of these the null hypothesis is wrong
        listed = benjamini_hochberg(p, 0.2)
        shares.append(float(listed[50:].sum()) / max(1, int(listed.sum())))
    assert 0.1 < sum(shares) / len(shares) < 0.2  # 0.2 * 150 / 200 is what it should be


def test_holm_by_hand():
    # Ordered 0.01 0.02 0.04: times 3, 2, 1 is 0.03 0.04 0.04.
    assert holm([0.04, 0.01, 0.02]) == pytest.approx([0.04, 0.03, 0.04])
    assert holm([0.3, 0.01, 0.02, 0.6]) == pytest.approx([0.6, 0.04, 0.06, 0.6])  # not below one before it
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []
