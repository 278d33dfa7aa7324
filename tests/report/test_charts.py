import json
from typing import Any
from xml.etree import ElementTree

import pytest
import vl_convert

from fairfox.errors import ColumnError
from fairfox.report.charts import STYLES, Charts, draw, scores_chart, specs
from fairfox.report.figures import figures
from fairfox.result import FeatureEffect, Features
from tests.support import PEOPLE, example_result, many_result, nameless, with_finding, without_sign

HOSTILE = '<script>alert("1")</script>&]]>'
KINDS = ("scores", "groups", "readings", "features", "proxies")


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


def test_the_page_draws_the_same_charts():
    shown = figures(example_result())
    assert specs(shown) == {name: draw(figure).to_dict() for name, figure in shown.items()}
    assert "name" not in json.dumps([part.get("params") for part in specs(shown).values() if "vconcat" not in part])


def test_scores_have_a_panel_per_group_and_both_colours():
    svg = vl_convert.vegalite_to_svg(Charts(example_result()).scores.to_dict())
    assert all(f"{group} (19 people)" in svg for group in ("Female", "Male"))
    assert STYLES["flagged"]["color"] in svg
    assert STYLES["within"]["color"] in svg


def test_one_delta_for_all_moves_with_a_parameter():
    data = figures(example_result())["scores-0"]["data"]
    assert scores_chart(data).to_dict()["params"] == [{"name": "delta", "value": 5.0}]
    assert "params" not in scores_chart(figures(many_result())["scores-1"]["data"]).to_dict()  # race=Black has its own


def over(delta: float) -> float:
    """How much of the women's bars is drawn as beyond a delta, in percent of them."""
    data = figures(example_result())["scores-0"]["data"]
    spec = scores_chart({**data, "panels": data["panels"][:1]}).to_dict()
    spec["params"][0]["value"] = delta
    spec["config"] = {"style": STYLES}
    root = ElementTree.fromstring(vl_convert.vegalite_to_svg(spec))
    bars = [
        e for e in root.iter() if e.get("fill") == STYLES["flagged"]["color"] and e.get("aria-roledescription") == "bar"
    ]
    return len(bars)


def test_more_is_beyond_a_smaller_delta():
    assert over(0.0) > over(5.0) > over(12.0) >= over(100.0) == 0


def test_charts_of_several_variables_stand_below_each_other():
    charts = Charts(many_result())
    assert [part["title"] for part in charts.groups.to_dict()["vconcat"]] == ["sex", "race", "age"]
    alone = charts.for_variable("race").groups
    assert alone.to_dict()["title"] == "race"
    assert {"race=Black", "race=White"} <= set(texts(alone))
    assert "sex=Female" not in texts(alone)


def test_a_variable_that_was_not_audited_is_refused():
    with pytest.raises(ColumnError, match="'shoe' was not audited; the protected variables are 'sex'"):
        Charts(example_result()).for_variable("shoe")


def test_a_chart_that_an_audit_does_not_have_says_so():
    assert texts(Charts(without_sign()).features) == ["This audit has no features to draw."]
    nowhere = with_finding(nameless(example_result()), proxy={})
    assert texts(Charts(nowhere).proxies) == ["This audit has no proxies to draw."]


def test_groups_stay_in_their_order_whichever_side_they_are_on():
    words = texts(Charts(many_result()).for_variable("race").groups)
    assert [word for word in words if word.startswith("race=")] == [
        f"race={race}" for race in ("Asian", "Black", "Latin", "Other", "White")
    ]


def test_features_stand_beside_the_difference_of_the_groups():
    effect = example_result().features.effect
    features = Features({}, effect, displacement={"income": 0.63})
    chart = Charts(example_result(features=features)).features
    assert len(chart.to_dict()["hconcat"]) == 2
    assert "0.63" in texts(chart)
    assert "hconcat" not in Charts(example_result()).features.to_dict()


def test_names_are_text_on_charts():
    effect = FeatureEffect((HOSTILE,), example_result().signed.nan_to_num()[:, None], "any")
    result = with_finding(
        example_result(features=Features({}, effect)), group=(HOSTILE,) * PEOPLE, proxy={HOSTILE: 1.0}
    )
    assert f"{HOSTILE} (38 people)" in texts(Charts(result).scores)
    assert HOSTILE in texts(Charts(result).proxies)
    assert HOSTILE in texts(Charts(result).features)


def test_small_effects_look_small_beside_delta():
    data = figures(example_result())["groups-0"]["data"]
    small = {**data, "bars": [{"name": "sex=Female", "value": 0.1, "text": "+0.1"}]}
    domain = draw({"kind": "groups", "data": small}).to_dict()["layer"][0]["encoding"]["x"]["scale"]["domain"]
    assert domain[0] < -5 < 5 < domain[1]
    assert figures(many_result())["groups-1"]["data"]["limit"] is None  # race=Black has its own
