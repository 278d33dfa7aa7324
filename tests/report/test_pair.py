"""Two audits side by side, from summaries and scores made by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from junitparser import Failure, JUnitXml, Skipped
from lxml import html
from markdown_it import MarkdownIt
from tests.test_earlier import SETTINGS, audited, spoil, write

from fairfox.comparison import compare, drift_page
from fairfox.errors import FileError
from fairfox.report.ci import pair_markdown
from fairfox.report.pair import (
    Side,
    changed_people,
    drift_files,
    pair_files,
    pair_view,
    render_pair,
    share_sentence,
    shared_bins,
)
from fairfox.report.stored import read_audit
from fairfox.result import AuditResult
from fairfox.statistics.intervals import Estimate
from fairfox.statistics.paired import Pair
from tests.schemas import assert_valid_summary
from tests.support import example_result, many_result, without_sign

HOSTILE = '<script>alert(1)</script>"><img src=x onerror=alert(1)>'
PAIR = Pair(
    people=38,
    means=(0.1, 0.04),
    shares=(0.5, 0.25),
    difference=Estimate(-0.06, 0.01, -0.08, -0.04),
    share_difference=Estimate(-0.25, 0.05, -0.35, -0.15),
    less=0.9,
    more=0.1,
)
ONCE = {"settings": {**SETTINGS, "refits": 1}, "interval": None}


def side(result: AuditResult, name: str = "a model", **changes: Any) -> Side:
    judged = ~result.abstained.numpy()
    return Side(name, {**json.loads(result.to_json()), **changes}, result.scores.double().numpy()[judged])


def view_of(one: AuditResult, two: AuditResult | None = None, found: Pair = PAIR, **changes: Any) -> dict[str, Any]:
    return pair_view("compare", found, (side(one, "first"), side(one if two is None else two, "second", **changes)))


def column(table: dict[str, Any], label: str) -> dict[str, str]:
    place = [each["label"] for each in table["columns"]].index(label)
    return {row[0]: row[place] for row in table["rows"]}


def test_scores_of_two_audits_are_counted_in_the_same_bins_and_the_last_one_is_open():
    edges, (one, two) = shared_bins(
        (np.array([0.0, 0.105, 0.3]), None), (np.array([0.205, 0.255]), np.array([3.0, 1.0])), delta=0.2
    )
    assert edges == pytest.approx(np.linspace(0, 0.3, 31))  # 1.5 times delta; the 99.5th percentile is just below
    assert one == pytest.approx([1 / 3] + [0] * 9 + [1 / 3] + [0] * 18 + [1 / 3])
    assert two == pytest.approx([0] * 20 + [0.75] + [0] * 4 + [0.25] + [0] * 4)
    edges, (crowd,) = shared_bins((np.array([0.1] * 999 + [50.0]), None), delta=0.2)
    assert edges[-1] == pytest.approx(0.3)
    assert crowd[-1] == pytest.approx(0.001)
    assert shared_bins((np.zeros(3), None), delta=0.0)[0][-1] == 1.0


def test_numbers_stand_side_by_side_with_their_difference_and_its_interval():
    numbers = view_of(example_result())["numbers"]
    assert [each["label"] for each in numbers["columns"]] == ["What", "A", "B", "B less A", "95 % interval"]
    assert numbers["rows"][:2] == [
        ["Mean score (points)", "10.0", "4.0", "-6.0", "-8.0 to -4.0"],
        ["Flagged", "50.0 %", "25.0 %", "-25.0 points", "-35.0 to -15.0 points"],
    ]
    assert column(numbers, "A")["Confidently"] == "50.0 %"
    assert column(numbers, "A")["People judged"] == "38"
    assert column(numbers, "B")["Alignment share with sex"] == "21.0 %"
    bare = view_of(example_result(), found=replace(PAIR, share_difference=None))["numbers"]
    assert bare["rows"][1] == ["Flagged", "50.0 %", "25.0 %", "-25.0 points", ""]


def test_groups_and_features_that_one_audit_does_not_have_are_dashes():
    shown = view_of(many_result(), example_result())
    assert column(shown["groups"], "People, A")["race=Asian"] != "-"
    assert column(shown["groups"], "People, B")["race=Asian"] == "-"
    assert column(shown["groups"], "Mean effect (points), B")["sex=Female"] == "+8.2"
    other = {"effect": {"mean_absolute": {"shoes": 0.5, "income": 0.01}}}
    features = view_of(example_result(), features=other)["features"]
    assert features["data"]["names"] == ["shoes", "income", "job", "age"]  # 0.5, 0.044, 0.019, 0: the larger of the two
    assert column(features["table"], "A")["shoes"] == "-"
    assert column(features["table"], "B")["shoes"] == "50.0"
    assert features["data"]["values"][0][0] is None


def test_a_test_without_effects_has_no_features_and_says_so_nowhere():
    shown = view_of(without_sign())
    assert shown["features"] is None
    assert set(column(shown["groups"], "Mean signed score, A").values()) == {"-"}
    page = html.fromstring(render_pair(shown))
    assert not page.xpath("//*[@id='features'] | //a[@href='#features'] | //*[@id='changed'] | //a[@href='#changed']")


def test_settings_that_differ_are_marked():
    shown = view_of(
        example_result(settings={"seed": 0, "refits": 5}), example_result(settings={"seed": 1, "refits": 5})
    )
    assert shown["settings"]["rows"] == [["seed", "0", "1"], ["refits", "5", "5"]]
    assert shown["settings"]["marked"] == [[0, 1], [0, 2]]


def test_the_people_for_whom_most_changed_come_first_and_nobody_without_a_score():
    people = pa.table(
        {
            "row_id": ["ann", "bob", "eve"],
            "difference": [0.01, None, -0.2],
            "score_a": [0.1, None, 0.3],
            "score_b": [0.11, 0.5, 0.1],
            "flag_a": [True, None, True],
            "flag_b": [True, True, False],
        }
    )
    assert changed_people(people, "change of the prediction (probability)")["rows"] == [
        ["eve", "30.0", "10.0", "-20.0", "yes", "no"],
        ["ann", "10.0", "11.0", "+1.0", "yes", "yes"],
    ]


@pytest.mark.parametrize(
    ("between", "outcome", "heading"),
    [
        ((-0.08, -0.04), "passed", "B is fairer"),
        ((0.04, 0.08), "failure", "A is fairer"),
        ((-0.01, 0.01), "skipped", "Which model is fairer is open"),
    ],
)
def test_the_page_opens_with_the_verdict_and_its_interval(between, outcome: str, heading: str):
    found = replace(PAIR, difference=Estimate(0.0, 0.01, *between))
    shown = view_of(example_result(), found=found)
    assert shown["outcome"] == outcome
    page = html.fromstring(render_pair(shown))
    assert page.xpath("string(//h1)") == heading
    assert "95 % interval" in page.xpath("string(//p[@class='headline'])")
    assert pair_markdown(shown).startswith(f"## fairfox: {heading}\n\n")


def test_the_page_has_landmarks_labels_and_a_table_for_each_chart():
    page = html.fromstring(render_pair(view_of(many_result())))
    assert [len(page.xpath(f"//{tag}")) for tag in ("main", "header", "footer", "nav", "h1")] == [1] * 5
    for section in page.xpath("//main/section"):
        assert page.xpath(f"//*[@id='{section.get('aria-labelledby')}']")
    assert all(page.xpath(f"//*[@id='{link.get('href')[1:]}']") for link in page.xpath("//nav//a"))
    charts = page.xpath("//figure")
    assert len(charts) == 2
    for chart in charts:
        assert chart.xpath("./div[@role='img']/@aria-label")
        assert chart.xpath(".//details//table//th[@scope='col']")
    data = json.loads(page.xpath("string(//script[@id='page-data'])"))
    assert set(data["charts"]) == {each.get("data-chart") for each in page.xpath("//*[@data-chart]")}


def test_names_from_tables_and_files_are_text_on_the_page_and_in_the_comment():
    hostile = example_result(warnings=(HOSTILE,), settings={HOSTILE: HOSTILE})
    fields = {"word": HOSTILE, "test": HOSTILE, "unit": "", "delta": 0.1, "why": HOSTILE}
    shown = pair_view("compare", PAIR, (side(hostile, HOSTILE), side(hostile, HOSTILE)), more=[HOSTILE])
    page = html.fromstring(render_pair(shown))
    assert len(page.xpath("//script")) == 3  # its own
    assert not page.xpath("//img | //*[@onerror]")
    assert HOSTILE in page.xpath("string(//*[@id='warnings'])")
    files = pair_files(shown, fields)
    comment = html.fromstring(MarkdownIt("commonmark").enable("table").render(files["summary.md"].decode()))
    assert not comment.xpath("//script | //img")
    assert HOSTILE in comment.text_content()
    ((case,),) = JUnitXml.fromstring(files["junit.xml"])
    assert case.classname == "fairfox.compare"


def test_the_page_is_made_again_from_what_its_file_holds():
    shown = view_of(example_result())
    again = json.loads(pair_files(shown, {**side(example_result()).summary, "word": "", "why": ""})["report.json"])
    assert again == shown
    assert render_pair(again) == render_pair(shown)


def files_of(first: AuditResult, second: AuditResult) -> dict[str, str]:
    read = [read_audit(each) for each in (first, second)]
    one, two = (Side(name, each.summary, each.people.scores) for name, each in zip(("may", "june"), read, strict=True))
    return {name: content.decode() for name, content in drift_files(compare(first, second), (one, two)).items()}


@pytest.mark.parametrize(
    ("times", "changes", "word", "kind"),
    [(3.0, {}, "worse", [Failure]), (0.3, {}, "not worse", []), (3.0, ONCE, "cannot tell", [Skipped])],
)
def test_the_summary_and_the_build_server_say_the_verdict(times: float, changes: dict[str, Any], word: str, kind: list):
    first, second = audited(**changes), audited(times=times, **changes)
    files = files_of(first, second)
    assert list(files) == ["summary.json", "report.html", "report.json", "junit.xml", "summary.md"]
    fields, found = assert_valid_summary(files["summary.json"], "drift"), compare(first, second)
    assert fields["word"] == word
    assert fields["audits"]["second"] == {
        **{"name": "june", "people": 38},
        **{"mean_score": found.means[1], "share_flagged": found.shares[1]},
    }
    assert fields["paired"]
    assert fields["difference"]["value"] == found.means[1] - found.means[0]
    assert (fields["share_difference"]["upper"] is None) == (word == "cannot tell")
    ((case,),) = JUnitXml.fromstring(files["junit.xml"].encode())
    assert case.name == "people are treated no more unequally than before"
    assert [type(each) for each in case.result] == kind
    assert all(each.message == found.why for each in case.result)
    assert share_sentence(found).replace("p = ", "") in files["report.html"].replace("p = ", "")


def test_nothing_is_written_unless_a_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    found = compare(audited(), audited(times=3.0))
    assert list(tmp_path.iterdir()) == []
    assert compare(audited(), audited(times=3.0), out="out") == found
    written = {path.name for path in (tmp_path / "out").iterdir()}
    assert written == {"summary.json", "report.html", "report.json", "junit.xml", "summary.md"}


def test_a_summary_that_is_too_poor_for_the_page_is_refused_in_one_sentence(tmp_path: Path):
    write(audited(), tmp_path / "first")
    spoil(tmp_path / "first", ["counts"], {})
    with pytest.raises(
        FileError, match=r"does not hold all that the page shows \('judged'\); run `fairfox audit` again for both"
    ) as caught:
        drift_page(tmp_path / "first", tmp_path / "first")
    assert "\n" not in str(caught.value)
