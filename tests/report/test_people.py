from dataclasses import replace
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch

from fairfox.errors import DataError, ShapeError
from fairfox.report import people as module
from fairfox.report.people import flagged_people, people_table, raw_rows, spans_of
from fairfox.report.slider import make_slider
from tests.support import PEOPLE, example_result, example_table, many_result, with_finding, without_sign


def test_flagged_people_come_with_the_highest_score_first():
    result = example_result()
    people = flagged_people(result, top=5)
    scores = [person.score for person in people]
    assert scores == sorted(scores, reverse=True)
    assert people[0].row_id == int(result.scores.argmax())
    assert scores[0] == pytest.approx(float(result.scores.max()))
    assert len(flagged_people(result, top=100)) == int(result.flags.sum())


def test_a_person_has_their_own_features_where_explained():
    people = {person.row_id: person for person in flagged_people(example_result(), top=100)}
    signed = float(example_result().signed[14])
    assert people[14].features == (("income", pytest.approx(0.7 * signed)), ("job", pytest.approx(0.3 * signed)))
    assert people[32].features == ()  # one of the last ten: not explained


def test_a_test_without_sign_leaves_the_sign_open():
    person = flagged_people(without_sign(), top=1)[0]
    assert (person.signed, person.lower, person.confident, person.features, person.row) == (None, None, None, (), ())


@pytest.mark.parametrize("convert", [lambda t: t, pa.Table.to_pandas, pl.from_arrow], ids=["arrow", "pandas", "polars"])
def test_raw_rows_are_those_of_flagged_people_only(convert: Any):
    result, table = example_result(), example_table()
    rows = raw_rows(result, convert(table)).to_pylist()
    for place, (row, flag) in enumerate(zip(rows, result.flags.tolist(), strict=True)):
        assert row == (table.slice(place, 1).to_pylist()[0] if flag else dict.fromkeys(table.column_names))


def test_a_column_of_several_types_becomes_text():
    frame = pd.DataFrame({"odd": pd.Series([1, "two"] * (PEOPLE // 2), dtype=object)})
    flags = example_result().flags.tolist()
    values = raw_rows(example_result(), frame)["odd"].to_pylist()
    assert values[0] == ("1" if flags[0] else None)


def test_flagged_people_carry_their_rows():
    result, table = example_result(), example_table()
    person = flagged_people(result, top=1, raw=raw_rows(result, table))[0]
    assert person.row == tuple(table.slice(person.row_id, 1).to_pylist()[0].values())


def test_rows_of_another_table_are_refused():
    with pytest.raises(ShapeError, match="39 rows for 40 audited people"):
        raw_rows(example_result(), example_table().slice(1))
    with pytest.raises(DataError, match="no table"):
        raw_rows(example_result(), object())


def test_a_person_comes_with_all_that_flags_them_the_largest_first():
    people = {person.row_id: person for person in flagged_people(many_result(), top=200)}
    assert people[6].because == ("race (towards White)", "sex")  # of two groups the other would tell their own
    named = flagged_people(many_result(), top=200, raw=pa.table({"k": range(200)}))
    assert [person.because for person in named if person.place == 6] == [("race (towards White)", "sex (towards Male)")]
    assert people[6].inferred  # one of the first twenty, whose race nobody knows
    assert not people[91].inferred


def test_a_group_inferred_for_another_variable_is_not_marked():
    nobody = torch.zeros(200, dtype=torch.bool)
    result = with_finding(with_finding(many_result(), 1, inferred=nobody), 2, inferred=~nobody)
    people = {person.row_id: person for person in flagged_people(result, top=200)}
    assert not people[6].inferred
    assert people[176].because == ("race (towards White)", "age + 13.6")
    assert people[176].inferred


def test_the_worst_case_is_named_where_no_variable_flags_alone():
    result = with_finding(example_result(), flags=torch.zeros(PEOPLE, dtype=torch.bool))
    named = flagged_people(result, top=1, raw=raw_rows(result, example_table()))
    assert named[0].because == ("sex (towards Male)",)
    assert flagged_people(result, top=1)[0].because == ("sex",)


def test_the_table_holds_the_flagged_and_nobody_else():
    result = example_result()
    slider = make_slider(result)
    assert slider is not None
    people = people_table(result, slider)
    assert sorted(row["id"] for row in people["rows"]) == sorted(map(str, result.flags.nonzero()[:, 0].tolist()))
    assert people["flagged"] == len(people["rows"]) == int(result.flags.sum())
    assert all(slider["start"] < row["until"] for row in people["rows"])  # larger deltas flag fewer of them
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
    monkeypatch.setattr(module, "MOST_PEOPLE", 3)
    people = people_table(example_result(), make_slider(example_result()))
    assert len(people["rows"]) == 3
    assert people["flagged"] == int(example_result().flags.sum())


def test_values_of_people_who_are_not_flagged_are_never_held():
    result, table = example_result(), example_table()
    mapped = table.set_column(1, "income", pa.array([value.as_py() + 1 for value in table["income"]]))
    result = replace(result, counterfactual_table=mapped)
    text = str(people_table(result, make_slider(result), rows=table))
    for place in range(PEOPLE):
        assert (str(table["income"][place].as_py()) in text) == bool(result.flags[place])
    hidden = str(people_table(result, make_slider(result), table=table))
    assert "'income', 'higher'" in hidden
    assert not [value for value in table["income"].to_pylist() if str(value) in hidden]


def test_a_page_that_would_grow_too_large_leaves_features_out(monkeypatch: pytest.MonkeyPatch):
    whole = people_table(example_result(), None)["rows"]
    monkeypatch.setattr(module, "MOST_OF_PAGE", 1000)
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


def test_a_number_that_goes_down_has_one_sign_in_table_and_card():
    result = many_result()
    finding = replace(result.findings[2], towards=("age - 13.6",) * 200)
    result = replace(result, findings=(*result.findings[:2], finding), worst=torch.full((200,), 2))
    people = people_table(result, None)
    for row in people["rows"]:
        place = int(row["id"])
        assert float(row["cells"][2]) == pytest.approx(-100 * float(result.signed[place]), abs=0.06)
        assert row["sort"][2] == pytest.approx(row["range"]["after"] - row["range"]["before"], abs=1e-6)
        low, high = (float(end) for end in row["cells"][3].split(" to "))
        assert low < float(row["cells"][2]) < high
        assert row["cells"][-1].split()[1].rstrip(",") == row["features"]["rows"][0][-1]


def test_numbers_that_nobody_has_are_counted():
    result, table = example_result(), example_table()
    far = table["income"].to_numpy().copy()
    first, other = int(result.flags.nonzero()[0]), int((~result.flags).nonzero()[0])
    far[first], far[other] = -1.0, -1.0
    mapped = table.set_column(1, "income", pa.array(far))
    notes = people_table(replace(result, counterfactual_table=mapped), None, table=table)["notes"]
    share = 100 / int(result.flags.sum())
    assert notes[-1].startswith(
        f"For 1 of {int(result.flags.sum())} people flagged ({share:.1f} %) the person they are"
    )
    unmoved = people_table(replace(result, counterfactual_table=table), None, table=table)
    assert not [note for note in unmoved["notes"] if "every value" in note]


def test_only_columns_of_numbers_that_are_mapped_have_a_span():
    result = replace(example_result(), counterfactual_table=example_table().drop_columns(["age"]))
    spans = spans_of(result, example_table())
    income = example_table()["income"].to_pylist()
    assert {name: (span.low, span.high) for name, span in spans.items()} == {"income": (min(income), max(income))}
    assert spans_of(example_result(), example_table()) == {}
