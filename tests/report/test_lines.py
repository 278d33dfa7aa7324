from fairfox.report.lines import variable_lines
from tests.support import example_result, many_result, with_finding


def test_variables_are_told_in_a_line_each():
    result = many_result()
    race = result.findings[1]
    (line,) = variable_lines(result, race)
    assert line == (
        f"race: {int(race.flags.sum())} of 196 people ({100 * race.share_flagged(result.weights):.1f} %) flagged, "
        f"{int(race.confident_flags.sum())} confidently; the worst case for {100 * result.worst_case['race']:.1f} % "
        "of people; own group inferred for 20 people; 'Other' puts together Eskimo and Inuit; delta of race=Black is "
        "3 points"
    )
    assert variable_lines(result, result.findings[2])[0].endswith("; own group unknown for 4 people")


def test_one_variable_has_a_line_only_for_what_is_special():
    assert variable_lines(example_result(), example_result().findings[0]) == []
    special = with_finding(example_result(), parts=("sex", "race"), reference="Male")
    assert variable_lines(special, special.findings[0]) == ["sex: crosses sex and race; compared with Male only"]
