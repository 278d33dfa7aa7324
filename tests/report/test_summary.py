"""summary.json has what its published schema says, for every kind of audit."""

from __future__ import annotations

import copy
import json
import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from jsonschema import Draft202012Validator
from populations import earners
from sklearn.tree import DecisionTreeClassifier

from fairfox.findings import AuditRecord
from fairfox.report.text import FORMAT
from fairfox.result import AuditResult
from tests.report.helpers import FEMALE, with_map_checks
from tests.schemas import SCHEMAS, assert_valid_summary
from tests.support import (
    PEOPLE,
    RACES,
    audited,
    example_certificates,
    example_result,
    many_result,
    with_finding,
    without_sign,
)

pytestmark = pytest.mark.brief

MODES: dict[str, dict[str, Any]] = {
    "a number, shuffled": {"protected": "age", "null": 1},
    "several variables": {"protected": ["sex", "age", "race"], "weights": "weight"},
    "intersections": {
        "protected": ["sex", "age<40"],
        "intersections": True,
        "max_flagged": {"": 0.5},
        "delta": {"sex=Male": 0.1},
    },
    "decisions that turn": {"protected": "sex", "decision_threshold": 0.5},
    "all that is asked for": {"protected": "sex", "certify": True, "delta": 0.01},
    "every test": {"protected": "sex", "test": "all", "settings": {"fliptest.steps": 20}},
    "no sign": {"protected": "sex", "test": "fta"},
}
WANTED = {  # what only some audits have, so that these parts of the schema are used
    "a number, shuffled": ["null"],
    "all that is asked for": ["certificates"],
    "every test": ["comparison"],
}
COLUMNS = ["income", "debt"]
AUDIT = Draft202012Validator(SCHEMAS["audit"])


def parsed(result: AuditRecord) -> dict:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(AuditResult(result).to_json(), parse_constant=refuse)


def test_the_worst_case_is_on_top():
    fields = parsed(example_result())
    assert (fields["checks"], fields["comparison"]) == ({}, None)
    assert fields["counts"] == {
        **{"people": 40, "judged": 38, "flagged": 23, "confident": 19, "abstained": 2},
        "inferred": 0,
        "significant": None,
    }
    assert fields["abstained_by_reason"] == {"no evidence about sex": 2}
    assert fields["worst_case"] == {"sex": 1.0}
    assert fields["features"]["effect"]["people"] == 30
    assert list(fields["features"]["effect"]["mean_effect"]) == ["sex=Female", "sex=Male"]


def test_a_variable_has_its_groups_readings_and_proxies():
    variable = parsed(example_result())["variables"][0]
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
    flagged = many_result().findings[1].flagged[:196]
    assert race["share_flagged"] == pytest.approx(float(weights[flagged].sum() / weights.sum()))


def test_nobody_judged_has_no_means():
    everybody = torch.ones(PEOPLE, dtype=torch.bool)
    result = with_finding(
        example_result(abstained=everybody), abstained=everybody, flagged=~everybody, confident=~everybody
    )
    variable = parsed(result)["variables"][0]
    assert variable["readings"]["total"] == {"mean_effect": None, "mean_absolute": None, "groups": {}}
    assert (variable["mean_score"], variable["share_flagged"]) == (None, 0.0)


def test_json_is_strict_whatever_the_numbers_and_settings_are():
    odd = {"nan": math.nan, "inf": np.float32("inf"), "path": Path("a.csv"), 3: (np.int64(1), torch.tensor([0.5]))}
    fields = parsed(with_finding(example_result(settings=odd), alignment_share=math.nan))
    assert fields["settings"] == {"nan": None, "inf": None, "path": "a.csv", "3": [1, [0.5]]}
    assert fields["variables"][0]["alignment_share"] is None


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
    nobody = replace(proved, largest=torch.full_like(proved.largest, math.nan), total=True)
    fields = parsed(replace(result, certificates=nobody))["certificates"]
    assert (fields["reading"], fields["certified"], fields["largest"]) == ("total", 0, None)


@pytest.fixture(scope="module")
def table() -> pa.Table:
    rng = np.random.default_rng(0)
    more = {"race": rng.choice(["Asian", "Black", "White"], 120), "debt": rng.normal(0, 1, 120)}
    return pa.Table.from_pandas(earners(120).assign(**more, weight=rng.integers(1, 4, 120).astype(float)))


@pytest.fixture(scope="module")
def model(table: pa.Table) -> DecisionTreeClassifier:
    frame = table.to_pandas()
    return DecisionTreeClassifier(max_depth=3, random_state=0).fit(frame[COLUMNS], frame["paid"])


@pytest.mark.parametrize("kind", SCHEMAS)
def test_the_schemas_are_valid_and_name_the_kind_and_the_format_that_is_written(kind: str):
    Draft202012Validator.check_schema(SCHEMAS[kind])
    assert SCHEMAS[kind]["properties"]["format"]["const"] == FORMAT == 2
    assert SCHEMAS[kind]["properties"]["kind"]["const"] == kind


def test_a_summary_is_valid_for_its_own_kind_alone():
    fields = json.loads(AuditResult(example_result()).to_json())
    assert [kind for kind, schema in SCHEMAS.items() if Draft202012Validator(schema).is_valid(fields)] == ["audit"]


@pytest.mark.parametrize("mode", MODES)
def test_the_summary_of_an_audit_is_valid(mode: str, table: pa.Table, model: DecisionTreeClassifier):
    asked = {"columns": COLUMNS, "refits": 2, **MODES[mode]}
    fields = assert_valid_summary(AuditResult(audited(model, table, **asked)).to_json())
    assert all(fields[name] for name in WANTED.get(mode, []))


@pytest.mark.parametrize(
    "result",
    [
        example_result(),
        many_result(),
        without_sign(),
        example_result(certificates=example_certificates(example_result())),
        with_finding(example_result(), alignment_share=math.nan),
    ],
)
def test_the_summary_of_an_odd_result_is_valid(result: Any):
    assert_valid_summary(AuditResult(result).to_json())


def test_a_missing_field_is_refused_and_a_new_one_is_not():
    fields = json.loads(AuditResult(example_result()).to_json())
    assert AUDIT.is_valid({**fields, "a_later_field": 1})
    for name in SCHEMAS["audit"]["required"]:
        without = copy.deepcopy(fields)
        del without[name]
        assert not AUDIT.is_valid(without), name


def test_the_map_check_of_each_group_is_in_the_summary():
    fields = assert_valid_summary(AuditResult(with_map_checks(example_result())).to_json())
    assert fields["map_check"][0] == {**asdict(FEMALE), "variable": "sex", "warnings": []}
    assert fields["map_check"][1]["accounted"] is None
    assert fields["map_check"][1]["warnings"] == ["8 % of men leave the range of women."]
    assert parsed(example_result())["map_check"] == []
