"""The page of an audit: what it shows, and that it needs nothing and runs nothing of others."""

from __future__ import annotations

import json
import math
import re
from base64 import b64encode
from dataclasses import replace
from functools import cache
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

import fairfox
from fairfox.findings import AuditRecord, FeatureEffect, Features
from fairfox.report import text
from fairfox.report.figures import figures
from fairfox.report.files import read_alternatives
from fairfox.report.html import render_report, script_json
from fairfox.report.sentences import count_lines, direction_lines, headline, through_lines, verdict_lines
from fairfox.report.view import contrast_matrix, groups_table, view
from fairfox.statistics.intervals import Estimate
from fairfox.statistics.performance import Performance
from fairfox.statistics.verdict import Verdict
from tests.report.helpers import FEMALE, MALE, Page, with_map_checks
from tests.support import (
    PEOPLE,
    RACES,
    example_certificates,
    example_result,
    example_table,
    many_result,
    nameless,
    with_finding,
    without_sign,
)

pytestmark = [pytest.mark.brief, pytest.mark.usefixtures("undrawn")]

HOSTILE = "<script>alert('1')</script>"
GROUP = HOSTILE  # a class called like its variable speaks for itself
VERDICT = Verdict("fails", "19 of 38 people (50 %) are significantly affected.", 0.05, 38, 19, 25, 0.0, 1.0)


def hostile_result() -> AuditRecord:
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


def test_the_verdict_comes_first_then_directions_certainty_warnings_counts_and_the_sections_in_order():
    page = Page(render_report(judged()))
    told = ("FAIL: 19 of 38", "Mean change of", "Mean size of", "The group sex=Male", "Significant", "2 people not")
    places = [page.words.index(words) for words in told]
    assert places == sorted(places)
    assert page.headings["h2"] == ["Verdict", "Groups", "Features", "People", "Checks", "Method", "Sign-off"]


@pytest.mark.parametrize("result", [example_result(), without_sign()], ids=["rank", "fta"])
def test_the_page_needs_nothing_beside_it(result: AuditRecord):
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


def test_every_chart_has_a_place_a_drawing_and_a_table():
    page = Page(render_report(example_result()))
    places = [value for _, name, value in page.attributes if name == "data-chart"]
    charts = json.loads(page.scripts[0])["charts"]
    assert sorted(places) == sorted(charts) == ["features", "groups-0", "proxies-0", "scores-0"]
    assert page.words.count("The numbers of this chart") == len(places)
    assert page.tags.count("details") == len(places) + 1  # and settings


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


def test_nobody_judged_still_gives_a_page():
    everybody = torch.ones(PEOPLE, dtype=torch.bool)
    result = example_result(abstained=everybody, flagged=~everybody, confident=~everybody, reasons=("dead",) * PEOPLE)
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


def test_several_variables_are_told_one_by_one():
    page = many_page()
    assert "because of sex, race or age?" in page.words
    assert page.headings["h3"][:3] == ["sex", "race", "age"]
    assert "race: own group inferred for 20 people." in page.words
    assert "race: 'Other' combines Eskimo and Inuit." in page.words
    assert "Shares and means are weighted; counts are not." in page.words


def test_every_class_is_shown_as_a_member_of_every_other():
    page = many_page()
    matrix = next(k for k, row in enumerate(page.rows) if row == ["People of", *RACES])
    towards = many_result().findings[1].groups[1].towards
    expected = [f"{100 * towards[race]:+.1f}" if race != "Black" else "·" for race in RACES]
    assert page.rows[matrix + 2] == ["Black", *expected]
    up_and_down = next(row for row in page.rows if row and row[0] == "People with")
    assert up_and_down == ["People with", "age + 13.6", "age - 13.6"]


def judged(word: str = "fails") -> AuditRecord:
    mean = Estimate(0.06, 0.005, 0.05, 0.07)
    return with_finding(example_result(), verdict=replace(VERDICT, word=word, mean=mean, variable="sex"))


