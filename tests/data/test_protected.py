from collections.abc import Callable
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from populations import table_of

from fairfox.data.dataset import Feature, Protected
from fairfox.data.protected import (
    NumberGroups,
    column_of,
    compare_with_largest,
    find_group,
    read_protected,
    read_variables,
)
from fairfox.data.sources import Crossing, Cut, ProtectedSource, Values
from fairfox.data.table import load_table
from fairfox.errors import ColumnError, DataError, OptionError

NAN = float("nan")
PEOPLE = load_table(
    pd.DataFrame(
        {
            "sex": ["male", "female", None, "male"],
            "age": [20.0, 25.0, 30.0, NAN],
            "race": ["White", "Black", "Asian", None],
            "member": [True, False, True, False],
            "code": [1, 0, 1, 0],
        }
    )
)


def test_a_column_of_two_values_is_a_protected_variable():
    source = read_protected("sex", PEOPLE)
    assert (source.columns, source.variable.name, source.variable.source) == (("sex",), "sex", "sex")
    assert (source.variable.kind, source.variable.levels) == ("binary", ("female", "male"))
    np.testing.assert_array_equal(source.encode(PEOPLE), [1, 0, NAN, 1])


@pytest.mark.parametrize(
    ("cut", "name", "members"),
    [
        ("age<25", "age<25", [1, 0, 0, NAN]),
        ("age <= 25", "age<=25", [1, 1, 0, NAN]),
        ("age>=25", "age>=25", [0, 1, 1, NAN]),
        ("age > 25.5", "age>25.5", [0, 0, 1, NAN]),
        ("age=25", "age=25", [0, 1, 0, NAN]),
        ("race=White", "race=White", [1, 0, 0, NAN]),
        ("race == 'White'", "race=White", [1, 0, 0, NAN]),
        ("race != White", "race!=White", [0, 1, 1, NAN]),
        ("member=true", "member=true", [1, 0, 1, 0]),
    ],
)
def test_a_cut_makes_two_groups_and_leaves_the_missing_unknown(cut: str, name: str, members: list[float]):
    source = read_protected(cut, PEOPLE)
    assert source.variable.name == name
    assert source.variable.levels == (f"not {name}", name)
    np.testing.assert_array_equal(source.encode(PEOPLE), members)


def test_a_column_may_have_a_sign_in_its_name():
    table = table_of(**{"age<25": ["yes", "no"]})
    assert read_protected("age<25", table).variable.levels == ("no", "yes")
    assert column_of("age<25", table.columns) == "age<25"


# --- many classes, numbers


@pytest.mark.parametrize(
    ("values", "levels", "codes"),
    [
        (["c", "a", None, "b"], ("a", "b", "c"), [2, 0, NAN, 1]),
        (pd.Categorical(["c", "a", None, "b"], categories=["c", "b", "a"]), ("a", "b", "c"), [2, 0, NAN, 1]),
        ([3, 1, 5, 2], ("1", "2", "3", "5"), [2, 0, 3, 1]),
        ([3.0, 1.0, NAN, 2.0], ("1", "2", "3"), [2, 0, NAN, 1]),  # whole numbers beside a gap are floats
        (pd.array([3, 1, None, 2], dtype="Int64"), ("1", "2", "3"), [2, 0, NAN, 1]),
    ],
    ids=["text", "categories", "codes", "codes and a gap", "nullable codes"],
)
def test_three_values_or_more_are_classes(values: object, levels: tuple[str, ...], codes: list[float]):
    table = table_of(v=values)
    source = read_protected("v", table)
    assert (source.variable.kind, source.variable.levels) == ("categorical", levels)
    np.testing.assert_array_equal(source.encode(table), codes)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (list(range(10)), "categorical"),
        (list(range(11)), "continuous"),
        ([0.5, 1.0, 2.0], "continuous"),
        ([0.5, 1.5, 0.5], "binary"),
        ([20.0, 30.5, NAN, 41.0], "continuous"),
    ],
)
def test_numbers_are_classes_only_where_they_are_few_and_whole(values: list[float], kind: str):
    assert read_protected("v", table_of(v=values)).variable.kind == kind


