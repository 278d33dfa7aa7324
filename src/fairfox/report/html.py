"""AuditResult -> one HTML file that needs nothing beside it: no script, no network, no fonts."""

from __future__ import annotations

import json
from base64 import b64encode
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from fairfox.report import text
from fairfox.report.figures import MOST_GROUPS, effects_chart, feature_chart, points_per_unit
from fairfox.report.people import flagged_people, raw_rows
from fairfox.result import AuditResult

MOST_PEOPLE = 50


def render_report(result: AuditResult, *, rows: object = None) -> str:
    """Return the page; the raw rows of flagged people are on it only when `rows`, the audited table, is given."""
    raw = None if rows is None else raw_rows(result, rows)
    scale = points_per_unit(result.effect_unit)
    effect = result.features.effect
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            result=result,
            people=flagged_people(result, top=MOST_PEOPLE, raw=raw),
            raw_columns=[] if raw is None else raw.column_names,
            effects={finding.name: effects_chart(result, finding) for finding in result.findings},
            effect=feature_chart({} if effect is None else effect.total, title=_effect_title(result), scale=scale),
            proxies={
                finding.name: feature_chart(finding.proxy, title="mean gradient of the auxiliary")
                for finding in result.findings
            },
            limits=result.settings.get("max_flagged") or {},
            most_groups=MOST_GROUPS,
        )
    )


def _effect_title(result: AuditResult) -> str:
    return "mean size of the contribution" + text.heading_unit(result.effect_unit)


@cache
def _environment() -> Environment:
    # Column names, ids and cells come from the audited table: everything is escaped.
    environment = Environment(
        loader=PackageLoader("fairfox.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "data_uri": _data_uri,
        "amount": text.amount,
        "cell": text.cell,
        "number": text.number,
        "percent": text.percent,
        "people": text.people,
        "setting": _setting,
        "sentence": _sentence,
    }
    environment.globals |= {"text": text}
    return environment


def _data_uri(svg: str) -> str:
    """Return an image that can run nothing and whose ids cannot clash with another chart's."""
    return "data:image/svg+xml;base64," + b64encode(svg.encode()).decode()


def _sentence(notes: list[str]) -> str:
    words = "; ".join(notes)
    return f"{words[:1].upper()}{words[1:]}."


def _setting(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
