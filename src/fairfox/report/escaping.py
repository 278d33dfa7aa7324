"""The templates of pages and cards, in which every value is escaped."""

from __future__ import annotations

from jinja2 import Environment, PackageLoader, StrictUndefined


def escaping_environment() -> Environment:
    """Return new templates; column names, ids and cells come from the audited table, and are shown as text."""
    return Environment(
        loader=PackageLoader("fairfox.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
