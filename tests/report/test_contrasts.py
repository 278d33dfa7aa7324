from dataclasses import replace

from fairfox.report.contrasts import because, compared, reading_words
from tests.support import example_result, many_result


def test_contrasts_in_words():
    sex, race, age = many_result().findings
    assert because(race, "White") == "race (towards White)"
    assert because(race, "away from Black") == "race (away from Black)"
    assert because(age, "age - 13.6") == "age - 13.6"
    assert (because(age, "age"), because(race, None)) == ("age", "race")
    assert [compared(finding) for finding in (sex, race, age)] == [
        "two groups",
        "5 groups with each other",
        "one standard deviation (13.6) up and down",
    ]
    assert compared(replace(age, contrasts=("age",))) == "higher with lower"
    assert compared(replace(race, reference="White")) == "5 groups with White"


def test_the_total_reading_is_told_for_what_was_audited():
    many = many_result()
    race, age = (replace(many, findings=(finding,)) for finding in many.findings[1:])
    assert reading_words(example_result())["total"] == "becoming a member of the other group with the same ranks in it"
    assert reading_words(race)["total"] == "becoming a member of another group with the same ranks in it"
    assert reading_words(age)["total"] == "going one standard deviation up or down with the same ranks there"
    assert "another group (of a number: going one" in reading_words(many)["total"]
