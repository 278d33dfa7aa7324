import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from fairfox.report.spread import bar_heights, bin_edges, spread_of
from fairfox.result import AuditResult
from tests.support import AGES, PEOPLE, example_result, many_result, with_finding, without_sign

MOST = 6


def panels(result: AuditResult, place: int = 0) -> list[dict]:
    spread = spread_of(result, result.findings[place], scale=100.0, most=MOST)
    return [] if spread is None else spread["panels"]


def test_there_is_a_panel_per_group_with_limits_on_both_sides():
    female, male = panels(example_result())
    assert (female["group"], male["group"]) == ("Female (19 people)", "Male (19 people)")
    assert female["limits"] == male["limits"] == [-5.0, 5.0]
    assert sum(female["heights"]) == 100.0
    assert female["middle"][2] > 5 > male["middle"][2]


def test_scores_without_a_sign_have_one_limit():
    spread = spread_of(without_sign(), without_sign().findings[0], scale=1.0, most=MOST)
    assert spread is not None
    assert not spread["signed"]
    assert [panel["limits"] for panel in spread["panels"]] == [[0.05], [0.05]]


def test_where_decisions_count_no_delta_is_drawn():
    result = example_result(settings={"decision_threshold": 0.5})
    assert [panel["limits"] for panel in panels(result)] == [[], []]


def test_nobody_judged_is_nothing_to_draw():
    everybody = torch.ones(PEOPLE, dtype=torch.bool)
    assert panels(with_finding(example_result(), abstained=everybody)) == []


def test_the_largest_groups_only_are_drawn():
    group = tuple(f"age={k}" for k in range(PEOPLE // 2)) + ("age=99",) * (PEOPLE // 2)
    names = [panel["group"] for panel in panels(with_finding(example_result(), group=group))]
    assert len(names) == MOST
    assert "age=99 (18 people)" in names


def test_a_constant_model_is_drawn_at_zero():
    zero, nobody = torch.zeros(PEOPLE), torch.zeros(PEOPLE, dtype=torch.bool)
    (female, _) = panels(with_finding(example_result(), signed=zero, scores=zero, flags=nobody))
    bars = zip(female["edges"][:-1], female["edges"][1:], female["heights"], strict=True)
    assert [(left <= 0 <= right) for left, right, height in bars if height] == [True]


def test_scores_that_are_not_finite_are_not_drawn():
    signed = example_result().signed.clone()
    signed[0] = float("inf")
    assert panels(with_finding(example_result(), signed=signed))[0]["group"] == "Female (18 people)"


def test_ranges_of_a_number_come_in_their_order():
    result = many_result()
    assert [panel["group"] for panel in panels(result, 2)][:3] == [f"{ages} (64 people)" for ages in AGES]
    backwards = with_finding(result, 2, groups=tuple(reversed(result.findings[2].groups)))
    assert [panel["group"] for panel in panels(backwards, 2)][:3] == [f"{ages} (64 people)" for ages in reversed(AGES)]


def test_limits_are_those_of_the_group():
    assert {tuple(panel["limits"]) for panel in panels(many_result(), 1)} == {(-5.0, 5.0), (-3.0, 3.0)}
    assert {tuple(panel["limits"]) for panel in panels(many_result(deltas={}), 1)} == {(-5.0, 5.0)}


numbers = st.floats(-1e6, 1e6, allow_nan=False)


@given(st.lists(numbers, min_size=1, max_size=50), st.floats(0, 1e3), st.booleans())
def test_bins_cover_the_limits_and_stay_few(values: list[float], delta: float, mirrored: bool):
    limits = [-delta, delta] if mirrored else [delta]
    edges = bin_edges(np.array(values), limits)
    slack = 1e-6 * (edges[-1] - edges[0])
    assert np.all(np.diff(edges) > 0)
    assert 2 <= len(edges) <= 70
    assert edges[0] <= limits[0] + slack
    assert edges[-1] >= limits[-1] - slack


def test_limits_are_edges_where_bins_are_narrow():
    edges = bin_edges(np.linspace(-9.3, 12.1, 100), [-5.0, 5.0])
    assert np.isclose(edges, 5.0).any()
    assert np.isclose(edges, -5.0).any()


def test_outliers_do_not_flatten_the_chart():
    values = np.concatenate([np.linspace(0, 1, 1000), [1e9]])
    assert bin_edges(values, [0.5])[-1] < 2


def test_bars_of_weighted_people_are_their_share_of_the_weight():
    values, edges = np.array([0.5, 0.5, 1.5]), np.array([0.0, 1.0, 2.0])
    assert bar_heights(values, edges, None).tolist() == [100 * 2 / 3, 100 / 3]
    assert bar_heights(values, edges, np.array([1.0, 1.0, 2.0])).tolist() == [50.0, 50.0]
    assert bar_heights(values, edges, np.zeros(3)).tolist() == [0.0, 0.0]
