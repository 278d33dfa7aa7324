"""summary.md: an audit, or two, as a comment on a pull request; names from the table are text in it, never markup."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from fairfox.report.lines import proxy_lines, signed_word, variable_lines
from fairfox.report.tables import Table, make_table
from fairfox.report.text import amount, cell, heading_unit, percent
from fairfox.report.verdict import next_lines, verdict
from fairfox.result import AuditResult

MOST_FEATURES = 8
_TITLES = {
    "fails": "the model fails",
    "passes": "the model passes",
    "cannot tell": "whether the model passes is open",
    None: "no verdict, as this test gives no interval",
}
_MARKUP = re.compile(r"[\\`*_\[\]<>|~#$]|&(?=#?\w+;)|!(?=\[)")
_LINKS = re.compile(
    r"@(?=\w)|(?<=#)(?=\w)|:(?=//)|www(?=\.)", re.IGNORECASE
)  # what sites turn into links by themselves
_LIST = re.compile(r"^(\d*)(?=[-+.)](?:\s|$)|[-=]+$)")  # a line that would begin a list or underline a heading
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x9f\ud800-\udfff]")


def summary_markdown(result: AuditResult) -> str:
    """Return the audit on half a page: verdict, limits, groups, features, next step, warnings, settings.

    It has the sentences of the other files, and no row of anybody.
    """
    word = None if result.verdict is None else result.verdict.word
    following = next_lines(result) if result.judged else []
    found = verdict(result)
    parts = [
        f"## fairfox: {_TITLES[word]}",
        *map(as_text, found[: len(found) - len(following)]),
        _bullets(_limits(result)),
        _bullets([line for finding in result.findings for line in variable_lines(result, finding)]),
        _words(groups_table(result)),
        *_features(result),
        _bullets([line for finding in result.findings for line in proxy_lines(finding)]),
        *(f"**What to do.** {as_text(' '.join(following))}" for _ in following[:1]),
        _bullets([f"Warning: {warning}" for warning in result.warnings]),
        _how(result),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def pair_markdown(view: Mapping[str, Any]) -> str:
    """Return two audits side by side on half a page, from `fairfox.report.pair.pair_view`."""
    features = view["features"]
    parts = [
        f"## fairfox: {as_text(view['heading'])}",
        *map(as_text, view["verdict"]),
        _bullets([f"{side['label']}: {side['name']}" for side in view["sides"]]),
        _words(view["numbers"]),
        _words(view["groups"]),
        *([] if features is None else [as_text(features["caption"]), _words(features["table"])]),
        _bullets([f"Warning, {side['label']}: {each}" for side in view["sides"] for each in side["warnings"]]),
        as_text(" ".join(view["method"])),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def lines_markdown(title: str, lines: Sequence[str], *, table: Table) -> str:
    """Return a heading, a paragraph per line and a table of ready words after the first, all of it text."""
    first, *others = map(as_text, lines)
    return "\n\n".join([f"## {as_text(title)}", first, _words(table), *others]) + "\n"


def as_text(words: str) -> str:
    r"""Return words that a Markdown page shows as they are: no markup, no HTML, no link, nobody notified.

    Example:
        >>> print(as_text("<b> a|b `c`"))
        \<b\> a\|b \`c\`
    """
    line = _CONTROL.sub("", " ".join(words.split()))
    line = _LIST.sub(r"\1" + "\\\\", _MARKUP.sub(r"\\\g<0>", line))
    return _LINKS.sub(r"\g<0><!-- -->", line)


def _limits(result: AuditResult) -> list[str]:
    limits = result.settings.get("max_flagged") or {}
    if not limits:
        return []
    checked = {name: limit for name, limit in limits.items() if result.can_check(name)}
    open_ones = [f"Nobody of {name or 'everyone'} could be judged." for name in limits if name not in checked]
    over = [f"Over the limit: {sentence}" for sentence in result.over_limits(checked)]
    return [*over, *open_ones] or ["Within every limit on the share of flagged people."]


def groups_table(result: AuditResult) -> Table:
    """Return every group: how many they are, what they are predicted, which way the effect goes, who is flagged."""
    signed = f"Mean {signed_word(result)}{heading_unit(result.unit)}"
    rows = [
        [
            group.name,
            f"{group.people:,}",
            cell(group.mean_prediction, ""),
            cell(group.mean_signed, result.unit, sign=True),
            percent(group.share_flagged),
            "-" if group.share_confident is None else percent(group.share_confident),
        ]
        for group in result.groups
    ]
    return make_table(["Group"], ["People", "Mean prediction", signed, "Flagged", "Confidently"], rows)


def _features(result: AuditResult) -> list[str]:
    effect = result.features.effect
    if effect is None:
        return []
    unit = result.effect_unit
    rows = [[name, cell(value, unit)] for name, value in list(effect.total.items())[:MOST_FEATURES]]
    return ["Through which features the effect goes:", _table(["Feature", f"Mean size{heading_unit(unit)}"], rows)]


def _how(result: AuditResult) -> str:
    told = [f"Test {result.test}", f"delta {amount(result.delta, result.unit)}", result.meaning.rstrip(".")]
    told += [f"{name} {result.settings[name]}" for name in ("seed", "refits") if name in result.settings]
    version = result.settings.get("versions", {}).get("fairfox")
    told += [] if version is None else [f"fairfox {version}"]
    return as_text("; ".join(told) + ".")


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table, the first column on the left and the others on the right."""
    lines = [headings, ["---", *("---:" for _ in headings[1:])], *([as_text(each) for each in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _words(table: Table) -> str:
    """Return a table of ready words."""
    return _table([as_text(column["label"]) for column in table["columns"]], table["rows"])


def _bullets(lines: Sequence[str]) -> str:
    return "\n".join(f"- {as_text(line)}" for line in lines)
