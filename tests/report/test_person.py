import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fairfox.report.people import flagged_people
from fairfox.report.person import MOST_LETTERS, Span, card, change, shown, told_variable
from fairfox.result import AuditResult
from tests.support import PEOPLE, example_certificates, example_result, many_result, without_sign


def opened(
    result: AuditResult, place: int, *, own: Any = None, before: Any = None, after: Any = None, spans: Any = None
) -> dict[str, Any]:
    (person,) = (one for one in flagged_people(result, top=500) if one.place == place)
    return card(result, person, own or {}, before or {}, after or {}, spans or {})


def fact(found: dict[str, Any], label: str) -> str:
    (words,) = (each["words"] for each in found["facts"] if each["label"] == label)
    return words


def test_the_prediction_is_shown_before_and_after():
    result = example_result()
    found = opened(result, 14)
    signed = float(result.signed[14])
    assert found["title"] == "Person 14, and the same person in the other group"
    assert fact(found, "Prediction") == "0.42"
    assert fact(found, "In the other group") == f"{0.42 + signed:.3g} ({100 * signed:+.1f} points)"
    assert (
        fact(found, "Interval of the change") == f"{100 * signed - 1.5:+.1f} points to {100 * signed + 1.5:+.1f} points"
    )
    assert found["range"]["after"] == pytest.approx(0.42 + signed)
    assert found["range"]["lower"] == pytest.approx(0.42 + signed - 0.015)


def test_contributions_add_up_to_the_change():
    result = example_result()
    found = opened(result, 14)
    assert [column["label"] for column in found["features"]["columns"]] == ["Feature", "Adds to the change (points)"]
    signed = 100 * float(result.signed[14])
    assert found["features"]["rows"] == [
        [False, "income", f"{0.7 * signed:+.1f}"],
        [False, "job", f"{0.3 * signed:+.1f}"],
    ]


def test_without_rows_only_the_way_is_told():
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


def test_a_number_that_goes_down_turns_the_sign():
    result = many_result()
    down = [n for n, to in enumerate(result.towards) if to == "age - 13.6" and result.flags[n]]
    place = down[0] if down else int(result.flags.nonzero()[0])
    finding = replace(result.findings[2], towards=("age - 13.6",) * 200)
    result = replace(result, findings=(*result.findings[:2], finding), worst=torch.full((200,), 2))
    found = opened(result, place)
    change_then = found["range"]["after"] - found["range"]["before"]
    assert change_then == pytest.approx(-float(result.signed[place]), abs=1e-6)
    assert found["range"]["lower"] < found["range"]["after"] < found["range"]["upper"]
    assert found["title"].endswith("with age - 13.6")
    added = [row[-1] for row in found["features"]["rows"]]
    assert float(added[0]) == pytest.approx(-60 * float(result.signed[place]), abs=0.06)


def test_other_scores_fall_back_on_the_total_reading():
    result = without_sign()
    place = int(result.flags.nonzero()[0])
    found = opened(result, place)
    assert not [each for each in found["facts"] if each["label"].startswith("Interval")]
    assert fact(found, "In the other group, in the total reading").startswith(
        f"{float(result.predictions[place] + result.total[place]):.3g}"
    )
    unknown = replace(result.findings[0], total=torch.full((PEOPLE,), math.nan))
    assert [each["label"] for each in opened(replace(result, findings=(unknown,)), place)["facts"]] == [
        "Prediction",
        "Direct reading",
    ]


def test_what_is_proved_and_how_sure_it_is_are_told():
    result = example_result()
    proved = replace(result, certificates=example_certificates(result))
    words = fact(opened(proved, 2), "At most, anywhere on the way")
    assert words == f"{100 * (float(result.scores[2]) + 0.06):.1f} points: proved"
    sure = int(result.confident_flags.nonzero()[0])
    assert fact(opened(result, sure), "How sure") == "the whole interval lies beyond delta"


def test_people_who_were_not_explained_are_told_so():
    assert opened(example_result(), 32)["notes"] == ["What each feature adds was not worked out for this person."]
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
    assert change(before, after) == how


def test_values_are_shown_without_needless_digits():
    assert shown(62.66286219718674) == "62.662862"
    assert (shown(9876.5432), shown(7.0), shown(12), shown(None), shown(math.nan)) == (
        "9876.5432",
        "7.0",
        "12",
        "-",
        "-",
    )
    assert len(shown("x" * 1000)) == MOST_LETTERS


def test_a_column_of_few_values_does_not_say_which_way_it_goes():
    owner = Span.of(np.array([0.0, 1.0] * 50))
    assert owner == Span(0.0, 1.0, tells=True)
    assert {change(before, after, owner) for before in (0, 1) for after in (-0.2, 0.4, 1.3)} == {"changes"}
    assert change(1, 1.0, owner) == "the same"
    assert Span.of(np.arange(19.0)).tells
    assert not Span.of(np.arange(20.0)).tells
    assert Span.of(np.array([math.nan, math.inf])) is None


