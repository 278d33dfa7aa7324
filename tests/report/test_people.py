from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch

from fairfox.errors import DataError, ShapeError
from fairfox.report.people import flagged_people, raw_rows
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
    assert people[6].because == ("race (towards White)", "sex (towards Male)")
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
    assert flagged_people(result, top=1)[0].because == ("sex (towards Male)",)
