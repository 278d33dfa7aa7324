from xml.etree import ElementTree

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from fairfox.report import figures
from fairfox.report.figures import FLAGGED, MOST_FEATURES, MOST_GROUPS, WITHIN, bin_edges, feature_chart
from fairfox.result import AuditResult
from tests.support import AGES, PEOPLE, example_result, many_result, with_finding, without_sign

HOSTILE = '<script>alert("1")</script>&]]>'


def effects_chart(result: AuditResult, place: int = 0) -> str:
    return figures.effects_chart(result, result.findings[place])


def texts(svg: str) -> list[str]:
    """The words on a chart; parsing also shows that it is well-formed."""
    root = ElementTree.fromstring(svg)
    assert not [element for element in root.iter() if element.tag.rpartition("}")[2] == "script"]
    return [element.text or "" for element in root.iter() if element.tag.endswith("}text")]


def rules(svg: str) -> list[str]:
    """Where the dashed lines of a chart stand, from the left."""
    dashed = [element for element in ElementTree.fromstring(svg).iter() if element.get("stroke-dasharray") == "4,3"]
    return [(element.get("transform") or "").partition(",")[0] for element in dashed]


def test_effects_chart_has_a_panel_per_group_and_both_colours():
    svg = effects_chart(example_result())
    assert {"Female (19 people)", "Male (19 people)"} <= set(texts(svg))
    assert FLAGGED in svg
    assert WITHIN in svg


def test_effects_chart_of_a_test_without_sign_shows_scores():
    assert any(
        text.startswith("Score: prediction per standard deviation;") for text in texts(effects_chart(without_sign()))
    )


def test_effects_chart_of_nobody_is_empty():
    everybody = torch.ones(PEOPLE, dtype=torch.bool)
    assert effects_chart(with_finding(example_result(), abstained=everybody)) == ""


def test_effects_chart_shows_the_largest_groups_only():
    group = tuple(f"age={k}" for k in range(PEOPLE // 2)) + ("age=99",) * (PEOPLE // 2)
    panels = [
        text for text in texts(effects_chart(with_finding(example_result(), group=group))) if text.startswith("age=")
    ]
    assert len(panels) == MOST_GROUPS
    assert "age=99 (18 people)" in panels


def test_effects_chart_of_a_constant_model_draws_zero():
    zero = torch.zeros(PEOPLE)
    nobody = torch.zeros(PEOPLE, dtype=torch.bool)
    svg = effects_chart(with_finding(example_result(), signed=zero, scores=zero, flags=nobody))
    assert WITHIN in svg


def test_names_are_escaped_on_charts():
    group = (HOSTILE,) * PEOPLE
    assert f"{HOSTILE} (38 people)" in texts(effects_chart(with_finding(example_result(), group=group)))
    svg = feature_chart({HOSTILE: 1.0}, title=HOSTILE)
    assert texts(svg).count(HOSTILE) == 2
    assert "<script" not in svg


def test_feature_chart_shows_the_largest_first_and_leaves_out_what_is_unknown():
    values = {"small": 0.1, "unknown": float("nan"), "large": 0.5, "a.b[0]": 0.3}
    words = texts(feature_chart(values, title="size", scale=100.0))
    assert [word for word in words if word in values] == ["large", "a.b[0]", "small"]
    assert "50" in words


def test_feature_chart_is_cut_to_the_largest_features():
    words = texts(feature_chart({f"f{k}": float(k) for k in range(30)}, title="size"))
    assert sum(word.startswith("f") for word in words) == MOST_FEATURES


def test_feature_chart_without_values_is_empty():
    assert feature_chart({}, title="size") == feature_chart({"a": float("nan")}, title="size") == ""


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


def test_scores_that_are_not_finite_are_not_drawn():
    result = example_result()
    signed = result.signed.clone()
    signed[0] = float("inf")
    assert "Female (18 people)" in texts(effects_chart(with_finding(result, signed=signed)))


def test_ranges_of_a_number_come_in_their_order():
    result = many_result()
    words = texts(effects_chart(result, 2))
    assert [word for word in words if " to " in word] == [f"{ages} (64 people)" for ages in AGES]
    backwards = with_finding(result, 2, groups=tuple(reversed(result.findings[2].groups)))
    words = texts(effects_chart(backwards, 2))
    assert [word for word in words if " to " in word] == [f"{ages} (64 people)" for ages in reversed(AGES)]


def test_lines_stand_at_the_delta_of_the_group():
    assert {len(set(rules(effects_chart(many_result(deltas=deltas), 1)))) for deltas in ({}, {"sex=Male": 0.01})} == {2}
    assert len(set(rules(effects_chart(many_result(), 1)))) == 4  # at 5 points, and at 3 for race=Black


def test_bars_of_weighted_people_are_their_share_of_the_weight():
    values, edges = np.array([0.5, 0.5, 1.5]), np.array([0.0, 1.0, 2.0])
    assert figures.bar_heights(values, edges, None).tolist() == [100 * 2 / 3, 100 / 3]
    assert figures.bar_heights(values, edges, np.array([1.0, 1.0, 2.0])).tolist() == [50.0, 50.0]
    assert figures.bar_heights(values, edges, np.zeros(3)).tolist() == [0.0, 0.0]
