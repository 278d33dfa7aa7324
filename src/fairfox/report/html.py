"""What a report shows -> one HTML file that needs nothing beside it: no network, no fonts, no other file."""

from __future__ import annotations

import json
from base64 import b64encode
from functools import cache
from hashlib import sha256
from importlib import resources
from typing import Any

import vl_convert
from jinja2 import Environment
from markupsafe import Markup

from fairfox.report.charts import specs
from fairfox.report.escaping import escaping_environment
from fairfox.report.view import view
from fairfox.result import AuditResult

MOST_PRINTED = 50  # people on paper; the page itself has more


def render_report(result: AuditResult, *, rows: object = None) -> str:
    """Return the page; raw values of flagged people are on it only when `rows`, the audited table, is given."""
    return render(view(result, rows))


def render(shown: dict[str, Any]) -> str:
    """Return the page of an audit from `view`, or from the same read back out of report.json."""
    wanted = ("sort", "until", "title", "facts", "range", "features", "notes")  # the others are in the table
    people = [{name: row[name] for name in wanted} for row in shown["people"]["rows"]]
    data = {"charts": specs(shown["charts"]), "slider": shown["slider"]}
    data["people"] = {"flagged": shown["people"]["flagged"], "rows": people, "most_printed": MOST_PRINTED}
    return render_page("report.html.j2", view=shown, data=data, most_printed=MOST_PRINTED)


def render_page(template: str, **context: Any) -> str:
    """Return a page from a template over `base.html.j2`, with the style and the scripts in it.

    `data` in the context is for the script: `charts`, Vega-Lite specs by the ids of the page's charts, among others.
    """
    return _environment().get_template(template).render(**context)


@cache
def _environment() -> Environment:
    environment = escaping_environment()
    scripts = [_asset("page.js"), vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")]
    environment.filters["script_json"] = script_json
    environment.globals |= {
        "style": Markup(_asset("style.css")),  # ours
        "page_script": Markup(scripts[0]),
        "chart_script": Markup(scripts[1]),
        "script_hashes": Markup(" ".join(map(_source_hash, scripts))),
    }
    return environment


def script_json(value: Any) -> Markup:
    """Return JSON that is safe inside a script element: no character of it can end the element."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)  # made safe above


def _asset(name: str) -> str:
    return resources.files("fairfox.report").joinpath("templates", name).read_text("utf-8")


def _source_hash(script: str) -> str:
    """Return what a content security policy calls a script: nothing else may run."""
    return f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'"
