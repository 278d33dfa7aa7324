import json
from dataclasses import replace

import torch

from fairfox.report.figures import (
    MOST_FEATURES,
    MOST_GROUPS,
    features_figure,
    figures,
    groups_figure,
    proxies_figure,
    signed_by_group,
)
from fairfox.result import FeatureEffect, Features
from tests.support import AGES, PEOPLE, example_result, many_result, with_finding, without_sign


def test_every_variable_has_its_figures():
    assert set(figures(many_result())) == {
        "features",
        *(f"{what}-{v}" for what in ("scores", "groups", "readings", "proxies") for v in range(3)),
    }


def test_figures_hold_nobody():
    text = json.dumps(figures(example_result()))
    scores = example_result().scores.tolist()
    assert not [score for score in scores if score and (str(score) in text or str(100 * score) in text)]


def test_groups_show_their_mean_effect_in_points():
    figure = groups_figure(example_result(), example_result().findings[0])
    assert figure is not None
    means = [100 * group.mean_signed for group in example_result().groups]
    assert [bar["value"] for bar in figure["data"]["bars"]] == means
    assert figure["table"]["rows"] == [
        [f"sex={s}", f"{m:+.1f}"] for s, m in zip(("Female", "Male"), means, strict=True)
    ]


def test_groups_of_a_test_without_sign_show_how_many_are_flagged():
    result = without_sign()
    figure = groups_figure(result, result.findings[0])
    assert figure is not None
    assert not figure["data"]["signed"]
    assert [bar["value"] for bar in figure["data"]["bars"]] == [100 * group.share_flagged for group in result.groups]


def test_features_come_with_their_error_and_the_difference_of_the_groups():
    features = replace(example_result().features, displacement={"income": 0.6, "job": 0.2})
    figure = features_figure(example_result(features=features))
    assert figure is not None
    income, job, age = figure["data"]["bars"]
    assert (income["name"], income["apart"], job["apart"], age["apart"]) == ("income", 0.6, 0.2, None)
    effect = example_result().features.effect
    assert effect is not None
    assert income["value"] == 100 * effect.total["income"]
    assert income["error"] == 100 * effect.error["income"]
    assert "without any model" in figure["caption"]
    assert [column["label"] for column in figure["table"]["columns"]][3] == "Groups differ by"
    assert "without any model" not in str(features_figure(example_result()))


def test_features_are_cut_to_the_largest_and_leave_out_what_is_unknown():
    per_person = torch.arange(30.0).expand(PEOPLE, 30).clone()
    names = tuple(f"f{k}" for k in range(30))
    figure = features_figure(example_result(features=Features({}, FeatureEffect(names, per_person, "any"))))
    assert figure is not None
    assert [bar["name"] for bar in figure["data"]["bars"]] == [f"f{k}" for k in range(29, 29 - MOST_FEATURES, -1)]
    unknown = FeatureEffect(("a",), torch.full((PEOPLE, 1), torch.nan), "any")
    assert features_figure(example_result(features=Features({}, unknown))) is None


def test_proxies_come_with_the_strongest_first():
    proxy = {"small": 0.1, "unknown": float("nan"), "large": 0.5, "a.b[0]": 0.3}
    figure = proxies_figure(replace(example_result().findings[0], proxy=proxy))
    assert figure is not None
    assert [bar["name"] for bar in figure["data"]["bars"]] == ["large", "a.b[0]", "small"]
    assert proxies_figure(replace(example_result().findings[0], proxy={})) is None


def test_a_test_without_sign_shows_scores():
    figure = figures(without_sign())["scores-0"]
    assert figure["data"]["title"] == "Score: prediction per standard deviation"
    assert "Right of zero" not in figure["caption"]


def test_many_groups_are_said_to_be_cut():
    groups = example_result().groups * MOST_GROUPS
    figure = figures(with_finding(example_result(), groups=groups))["scores-0"]
    assert f"The {MOST_GROUPS} largest groups are drawn." in figure["caption"]


def test_a_delta_of_another_variable_is_told():
    captions = [figures(many_result())[f"scores-{v}"]["caption"] for v in range(3)]
    told = "Members of race=Black have their own delta, which the lines do not show."
    assert [told in caption for caption in captions] == [True, False, True]


def test_the_difference_of_groups_names_its_variable_where_there_are_several():
    far = {"postcode": 0.6}
    many, one = many_result(), example_result()
    several = features_figure(replace(many, features=replace(many.features, displacement=far)))
    assert several is not None
    assert several["data"]["apart"] == "How far the groups of sex differ, without a model"
    assert "Groups of sex differ by" in [column["label"] for column in several["table"]["columns"]]
    assert "how far the groups of sex differ in it" in several["alt"]
    single = features_figure(replace(one, features=replace(one.features, displacement={"income": 0.6})))
    assert single is not None
    assert single["data"]["apart"] == "How far the groups differ, without a model"


def test_signed_contributions_stand_in_the_order_of_the_groups():
    ages = ("below 28", "28 to 36", "37 and more")  # by the alphabet the first would come last
    result = many_result()
    renamed = dict(zip(AGES, ages, strict=True))
    finding = result.findings[2]
    groups = tuple(replace(group, level=renamed[group.level]) for group in finding.groups)
    own = tuple(renamed.get(level, level) for level in finding.group)
    result = with_finding(result, 2, groups=groups, group=own)
    assert [name for name in signed_by_group(result) if name.startswith("age")] == [
        *(f"age={age}" for age in ages),
        *(["age=unknown"] if "age=unknown" in result.effect_by_group else []),
    ]
    assert signed_by_group(result) == result.effect_by_group


def test_where_decisions_turn_no_chart_speaks_of_delta():
    plain = example_result()
    turned = figures(example_result(settings={**plain.settings, "decision_threshold": 0.5}))
    assert figures(plain)["scores-0"]["alt"].endswith("in each group, with lines at delta.")
    assert not [figure for figure in turned.values() if "delta" in f"{figure['alt']} {figure['caption']}"]


def test_a_long_name_leaves_room_for_its_count():
    result = many_result()
    long = {"Black": "B" * 300}
    finding = result.findings[1]
    groups = tuple(replace(group, level=long.get(group.level, group.level)) for group in finding.groups)
    own = tuple(long.get(level, level) for level in finding.group)
    drawn = figures(with_finding(result, 1, groups=groups, group=own))["scores-1"]["data"]["panels"]
    (title,) = (panel["group"] for panel in drawn if panel["group"].startswith("B"))
    assert title == f"{'B' * 59}… (39 people)"  # of forty person 196 is abstained
