from fairfox.report.variables import groups_table, matrix, variable_view
from tests.support import RACES, example_result, many_result, nameless, with_finding, without_sign


def labels(table: dict) -> list[str]:
    return [column["label"] for column in table["columns"]]


def test_groups_have_the_columns_that_say_something():
    many, one, unsigned = many_result(), example_result(), without_sign()
    assert labels(groups_table(many, many.findings[1])) == [
        *("Group", "People", "Inferred", "Mean prediction", "Mean effect (points)", "Delta (points)"),
        *("Flagged", "Confidently"),
    ]
    assert labels(groups_table(one, one.findings[0])) == [
        *("Group", "People", "Mean prediction", "Mean effect (points)", "Flagged", "Confidently"),
    ]
    assert labels(groups_table(unsigned, unsigned.findings[0])) == [
        *("Group", "People", "Mean prediction", "Flagged", "Confidently"),
    ]
    rows = groups_table(many, many.findings[1])["rows"]
    assert all(len(row) == 8 for row in rows)
    assert [row[5] for row in rows] == ["5.0", "3.0", "5.0", "5.0", "5.0"]


def test_means_beyond_delta_are_marked_in_the_matrix():
    result = many_result()
    found = matrix(result, result.findings[1])
    assert found is not None
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


def test_two_groups_and_tests_without_contrasts_have_no_matrix():
    assert matrix(example_result(), example_result().findings[0]) is None
    assert matrix(nameless(many_result()), nameless(many_result()).findings[1]) is None


def test_a_number_has_ranges_that_go_up_and_down():
    result = many_result()
    shown = variable_view(result, result.findings[2])
    assert shown["heading"] == "Ranges"
    assert shown["matrix"]["heading"] == "Up and down"
    assert labels(shown["matrix"]["table"]) == ["People with", "age + 13.6", "age - 13.6"]


def test_what_is_special_is_one_sentence():
    result = with_finding(many_result(), 1, reference="White")
    notes = variable_view(result, result.findings[1])["notes"]
    assert notes.startswith("Own group inferred for 20 people; compared with White only; ")
    assert notes.endswith("delta of race=Black is 3 points.")
    assert variable_view(example_result(), example_result().findings[0])["notes"] is None


def test_where_decisions_turn_nothing_is_shaded_as_beyond_delta():
    result = many_result()
    turned = many_result(settings={**result.settings, "decision_threshold": 0.5})
    told, beyond = (matrix(each, each.findings[1]) for each in (turned, result))
    assert told is not None
    assert beyond is not None
    assert told["table"]["marked"] == []
    assert "delta" not in told["note"]
    assert beyond["note"].endswith("Shaded: the mean is beyond delta.")