def test_the_ends_of_a_column_do_not_say_which_way_they_go():
    income = Span.of(np.array([*range(1000, 1100), math.nan]))
    assert income == Span(1000.0, 1099.0, tells=False)
    ways = [change(before, after, income) for before, after in ((1000, 1500), (1099, 1000), (1001, 1500), (1001, 3))]
    assert ways == ["changes", "changes", "higher", "lower"]


def test_an_end_that_many_have_hides_the_whole_column():
    gains = Span.of(np.array([0.0] * 90 + [1000.0 + k for k in range(30)]))
    assert gains is not None  # saying "changes" of the ends alone would tell who has nothing
    assert change(1007.0, 2000.0, gains) == change(0.0, 2000.0, gains) == "changes"


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=60), st.floats(-9, 9))
def test_without_a_row_a_way_never_tells_one_of_few_values(column: list[int], after: float):
    span = Span.of(np.array(column, dtype=float))
    assert {change(value, after, span) for value in column} <= {"changes", "the same"}


def test_numbers_that_nobody_has_are_marked():
    own = {"gain": 15024.0, "loss": 0.0, "age": 40}
    after = {"gain": -33876.79, "loss": 12.0, "age": 90.0}
    spans = {
        "gain": Span(0.0, 99999.0, tells=True),
        "loss": Span(0.0, 12.0, tells=True),
        "age": Span(17, 80, tells=False),
    }
    found = opened(example_result(), 14, own=own, before=own, after=after, spans=spans)
    words = {row[1]: row[3] for row in found["features"]["rows"]}
    assert words["gain"] == "-33876.79, below every value in the table"
    assert words["loss"] == "12"
    assert words["age"] == "90, above every value in the table"
    assert found["notes"] == ["Nobody in the table has such a value: take it for the way this goes, not for a person."]
    hidden = opened(example_result(), 14, before=own, after=after, spans=spans)
    assert {row[2] for row in hidden["features"]["rows"] if row[1] in own} == {"changes", "higher"}


def test_a_category_whose_shares_move_is_not_called_the_same():
    before, after = {"income": 4321.5, "job": "nurse", "age": 40}, {"income": 4321.5, "job": "nurse", "age": 40}
    told = opened(example_result(), 14, before=before, after=after)
    assert {row[1]: (row[0], row[2]) for row in told["features"]["rows"]} == {
        "income": (False, "the same"),
        "job": (True, "partly another"),  # it adds 0.3 of the effect
        "age": (False, "the same"),
    }
    assert "Partly another: categories move as shares, and the likeliest one stays the same." in told["notes"]
    shown_rows = opened(example_result(), 14, own=before, before=before, after=after)["features"]["rows"]
    assert shown_rows[1][3] == "nurse, partly another"


def test_where_decisions_turn_no_delta_is_spoken_of():
    result = example_result(settings={"decision_threshold": 0.5})
    sure = int(result.confident_flags.nonzero()[0])
    assert fact(opened(result, sure), "How sure") == "the whole interval lies beyond what turns the decision"
    unsure = int((result.flags & ~result.confident_flags).nonzero()[0])
    assert fact(opened(result, unsure), "How sure") == "the interval reaches below what turns the decision"


def test_without_rows_no_title_names_the_own_group():
    result = replace(many_result(), worst=torch.zeros(200, dtype=torch.long))
    place = int(result.flags.nonzero()[0])
    assert opened(result, place)["title"] == f"Person {place}, and the same person in the other group of sex"
    own = {"sex": "Female"}
    assert opened(result, place, own=own)["title"].endswith(f"as {result.findings[0].towards[place]}")
    race = replace(result, worst=torch.ones(200, dtype=torch.long))
    assert opened(race, place)["title"].endswith(f"as {result.findings[1].towards[place]}")


def test_without_rows_a_contrast_is_named_only_where_it_leaves_the_own_group_open():
    sex, race, age = many_result().findings
    assert told_variable(sex, "Male", named=False) == "sex"
    assert told_variable(sex, "Male", named=True) == "sex (towards Male)"
    assert told_variable(race, "White", named=False) == "race (towards White)"
    assert told_variable(race, "away from Black", named=False) == "race"
    assert told_variable(age, "age - 13.6", named=False) == "age - 13.6"
    compared = replace(race, reference="White")  # only White people are compared with others than White
    assert told_variable(compared, "Black", named=False) == "race"
    assert told_variable(compared, "White", named=False) == "race (towards White)"
