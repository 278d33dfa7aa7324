import math
from dataclasses import replace

import numpy as np
import pytest

from tests.support import (
    PEOPLE,
    RACES,
    example_certificates,
    example_result,
    many_result,
    nameless,
    with_doubt,
    with_finding,
    without_sign,
)


def test_abstained_people_have_no_numbers_and_no_flags_in_the_table():
    table = example_result().scores_table()
    assert table.column_names == [
        *("row_id", "score", "signed", "direct", "lower", "upper", "flag", "confident", "p_value", "listed"),
        *("variable", "towards", "group_inferred", "abstained", "reason"),
    ]
    for name in ("score", "signed", "direct", "lower", "upper", "flag", "confident", "variable", "towards"):
        assert table[name].null_count == 2
        assert table[name][38].as_py() is None
    assert table["abstained"].to_pylist() == [False] * 38 + [True] * 2
    assert table["reason"][39].as_py() == "no evidence about sex"
    assert table["row_id"].to_pylist() == list(range(PEOPLE))


def test_columns_keep_their_types_when_a_test_has_no_sign():
    with_sign, without = example_result().scores_table(), without_sign().scores_table()
    assert with_sign.schema == without.schema
    assert without["signed"].null_count == without["confident"].null_count == PEOPLE


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        (np.array([f"p{k}" for k in range(PEOPLE)]), "p1"),
        (np.array([f"p{k}" for k in range(PEOPLE)], dtype=object), "p1"),
        (np.arange(PEOPLE) + 100, 101),
        (np.array([None, 1] + ["x"] * (PEOPLE - 2), dtype=object), "1"),  # several types: as text
    ],
)
def test_ids_name_people(ids: np.ndarray, expected: object):
    assert example_result(ids=ids).scores_table()["row_id"][1].as_py() == expected


def test_a_missing_id_is_null():
    ids = np.arange(PEOPLE, dtype=float)
    ids[3] = math.nan
    assert example_result(ids=ids).scores_table()["row_id"][3].as_py() is None


def test_numbers_that_are_not_finite_are_null_in_the_table():
    result = example_result()
    direct = result.direct.clone()
    direct[0] = math.inf
    assert with_finding(result, direct=direct).scores_table()["direct"][0].as_py() is None


def test_the_worst_case_of_each_person_is_named():
    table, result = many_result().scores_table(), many_result()
    assert table["variable"][6].as_py() == "race"
    assert table["towards"][6].as_py() == "White"
    assert table["variable"][199].as_py() is None
    assert table["group_inferred"].to_pylist() == [n < 20 for n in range(200)]
    for n in (3, 50, 120):
        finding = result.findings[int(result.worst[n])]
        assert table[f"score[{finding.name}]"][n].as_py() == table["score"][n].as_py()
        assert table[f"towards[{finding.name}]"][n].as_py() == table["towards"][n].as_py()


def test_every_contrast_has_a_column_where_there_is_a_choice():
    result = many_result()
    table = result.scores_table()
    assert [name for name in table.column_names if "race" in name] == [
        *("score[race]", "signed[race]", "flag[race]", "towards[race]"),
        *(f"effect[race={race}]" for race in RACES),
    ]
    assert table.column_names[-2:] == ["effect[age + 13.6]", "effect[age - 13.6]"]
    assert table["effect[race=Black]"][1].as_py() is None  # their own class
    assert table["effect[race=White]"][1].as_py() == pytest.approx(float(result.findings[1].effects[1, 4]))
    assert table["score[age]"].null_count == table["signed[age]"].null_count == 8  # age or everything unknown
    assert table["towards[age]"][50].as_py() is None
    assert table["flag[age]"][50].as_py() is None


def test_columns_whose_names_read_the_same_are_both_kept():
    result = many_result()
    twin = replace(result.findings[2], contrasts=("race=White", "age - 13.6"))
    names = replace(result, findings=(*result.findings[:2], twin)).scores_table().column_names
    assert len(set(names)) == len(names) == len(result.scores_table().column_names)
    assert "effect[race=White]'" in names


def test_a_test_that_knows_no_variable_names_none():
    table = nameless(many_result()).scores_table()
    assert table["variable"].null_count == table["towards"].null_count == 200
    assert not [name for name in table.column_names if name.startswith("effect[")]
    assert nameless(many_result()).worst_case == {}


def test_certificates_are_two_columns_where_they_were_asked_for():
    result = example_result()
    plain, table = (replace(result, certificates=c).scores_table() for c in (None, example_certificates(result)))
    assert table.column_names == [*plain.column_names, "certificate", "certificate_reason"]
    assert table["certificate"][0].as_py() == pytest.approx(float(result.scores[0]) + 0.06)
    assert [row for row, value in enumerate(table["certificate"].to_pylist()) if value is None] == [5, 38, 39]
    assert table["certificate_reason"].to_pylist() == [None] * 5 + ["a category changes on the way"] + [None] * 34


def test_doubt_and_distance_are_two_columns_where_abstaining_was_asked_for():
    plain, table = example_result().scores_table(), with_doubt(example_result()).scores_table()
    assert table.column_names == [*plain.column_names, "doubt", "distance"]
    assert table["doubt"].to_pylist()[-4:] == pytest.approx([0.0, 0.5, 1.0, 1.0])  # it says why people are left out
    assert table["distance"].to_pylist()[-4:] == pytest.approx([4.0, None, None, None])
    unasked = with_doubt(example_result(), share=None)
    assert unasked.scores_table() == plain
    assert unasked.doubt is not None
