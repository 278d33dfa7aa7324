"""The published schemas of summary.json in docs/schemas, as they are and without room for fields they do not name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

_FOLDER = Path(__file__).parents[1] / "docs/schemas"
SCHEMAS: dict[str, dict[str, Any]] = {
    kind: json.loads((_FOLDER / f"{kind}.schema.json").read_text("utf-8")) for kind in ("audit", "compare", "demo")
}


def closed(schema: Any) -> Any:
    """Return the schema with every object closed that names its properties, so that an unnamed field is refused."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    out = {key: closed(value) for key, value in schema.items()}
    return {"additionalProperties": False, **out} if isinstance(out.get("properties"), dict) else out


def assert_valid_summary(text: str, kind: str = "audit") -> dict[str, Any]:
    """Return the fields of a summary.json that is as the schema of its kind says, with no field it does not name."""
    fields: dict[str, Any] = json.loads(text)
    assert fields["kind"] == kind
    for schema in (SCHEMAS[kind], closed(SCHEMAS[kind])):
        errors = Draft202012Validator(schema).iter_errors(fields)
        assert [f"{error.json_path}: {error.message}" for error in errors] == []
    return fields