def test_the_verdict_comes_with_directions_uncertainty_and_counts():
    shown = view(judged())
    first = shown["verdict"]
    assert (first["outcome"], first["word"]) == ("failure", "FAIL")
    assert first["why"] == "19 of 38 people (50 %) are significantly affected."
    assert [each["group"] for each in first["directions"]] == ["sex=Female", "sex=Male"]
    assert [each["effect"][0] for each in first["directions"]] == ["+", "-"]
    assert first["sure"] == ["Mean size of the effect: 6 points (95 % interval 5.0 to 7.0 points)."]
    assert first["warnings"] == ["The group sex=Male has few people."]
    assert shown["counts"] == [
        {"label": "Significant", "value": "19", "share": "50.0 %", "note": "false discovery rate: 10 %"},
        {"label": "Flagged", "value": "23", "share": "60.5 %", "note": "|effect| > 5 points"},
        {"label": "Confident", "value": "19", "share": "50.0 %", "note": "whole interval beyond 5 points"},
    ]
    words = [view(judged(word))["verdict"]["word"] for word in ("passes", "cannot tell")]
    assert words == ["PASS", "CANNOT TELL"]
    assert view(example_result())["verdict"]["word"] == "NO VERDICT"


def test_no_value_of_anybody_is_in_a_view_without_rows():
    rng = np.random.default_rng(0)
    table = example_table().set_column(1, "income", pa.array(rng.normal(1e6, 1e5, PEOPLE).round(3)))
    table = table.set_column(2, "job", pa.array([f"Zyzzyva{k:02}" for k in range(PEOPLE)]))
    mapped = table.drop_columns(["sex"]).set_column(0, "income", pa.array(table["income"].to_numpy() + 0.25))
    result = replace(example_result(), counterfactual_table=mapped)
    text = json.dumps(view(result, table=table))
    values = [value for one in (table, mapped) for name in ("income", "job") for value in one[name].to_pylist()]
    assert not [value for value in values if str(value) in text or f"{value:.8}" in text]
    assert "higher" in text
    with_rows = json.dumps(view(result, table))
    flagged = table["job"].filter(pa.array(result.flagged.numpy())).to_pylist()
    assert all(job in with_rows for job in flagged)
    assert sum(job in with_rows for job in table["job"].to_pylist()) == len(flagged)


TRIED = {
    "kind": "alternatives",
    "tried": [
        {"name": name, "dominated": False, "mean_effect": effect, "share_over": 0.3, "loss": 0.004}
        | {"performance": [{"metric": "auc", "value": value, "lower": 0.7, "upper": 0.9}]}
        for name, effect, value in (("the model as it is", 0.1, 0.82), (HOSTILE, 0.02, 0.816))
    ],
    "best": HOSTILE,
    "not_run": {"train_fair, floor 3": "time was up"},
    **{"unit": "change of the prediction (probability)", "people": 40, "delta": 0.05, "max_loss": 0.005},
    "probability_of_improvement": None,
    "settings": {"protected": ["sex"], "label": "paid", "model_sha256": "a" * 64},
}


def sign_off(result: AuditRecord) -> dict[str, list[str]]:
    return {part["label"]: part["lines"] for part in view(result)["sign_off"]}


