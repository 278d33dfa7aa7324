"""The published schema of summary.json, as it is and without room for fields it does not name."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

from jsonschema import Draft202012Validator

SCHEMA: dict[str, Any] = json.loads((files("fairfox.report") / "schemas/summary.schema.json").read_text("utf-8"))


def closed(schema: Any) -> Any:
    """Return the schema with every object closed that names its properties, so that a field without a place shows."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    out = {key: closed(value) for key, value in schema.items()}
    return {"additionalProperties": False, **out} if isinstance(out.get("properties"), dict) else out


VALIDATORS = tuple(Draft202012Validator(schema) for schema in (SCHEMA, closed(SCHEMA)))


def assert_valid_summary(text: str) -> dict[str, Any]:
    """Return the fields of a summary.json that is as the schema says, and has no field the schema does not name."""
    fields: dict[str, Any] = json.loads(text)
    for validator in VALIDATORS:
        assert [f"{error.json_path}: {error.message}" for error in validator.iter_errors(fields)] == []
    return fields
