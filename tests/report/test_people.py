"""Flagged people: who is shown, what a row opens to, and what it never gives away."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fairfox.errors import DataError, ShapeError
from fairfox.findings import AuditRecord
from fairfox.report.figures import make_slider
from fairfox.report.people import (
    MOST_LETTERS,
    Span,
    flagged_because,
    flagged_people,
    people_table,
    person_details,
    raw_rows,
    shown_value,
    value_change,
)
from tests.support import PEOPLE, example_certificates, example_result, example_table, many_result, without_sign


def test_a_test_without_sign_leaves_the_sign_open():
    person = flagged_people(without_sign(), top=1)[0]
    assert (person.effect, person.lower, person.confident, person.features, person.own) == (None, None, None, (), {})


@pytest.mark.parametrize("convert", [lambda t: t, pa.Table.to_pandas, pl.from_arrow], ids=["arrow", "pandas", "polars"])
def test_raw_rows_are_those_of_flagged_people_only(convert: Any):
    result, table = example_result(), example_table()
    rows = raw_rows(result, convert(table)).to_pylist()
    for place, (row, flag) in enumerate(zip(rows, result.flagged.tolist(), strict=True)):
        assert row == (table.slice(place, 1).to_pylist()[0] if flag else dict.fromkeys(table.column_names))


def test_a_column_of_several_types_becomes_text():
    frame = pd.DataFrame({"odd": pd.Series([1, "two"] * (PEOPLE // 2), dtype=object)})
    flags = example_result().flagged.tolist()
    values = raw_rows(example_result(), frame)["odd"].to_pylist()
    assert values[0] == ("1" if flags[0] else None)


def test_rows_of_another_table_are_refused():
    with pytest.raises(ShapeError, match="39 rows for 40 audited people"):
        raw_rows(example_result(), example_table().slice(1))
    with pytest.raises(DataError, match="not a table"):
        raw_rows(example_result(), object())


def test_a_person_comes_with_all_that_flags_them_the_largest_first():
    people = {person.row_id: person for person in flagged_people(many_result(), top=200)}
    assert people[6].because == ("race (towards White)", "sex")  # of two groups the other would tell their own
    named = flagged_people(many_result(), top=200, rows=pa.table({"k": range(200)}))
    assert [person.because for person in named if person.position == 6] == [
        ("race (towards White)", "sex (towards Male)")
    ]
    assert people[6].inferred  # one of the first twenty, whose race nobody knows
    assert not people[91].inferred


def test_the_table_holds_the_flagged_and_nobody_else():
    result = example_result()
    slider = make_slider(result)
    people = people_table(result, slider)
    assert sorted(row["id"] for row in people["rows"]) == sorted(map(str, result.flagged.nonzero()[:, 0].tolist()))
    assert [each.row_id for each in flagged_people(result, top=1)] == [int(result.scores.argmax())]
    assert people["flagged"] == len(people["rows"]) == int(result.flagged.sum())
    assert all(slider["start"] < row["until"] for row in people["rows"])  # larger deltas flag fewer of them
    scores = [row["sort"][1] for row in people["rows"]]
    assert scores == sorted(scores, reverse=True)


def test_cells_stand_below_their_headings():
    for result in (example_result(), many_result(), without_sign()):
        people = people_table(result, None)
        sizes = {(len(row["cells"]), len(row["sort"])) for row in people["rows"]}
        assert sizes == {(len(people["columns"]),) * 2}
    assert [column["label"] for column in people_table(many_result(), None)["columns"]] == [
        *("Person", "Effect (points)", "Interval", "Confident", "Direct (points)"),
        *("Because of", "Mostly through (points)"),
    ]
    assert [column["label"] for column in people["columns"]] == ["Person", "Score", "Direct"]


def test_a_number_that_goes_down_has_one_sign_in_table_and_card():
    result = many_result()
    finding = replace(result.findings[2], towards=("age - 13.6",) * 200)
    result = replace(result, findings=(*result.findings[:2], finding), worst=torch.full((200,), 2))
    people = people_table(result, None)
    for row in people["rows"]:
        place = int(row["id"])
        assert float(row["cells"][1]) == pytest.approx(-100 * float(result.effect[place]), abs=0.06)
        change = row["range"]["after"] - row["range"]["before"]
        assert row["sort"][1] == pytest.approx(abs(change), abs=1e-6)
        low, high = (float(end) for end in row["cells"][2].split(" to "))
        assert low < float(row["cells"][1]) < high
        assert row["cells"][-1].split()[1].rstrip(",") == row["features"]["rows"][0][-1]


def opened(result: AuditRecord, place: int, *, spans: Any = None, **rows: Any) -> dict[str, Any]:
    (person,) = (one for one in flagged_people(result, top=500) if one.position == place)
    return person_details(result, replace(person, **rows), spans or {})


def fact(found: dict[str, Any], label: str) -> str:
    (words,) = (each["words"] for each in found["facts"] if each["label"] == label)
    return words


def test_the_prediction_is_shown_before_and_after():
    result = example_result()
    found = opened(result, 14)
    signed = float(result.effect[14])
    assert found["title"] == "Person 14, and the same person in the other group"
    assert fact(found, "Prediction") == "0.42"
    assert fact(found, "In the other group") == f"{0.42 + signed:.3g} ({100 * signed:+.1f} points)"
    assert (
        fact(found, "Interval of the change") == f"{100 * signed - 1.5:+.1f} points to {100 * signed + 1.5:+.1f} points"
    )
    assert found["range"]["after"] == pytest.approx(0.42 + signed)
    assert found["range"]["lower"] == pytest.approx(0.42 + signed - 0.015)


def test_without_rows_only_the_direction_is_shown():
    before, after = {"income": 4321.5, "job": "nurse", "age": 40}, {"income": 4000.0, "job": "smith", "age": 40.0}
    found = opened(example_result(), 14, before=before, after=after)
    assert [row[:3] for row in found["features"]["rows"]] == [
        [True, "income", "lower"],
        [True, "job", "another"],
        [False, "age", "the same"],
    ]
    assert not any(value in str(found) for value in ("4321", "4000", "nurse", "smith"))
    assert found["notes"] == ["The values themselves are not on this page."]


def test_with_rows_values_stand_before_and_after():
    own = {"sex": "Female", "income": 4321.5, "job": "nurse", "age": 40}
    after = {"income": 4000.123, "job": "smith", "age": 40.0}
    found = opened(example_result(), 14, own=own, before=own, after=after)
    assert found["title"] == "Person 14, and the same person as Male"
    assert [column["label"] for column in found["features"]["columns"]][:3] == ["Feature", "Now", "As Male"]
    assert [row[:4] for row in found["features"]["rows"]] == [
        [True, "income", "4321.5", "4000.12"],
        [True, "job", "nurse", "smith"],
        [False, "sex", "Female", "-"],
        [False, "age", "40", "40"],
    ]


def test_other_scores_fall_back_on_the_total_reading():
    result = without_sign()
    place = int(result.flagged.nonzero()[0])
    found = opened(result, place)
    assert not [each for each in found["facts"] if each["label"].startswith("Interval")]
    assert fact(found, "In the other group, in the total reading").startswith(
        f"{float(result.predictions[place] + result.total[place]):.3g}"
    )
    unknown = replace(result.findings[0], total=torch.full((PEOPLE,), math.nan))
    assert [each["label"] for each in opened(replace(result, findings=(unknown,)), place)["facts"]] == ["Prediction"]


def test_what_is_proved_is_shown():
    result = example_result()
    proved = replace(result, certificates=example_certificates(result))
    words = fact(opened(proved, 2), "At most, anywhere on the path")
    assert words == f"{100 * (float(result.scores[2]) + 0.06):.1f} points: proved"


NOT_EXPLAINED = "What each feature adds was not worked out for this person; result.person does so in Python."


def test_people_who_were_not_explained_are_told_so():
    assert opened(example_result(), 32)["notes"] == [NOT_EXPLAINED]
    assert opened(example_result(), 32)["features"] is None


@pytest.mark.parametrize(
    ("before", "after", "how"),
    [
        (3, 3.2, "higher"),
        (3.0, -1, "lower"),
        (3, 3.0000001, "the same"),
        ("nurse", "nurse", "the same"),
        ("nurse", None, "another"),
        (None, math.nan, "the same"),
        (math.nan, math.nan, "the same"),
        (True, False, "another"),
        (math.nan, 3.0, "changes"),
        (3.0, math.nan, "changes"),
    ],
)
def test_a_change_is_told_without_the_value(before: Any, after: Any, how: str):
    assert value_change(before, after) == how


def test_values_are_shown_without_needless_digits():
    assert shown_value(62.66286219718674) == "62.662862"
    values = (9876.5432, 7.0, 12, None, math.nan)
    assert [*map(shown_value, values)] == ["9876.5432", "7.0", "12", "-", "-"]
    assert len(shown_value("x" * 1000)) == MOST_LETTERS


def test_a_column_of_few_values_does_not_say_which_way_it_goes():
    owner = Span.of(np.array([0.0, 1.0] * 50))
    assert owner == Span(0.0, 1.0, tells=True)
    assert {value_change(before, after, owner) for before in (0, 1) for after in (-0.2, 0.4, 1.3)} == {"changes"}
    assert value_change(1, 1.0, owner) == "the same"
    assert Span.of(np.arange(19.0)).tells
    assert not Span.of(np.arange(20.0)).tells
    assert Span.of(np.array([math.nan, math.inf])) is None


def test_the_ends_of_a_column_do_not_say_which_way_they_go():
    income = Span.of(np.array([*range(1000, 1100), math.nan]))
    assert income == Span(1000.0, 1099.0, tells=False)
    ways = [
        value_change(before, after, income) for before, after in ((1000, 1500), (1099, 1000), (1001, 1500), (1001, 3))
    ]
    assert ways == ["changes", "changes", "higher", "lower"]


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=60), st.floats(-9, 9))
def test_without_a_row_a_way_never_tells_one_of_few_values(column: list[int], after: float):
    span = Span.of(np.array(column, dtype=float))
    assert {value_change(value, after, span) for value in column} <= {"changes", "the same"}


def test_a_category_whose_shares_move_is_not_called_the_same():
    before, after = {"income": 4321.5, "job": "nurse", "age": 40}, {"income": 4321.5, "job": "nurse", "age": 40}
    described = opened(example_result(), 14, before=before, after=after)
    assert {row[1]: (row[0], row[2]) for row in described["features"]["rows"]} == {
        "income": (False, "the same"),
        "job": (True, "partly another"),  # it adds 0.3 of the effect
        "age": (False, "the same"),
    }
    assert "Partly another: categories move as shares, and the likeliest one stays the same." in described["notes"]
    shown_rows = opened(example_result(), 14, own=before, before=before, after=after)["features"]["rows"]
    assert shown_rows[1][3] == "nurse, partly another"


def test_without_rows_no_title_names_the_own_group():
    result = replace(many_result(), worst=torch.zeros(200, dtype=torch.long))
    place = int(result.flagged.nonzero()[0])
    assert opened(result, place)["title"] == f"Person {place}, and the same person in the other group of sex"
    own = {"sex": "Female"}
    assert opened(result, place, own=own)["title"].endswith(f"as {result.findings[0].towards[place]}")
    race = replace(result, worst=torch.ones(200, dtype=torch.long))
    assert opened(race, place)["title"].endswith(f"as {result.findings[1].towards[place]}")


def test_without_rows_a_contrast_is_named_only_where_it_leaves_the_own_group_open():
    sex, race, age = many_result().findings
    assert flagged_because(sex, "Male", named=False) == "sex"
    assert flagged_because(sex, "Male", named=True) == "sex (towards Male)"
    assert flagged_because(race, "White", named=False) == "race (towards White)"
    assert flagged_because(race, "away from Black", named=False) == "race"
    assert flagged_because(age, "age - 13.6", named=False) == "age - 13.6"
    compared = replace(race, reference="White")  # only White people are compared with others than White
    assert flagged_because(compared, "Black", named=False) == "race"
    assert flagged_because(compared, "White", named=False) == "race (towards White)"