def test_a_number_keeps_its_values_and_its_gaps():
    table = table_of(age=[20.5, NAN, 41.0])
    source = read_protected("age", table, continuous=["age"])
    assert (source.variable.levels, source.variable.source, source.variable.outputs) == ((), "age", 1)
    np.testing.assert_array_equal(source.encode(table), [20.5, NAN, 41.0])
    np.testing.assert_array_equal(source.encode(table_of(age=[None, None])), [NAN, NAN])


def test_kinds_are_overruled():
    years = table_of(v=list(range(30, 42)), flag=[0, 1] * 6)
    assert read_protected("v", years, categorical=["v"]).variable.kind == "categorical"
    assert read_protected("flag", years, continuous=["flag"]).variable.kind == "continuous"


def test_a_table_without_the_column_leaves_everyone_unknown():
    other = table_of(v=[1, 2, 3])
    for spec in ("sex", "race", "age", "age<25"):
        assert np.isnan(read_protected(spec, PEOPLE).encode(other)).all()


def test_a_value_outside_the_groups_is_refused():
    source = read_protected("sex", PEOPLE)
    np.testing.assert_array_equal(source.encode(table_of(sex=["female", None])), [0, NAN])
    with pytest.raises(DataError) as caught:
        source.encode(table_of(sex=["female", "F"]))
    assert str(caught.value) == (
        "The protected column 'sex' holds 'F' here, but the groups to compare are 'female', 'male'; use the same "
        "spelling, or give a cut such as 'sex=VALUE'"
    )


@pytest.mark.parametrize(
    ("spec", "values", "message"),
    [
        ("age", ["x", "y", "z"], "The protected column 'age' holds String here but was numeric in the fitting rows"),
        ("age", [1.0, np.inf], r"The protected column 'age' holds inf in row 1 \(counted from 0\); values must"),
        ("age<25", ["x", "y"], "The cut 'age<25' compares numbers, but column 'age' holds String; use age=VALUE"),
    ],
)
def test_values_of_another_kind_than_the_fitting_rows_are_refused(spec: str, values: list[object], message: str):
    source = read_protected(spec, PEOPLE, continuous=["age"])
    with pytest.raises(DataError, match=message):
        source.encode(table_of(age=values))


WAY_OUT = (
    r"give a reference table that has it \(reference, --reference\), "
    r"or read it from another table \(protected_from, --protected-from TABLE --on ID\)$"
)


@pytest.mark.parametrize(
    ("spec", "error", "message"),
    [
        ("sx", ColumnError, rf"has no column 'sx'\. Did you mean 'sex'\? If it is not supposed to have it, {WAY_OUT}"),
        ("zzz", ColumnError, rf"has no column 'zzz'\. Choose from: sex, age, .*\. If it is not supposed .*{WAY_OUT}"),
        ("agee<25", ColumnError, rf"has no column 'agee'\. Did you mean 'age'\? .*{WAY_OUT}"),
        ("race<25", DataError, "The cut 'race<25' compares numbers, but column 'race' holds String; use race=VALUE"),
        ("age<young", OptionError, "The cut 'age<young' needs a number after '<'"),
        ("age<5", DataError, "The cut 'age<5' puts 0 of 3 people into one group; both groups need people"),
        ("age<99", DataError, "The cut 'age<99' puts 3 of 3 people into one group"),
        ("race=Green", DataError, "The cut 'race=Green' puts 0 of 3 people into one group"),
    ],
)
def test_what_makes_no_groups_is_refused(spec: str, error: type[Exception], message: str):
    with pytest.raises(error, match=message):
        read_protected(spec, PEOPLE)


@pytest.mark.parametrize("forced", [[], ["v"]])
def test_a_column_with_one_value_is_refused(forced: list[str]):
    with pytest.raises(DataError, match=r"The protected column 'v' has only one value \(7\); at least two groups"):
        read_protected("v", table_of(v=[7, 7, 7]), continuous=forced)


@pytest.mark.parametrize("values", [[None, None], [NAN, NAN]])
@pytest.mark.parametrize("spec", ["v", "v<3"])
def test_a_column_without_values_is_refused_with_the_way_out(values: list[float], spec: str):
    table = load_table(pl.DataFrame({"v": pl.Series(values, dtype=pl.Float64)}))
    with pytest.raises(DataError, match=rf"The protected column 'v' has only missing values; {WAY_OUT}"):
        read_protected(spec, table)


