"""The charts of an audit: the numbers they show, and what is drawn of them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
import vl_convert
from hypothesis import given
from hypothesis import strategies as st

from fairfox.findings import AuditRecord, FeatureEffect, Features
from fairfox.report.charts import STYLES, Charts, scores_chart
from fairfox.report.figures import (
    MOST_FEATURES,
    MOST_GROUPS,
    bar_heights,
    bin_edges,
    distribution,
    features_figure,
    figures,
    groups_figure,
    proxies_figure,
    readings_table,
)
from tests.support import AGES, PEOPLE, RACES, example_result, many_result, nameless, with_finding, without_sign

HOSTILE = '<script>alert("1")</script>&]]>'
KINDS = ("scores", "groups", "features", "proxies")


def texts(chart: Any) -> list[str]:
    """The words on a chart; parsing also shows that it is well-formed."""
    root = ElementTree.fromstring(vl_convert.vegalite_to_svg(chart.to_dict()))
    assert not [element for element in root.iter() if element.tag.rpartition("}")[2] == "script"]
    return [element.text or "" for element in root.iter() if element.tag.endswith("}text")]


@pytest.mark.parametrize("kind", KINDS)
def test_every_chart_follows_the_schema_and_can_be_drawn(kind: str):
    chart = getattr(Charts(example_result()), kind)
    assert texts(chart)  # to_dict has checked it
    assert set(STYLES) <= set(chart.to_dict()["config"]["style"])


def test_one_delta_for_all_moves_with_a_parameter():
    data = figures(example_result())["scores-0"]["data"]
    assert scores_chart(data).to_dict()["params"] == [{"name": "delta", "value": 5.0}]
    assert "params" not in scores_chart(figures(many_result())["scores-1"]["data"]).to_dict()  # race=Black has its own


def test_charts_of_several_variables_stand_below_each_other():
    charts = Charts(many_result())
    assert [part["title"] for part in charts.groups.to_dict()["vconcat"]] == ["sex", "race", "age"]
    races = [word for word in texts(charts.groups) if word.startswith("race=")]
    assert races == [f"race={race}" for race in RACES]  # in their order, whichever side they are on


def test_a_chart_that_an_audit_does_not_have_says_so():
    assert texts(Charts(without_sign()).features) == ["This audit has no features to draw."]
    nowhere = with_finding(nameless(example_result()), proxy={})
    assert texts(Charts(nowhere).proxies) == ["This audit has no proxies to draw."]


def test_names_are_text_on_charts():
    effect = FeatureEffect((HOSTILE,), example_result().effect.nan_to_num()[:, None], "any")
    result = with_finding(
        example_result(features=Features({}, effect)), group=(HOSTILE,) * PEOPLE, proxy={HOSTILE: 1.0}
    )
    assert f"{HOSTILE} (38 people)" in texts(Charts(result).scores)
    assert HOSTILE in texts(Charts(result).proxies)
    assert HOSTILE in texts(Charts(result).features)


def test_figures_hold_nobody():
    text = json.dumps(figures(example_result()))
    scores = example_result().scores.tolist()
    assert not [score for score in scores if score and (str(score) in text or str(100 * score) in text)]


def test_groups_show_their_mean_effect_in_points():
    figure = groups_figure(example_result(), example_result().findings[0])
    means = [100 * group.mean_effect for group in example_result().groups]
    assert [bar["mean"] for bar in figure["data"]["bars"]] == means
    rows = [[f"sex={s}", f"{m:+.1f}"] for s, m in zip(("Female", "Male"), means, strict=True)]
    assert [row[:2] for row in figure["table"]["rows"]] == rows
    women = 100 * example_result().effect[:38:2].numpy()
    first = figure["data"]["bars"][0]
    ends = [first[name] for name in ("low", "left", "right", "high")]
    assert ends == pytest.approx(np.percentile(women, [5, 25, 75, 95]), rel=0.01)
    assert figure["data"]["delta"] == 5.0


def test_features_come_with_their_interval_and_the_number_of_people():
    figure = features_figure(example_result())
    effect = example_result().features.effect
    income, job = figure["data"]["bars"]  # age adds nothing
    assert (income["name"], job["name"]) == ("income", "job")
    assert income["value"] == 100 * effect.total["income"]
    assert income["high"] - income["value"] == pytest.approx(195.9963984540054 * effect.error["income"])
    assert "over 30 people" in figure["caption"]
    assert "over 30 people" in figure["data"]["title"]
    noisy = torch.zeros(PEOPLE, 1)
    noisy[0] = 1.0
    one = features_figure(example_result(features=Features({}, FeatureEffect(("a",), noisy, "any"))))
    assert one["data"]["bars"][0]["low"] == 0.0  # sizes are never below


def test_features_are_cut_to_the_largest_and_leave_out_what_is_unknown():
    per_person = torch.arange(30.0).expand(PEOPLE, 30).clone()
    names = tuple(f"f{k}" for k in range(30))
    figure = features_figure(example_result(features=Features({}, FeatureEffect(names, per_person, "any"))))
    assert [bar["name"] for bar in figure["data"]["bars"]] == [f"f{k}" for k in range(29, 29 - MOST_FEATURES, -1)]
    unknown = FeatureEffect(("a",), torch.full((PEOPLE, 1), torch.nan), "any")
    assert features_figure(example_result(features=Features({}, unknown))) is None


def test_proxies_come_with_the_strongest_first():
    proxy = {"small": 0.1, "unknown": float("nan"), "large": 0.5, "a.b[0]": 0.3}
    figure = proxies_figure(replace(example_result().findings[0], proxy=proxy))
    assert [bar["name"] for bar in figure["data"]["bars"]] == ["large", "a.b[0]", "small"]
    assert proxies_figure(replace(example_result().findings[0], proxy={})) is None


def panels_of(result: AuditRecord, place: int = 0) -> list[dict]:
    spread = distribution(result, result.findings[place])
    return [] if spread is None else spread["panels"]


def test_there_is_a_panel_per_group_with_limits_on_both_sides():
    female, male = panels_of(example_result())
    assert (female["group"], male["group"]) == ("Female (19 people)", "Male (19 people)")
    assert female["limits"] == male["limits"] == [-5.0, 5.0]
    assert sum(female["heights"]) == 100.0
    assert female["percentiles"][2] > 5 > male["percentiles"][2]


def test_scores_without_a_sign_have_one_limit():
    spread = distribution(without_sign(), without_sign().findings[0])
    assert not spread["signed"]
    assert [panel["limits"] for panel in spread["panels"]] == [[0.05], [0.05]]


def test_the_largest_groups_only_are_drawn():
    group = tuple(f"age={k}" for k in range(PEOPLE // 2)) + ("age=99",) * (PEOPLE // 2)
    names = [panel["group"] for panel in panels_of(with_finding(example_result(), group=group))]
    assert len(names) == MOST_GROUPS
    assert "age=99 (18 people)" in names


def test_scores_that_are_not_finite_are_not_drawn():
    signed = example_result().effect.clone()
    signed[0] = float("inf")
    assert panels_of(with_finding(example_result(), effect=signed))[0]["group"] == "Female (18 people)"


def test_ranges_of_a_number_come_in_their_order():
    result = many_result()
    assert [panel["group"] for panel in panels_of(result, 2)][:3] == [f"{ages} (64 people)" for ages in AGES]


def test_limits_are_those_of_the_group():
    assert {tuple(panel["limits"]) for panel in panels_of(many_result(), 1)} == {(-5.0, 5.0), (-3.0, 3.0)}
    assert {tuple(panel["limits"]) for panel in panels_of(many_result(deltas={}), 1)} == {(-5.0, 5.0)}


@given(st.lists(st.floats(-1e6, 1e6, allow_nan=False), min_size=1, max_size=50), st.floats(0, 1e3), st.booleans())
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


def test_bars_of_weighted_people_are_their_share_of_the_weight():
    values, edges = np.array([0.5, 0.5, 1.5]), np.array([0.0, 1.0, 2.0])
    assert bar_heights(values, edges, None).tolist() == [100 * 2 / 3, 100 / 3]
    assert bar_heights(values, edges, np.array([1.0, 1.0, 2.0])).tolist() == [50.0, 50.0]
    assert bar_heights(values, edges, np.zeros(3)).tolist() == [0.0, 0.0]


def test_readings_of_all_and_of_each_group_are_in_a_table():
    result = example_result()
    both, table = result.findings[0].readings(), readings_table(result, result.findings[0])
    assert table is not None
    assert [row[0] for row in table["rows"]] == ["all judged", "Female", "Male"]
    female = both["direct"].groups["Female"]
    assert table["rows"][1][1:3] == [f"{100 * female.mean_effect:+.1f}", f"{100 * female.mean_absolute:.1f}"]
