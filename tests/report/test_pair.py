"""Two audits side by side, from summaries and scores made by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from junitparser import Failure, JUnitXml, Skipped
from lxml import html
from markdown_it import MarkdownIt

from fairfox.comparison import compare
from fairfox.errors import FileError
from fairfox.findings import AuditRecord
from fairfox.report.ci import pair_markdown
from fairfox.report.pair import changed_people, pair_files, pair_view, render_pair, share_sentence
from fairfox.result import AuditResult
from fairfox.statistics.intervals import Estimate
from fairfox.statistics.paired import Pair, Side
from tests.report.helpers import SETTINGS, named_audit
from tests.schemas import assert_valid_summary
from tests.support import example_result, many_result

HOSTILE = '<script>alert(1)</script>"><img src=x onerror=alert(1)>'
PAIR = Pair(
    people=(38, 38),
    means=(0.1, 0.04),
    shares=(0.5, 0.25),
    difference=Estimate(-0.06, 0.01, -0.08, -0.04),
    share_difference=Estimate(-0.25, 0.05, -0.35, -0.15),
    less=0.9,
    more=0.1,
    reason="95 % interval",
)
ONCE = {"settings": {**SETTINGS, "refits": 1}, "interval": None}


def side(result: AuditRecord, name: str = "a model", **changes: Any) -> Side:
    judged = ~result.abstained.numpy()
    return Side(name, {**json.loads(AuditResult(result).to_json()), **changes}, result.scores.double().numpy()[judged])


def view_of(one: AuditRecord, two: AuditRecord | None = None, found: Pair = PAIR, **changes: Any) -> dict[str, Any]:
    return pair_view(found, (side(one, "first"), side(one if two is None else two, "second", **changes)))


def column(table: dict[str, Any], label: str) -> dict[str, str]:
    place = [each["label"] for each in table["columns"]].index(label)
    return {row[0]: row[place] for row in table["rows"]}


def test_numbers_stand_side_by_side_with_their_difference_and_its_interval():
    numbers = view_of(example_result())["numbers"]
    assert [each["label"] for each in numbers["columns"]] == ["What", "A", "B", "B less A", "95 % interval"]
    assert numbers["rows"][:2] == [
        ["Mean size of the effect (points)", "10.0", "4.0", "-6.0", "-8.0 to -4.0"],
        ["Flagged", "50.0 %", "25.0 %", "-25.0 points", "-35.0 to -15.0 points"],
    ]
    assert column(numbers, "A")["Confident"] == "50.0 %"
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
    assert [row[0] for row in features["rows"]] == ["shoes", "income", "job", "age"]  # 0.5, 0.044, 0.019, 0: the larger
    assert column(features, "Mean size (points), A")["shoes"] == "-"
    assert column(features, "Mean size (points), B")["shoes"] == "50.0"


def test_scores_of_both_are_counted_in_the_same_bins():
    found = view_of(example_result())["scores"]["data"]
    assert found["shares"][0] == found["shares"][1]  # the same audit twice
    assert sum(found["shares"][0]) == pytest.approx(100)
    assert len(found["edges"]) == len(found["shares"][0]) + 1
    assert any(edge == pytest.approx(5) for edge in found["edges"])  # so that no bar is half beyond delta


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
            "flagged_a": [True, None, True],
            "flagged_b": [True, True, False],
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
        ((-0.01, 0.01), "skipped", "Cannot tell which model is fairer"),
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


def test_names_from_tables_and_files_are_text_on_the_page_and_in_the_comment():
    hostile = example_result(warnings=(HOSTILE,), settings={HOSTILE: HOSTILE})
    fields = {"word": HOSTILE, "test": HOSTILE, "unit": "", "delta": 0.1, "reason": HOSTILE}
    shown = pair_view(PAIR, (side(hostile, HOSTILE), side(hostile, HOSTILE)), more=[HOSTILE])
    page = html.fromstring(render_pair(shown))
    assert len(page.xpath("//script")) == 3  # its own
    assert not page.xpath("//img | //*[@onerror]")
    assert HOSTILE in page.xpath("string(//*[@id='warnings'])")
    files = pair_files(shown, fields)
    comment = html.fromstring(MarkdownIt("commonmark").enable("table").render(files["summary.md"]))
    assert not comment.xpath("//script | //img")
    assert HOSTILE in comment.text_content()
    ((case,),) = JUnitXml.fromstring(str(files["junit.xml"]).encode())
    assert case.classname == "fairfox.compare"


@pytest.mark.parametrize(
    ("times", "changes", "word", "kind"),
    [(3.0, {}, "worse", [Failure]), (0.3, {}, "not worse", []), (3.0, ONCE, "cannot tell", [Skipped])],
)
def test_the_summary_and_the_build_server_say_the_verdict(
    times: float, changes: dict[str, Any], word: str, kind: list, tmp_path: Path
):
    one, two = (AuditResult(named_audit(times=each, **changes)) for each in (1.0, times))
    found = compare(one, two, names=("may", "june"))
    assert list(tmp_path.iterdir()) == []
    paths = {path.name: path.read_text("utf-8") for path in found.write(tmp_path)}
    assert set(paths) == {"summary.json", "report.html", "report.json", "junit.xml", "summary.md"}
    fields, pair = assert_valid_summary(paths["summary.json"], "compare"), found.pair
    assert (fields["of"], fields["word"], fields["paired"], fields["margin"]) == ("audits", word, True, pair.margin)
    june = {"name": "june", "people": 38, "mean_score": pair.means[1], "share_flagged": pair.shares[1]}
    assert fields["sides"]["b"] | june == fields["sides"]["b"]
    assert fields["difference"]["value"] == pair.means[1] - pair.means[0]
    assert (fields["share_difference"]["upper"] is None) == (word == "cannot tell")
    ((case,),) = JUnitXml.fromstring(paths["junit.xml"].encode())
    assert (case.classname, case.name) == ("fairfox.compare", "people are treated no more unequally than before")
    assert [type(each) for each in case.result] == kind
    assert all(each.message == found.reason for each in case.result)
    assert share_sentence(pair) in paths["report.html"]
    assert render_pair(json.loads(paths["report.json"])) == paths["report.html"]


def test_a_summary_that_is_too_poor_for_the_page_is_refused_in_one_sentence(tmp_path: Path):
    result = named_audit()
    AuditResult(result).to_parquet(tmp_path / "scores.parquet")
    (tmp_path / "summary.json").write_text(json.dumps({**json.loads(AuditResult(result).to_json()), "counts": {}}))
    with pytest.raises(
        FileError, match=r"does not hold all that the page shows \('judged'\); run `fairfox audit` again for both"
    ) as caught:
        compare(tmp_path, tmp_path).to_html()
    assert "\n" not in str(caught.value)