def test_more_than_fifty_classes_are_refused():
    texts, codes = [f"n{i:02}" for i in range(51)], list(range(51))
    for values in (texts, codes):
        with pytest.raises(
            DataError, match=r"'v' has 51 different values, and at most 50 groups can .* --continuous v\)$"
        ):
            read_protected("v", table_of(v=values), categorical=["v"])
    assert len(read_protected("v", table_of(v=texts[:50])).variable.levels) == 50


def test_a_number_that_is_none_and_dates_are_refused():
    with pytest.raises(DataError, match="'race' is given as continuous but holds String; give numbers, or leave it as"):
        read_protected("race", PEOPLE, continuous=["race"])
    with pytest.raises(DataError, match="'born' holds dates or times; convert it to a number, such as a year"):
        read_protected("born", table_of(born=pd.to_datetime(["2020-01-01", "2021-01-01", "2022-01-01"])))


# --- several variables, and their crossing

CROWD = table_of(
    sex=["F", "F", "M", "M", "F", None],
    race=["a", "b", "a", "a", "b", "a"],
    age=[20.0, 30.0, 40.5, 50.0, 60.0, 70.0],
)


def test_a_crossing_has_the_cells_that_occur_and_knows_its_parts():
    sex, race, both = read_variables(["sex", "race"], CROWD, intersections=True)
    assert (both.variable.name, both.variable.parts) == ("sex x race", ("sex", "race"))
    assert (both.variable.kind, both.variable.source) == ("categorical", None)
    assert both.variable.levels == ("F & a", "F & b", "M & a")  # nobody is M & b
    assert both.columns == ("sex", "race")
    assert (sex.variable.parts, race.variable.name) == ((), "race")
    np.testing.assert_array_equal(both.encode(CROWD), [0, 1, 2, 2, 1, NAN])


def test_a_person_in_a_cell_that_the_fitting_rows_have_not_is_unknown():
    both = read_variables(["sex", "race"], CROWD, intersections=True)[-1]
    np.testing.assert_array_equal(both.encode(table_of(sex=["M", "F"], race=["b", "a"])), [NAN, 0])
    assert np.isnan(both.encode(table_of(sex=["M", "F"]))).all()  # a part is not in the table
    assert np.isnan(both.encode(table_of(sex=[None, None], race=["b", "a"]))).all()


def test_a_crossing_is_merged_after_crossing():
    # cells: F & a 30, F & b 20, M & a 45, M & b 5 of 100: rarer than 0.24 are 20 and 5, than 0.31 also 30
    table = table_of(sex=["F"] * 50 + ["M"] * 50, race=["a"] * 30 + ["b"] * 20 + ["a"] * 45 + ["b"] * 5)
    both = read_variables(["sex", "race"], table, intersections=True, merge_rare=0.24)[-1]
    assert both.variable.levels == ("F & a", "M & a", "other (F & b, M & b)")
    assert both.variable.parts == ("sex", "race")
    np.testing.assert_array_equal(both.encode(table), [0] * 30 + [2] * 20 + [1] * 45 + [2] * 5)
    two = read_variables(["sex", "race"], table, intersections=True, merge_rare=0.31)[-1]
    assert (two.variable.kind, two.variable.levels) == ("binary", ("M & a", "other (F & a, F & b, M & b)"))


@pytest.mark.parametrize(
    ("specs", "error", "message"),
    [
        ([], OptionError, "No protected variable given; name a column, or a cut such as 'age<25'"),
        (["sex"], OptionError, "Intersections need at least two protected variables; add another one"),
        (["age"], OptionError, "Intersections need groups, but 'age' is a number"),
        (
            ["sex", "age"],
            OptionError,
            "Intersections need groups, but 'age' is a number; give a cut such as 'age<45.25' instead",
        ),
        (["sex", "race", "sex"], OptionError, "The protected variable 'sex' is given twice; give it once"),
        (["age<35", "age < 35"], OptionError, "The protected variable 'age<35' is given twice"),
    ],
)
def test_variables_that_cannot_be_crossed_are_refused(specs: list[str], error: type[Exception], message: str):
    with pytest.raises(error, match=message):
        read_variables(specs, CROWD, intersections=True)