def test_the_sign_off_says_what_was_asked_found_assumed_and_tried():
    verdict = replace(VERDICT, tipping=0.6)
    result = with_finding(example_result(), verdict=verdict)
    empty = sign_off(result)
    assert empty["Purpose"] == ["Not stated (reason in the options file)."]
    assert empty["Alternatives tried"][0].startswith("None were added to this audit")
    settings = {"reason": HOSTILE, "owner": "Jane", "config_sha256": "c" * 64, "table": "people.csv", "given": ["job"]}
    groups = tuple(replace(group, impact_ratio=ratio) for group, ratio in zip(result.groups, (0.0, 1.0), strict=True))
    result = replace(with_finding(result, groups=groups), settings={**result.settings, **settings})
    measured = (Performance("auc", 0.6, 0.4, 0.8, np.zeros(1)),)
    result = replace(result, alternatives=read_alternatives(Tried(TRIED), result.settings), performance=measured)
    shown = sign_off(result)
    assert list(shown) == [
        *("Purpose", "Owner", "Policy", "Model and data", "Verdict", "Assumption and tipping point"),
        *("Groups", "Proxies", "Alternatives tried", "Limits"),
    ]
    assert (shown["Purpose"], shown["Owner"]) == ([f"{HOSTILE}."], ["Jane."])
    assert shown["Policy"] == ["At most 5.0 % of people may be affected: |effect| > 5 points.", "Valid reasons: job."]
    assert f"SHA-256 of the options file (--config): {'c' * 64}." in shown["Model and data"]
    assert shown["Verdict"] == [f"FAIL: {VERDICT.reason}"]
    assert any(line.startswith("Tipping point: persistence 0.6.") for line in shown["Assumption and tipping point"])
    assert shown["Groups"][-1] == "Lowest impact ratio by sex: 0.00 (Female)."
    assert shown["Proxies"][0].startswith("Proxies of sex (mean gradient of the auxiliary model): income 0.9")
    how = "1 measured on 40 people; their maps are fitted anew, so numbers may differ a little from this audit's."
    about = [how, f"The best within a loss of 0.005 is {HOSTILE}."]
    assert shown["Alternatives tried"] == [*about, "Not run: train_fair, floor 3 (time was up)."]
    assert "AUC 0.600 (0.400 to 0.800)." in shown["Model and data"]
    assert "The group sex=Male has few people." in shown["Limits"]
    page = Page(render_report(result))
    assert [HOSTILE, "0.816 (0.700 to 0.900)", "2.0", "30.0 %", "no"] in page.rows
    assert all(page.words.count(line) == 2 for line in ("Name", "Role", "Signature"))
    assert HOSTILE not in [script.strip() for script in page.scripts]


class Tried:
    def __init__(self, fields: Any) -> None:
        self.fields = fields

    def to_json(self) -> str:
        return json.dumps(self.fields)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"kind": "audit"},
            "is not what `fairfox alternatives` writes .*kind is 'audit'.*; give its alternatives.json",
        ),
        ({"tried": []}, "is not what `fairfox alternatives` writes"),
        ({"tried": "many"}, "is not what `fairfox alternatives` writes"),
        ({"delta": "small"}, "is not what `fairfox alternatives` writes"),
        ({"settings": {"protected": ["race"]}}, "is about other protected columns than this audit"),
        ({"settings": {"label": "hired"}}, "is about another label than this audit"),
        ({"settings": {"model_sha256": "b" * 64}}, "is about another model than this audit"),
    ],
)
def test_other_alternatives_than_those_of_this_audit_are_refused(tmp_path: Path, changes: dict[str, Any], message: str):
    settings = {"protected": ["sex"], "label": "paid", "model_sha256": "a" * 64}
    path = tmp_path / "alternatives.json"
    path.write_text(json.dumps(TRIED | changes))
    with pytest.raises(fairfox.FairfoxError, match=f"'{re.escape(str(path))}' {message}"):
        read_alternatives(path, settings)
    assert read_alternatives(Tried(TRIED), settings)["best"] == HOSTILE


def owners() -> pa.Table:
    """Return people one in two of whom owns a house, one in three has ever gained, and each has their own income."""
    rng = np.random.default_rng(2)
    n = 160
    male = rng.random(n) < 0.5
    return pa.table(
        {
            "sex": np.where(male, "Male", "Female"),
            "race": rng.choice(["Black", "White"], n),
            "age": rng.permutation(np.linspace(20, 70, n)),
            "owner": (rng.random(n) < 0.25 + 0.5 * male).astype(int),
            "gain": np.where(rng.random(n) < 1 / 3, rng.normal(2000, 300, n).round(1), 0.0),
            "income": (3000 + 400 * male + rng.normal(0, 300, n)).round(2),
        }
    )


def by_owner(table: Any) -> np.ndarray:
    return 1 / (1 + np.exp((3200 - table["income"] - 900 * table["owner"] - table["gain"] / 9) / 400))


@cache
def real(*protected: str) -> AuditRecord:
    given = {"columns": ["owner", "gain", "income"], "delta": 0.001, "options": {"refits": 2}}
    return fairfox.audit(by_owner, owners(), protected=protected, **given).record


