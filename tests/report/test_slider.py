import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from fairfox.report.figures import make_slider, positions, positions_flagged, why_no_slider
from tests.support import PEOPLE, example_result, many_result, with_finding, without_sign

SCORES = st.lists(st.floats(0, 1e4, width=32), min_size=1, max_size=60)


def test_the_slider_starts_at_the_audit():
    result = example_result()
    slider = make_slider(result)
    start = slider["start"]
    assert slider["deltas"][start] == result.delta
    assert slider["words"][start] == "5 points"
    assert slider["flagged"][start] == int(result.flagged.sum())
    assert slider["shares"][start] == pytest.approx(result.share_flagged, abs=1e-6)
    assert (slider["judged"], slider["scale"]) == (38, 100.0)
    assert [group["name"] for group in slider["groups"]] == ["sex=Female", "sex=Male"]


@pytest.mark.parametrize(
    "result", [example_result(), without_sign(), many_result(deltas={})], ids=["one", "fta", "many"]
)
def test_counts_are_those_of_scores_above_delta_and_shares_are_weighted(result):
    slider = make_slider(_with_one_delta(result))
    for delta, flagged in zip(slider["deltas"], slider["flagged"], strict=True):
        assert flagged == int((result.scores[~result.abstained] > delta).sum())
    group = slider["groups"][0]
    finding = result.findings[0]
    own = [n for n, level in enumerate(finding.group) if level == "Female" and not finding.abstained[n]]
    assert group["judged"] == len(own)
    for delta, flagged in zip(slider["deltas"], group["flagged"], strict=True):
        assert flagged == int((finding.scores[own] > delta).sum())
    if result.weights is not None:
        weight, over = result.weights[own], finding.scores[own] > result.delta
        assert group["shares"][slider["start"]] == pytest.approx(float(weight[over].sum() / weight.sum()), abs=1e-6)


def test_one_delta_that_does_not_decide_gives_no_slider():
    assert "decision would change" in str(why_no_slider(example_result(settings={"decision_threshold": 0.5})))
    assert "a delta of their own" in str(why_no_slider(many_result()))
    everybody = torch.ones(PEOPLE, dtype=torch.bool)
    assert "Nobody could be judged" in str(why_no_slider(example_result(abstained=everybody)))
    assert "Delta alone does not decide" in str(why_no_slider(example_result(flagged=~example_result().flagged)))
    assert why_no_slider(example_result()) is None
    assert make_slider(many_result()) is None


@given(SCORES, st.floats(0, 1e3))
@example(scores=[0.0], delta=5e-324)  # a step of it would be 0
def test_positions_ascend_from_nobody_spared_to_nobody_flagged(scores: list[float], delta: float):
    values = torch.tensor(scores)
    deltas = positions(values, delta)
    assert deltas[0] == 0.0
    assert delta in deltas
    assert all(a < b for a, b in pairwise(deltas))
    assert len(deltas) < 420
    assert not bool((values > deltas[-1]).any())


@given(SCORES, st.floats(0, 1e3))
def test_people_are_flagged_at_all_positions_before_their_last(scores: list[float], delta: float):
    values = torch.tensor(scores)
    deltas = positions(values, delta)
    last = positions_flagged(values, deltas)
    for person, until in enumerate(last.tolist()):
        assert (values[person] > torch.tensor(deltas)).tolist() == [place < until for place in range(len(deltas))]


def test_one_outlier_does_not_coarsen_the_steps():
    deltas = positions(torch.tensor([*torch.linspace(0, 0.4, 1000).tolist(), 1e6]), 0.05)
    assert deltas[1] < 0.01
    assert deltas[-1] >= 1e6


def _with_one_delta(result):
    flags = [finding.scores > result.delta for finding in result.findings]
    for place, own in enumerate(flags):
        result = with_finding(result, place, flagged=own & ~result.findings[place].abstained)
    return replace(result, flagged=(result.scores > result.delta) & ~result.abstained)


def test_a_delta_near_the_largest_float_has_finite_steps():
    deltas = positions(torch.tensor([0.1, 0.2]), 1e308)
    assert all(map(math.isfinite, deltas))
    assert deltas[-1] == 1e308
