import json
from dataclasses import replace

import torch

from fairfox.report.figures import MOST_FEATURES, MOST_GROUPS, features_figure, figures, groups_figure, proxies_figure
from fairfox.result import FeatureEffect, Features
from tests.support import PEOPLE, example_result, many_result, with_finding, without_sign


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
