from dataclasses import replace

import pyarrow as pa
import pytest
import torch

from fairfox.report import flagged
from fairfox.report.flagged import people_table
from fairfox.report.slider import make_slider
from tests.support import PEOPLE, example_result, example_table, many_result, without_sign


def test_the_table_holds_whom_the_slider_may_flag():
    result = example_result()
    slider = make_slider(result)
    assert slider is not None
    people = people_table(result, slider)
    assert len(people["rows"]) == result.judged
    assert people["flagged"] == sum(row["flagged"] for row in people["rows"]) == int(result.flags.sum())
    assert all(row["flagged"] == (slider["start"] < row["until"]) for row in people["rows"])
    scores = [row["sort"][1] for row in people["rows"]]
    assert scores == sorted(scores, reverse=True)


def test_without_a_slider_only_flagged_people_are_held():
    people = people_table(many_result(), None)
    assert len(people["rows"]) == people["flagged"] == int(many_result().flags.sum())
    assert {row["until"] for row in people["rows"]} == {0}


def test_cells_stand_below_their_headings():
    for result in (example_result(), many_result(), without_sign()):
        people = people_table(result, None)
        sizes = {(len(row["cells"]), len(row["sort"])) for row in people["rows"]}
        assert sizes == {(len(people["columns"]),) * 2}
    assert [column["label"] for column in people_table(many_result(), None)["columns"]] == [
        "Person",
        "Score (points)",
        "Signed (points)",
        "Interval",
        "Confident",
        "Direct (points)",
        "Because of",
        "Mostly through (points)",
    ]
    assert [column["label"] for column in people["columns"]] == ["Person", "Score", "Direct"]


def test_the_list_is_cut(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(flagged, "MOST_PEOPLE", 3)
    people = people_table(example_result(), make_slider(example_result()))
    assert len(people["rows"]) == 3
    assert people["flagged"] == int(example_result().flags.sum())


def test_values_of_people_who_are_not_flagged_are_never_held():
    result, table = example_result(), example_table()
    mapped = table.set_column(1, "income", pa.array([value.as_py() + 1 for value in table["income"]]))
    people = people_table(replace(result, counterfactual_table=mapped), make_slider(result), rows=table)
    text = {bool(row["flagged"]): "" for row in people["rows"]}
    for row in people["rows"]:
        text[row["flagged"]] += str(row)
    for place in range(PEOPLE):
        income = str(table["income"][place].as_py())
        assert (income in text[True]) == bool(result.flags[place])
        assert income not in text[False]
    assert "'income', 'higher'" in text[False]


def test_a_page_that_would_grow_too_large_leaves_features_out(monkeypatch: pytest.MonkeyPatch):
    whole = people_table(example_result(), None)["rows"]
    monkeypatch.setattr(flagged, "MOST_LETTERS", 1000)
    rows = people_table(example_result(), None)["rows"]
    explained = [k for k, row in enumerate(whole) if row["features"] is not None]
    first, last = explained[0], explained[-1]
    assert rows[first] == whole[first]
    assert rows[last]["features"] is None
    assert "fill the page" in rows[last]["notes"][-1]


def test_row_numbers_and_daggers_are_explained():
    assert people_table(example_result(), None)["notes"] == [
        "Row numbers count from 0, the first row below the header."
    ]
    assert "A dagger (†) marks" in people_table(many_result(), None)["notes"][1]


def test_nobody_flagged_is_an_empty_table():
    nobody = torch.zeros(PEOPLE, dtype=torch.bool)
    assert people_table(example_result(flags=nobody), None)["rows"] == []
