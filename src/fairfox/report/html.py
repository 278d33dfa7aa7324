"""Pages, each one HTML file that needs nothing beside it, no network, no fonts; and cards for notebooks."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from fairfox.findings import AuditRecord
from fairfox.report.figures import Figure, groups_table
from fairfox.report.sentences import OUTCOMES, count_lines, headline, variable_lines
from fairfox.report.text import Table, ended
from fairfox.report.view import view
from fairfox.statistics.verdict import HEADLINES

MOST_ROWS = 12  # of a table on a card
MOST_PRINTED = 20  # people on paper; the page itself has more


def render_report(result: AuditRecord, *, rows: object = None) -> str:
    """Return the page; raw values of flagged people are on it only when `rows`, the audited table, is given."""
    return render(view(result, rows))


def render(shown: dict[str, Any]) -> str:
    """Return the page of an audit from `view`, or from the same read back out of report.json."""
    details = ("sort", "until", "title", "facts", "range", "features", "notes")  # the others are in the table
    people = [{name: row[name] for name in details} for row in shown["people"]["rows"]]
    data = {
        "slider": shown["slider"],
        "people": {"flagged": shown["people"]["flagged"], "rows": people, "most_printed": MOST_PRINTED},
    }
    return render_page("report.html.j2", view=shown, data=data, charts=shown["charts"], most_printed=MOST_PRINTED)


def render_page(template: str, *, data: dict[str, Any], charts: dict[str, Figure], **context: Any) -> str:
    """Return a page from a template over `base.html.j2`, with the style and the scripts in it.

    `data` is for the script; `charts` are drawn where the page has their ids.
    """
    from fairfox.report import charts as drawing  # Altair takes a while to load

    return _page_templates().get_template(template).render(data={"charts": drawing.specs(charts), **data}, **context)


def escaping_templates() -> Environment:
    """Return the templates; column names, ids and cells come from the audited table, and are shown as text."""
    return Environment(
        loader=PackageLoader("fairfox.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


@cache
def _page_templates() -> Environment:
    import vl_convert  # large

    environment = escaping_templates()
    scripts = [_asset("page.js"), vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")]
    digests = [b64encode(sha256(script.encode()).digest()).decode() for script in scripts]
    environment.filters["script_json"] = script_json
    environment.globals |= {
        "style": Markup(_asset("style.css")),  # ours
        "page_script": Markup(scripts[0]),
        "chart_script": Markup(scripts[1]),
        "script_hashes": Markup(" ".join(f"'sha256-{digest}'" for digest in digests)),  # nothing else may run
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


def result_card(result: AuditRecord) -> str:
    """Return the verdict, the counts and the groups of an audit."""
    return make_card(
        f"fairfox audit for {', '.join(result.variables)}",
        "no verdict" if result.verdict is None else result.verdict.word,
        headline(result).partition(": ")[2],
        lines=[ended(line) for f in result.findings for line in variable_lines(result, f)],
        facts=count_lines(result),
        table=groups_table(result, result.findings),
        warnings=result.warnings,
        hint='result.to_html("report.html")',
    )


def make_card(
    title: str,
    word: str,
    lead: str,
    *,
    facts: Sequence[str] = (),
    lines: Sequence[str] = (),
    table: Table | None = None,
    warnings: Sequence[str] = (),
    hint: str = "",
) -> str:
    """Return a card of these words, all of which are shown as text."""
    shown = {"title": title, "word": HEADLINES.get(word, word), "tone": OUTCOMES.get(word, "skipped"), "lead": lead}
    more = {"facts": facts, "lines": lines, "table": table, "warnings": warnings, "hint": hint, "most": MOST_ROWS}
    return escaping_templates().get_template("card.html.j2").render(**shown, **more)
