"""Doubt, whom to leave out, and distance from real people: by hand, against brute force, and what must not matter."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from populations import individuals

from fairfox.data.contrasts import moves
from fairfox.data.dataset import Dataset, Protected
from fairfox.fairtests.protocol import combine
from fairfox.fairtests.readings import Readings
from fairfox.statistics import diagnostics
from fairfox.statistics.diagnostics import Reliability, distance, distance_warnings, doubt, leave_out, most_doubtful

refits_of_people = st.lists(
    st.lists(st.floats(-1.0, 1.0, width=32), min_size=3, max_size=3), min_size=1, max_size=12
).map(lambda rows: torch.tensor(rows, dtype=torch.float64))


def rows_of(seed, n=60, columns=3):
    return torch.randn(n, columns, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_doubt_is_the_spread_over_spread_effect_and_delta():
    # 0.1 and 0.3: mean 0.2, standard deviation 0.2 / √2; -0.3 and -0.1 the same; 0.2 twice: no spread
    refits = torch.tensor([[0.1, 0.3], [-0.3, -0.1], [0.2, 0.2]], dtype=torch.float64)
    s = 0.2 / math.sqrt(2)
    expected = s / (s + 0.2 + 0.05)
    torch.testing.assert_close(doubt(refits, 0.05), torch.tensor([expected, expected, 0.0], dtype=torch.float64))


@given(refits_of_people, st.floats(0.01, 1.0), st.floats(0.01, 100.0))
@settings(deadline=None, max_examples=50)
def test_doubt_lies_from_0_to_1_and_does_not_depend_on_units_signs_or_the_other_people(refits, delta, unit):
    found = doubt(refits, delta)
    assert bool(((found >= 0) & (found < 1)).all())
    torch.testing.assert_close(doubt(refits * unit, delta * unit), found)
    torch.testing.assert_close(doubt(-refits, delta), found)
    torch.testing.assert_close(doubt(refits[:1], delta), found[:1])
    torch.testing.assert_close(doubt(refits.flip(0), delta), found.flip(0))


def test_the_most_doubtful_are_left_out_and_equal_doubts_share_one_fate():
    doubts = torch.tensor([0.3, 0.1, 0.5, 0.2, 0.3])
    assert most_doubtful(doubts, 0.0).tolist() == [False] * 5
    assert most_doubtful(doubts, 0.19).tolist() == [False] * 5  # less than one person
    assert most_doubtful(doubts, 0.2).tolist() == [False, False, True, False, False]
    assert most_doubtful(doubts, 0.4).tolist() == [False, False, True, False, False]  # not one of the two with 0.3
    assert most_doubtful(doubts, 0.6).tolist() == [True, False, True, False, True]


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=30, unique=True), st.integers(0, 9))
@settings(deadline=None, max_examples=50)
def test_without_ties_exactly_the_share_is_left_out(values, tenths):
    doubts = torch.tensor(values, dtype=torch.float64)
    out = most_doubtful(doubts, tenths / 10)
    assert int(out.sum()) == tenths * len(values) // 10
    if bool(out.any()):
        assert doubts[out].min() > doubts[~out].max()


def test_distance_is_what_sorting_all_distances_gives(monkeypatch):
    monkeypatch.setattr(diagnostics, "NEAREST", 4)
    people, rows = rows_of(0), rows_of(1, n=7) * 3
    groups = torch.arange(60) % 2
    to = torch.arange(7) % 2
    found = distance(rows, to.double(), people, groups.double()).numpy()

    def mean_of_nearest(row, real):
        return np.sort(np.linalg.norm(real - row, axis=1))[:4].mean()

    for row, group, value in zip(rows.numpy(), to.tolist(), found, strict=True):
        real = people[groups == group].numpy()
        among = np.mean([mean_of_nearest(one, np.delete(real, i, axis=0)) for i, one in enumerate(real)])
        assert value == pytest.approx(mean_of_nearest(row, real) / among)


@given(st.integers(1, 70), st.floats(0.1, 10.0), st.integers(0, 5))
@settings(deadline=None, max_examples=20)
def test_distance_depends_neither_on_blocks_nor_on_units_nor_on_the_order_of_rows(block, unit, seed):
    people, rows = rows_of(seed), rows_of(seed + 10, n=30)
    groups, to = (torch.arange(60) % 2).double(), (torch.arange(30) % 2).double()
    found = distance(rows, to, people, groups)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(diagnostics, "BLOCK", block)
        torch.testing.assert_close(distance(rows, to, people, groups), found)
    torch.testing.assert_close(distance(unit * rows, to, unit * people, groups), found)
    torch.testing.assert_close(distance(rows.flip(0), to.flip(0), people, groups), found.flip(0))


def test_a_draw_of_the_people_is_enough_and_leaves_the_generator_alone(monkeypatch):
    people, fresh = rows_of(0, n=2000).float(), rows_of(1, n=300).float()
    real, to = torch.zeros(2000), torch.zeros(300)
    before = torch.random.get_rng_state()
    monkeypatch.setattr(diagnostics, "SAMPLED", 500)
    few, again = (distance(fresh, to, people, real, seed=3) for _ in range(2))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.equal(few, again)
    assert few.dtype == torch.float32
    monkeypatch.setattr(diagnostics, "SAMPLED", 2000)
    every = distance(fresh, to, people, real)
    assert float(torch.corrcoef(torch.stack([few, every]))[0, 1]) > 0.95


def trusted(**changes):
    """Return the reliability of six people of two variables: sex (two groups) and age (a number).

    The first two are compared with men, the next two with women, and the age of the last two changes.
    """
    sex, age = Protected("sex", "binary", ("female", "male")), Protected("age", "continuous", ())
    x = torch.tensor([[0.0], [1.0], [3.0], [10.0], [11.0], [13.0]])
    c = torch.tensor([[0.0, 20.0], [0.0, 30.0], [0.0, 40.0], [1.0, 25.0], [1.0, 35.0], [1.0, math.nan]])
    refits = torch.tensor([[0.1, 0.1], [0.0, 0.2], [0.1, 0.2], [0.0, 0.1], [0.3, 0.3], [0.0, 0.0]])
    given = {
        "refits": refits,
        "delta": 0.05,
        "silent": torch.tensor([False] * 5 + [True]),
        "variable": torch.tensor([0, 0, 0, 0, 1, 1]),
        "klass": torch.tensor([1, 1, 0, 0, 0, 0]),
        "real": Dataset.from_arrays(x, c, protected=(sex, age)),
        "rows": torch.tensor([[10.0], [20.0], [1.0], [5.0], [5.0], [5.0]]),
    }
    return Reliability(**given | changes)


def test_the_most_doubtful_of_an_audit_are_left_out_and_the_silent_are_among_the_share():
    found = trusted(share=0.4)
    # s / (s + |m| + 0.05): 0.1414 / 0.2914, 0.0707 / 0.2707 and 0.0707 / 0.1707; no evidence at all is 1
    expected = torch.tensor([0.0, 0.4852, 0.2612, 0.4142, 0.0, 1.0])
    torch.testing.assert_close(found.doubt, expected, atol=1e-4, rtol=0)
    assert found.left_out.tolist() == [False, True, False, False, False, False]  # two of six, one of them silent
    assert trusted(share=None).left_out.tolist() == trusted(share=0.0).left_out.tolist() == [False] * 6


def test_rows_are_held_against_the_group_they_go_to_and_against_everyone_for_a_number():
    found = trusted(share=0.4).distance
    men, women = torch.tensor([10.0, 11.0, 13.0]), torch.tensor([0.0, 1.0, 3.0])
    # either group has two neighbours each: means (2, 1.5, 2.5) among them, 2 in all; of everyone five others
    assert found[0] == pytest.approx(float((men - 10).abs().sort().values[:2].mean()) / 2)  # (0 + 1) / 2 / 2
    assert found[2] == pytest.approx(float((women - 1).abs().sort().values[:2].mean()) / 2)  # (0 + 1) / 2 / 2
    assert found[3] == pytest.approx((2 + 4) / 2 / 2)
    everyone = torch.cat([women, men])
    among = (everyone[:, None] - everyone).abs().sum(1).mean() / 5
    nearest = (everyone - 5).abs().sort().values[:5].mean()
    assert found[4] == pytest.approx(float(nearest / among))
    assert found[[1, 5]].isnan().all()  # left out, silent


def test_without_a_second_refit_a_delta_or_a_map_there_is_nothing_to_tell():
    assert trusted(refits=torch.zeros(6, 1)).doubt is None
    assert trusted(delta=0.0).doubt is None
    assert trusted(rows=None).distance is None


def test_people_who_are_left_out_look_like_all_who_are_abstained_from():
    data = individuals(torch.arange(4.0)[:, None])
    values = torch.tensor([[0.1, 0.2, math.nan, -0.4], [0.3, 0.2, math.nan, -0.2]])[..., None]
    rows = torch.full((2, 4, 1), 9.0)
    main = replace(
        combine(values, data, contrasts=moves(data.protected), signed=True, reasons="off the data"),
        counterfactuals=rows,
    )
    other = combine(values, data, contrasts=moves(data.protected), signed=True)
    runs = Readings(
        main=main,
        direct=other,
        total=other,
        people=data,
        inferred=torch.zeros(4, 1, dtype=torch.bool),
        quality=(),
        proxy=(),
        alignment=(),
        others={"rank": other, "move": other},
    )
    left = leave_out(runs, torch.tensor([True, False, False, False]), test="rank")
    found = left.main
    assert found.score.tolist() == pytest.approx([0.0, 0.2, 0.0, 0.3])
    assert found.effect.tolist() == pytest.approx([0.0, 0.2, 0.0, -0.3])
    assert found.abstained.tolist() == [True, False, True, False]
    assert found.reasons == ("the refits disagree", None, "off the data", None)
    assert found.refits[[0, 2]].tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert found.each[:, 0].isnan().all()
    torch.testing.assert_close(found.each[:, 1:], main.each[:, 1:], equal_nan=True, atol=0, rtol=0)
    assert found.counterfactuals[:, :, 0].tolist() == [[0.0, 9.0, 9.0, 9.0]] * 2  # their own row
    assert left.others["rank"] is found
    assert left.others["move"] is left.direct is other


def test_distance_is_that_to_real_people_over_that_among_them(monkeypatch):
    monkeypatch.setattr(diagnostics, "NEAREST", 1)
    # Women at 0, 1, 3: their nearest other is 1, 1 and 2 away, 4/3 on average. Men at 10, 10: no distance between them.
    people = torch.tensor([[0.0], [1.0], [3.0], [10.0], [10.0]])
    groups = torch.tensor([0.0, 0.0, 0.0, 1.0, 1.0])
    rows = torch.tensor([[5.0], [1.0], [10.0], [9.0], [2.0], [2.0]])
    to = torch.tensor([0.0, 0.0, 1.0, 1.0, math.nan, 2.0])
    found = distance(rows, to, people, groups)
    expected = torch.tensor([2.0 / (4 / 3), 0.0, 0.0, math.inf, math.nan, math.nan])
    torch.testing.assert_close(found, expected, equal_nan=True)


def test_people_who_look_like_nobody_real_are_counted():
    distance = torch.tensor([1.0, 3.0, 3.1, math.inf, math.nan])
    assert distance_warnings(distance) == [
        "The counterfactual rows of 2 of 4 people resemble nobody: they are more than 3 times as far from real people "
        "as real people are from each other. Interpret these scores with care."
    ]
    assert distance_warnings(torch.tensor([1.0, 3.0, math.nan])) == []  # all are near
