"""The published schemas of summary.json, as they are and without room for fields they do not name."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

from jsonschema import Draft202012Validator

_FILES = {"audit": "summary", **{kind: kind for kind in ("compare", "drift", "demo", "score")}}  # by `kind`
SCHEMAS: dict[str, dict[str, Any]] = {
    kind: json.loads((files("fairfox.report") / f"schemas/{name}.schema.json").read_text("utf-8"))
    for kind, name in _FILES.items()
}
SCHEMA = SCHEMAS["audit"]


def closed(schema: Any) -> Any:
    """Return the schema with every object closed that names its properties, so that a field without a place shows."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    out = {key: closed(value) for key, value in schema.items()}
    return {"additionalProperties": False, **out} if isinstance(out.get("properties"), dict) else out


def validators(schema: dict[str, Any]) -> tuple[Draft202012Validator, Draft202012Validator]:
    """Return the validators of a schema as it is, and closed."""
    return Draft202012Validator(schema), Draft202012Validator(closed(schema))


VALIDATORS = validators(SCHEMA)


def assert_valid_summary(text: str, kind: str = "audit") -> dict[str, Any]:
    """Return the fields of a summary.json that is as the schema of its kind says, and has no field that it does not
    name."""
    fields: dict[str, Any] = json.loads(text)
    assert fields["kind"] == kind
    for validator in validators(SCHEMAS[kind]):
        assert [f"{error.json_path}: {error.message}" for error in validator.iter_errors(fields)] == []
    return fields