def test_no_column_of_few_values_can_be_read_off_a_page_without_rows():
    result = real("sex")
    shown = view(result, table=owners())
    described = {(row[1], row[2]) for person in shown["people"]["rows"] for row in person["features"]["rows"]}
    assert len(shown["people"]["rows"]) > 100
    assert {how for name, how in described if name in ("owner", "gain")} <= {"changes", "the same"}
    assert {how for name, how in described if name == "income"} >= {"higher", "lower"}
    ends = [f(owners()["income"].to_numpy()) for f in (np.argmin, np.argmax)]
    words = {
        int(person["id"]): row[2]
        for person in shown["people"]["rows"]
        for row in person["features"]["rows"]
        if row[1] == "income"
    }
    assert {words[int(end)] for end in ends if int(end) in words} <= {"changes"}


@pytest.mark.parametrize("protected", [("sex",), ("sex", "race"), ("sex", "race", "age")], ids=str)
def test_of_two_groups_nobody_s_own_is_named_without_rows(protected: tuple[str, ...]):
    result = real(*protected)
    people = view(result, table=owners())["people"]
    assert len(people["rows"]) > 100
    text = json.dumps(people)
    assert not [group for group in ("Male", "Female", "Black", "White") if group in text]
    with_rows = json.dumps(view(result, owners())["people"])
    assert all(f"as {group}" in with_rows for group in ("Male", "Female"))


def labels(table: dict) -> list[str]:
    return [column["label"] for column in table["columns"]]


def test_groups_have_the_columns_that_say_something():
    many, one, unsigned = many_result(), example_result(), without_sign()
    assert labels(groups_table(many, many.findings[1:2])) == [
        *("Group", "People", "Inferred", "Mean prediction", "Mean effect (points)", "Delta (points)"),
        *("Flagged", "Confident"),
    ]
    assert labels(groups_table(one, one.findings)) == [
        *("Group", "People", "Mean prediction", "Mean effect (points)", "Flagged", "Confident")
    ]
    assert labels(groups_table(unsigned, unsigned.findings)) == [
        *("Group", "People", "Mean prediction", "Flagged", "Confident")
    ]
    assert groups_table(one, one.findings)["rows"] == [
        ["sex=Female", "19", "0.42", "+8.2", "84.2 %", "78.9 %"],
        ["sex=Male", "19", "0.58", "-3.7", "36.8 %", "21.1 %"],
    ]
    rows = groups_table(many, many.findings[1:2])["rows"]
    assert all(len(row) == 8 for row in rows)
    assert [row[5] for row in rows] == ["5.0", "3.0", "5.0", "5.0", "5.0"]


def test_means_beyond_delta_are_marked_in_the_matrix():
    result = many_result()
    found = contrast_matrix(result, result.findings[1])
    groups = result.findings[1].groups
    expected = [
        [place, column]
        for place, group in enumerate(groups)
        for column, race in enumerate(RACES, start=1)
        if abs(group.towards.get(race, 0.0)) > (0.03 if group.level == "Black" else 0.05)
    ]
    assert expected
    assert found["table"]["marked"] == expected
    assert [row[1 + place] for place, row in enumerate(found["table"]["rows"])] == ["·"] * len(RACES)


def test_everybody_beside_the_largest_group_and_that_beside_the_second():
    result = with_finding(many_result(), 1, reference="White", second="Black")
    found = contrast_matrix(result, result.findings[1])
    assert labels(found["table"]) == ["People of", "Black", "White"]  # what concerns anybody
    assert found["table"]["rows"][4][2] == "·"
    assert found["note"].endswith("Everybody is compared with White, the largest group, and it with Black.")


def test_where_decisions_turn_no_count_chart_or_matrix_speaks_of_delta():
    plain = many_result()
    turned = many_result(deltas={}, settings={**plain.settings, "decision_threshold": 0.5})
    notes = [fact["note"] for fact in view(turned)["counts"]]
    assert "the decision would change over the whole interval, for any variable" in notes
    notes += [f"{figure['alt']} {figure['caption']}" for figure in figures(turned).values()]
    matrix = contrast_matrix(turned, turned.findings[1])
    assert matrix["table"]["marked"] == []
    assert not [note for note in [*notes, matrix["note"]] if "delta" in note]
    assert contrast_matrix(plain, plain.findings[1])["note"].endswith("Shaded: the mean is beyond delta.")


