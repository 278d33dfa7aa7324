import json
import re
from base64 import b64encode
from collections import defaultdict
from dataclasses import replace
from functools import cache
from hashlib import sha256
from html.parser import HTMLParser
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from fairfox.report.html import render, render_report, script_json
from fairfox.report.people import MOST_PEOPLE
from fairfox.report.view import view
from fairfox.result import AuditResult, FeatureEffect, Features
from fairfox.verdicts.model import Verdict
from tests.support import (
    PEOPLE,
    RACES,
    example_certificates,
    example_result,
    example_table,
    many_result,
    nameless,
    with_doubt,
    with_finding,
    without_sign,
)


@pytest.fixture(autouse=True)
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the drawings, which have tests of their own and take most of the time."""
    monkeypatch.setattr("fairfox.report.html.specs", lambda shown: {name: {} for name in shown})


HOSTILE = "<script>alert('1')</script>"
GROUP = HOSTILE  # a class called like its variable speaks for itself
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


def hostile_result() -> AuditResult:
    """An audit with hostile text wherever a table or a model can put some."""
    result = many_result()
    effect = FeatureEffect((HOSTILE, "job", "age"), torch.ones(200, 3), "integrated gradients")
    groups = [
        tuple(replace(group, variable=HOSTILE, level=HOSTILE, towards={HOSTILE: 1.0}) for group in finding.groups)
        for finding in result.findings
    ]
    hostile = tuple(
        replace(
            finding,
            name=HOSTILE,
            levels=(HOSTILE,) * len(finding.levels),
            contrasts=(HOSTILE,) * len(finding.contrasts),
            group=(HOSTILE,) * 200,
            towards=(HOSTILE,) * 200,
            proxy={HOSTILE: 1.0},
            quality=replace(finding.quality, variable=HOSTILE, metric=HOSTILE),
            groups=own,
            parts=(HOSTILE,),
            reference=HOSTILE,
            merged={HOSTILE: (HOSTILE,)},
        )
        for finding, own in zip(result.findings, groups, strict=True)
    )
    return replace(
        result,
        findings=hostile,
        ids=np.array([HOSTILE] * 200),
        features=Features({HOSTILE: 1.0}, effect),
        warnings=(HOSTILE,),
        settings={HOSTILE: {HOSTILE: HOSTILE}, "model": HOSTILE, "table": HOSTILE, "max_flagged": {GROUP: 0.5}},
        deltas={GROUP: 0.01},
        reasons=(HOSTILE,) * 200,
        meaning=HOSTILE,
        unit=HOSTILE,
    )


def test_the_verdict_comes_first():
    words = Page(render_report(example_result())).words
    first = words.index("23 of 38 people (60.5 %) are flagged")
    assert first < words.index("19 of them confidently") < words.index("2 people could not be judged")
    assert words.index("2 people could not be judged") < words.index("Delta: flag people whose score is above")


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
    assert {"iframe", "object", "embed", "base", "img"}.isdisjoint(page.tags)
    assert not [value for _, name, value in page.attributes if name in ("src", "srcset", "action")]
    links = [(tag, value or "") for tag, name, value in page.attributes if name == "href"]
    assert [value for tag, value in links if tag != "a"] == ["data:,"]  # no icon is asked for
    ids = {value for _, name, value in page.attributes if name == "id"}
    assert all(value.startswith("#") and value[1:] in ids for tag, value in links if tag == "a")


def test_only_the_two_scripts_of_the_page_may_run():
    page = Page(render_report(example_result()))
    (policy,) = (
        value or "" for _, name, value in page.attributes if name == "content" and "script-src" in (value or "")
    )
    kinds = [value for tag, name, value in page.attributes if (tag, name) == ("script", "type")]
    assert kinds == ["application/json", "text/plain"]  # the library runs once the page is usable
    running = page.scripts[1:]
    assert len(running) == 2
    hashes = {f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'" for script in running}
    assert policy.startswith("default-src 'none'; ")
    assert set(policy.partition("script-src ")[2].split()) == hashes


def test_the_data_of_the_script_cannot_end_its_element():
    hostile = {"a": "</script><!--\u2028&", "b": [1.5, None]}
    text = script_json(hostile)
    assert not set("<>&\u2028\u2029") & set(text)
    assert json.loads(text) == hostile


def test_a_view_that_was_stored_gives_the_same_page():
    shown = view(example_result(), example_table())
    assert render(json.loads(json.dumps(shown))) == render(shown)


def test_every_chart_has_a_place_a_drawing_and_a_table():
    page = Page(render_report(example_result()))
    places = [value for _, name, value in page.attributes if name == "data-chart"]
    charts = json.loads(page.scripts[0])["charts"]
    assert sorted(places) == sorted(charts) == ["features", "groups-0", "proxies-0", "readings-0", "scores-0"]
    assert page.tags.count("details") == page.words.count("The numbers of this chart") == len(places)


def test_the_page_can_be_walked_through():
    page = Page(render_report(example_result()))
    assert {"header", "nav", "main", "footer"} <= set(page.tags)
    levels = [int(tag[1]) for tag in page.tags if re.fullmatch("h[1-6]", tag)]
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    labelled = {value for tag, name, value in page.attributes if (tag, name) == ("label", "for")}
    assert {"delta", "people-filter"} <= labelled
    regions = [attributes for attributes in page.attributes if attributes[1:] == ("role", "region")]
    assert len(regions) == len([1 for _, name, _ in page.attributes if name == "tabindex"]) - 1  # and main


def test_text_from_the_table_is_escaped():
    table = pa.table({HOSTILE: [HOSTILE] * 200})
    text = render_report(hostile_result(), rows=table)
    page = Page(text)
    assert page.tags.count("script") == 3
    assert HOSTILE.lower() not in text.lower()
    assert HOSTILE in page.words
    assert HOSTILE in str(json.loads(page.scripts[0])["people"])
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
    over = Page(render_report(example_result(settings={"max_flagged": {"": 0.1}}))).words
    assert "The limit is 10.0 % flagged: the model is over it." in over
    assert "the model is within it." in Page(render_report(example_result(settings={"max_flagged": {"": 0.7}}))).words


def test_long_lists_are_cut_and_say_so():
    people = MOST_PEOPLE + 100
    flags = torch.ones(people, dtype=torch.bool)
    many = {"scores": torch.linspace(0.1, 0.9, people), "signed": torch.linspace(0.1, 0.9, people), "flags": flags}
    quiet = {
        "abstained": ~flags,
        "reasons": (None,) * people,
        "predictions": torch.ones(people),
        "worst": torch.zeros(people, dtype=torch.long),
    }
    plain = {"interval": None, "confident_flags": None}
    finding = {**many, **plain, "abstained": ~flags, "group": ("Male",) * people, "towards": ("Female",) * people}
    result = with_finding(
        example_result(**many, **quiet, **plain, features=Features({}, None)),
        **finding,
        effects=torch.ones(people, 2),
        inferred=~flags,
        direct=torch.ones(people),
        total=torch.ones(people),
    )
    page = Page(render_report(result))
    assert f"The {MOST_PEOPLE} with the highest scores, of {people} people flagged" in page.words
    assert page.tags.count("input") == 2
    assert "Everybody was judged." in page.words


def test_a_fair_model_gets_a_quiet_page():
    nobody = torch.zeros(PEOPLE, dtype=torch.bool)
    page = render_report(example_result(flags=nobody, confident_flags=nobody))
    assert "Nobody is flagged." in page
    assert 'class="verdict passes"' in page


def test_nobody_judged_still_gives_a_page():
    everybody = torch.ones(PEOPLE, dtype=torch.bool)
    result = example_result(
        abstained=everybody, flags=~everybody, confident_flags=~everybody, reasons=("dead",) * PEOPLE
    )
    words = Page(render_report(with_finding(result, abstained=everybody))).words
    assert "Nobody could be judged." in words
    assert "there is nothing to draw" in words


def test_a_trusted_model_is_named_as_such():
    plain, trusted = example_result(), example_result()
    trusted.settings["trusted"] = True
    assert "because it was trusted" not in render_report(plain)
    assert "because it was trusted" in render_report(trusted)


@cache
def many_page() -> Page:
    return Page(render_report(many_result()))


def cells(page: Page, row: str) -> list[str]:
    """The cells of the first table row that begins with this text."""
    return next(cells for cells in page.rows if cells and cells[0] == row)


def test_a_page_about_one_pair_of_groups_has_no_needless_parts():
    page = Page(render_report(example_result()))
    assert "h4" not in page.tags
    assert "sex" not in page.headings["h3"]
    for part in ("By protected variable", "From each group", "Because of", "Inferred", "dagger", "weighted"):
        assert part not in page.words


def test_several_variables_are_compared_and_then_told_one_by_one():
    page = many_page()
    assert "because of sex, race or age?" in page.words
    assert "Mostly because of race" in page.words
    result = many_result()
    shares = [f"{100 * finding.share_flagged(result.weights):.1f} %" for finding in result.findings]
    assert cells(page, "race")[1:4] == ["5 groups with each other", "196", shares[1]]
    assert cells(page, "age")[1:4] == ["one standard deviation (13.6) up and down", "192", shares[2]]
    assert page.headings["h3"][:4] == ["By protected variable", "sex", "race", "age"]
    assert [page.headings["h3"].count(name) for name in ("sex", "race", "age")] == [3, 3, 3]  # who, scores, readings
    assert "Own group inferred for 20 people; 'Other' puts together Eskimo and Inuit" in page.words
    assert "squared error 0.69 (chance 1)" in page.words
    assert "Shares and means are weighted; counts are not." in page.words


def test_every_class_is_shown_as_a_member_of_every_other():
    page = many_page()
    matrix = next(k for k, row in enumerate(page.rows) if row == ["People of", *RACES])
    towards = many_result().findings[1].groups[1].towards
    expected = [f"{100 * towards[race]:+.1f}" if race != "Black" else "·" for race in RACES]
    assert page.rows[matrix + 2] == ["Black", *expected]
    up_and_down = next(row for row in page.rows if row and row[0] == "People with")
    assert up_and_down == ["People with", "age + 13.6", "age - 13.6"]


def test_one_variable_with_many_classes_has_a_flat_page():
    result = many_result()
    race = replace(result, findings=result.findings[1:2], worst=torch.zeros(200, dtype=torch.long))
    page = Page(render_report(race))
    assert "h4" not in page.tags
    assert page.headings["h3"][:2] == ["Groups", "From each group to each other"]
    assert "By protected variable" not in page.words
    assert "Because of" in page.words


def test_a_reference_group_is_named():
    page = Page(render_report(with_finding(many_result(), 1, reference="White")))
    assert "Everybody is compared with White only, the reference group." in page.words
    assert cells(page, "race")[1] == "5 groups with White"


def test_flagged_people_are_shown_with_what_flags_them():
    page = many_page()
    assert "A dagger (†) marks people whose own group nobody knows" in page.words
    assert cells(page, "6 †")[6] == "race (towards White), sex"


def test_limits_of_groups_are_judged_each():
    words = many_page().words
    assert "The limit is 60.0 % flagged: the model is within it." in words
    assert "The limit for race=Black is 50.0 % flagged: the model is over it." in words


def test_groups_with_their_own_delta_show_it():
    page = many_page()
    assert "A person is flagged above delta = 5 points; race=Black: 3 points." in page.words
    assert "Members of race=Black have their own delta, which the lines do not show." in page.words
    table = next(k for k, row in enumerate(page.rows) if "Delta (points)" in row)
    assert [row[5] for row in page.rows[table + 1 : table + 4]] == ["5.0", "3.0", "5.0"]


def test_a_test_that_knows_no_variable_blames_none():
    words = Page(render_report(nameless(many_result()))).words
    assert "This test knows no protected variable" in words
    assert "Worst case for" not in words
    assert "Because of" not in words


def test_the_page_says_what_is_proved():
    result = example_result()
    page = Page(render_report(replace(result, certificates=example_certificates(result))))
    assert "no point on the way to the other group changes the prediction by more than 5 points: proved" in page.words
    assert "1 person without a certificate: a category changes on the way." in page.words
    assert "certificate" not in Page(render_report(result)).words


def test_the_page_says_who_is_left_out():
    told = "1 of 40 people (2.5 %) is left out: the re-fits disagree about them most; the median counterfactual is 1.00"
    assert told in Page(render_report(with_doubt(example_result()))).words
    assert "disagree" not in Page(render_report(with_doubt(example_result(), share=None))).words


def test_people_left_out_are_counted_by_the_verdict_alone():
    counted = "; the verdict on the model does count those about whom the re-fits disagree."
    result = with_finding(with_doubt(example_result()), verdict=Verdict("fails", "Why.", 0.05, 39, 19, 25, 0.0, 1.0))
    assert f"in no count and no share of flagged people above{counted}" in Page(render_report(result)).words
    assert counted not in Page(render_report(example_result())).words