def test_a_crossing_needs_two_groups_and_at_most_fifty():
    apart = table_of(d=["x", None, "y"], e=["u", "v", None])
    with pytest.raises(DataError, match=r"The intersection 'd x e' has 1 group\(s\) with all values known"):
        read_variables(["d", "e"], apart, intersections=True)
    many = table_of(d=[f"{i % 8}" for i in range(72)], e=[f"{i // 8}" for i in range(72)])
    with pytest.raises(DataError, match=r"The intersection 'd x e' has 72 groups, but at most 50 .*cross fewer"):
        read_variables(["d", "e"], many, intersections=True)


# --- groups by name

VARIABLES = (
    Protected("sex", "binary", ("Female", "Male")),
    Protected("race", "categorical", ("Asian", "Black", "White")),
    Protected("age<25", "binary", ("not age<25", "age<25")),
    Protected("smoker", "binary", ("No", "Yes")),
    Protected("member", "binary", ("No", "Yes")),
    Protected("income", "continuous", ()),
    Protected("sex x race", "categorical", ("Female & Asian", "Female & White", "Male & Black")),
)


@pytest.mark.parametrize(
    ("text", "group"),
    [
        ("Male", (0, 1)), ("sex=Male", (0, 1)), ("race = White", (1, 2)), ("race==Asian", (1, 0)),
        ("age<25", (2, 1)), ("age < 25", (2, 1)), ("not age<25", (2, 0)), ("not age < 25", (2, 0)),
        ("age<25=age<25", (2, 1)), ("smoker=Yes", (3, 1)), ("member=No", (4, 0)), ("Female & White", (6, 1)),
        ("sex x race=Male & Black", (6, 2)),
    ],
)  # fmt: skip
def test_groups_are_found_by_name(text: str, group: tuple[int, int]):
    assert find_group(VARIABLES, text) == group


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Yes", "'Yes' is a group of more than one protected variable; say which: 'smoker=Yes' or 'member=Yes'"),
        ("Whit", "There is no group 'Whit'. Did you mean 'White'?"),
        ("race=Whit", "There is no group 'race=Whit'. Did you mean 'race=White'?"),
        ("race=xyz", "There is no group 'race=xyz'. Choose from: race=Asian, race=Black, race=White."),
        ("rase=White", "There is no group 'rase=White'. Did you mean 'White'?"),
        ("race", "There is no group 'race'. Did you mean 'race=Asian'?"),
        (
            "income < 3",
            "'income < 3' is not a group: 'income' is a number; give a cut such as 'income<VALUE' as a "
            "protected variable",
        ),
    ],
)
def test_a_text_that_names_no_single_group_is_refused(text: str, message: str):
    with pytest.raises(OptionError) as caught:
        find_group(VARIABLES, text)
    assert str(caught.value) == message


def test_a_reference_group_is_set_for_its_variable_alone():
    sources = read_variables(["sex", "race"], CROWD, intersections=True, reference_group=["race=a"])
    assert [s.variable.reference for s in sources] == [None, 0, None]
    sources = read_variables(["sex", "race"], CROWD, intersections=True, reference_group=["M", "F & b"])
    assert [s.variable.reference for s in sources] == [1, None, 1]


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        (None, (1, 0)),  # two a, three b, two c: of equal ones the first
        ([1, 1, 1, 1, 1, 5, 1], (2, 1)),  # c weighs 6, b 3
        ([0, 0, 1, 1, 1, 1, 1], (1, 2)),  # nobody counts as a
    ],
)
def test_the_largest_class_by_weight_is_what_many_are_compared_with(weights, expected):
    table = table_of(race=["a", "a", "b", "b", "b", "c", "c"])
    counts = None if weights is None else np.array(weights, dtype=float)
    variable = compare_with_largest(read_protected("race", table), table, counts).variable
    assert (variable.reference, variable.second) == expected


SEX = ProtectedSource(Protected("sex", "binary", ("F", "M"), "sex"), Values("sex", ("F", "M"), (0, 1)))
AGE = ProtectedSource(Protected("age<30", "binary", ("not age<30", "age<30"), "age"), Cut("age", "<", "30"))


@pytest.mark.parametrize(
    "make",
    [
        lambda: Values("v", ("a", "b"), (0,)),
        lambda: Cut("age", "<", "young"),
        lambda: Crossing((SEX, AGE), ((0, 0), (0, 1)), (0,)),
        lambda: Crossing((SEX, AGE), ((0, 0), (0,)), (0, 1)),
        lambda: Feature("age", "continuous", 0, 1, decimals=10**9),
    ],
)
def test_parts_that_contradict_themselves_are_not_made(make: Callable[[], object]):
    with pytest.raises((DataError, OptionError)):  # such as a file of a fitted test might hold
        make()