def test_two_groups_and_tests_without_contrasts_have_no_matrix():
    assert contrast_matrix(example_result(), example_result().findings[0]) is None
    assert contrast_matrix(nameless(many_result()), nameless(many_result()).findings[1]) is None


def test_checks_are_good_doubtful_or_bad_and_say_what_was_found():
    result = with_map_checks(example_result(), (replace(FEMALE, accounted=0.2), MALE))
    checks = {check["what"]: check for check in view(result)["checks"]}
    assert checks["People judged"]["level"] == "warn"
    assert checks["People judged"]["found"] == "38 of 40 people. 2 people not judged: no evidence about sex."
    assert checks["Map, sex=Female"]["level"] == "bad"
    assert checks["Map, sex=Female"]["found"] == (
        "Accounts for 20 % of the gap between the groups. Outside the other group's range: 1.0 % of people. With two "
        "categories that nobody has together: 0.5 % (by chance 0.0 %)."
    )
    assert checks["Map, sex=Male"]["level"] == "warn"  # it has a warning
    assert checks["Auxiliary model, sex"]["level"] == "good"
    good = with_map_checks(example_result(), (FEMALE,))
    assert {check["what"]: check["level"] for check in view(good)["checks"]}["Map, sex=Female"] == "good"
    near = with_finding(example_result(), quality=replace(example_result().findings[0].quality, value=0.5))
    assert {check["what"]: check["level"] for check in view(near)["checks"]}["Auxiliary model, sex"] == "warn"
    page = Page(render_report(result))
    assert ["Map, sex=Female", "", checks["Map, sex=Female"]["found"]] in page.rows
    assert "Problem" in page.words


def test_groups_and_intersections_show_what_decisions_give_them_and_the_page_says_it_is_context():
    rates = {"selection_rate": 0.25, "impact_ratio": 0.5, "true_positive_rate": 0.75, "false_positive_rate": 0.125}
    groups = tuple(replace(group, **rates, accuracy=math.nan) for group in example_result().groups)
    result = with_finding(example_result(settings={"label": "paid"}), groups=groups)
    shown = view(result)["variables"][0]
    assert labels(shown["rates"]) == [
        *("Group", "People", "Selection rate", "Impact ratio", "True positive rate", "False positive rate", "Accuracy")
    ]
    assert shown["rates"]["rows"][0] == ["sex=Female", "19", "0.250", "0.500", "0.750", "0.125", "-"]
    assert "Context, not a second verdict." in Page(render_report(result)).words
    assert view(example_result())["variables"][0]["rates"] is None
    ends = {"selection_rate": (0.2, 0.3), "impact_ratio": (0.0, math.nan)}
    crossed = replace(groups[0], variable="sex & race", level="Female & Black", intervals=ends)
    assert view(example_result(intersections=(crossed,)))["intersections"]["rows"] == [
        ["sex & race=Female & Black", "19", "0.250 (0.200 to 0.300)", "0.500 (0.000 to ?)", "0.750", "0.125", "-"]
    ]


@pytest.mark.parametrize(
    "result",
    [
        many_result(),
        example_result(certificates=example_certificates(example_result())),
        with_finding(example_result(), verdict=replace(VERDICT, tipping=0.6)),
    ],
    ids=["many", "proved", "tips"],
)
def test_every_sentence_of_the_verdict_is_on_the_page(result: AuditRecord):
    words = Page(render_report(result)).words
    shown_apart = {*map(text.ended, (line for f in result.findings for line in direction_lines(result, f)))}
    shown_apart |= {headline(result), " ".join(count_lines(result))}
    shown_apart |= {*map(text.ended, through_lines(result))}  # numbers, tables, charts
    lines = [line for line in verdict_lines(result) if line not in shown_apart]
    assert len(lines) >= 2
    assert [line for line in lines if line not in words] == []
