"""summary.json is what its published schema says, for every kind of audit."""

from __future__ import annotations

import copy
import json
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from jsonschema import Draft202012Validator
from sklearn.tree import DecisionTreeClassifier

from fairfox import comparing
from fairfox.auditing import audit
from fairfox.cli import demo
from fairfox.report import pair_files
from fairfox.result import SCHEMA_VERSION
from fairfox.scale import summary as scored
from tests.schemas import SCHEMA, SCHEMAS, VALIDATORS, assert_valid_summary
from tests.support import example_certificates, example_result, many_result, with_doubt, with_finding, without_sign

MODES: dict[str, dict[str, Any]] = {
    "a number, shuffled": {"protected": "age", "null": 1},
    "several variables": {"protected": ["sex", "age", "race"], "weights": "weight"},
    "intersections": {
        "protected": ["sex", "age<40"],
        "intersections": True,
        "limits": {"": 0.5},
        "deltas": {"sex=Male": 0.1},
    },
    "decisions that turn": {"protected": "sex", "decision_threshold": 0.5},
    "all that is asked for": {"protected": "sex", "abstain": 0.1, "certify": True, "next_steps": True, "delta": 0.01},
    "every test": {"protected": "sex", "test": "all", "options": {"fliptest.steps": 20}},
    "no sign": {"protected": "sex", "test": "fta"},
}
WANTED = {  # what only some audits have, so that these parts of the schema are used
    "a number, shuffled": ["null"],
    "all that is asked for": ["certificates", "reliability", "next_steps"],
    "every test": ["comparison"],
}
COLUMNS = ["income", "debt"]


@pytest.fixture(scope="module")
def people() -> pa.Table:
    rng = np.random.default_rng(0)
    male = np.arange(120) % 2 == 1
    income = 3000 + 500 * male + rng.normal(0, 300, 120)
    return pa.table(
        {
            "sex": np.where(male, "Male", "Female"),
            "race": rng.choice(["Asian", "Black", "White"], 120),
            "age": rng.integers(18, 80, 120).astype(float),
            "income": income,
            "debt": rng.normal(0, 1, 120),
            "weight": rng.integers(1, 4, 120).astype(float),
            "approved": (income + rng.normal(0, 200, 120) > 3200).astype(int),
        }
    )


@pytest.fixture(scope="module")
def model(people: pa.Table) -> DecisionTreeClassifier:
    frame = people.to_pandas()
    return DecisionTreeClassifier(max_depth=3, random_state=0).fit(frame[COLUMNS], frame["approved"])


@pytest.mark.parametrize(
    ("kind", "version"),
    [
        ("audit", SCHEMA_VERSION),
        ("compare", comparing.SCHEMA_VERSION),
        ("drift", pair_files.DRIFT_VERSION),
        ("demo", demo.SCHEMA_VERSION),
        ("score", scored.SCHEMA_VERSION),
    ],
)
def test_the_schemas_are_ones_and_name_the_kind_and_the_version_that_is_written(kind: str, version: int):
    Draft202012Validator.check_schema(SCHEMAS[kind])
    assert SCHEMAS[kind]["properties"]["schema_version"]["const"] == version
    assert SCHEMAS[kind]["properties"]["kind"]["const"] == kind


def test_a_summary_is_valid_for_its_own_kind_alone_and_older_audits_have_none():
    fields = json.loads(example_result().to_json())
    assert [kind for kind, schema in SCHEMAS.items() if Draft202012Validator(schema).is_valid(fields)] == ["audit"]
    assert VALIDATORS[0].is_valid({name: value for name, value in fields.items() if name != "kind"})


@pytest.mark.parametrize("mode", MODES)
def test_the_summary_of_an_audit_is_valid(mode: str, people: pa.Table, model: DecisionTreeClassifier):
    asked = {"columns": COLUMNS, "refits": 2, "next_steps": False, **MODES[mode]}
    fields = assert_valid_summary(audit(model, people, **asked).to_json())
    assert all(fields[name] for name in WANTED.get(mode, []))


@pytest.mark.parametrize(
    "result",
    [
        example_result(),
        many_result(),
        without_sign(),
        with_doubt(example_result()),
        example_result(certificates=example_certificates(example_result())),
        with_finding(example_result(), alignment_share=math.nan),
    ],
)
def test_the_summary_of_an_odd_result_is_valid(result: Any):
    assert_valid_summary(result.to_json())


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("counts", "flagged"), -1),
        (("share_flagged",), 1.5),
        (("variables", 0, "kind"), "ternary"),
        (("variables", 0, "groups", 0, "people"), "many"),
        (("schema_version",), 3),
    ],
)
def test_a_wrong_value_is_refused(path: tuple[Any, ...], value: object):
    fields = json.loads(example_result().to_json())
    assert VALIDATORS[0].is_valid(fields)
    place: Any = fields
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    assert not VALIDATORS[0].is_valid(fields)


def test_a_missing_field_is_refused_and_a_new_one_is_not():
    fields = json.loads(example_result().to_json())
    assert VALIDATORS[0].is_valid({**fields, "a_later_field": 1})
    for name in SCHEMA["required"]:
        without = copy.deepcopy(fields)
        del without[name]
        assert not VALIDATORS[0].is_valid(without), name