def test_two_groups_numbers_and_variables_with_a_reference_are_not_compared_by_size():
    for source in read_variables(["sex", "race", "age"], CROWD, reference_group=["race=a"]):
        assert compare_with_largest(source, CROWD, None) == source


def test_reference_groups_that_contradict_each_other_or_name_a_number_are_refused():
    with pytest.raises(OptionError, match="'race' has two reference groups, 'a' and 'b'; give one"):
        read_variables(["sex", "race"], CROWD, reference_group=["a", "race=b"])
    with pytest.raises(OptionError, match="'age=20' is not a group: 'age' is a number"):
        read_variables(["sex", "age"], CROWD, reference_group=["age=20"])


# --- groups of a number


@pytest.mark.parametrize(
    ("values", "cuts", "names"),
    [
        # quarters 18 22 | 33 38 | 47 51 | 62 71; the shortest number between 22 and 33 is 30
        (
            [18, 22, 33, 38, 47, 51, 62, 71],
            (30, 40, 60),
            ("below 30", "30 to below 40", "40 to below 60", "60 and above"),
        ),
        ([18, 60], (40,), ("below 40", "40 and above")),
        ([59, 60], (59.5,), ("below 59.5", "59.5 and above")),  # 60 is one person's value
        # five people have 40, so that it may be shown; nobody has 30
        ([20] * 5 + [40] * 5, (30,), ("below 30", "30 and above")),
        ([39] * 5 + [40] * 5, (40,), ("below 40", "40 and above")),
        ([39] * 5 + [40] * 4, (39.5,), ("below 39.5", "39.5 and above")),  # four have 40: too few to show it
        ([-0.5, 0.5], (0,), ("below 0", "0 and above")),
        ([7, 7, 7, 7], (), ("any",)),
        ([NAN, NAN], (), ("any",)),
        ([1e20, 3e20], (2e20,), ("below 2E+20", "2E+20 and above")),
    ],
)
def test_a_number_has_ranges_that_are_cut_at_short_numbers(values, cuts, names):
    groups = NumberGroups.of(torch.tensor(values, dtype=torch.float64))
    assert (groups.cuts, groups.names) == (cuts, names)


def test_new_people_are_put_into_the_ranges_of_the_fitting_people():
    groups = NumberGroups.of(torch.tensor([18.0, 22, 33, 38, 47, 51, NAN]))
    assert groups.names == ("below 30", "30 to below 36", "36 to below 40", "40 and above")
    new = torch.tensor([-100, 29.9, 30, 35.9, 36, 40, 1000, NAN])
    assert groups.assign(new).tolist() == [0, 0, 1, 1, 2, 3, 3, -1]


NUMBERS = st.one_of(
    st.lists(st.floats(-1e12, 1e12), min_size=1, max_size=60),
    st.lists(st.integers(-20, 20).map(float), min_size=1, max_size=60),
    st.lists(st.sampled_from([0.1, 0.1 + 2**-55, 0.30000000000000004, 0.3, 1e-300]), min_size=1, max_size=40),
)


@settings(deadline=None)
@given(NUMBERS)
def test_every_range_has_people_in_order_and_no_rare_value_is_shown(values: list[float]):
    own = torch.tensor(values, dtype=torch.float64)
    groups, place = NumberGroups.of(own), NumberGroups.of(own).assign(own)
    assert len(groups.names) == len(groups.cuts) + 1 == len(set(groups.names))
    assert sorted(set(place.tolist())) == list(range(len(groups.names)))  # nobody is left out, no range is empty
    assert list(groups.cuts) == sorted(set(groups.cuts))
    order = own.argsort()
    assert (place[order].diff() >= 0).all()
    for k, cut in enumerate(groups.cuts):
        below, above = own[place <= k], own[place > k]
        assert float(below.max()) < cut <= float(above.min())
        shown = Decimal(groups.names[k + 1].split()[0])
        assert shown > Decimal(float(below.max()))
        assert shown < Decimal(first := float(above.min())) or (shown == Decimal(first) and values.count(first) >= 5)
