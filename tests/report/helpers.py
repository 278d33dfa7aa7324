"""Pages as an independent reader sees them, and audits of people with names, or with a map check."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import numpy as np

from fairfox.findings import AuditRecord
from fairfox.maps.check import MapCheck
from tests.support import PEOPLE, example_result

VOID = {"meta", "img", "link", "input"}


class Page(HTMLParser):
    """Elements, attributes and words of a page; checks that what opens also closes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str | None]] = []
        self.open: list[str] = []
        self.words = ""
        self.rows: list[list[str]] = []
        self.headings: dict[str, list[str]] = defaultdict(list)
        self.scripts: list[str] = []
        self.feed(page)
        assert self.open == []
        self.words = re.sub(r"\s+", " ", self.words)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")
        elif tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts[-1] += data
        elif self.open and self.open[-1] != "style":
            self.words += data
        if self.open and (self.open[-1] in ("td", "th") or self.open[-2:] == ["th", "button"]):
            self.rows[-1][-1] += data.strip()
        elif self.open and self.open[-1] in ("h2", "h3", "h4"):
            self.headings[self.open[-1]].append(data.strip())


WARNING = "8 % of men leave the range of women."
FEMALE = MapCheck(0, "sex=Female", "sex=Male", 19, 0.13, 0.18, 0.72, 0.01, 0.005, 0.0)
MALE = MapCheck(0, "sex=Male", "sex=Female", 19, -0.004, -0.001, None, 0.08, 0.0, 0.0, warnings=(WARNING,))


def with_map_checks(result: AuditRecord, checks: tuple[MapCheck, ...] = (FEMALE, MALE)) -> AuditRecord:
    """Return the audit with checks: the map accounts for women's gap, and men's is too small to say."""
    return replace(result, map_checks=checks)


SETTINGS = {"seed": 0, "refits": 5, "folds": 5, "rows": PEOPLE, "id": "name", "columns": ["income", "job", "age"]}


def named_audit(*, times: float = 1.0, **changes: Any) -> AuditRecord:
    """Return an audit of forty people with names, whose effects are so many times as large as in the example."""
    result = example_result(settings=SETTINGS, ids=np.array([f"p{k}" for k in range(PEOPLE)]))
    scores = times * result.scores
    moved = {"scores": scores, "effect": times * result.effect, "flagged": (scores > result.delta) & ~result.abstained}
    return replace(result, **moved, **changes)
