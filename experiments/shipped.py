"""What is shipped now, in two hashes that every results file carries: of the defaults, and of the code of src/fairfox.

A committed file whose defaults are others than the shipped ones fails a test.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

import fairfox
from fairfox.choices.tests import FAIR_TESTS
from fairfox.fairtests.registry import make_test
from fairfox.options import MODEL, OUTPUT, AuditOptions

CODE = Path(fairfox.__file__).parent
GRAPH = {"graph": {"income": ["sex"]}}  # a test that needs a graph is made with one, which is no default


@cache
def defaults_hash() -> str:
    """Return the hash of every default that can change a number."""
    return _hashed(json.dumps(defaults(), sort_keys=True))


@cache
def code_hash() -> str:
    """Return the hash of the code of src/fairfox."""
    names = sorted(path.relative_to(CODE).as_posix() for path in CODE.rglob("*.py"))
    return _hashed(*(f"{name}\n{(CODE / name).read_text(encoding='utf-8')}" for name in names))


def defaults() -> dict[str, Any]:
    """Return the defaults of an audit's options, and of each test its delta and settings.

    Options of how the model is called and of what is written are left out: they change no number.
    """
    options = [f for f in fields(AuditOptions) if f.metadata.get("section") not in (MODEL, OUTPUT)]
    tests = {name: make_test(name, settings=GRAPH if info.needs_graph else None) for name, info in FAIR_TESTS.items()}
    return {
        "options": {f.name: {} if f.default is MISSING else described(f.default) for f in options},
        "tests": {name: {"delta": FAIR_TESTS[name].delta} | described(test) for name, test in tests.items()},
    }


def described(value: Any) -> Any:
    """Return settings as JSON holds them: those of a class by their names, functions and classes by their own."""
    if is_dataclass(value) and not isinstance(value, type):
        own = {f.name: described(getattr(value, f.name)) for f in fields(value) if f.init and hasattr(value, f.name)}
        return {"class": type(value).__name__} | own
    if isinstance(value, Mapping):
        return {str(name): described(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [described(one) for one in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return getattr(value, "__qualname__", type(value).__name__)


def provenance(found: Mapping[str, Any]) -> str:
    """Return in words which defaults a results file was made with."""
    same = "the shipped ones" if found.get("defaults") == defaults_hash() else "**not the shipped ones**"
    return f"Defaults {found.get('defaults', 'not recorded')} ({same}), code {found.get('code', 'not recorded')}."


def _hashed(*texts: str) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:12]
