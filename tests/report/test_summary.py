import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fairfox.result import SCHEMA_VERSION, AuditResult
from tests.support import (
    PEOPLE,
    RACES,
    example_certificates,
    example_result,
    many_result,
    with_doubt,
    with_finding,
    without_sign,
)


def parsed(result: AuditResult) -> dict:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(result.to_json(), parse_constant=refuse)


def test_the_worst_case_is_on_top():
    fields = parsed(example_result())
    assert fields["schema_version"] == SCHEMA_VERSION == 2
    assert set(fields) == {
        *("kind", "schema_version", "test", "meaning", "unit", "delta", "deltas", "counts", "weighted"),
        *("share_flagged", "share_confident", "share_abstained", "abstained_by_reason", "worst_case"),
        *("variables", "features"),
        *("warnings", "settings", "checks", "comparison", "verdict", "next_steps", "in_words"),
    }
    assert (fields["checks"], fields["comparison"]) == ({}, None)
    assert fields["counts"] == {
        **{"people": 40, "judged": 38, "flagged": 23, "confident": 19, "abstained": 2},
        "inferred": 0,
        "listed": None,
    }
    assert fields["abstained_by_reason"] == {"no evidence about sex": 2}
    assert fields["worst_case"] == {"sex": 1.0}
    assert fields["features"]["effect"]["people"] == 30
    assert list(fields["features"]["effect"]["mean_signed"]) == ["sex=Female", "sex=Male"]


def test_every_variable_has_all_its_fields():
    variable = parsed(example_result())["variables"][0]
    assert set(variable) == {
        *("name", "kind", "levels", "parts", "reference", "second", "merged", "contrasts", "counts", "share_flagged"),
        *("share_confident", "mean_score", "worst", "alignment_share", "alignment_error", "auxiliary", "readings"),
        *("features", "groups", "flips", "verdict"),
    }
    assert set(variable["flips"]) == {"sex=Female", "sex=Male"}
    assert list(variable["features"]["proxy"]) == ["income", "job", "age"]
    assert variable["auxiliary"]["value"] == 0.84
    assert variable["worst"] == {"Male": 19, "Female": 19}
    assert list(variable["readings"]["direct"]["groups"]) == ["Female", "Male"]
    assert [list(group["towards"]) for group in variable["groups"]] == [["Male"], ["Female"]]


def test_several_variables_stand_side_by_side():
    fields = parsed(many_result())
    sex, race, age = fields["variables"]
    assert [variable["kind"] for variable in (sex, race, age)] == ["binary", "categorical", "continuous"]
    assert (fields["weighted"], fields["deltas"]) == (True, {"race=Black": 0.03})
    assert (race["levels"], race["merged"]) == (list(RACES), {"Other": ["Eskimo", "Inuit"]})
    assert race["counts"]["inferred"] == fields["counts"]["inferred"] == 20
    assert race["counts"]["known"] == 180
    assert (age["counts"]["known"], age["counts"]["unknown"], age["counts"]["judged"]) == (196, 4, 192)
    assert sum(race["worst"].values()) == race["counts"]["judged"] == 196
    assert list(race["groups"][1]["towards"]) == ["Asian", "Latin", "Other", "White"]
    assert age["contrasts"] == ["age + 13.6", "age - 13.6"]
    assert sum(fields["worst_case"].values()) == 1.0
    weights = many_result().weights[:196]
    flagged = many_result().findings[1].flags[:196]
    assert race["share_flagged"] == pytest.approx(float(weights[flagged].sum() / weights.sum()))


def test_nobody_judged_has_no_means():
    everybody = torch.ones(PEOPLE, dtype=torch.bool)
    result = with_finding(
        example_result(abstained=everybody), abstained=everybody, flags=~everybody, confident_flags=~everybody
    )
    variable = parsed(result)["variables"][0]
    assert variable["readings"]["total"] == {"mean_signed": None, "mean_absolute": None, "groups": {}}
    assert (variable["mean_score"], variable["share_flagged"]) == (None, 0.0)


def test_json_is_strict_whatever_the_numbers_and_settings_are():
    odd = {"nan": math.nan, "inf": np.float32("inf"), "path": Path("a.csv"), 3: (np.int64(1), torch.tensor([0.5]))}
    fields = parsed(with_finding(example_result(settings=odd), alignment_share=math.nan))
    assert fields["settings"] == {"nan": None, "inf": None, "path": "a.csv", "3": [1, [0.5]]}
    assert fields["variables"][0]["alignment_share"] is None


def test_json_of_a_test_without_sign_has_nulls():
    fields = parsed(without_sign())
    assert fields["share_confident"] is None
    assert fields["counts"]["confident"] is None
    assert fields["features"]["effect"] is None
    assert fields["variables"][0]["groups"][0]["mean_signed"] is None


def test_what_is_proved_is_counted_where_it_was_asked_for():
    result = example_result()
    proved = example_certificates(result)
    fields = parsed(replace(result, certificates=proved))
    largest = proved.largest[proved.certified]
    assert fields.pop("certificates") == {
        "reading": "rank",
        "delta": 0.05,
        "certified": 37,
        "share_certified": pytest.approx(37 / 38),
        "within_delta": int((largest <= 0.05).sum()),
        "worse_inside": 3,
        "largest": float(largest.max()),
        "uncertified_by_reason": {"a category changes on the way": 1},
    }
    plain = parsed(result)
    assert fields.pop("in_words")[:2] == plain.pop("in_words")[:2]
    assert fields == plain
    weights = torch.ones(PEOPLE)
    weights[5] = 3.0
    weighted = parsed(replace(result, certificates=proved, weights=weights))["certificates"]
    assert weighted["share_certified"] == pytest.approx(37 / 40)
    nobody = replace(proved, largest=torch.full_like(proved.largest, math.nan), total=True)
    fields = parsed(replace(result, certificates=nobody))["certificates"]
    assert (fields["reading"], fields["certified"], fields["largest"]) == ("total", 0, None)


def test_doubt_and_distance_are_summed_up_where_abstaining_was_asked_for():
    fields = parsed(with_doubt(example_result()))
    assert fields["reliability"] == {
        "abstain": 0.075,
        "left_out": 1,
        "share_left_out": pytest.approx(1 / 40),
        "median_distance": 1.0,
        "far": 1,
    }
    assert fields["abstained_by_reason"] == {"no evidence about sex": 2, "the re-fits disagree": 1}
    assert parsed(with_doubt(example_result(), share=None)) == parsed(example_result())
    result = with_doubt(example_result(), share=0.0)
    unmoved = parsed(replace(result, reliability=replace(result.reliability, rows=None)))["reliability"]
    assert (unmoved["median_distance"], unmoved["far"]) == (None, None)
