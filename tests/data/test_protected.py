import numpy as np
import pandas as pd
import polars as pl
import pytest
from populations import table_of

from fairfox.data.protected import read_protected
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
    assert (source.column, source.variable.name, source.variable.source) == ("sex", "sex", "sex")
    assert (source.variable.kind, source.variable.levels) == ("binary", ("female", "male"))
    np.testing.assert_array_equal(source.encode(PEOPLE), [1, 0, NAN, 1])


@pytest.mark.parametrize(("name", "levels"), [("member", ("False", "True")), ("code", ("0", "1"))])
def test_booleans_and_numbers_of_two_values_are_groups(name: str, levels: tuple[str, str]):
    source = read_protected(name, PEOPLE)
    assert source.variable.levels == levels
    np.testing.assert_array_equal(source.encode(PEOPLE), [1, 0, 1, 0])


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
    assert read_protected("age<25", table).operator is None


def test_a_value_outside_the_groups_is_refused():
    source = read_protected("sex", PEOPLE)
    np.testing.assert_array_equal(source.encode(table_of(sex=["female", None])), [0, NAN])
    with pytest.raises(
        DataError, match="holds 'F' here; the groups to compare are 'female' and 'male': spell them alike"
    ):
        source.encode(table_of(sex=["female", "F"]))


@pytest.mark.parametrize(
    ("spec", "error", "message"),
    [
        ("sx", ColumnError, "no column 'sx'. Did you mean 'sex'?"),
        ("agee<25", ColumnError, "no column 'agee'. Did you mean 'age'?"),
        ("race<25", DataError, "The cut 'race<25' compares numbers, and column 'race' holds String; use race=VALUE"),
        ("age<young", OptionError, "The cut 'age<young' needs a number after '<'"),
        ("age<5", DataError, "The cut 'age<5' puts 0 of 3 people into one group; both groups need people"),
        ("age<99", DataError, "The cut 'age<99' puts 3 of 3 people into one group"),
        ("race=Green", DataError, "The cut 'race=Green' puts 0 of 3 people into one group"),
        ("race", DataError, "The protected column 'race' has 3 values; .* give a cut such as 'race=Asian'"),
        ("age", DataError, "The protected column 'age' has 3 values; .* give a cut such as 'age<25'"),
    ],
)
def test_what_makes_no_two_groups_is_refused(spec: str, error: type[Exception], message: str):
    with pytest.raises(error, match=message):
        read_protected(spec, PEOPLE)


def test_a_column_with_one_value_is_refused():
    with pytest.raises(DataError, match=r"The protected column 'v' has one value only \(7\); two groups are needed"):
        read_protected("v", table_of(v=[7, 7, 7]))


@pytest.mark.parametrize("values", [[None, None], [NAN, NAN]])
def test_a_column_without_values_is_refused(values: list[float]):
    table = load_table(pl.DataFrame({"v": pl.Series(values, dtype=pl.Float64)}))
    with pytest.raises(DataError, match="The protected column 'v' has no values"):
        read_protected("v", table)
