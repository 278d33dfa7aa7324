import re
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
import torch

from fairfox.report.html import MOST_PEOPLE, render_report
from fairfox.result import AuditResult, FeatureEffect, Features
from tests.support import PEOPLE, example_result, example_table, without_sign

HOSTILE = "<script>alert('1')</script>"
VOID = {"meta", "img"}


class Page(HTMLParser):
    """Elements, attributes and words of a page; checks that what opens also closes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str | None]] = []
        self.open: list[str] = []
        self.words = ""
        self.feed(page)
        assert self.open == []
        self.words = re.sub(r"\s+", " ", self.words)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.words += data


def hostile_result() -> AuditResult:
    """The same audit with hostile text wherever a table or a model can put some."""
    names = (HOSTILE, "job", "age")
    effect = FeatureEffect(names, torch.ones(PEOPLE, 3), "integrated gradients")
    return example_result(
        ids=np.array([HOSTILE] * PEOPLE),
        group=(f"sex={HOSTILE}",) * PEOPLE,
        features=Features({HOSTILE: 1.0}, effect),
        warnings=(HOSTILE,),
        settings={HOSTILE: {HOSTILE: HOSTILE}, "model": HOSTILE, "table": HOSTILE},
        reasons=(HOSTILE,) * PEOPLE,
        alignment_share={HOSTILE: 0.5},
        meaning=HOSTILE,
        unit=HOSTILE,
    )


def test_the_verdict_comes_first():
    words = Page(render_report(example_result())).words
    first = words.index("23 of 38 people (60.5 %) are flagged")
    assert first < words.index("19 of them confidently") < words.index("2 people could not be judged")
    assert words.index("2 people could not be judged") < words.index("How the effects are spread")


def test_every_part_of_the_audit_is_on_the_page():
    words = Page(render_report(example_result())).words
    for part in (
        "How the effects are spread",
        "Through which features the effect goes",
        "Which features give sex away",
        "Two readings",
        "Flagged people",
        "People not judged",
        "no evidence about sex",
        "Settings and versions",
        "AUC 0.84",
        "The group sex=Male has few people.",
        "sex=Female",
    ):
        assert part in words


@pytest.mark.parametrize("result", [example_result(), without_sign()], ids=["rank", "fta"])
def test_the_page_needs_nothing_beside_it(result: AuditResult):
    page = Page(render_report(result))
    assert {"script", "link", "iframe", "object", "embed"}.isdisjoint(page.tags)
    sources = [value or "" for _, name, value in page.attributes if name in ("src", "href", "srcset")]
    assert sources
    assert all(source.startswith("data:image/svg+xml;base64,") for source in sources)


def test_text_from_the_table_is_escaped():
    table = example_table().rename_columns([HOSTILE, "income", "job", "age"])
    table = table.set_column(2, "job", [[HOSTILE] * PEOPLE])
    text = render_report(hostile_result(), rows=table)
    page = Page(text)
    assert "script" not in page.tags
    assert HOSTILE.lower() not in text.lower()
    assert HOSTILE in page.words
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]


def test_raw_rows_are_shown_only_when_given():
    table = example_table()
    flagged = int(example_result().flags.nonzero()[0])
    income = str(table["income"][flagged].as_py())
    assert income not in render_report(example_result())
    assert income in render_report(example_result(), rows=table)


def test_rows_of_people_not_flagged_are_never_shown():
    other = int((~example_result().flags).nonzero()[0])
    table = example_table()
    assert str(table["income"][other].as_py()) not in render_report(example_result(), rows=table)


def test_the_limit_is_judged_where_there_is_one():
    assert "The limit is" not in Page(render_report(example_result())).words
    over = Page(render_report(example_result(settings={"max_flagged": 0.1}))).words
    assert "The limit is 10.0 % flagged: the model is over it." in over
    assert "the model is within it." in Page(render_report(example_result(settings={"max_flagged": 0.7}))).words


def test_long_lists_are_cut_and_say_so():
    flags = torch.ones(200, dtype=torch.bool)
    many = {"scores": torch.linspace(0.1, 0.9, 200), "signed": torch.linspace(0.1, 0.9, 200), "flags": flags}
    quiet = {
        "abstained": ~flags,
        "reasons": (None,) * 200,
        "group": ("sex=Male",) * 200,
        "predictions": torch.ones(200),
    }
    plain = {"interval": None, "confident_flags": None, "direct": torch.ones(200), "total": torch.ones(200)}
    result = example_result(**many, **quiet, **plain, features=Features({}, None))
    page = Page(render_report(result))
    assert f"The {MOST_PEOPLE} with the highest scores, of 200 people flagged" in page.words
    assert "Everybody was judged." in page.words


def test_a_fair_model_gets_a_quiet_page():
    nobody = torch.zeros(PEOPLE, dtype=torch.bool)
    page = render_report(example_result(flags=nobody, confident_flags=nobody))
    assert "Nobody is flagged." in page
    assert 'class="verdict quiet"' in page


def test_nobody_judged_still_gives_a_page():
    everybody = torch.ones(PEOPLE, dtype=torch.bool)
    result = example_result(
        abstained=everybody, flags=~everybody, confident_flags=~everybody, reasons=("dead",) * PEOPLE
    )
    words = Page(render_report(result)).words
    assert "Nobody could be judged." in words
    assert "there is nothing to draw" in words


def test_a_trusted_model_is_named_as_such():
    plain, trusted = example_result(), example_result()
    trusted.settings["trusted"] = True
    assert "because it was trusted" not in render_report(plain)
    assert "because it was trusted" in render_report(trusted)
