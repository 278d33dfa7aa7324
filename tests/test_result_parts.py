import math
from dataclasses import replace

import pytest
import torch

from fairfox import result, result_parts
from fairfox.result_parts import FeatureEffect
from tests.support import example_result, many_result


def test_groups_are_named_in_words():
    group = example_result().groups[0]
    assert group.name == "sex=Female"
    assert replace(group, variable="age<25", level="age<25").name == "age<25"
    assert replace(group, variable="age<25", level="not age<25").name == "not age<25"


def test_totals_come_with_the_standard_error_of_the_people_they_were_averaged_over():
    effect = example_result().features.effect
    explained = effect.per_person[:30].abs()  # the last ten people were not explained
    assert effect.people == 30
    assert effect.error["income"] == pytest.approx(float(explained[:, 0].std() / 30**0.5))
    drawn = replace(effect, drawn=torch.arange(40) < 10)
    assert drawn.people == 10
    assert drawn.total["income"] == pytest.approx(float(explained[:10, 0].mean()))


def test_a_class_may_be_called_unknown():
    finding = replace(many_result().findings[0], group=("Female", "unknown", "Male", "unknown"))
    assert finding.unknown == 2
    assert replace(finding, levels=("Female", "Male", "unknown")).unknown == 0


def test_the_totals_of_nobody_are_nan_and_those_of_one_person_have_no_error():
    effect = FeatureEffect(("income", "job"), torch.tensor([[0.1, -0.3], [math.nan, math.nan]]), "integrated gradients")
    assert effect.people == 1
    assert effect.total == {"job": pytest.approx(0.3), "income": pytest.approx(0.1)}  # the largest first
    assert all(math.isnan(error) for error in effect.error.values())
    nobody = replace(effect, drawn=torch.tensor([False, True]))
    assert nobody.people == 0
    assert all(math.isnan(size) for size in nobody.total.values())


def test_contrasts_are_counted_over_judged_people():
    finding = replace(
        many_result().findings[0],
        contrasts=("Female", "Male"),
        towards=("Male", "Male", None, "Female", "away from Male"),
        abstained=torch.tensor([False, False, False, True, False]),
    )
    assert finding.judged == 4
    assert finding.attained == {"Male": 2, "away from Male": 1}


def test_the_parts_can_be_imported_with_the_result():
    for name in ("FeatureEffect", "Features", "Finding", "Group", "Reading"):
        assert getattr(result, name) is getattr(result_parts, name)
