from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairfox.data.protected import join_protected, read_protected
from fairfox.data.table import load_table
from fairfox.errors import ColumnError, DataError, OptionError

KINDS = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.table}
PEOPLE = {"nr": [3, 1, 7, None, 1], "v": [10, 11, 12, 13, 14]}
REGISTER = {"nr": [1, 2, 3], "sex": ["F", "M", None], "race": [4, 5, 6], "age": [20.5, 30.0, 40.0], "other": [0, 0, 0]}


def joined(people: Any, register: Any, specs: list[str], on: str = "nr"):
    return join_protected(load_table(people), load_table(register), on=on, specs=specs)


@pytest.mark.parametrize("here", KINDS)
@pytest.mark.parametrize("there", KINDS)
def test_columns_come_by_id_in_the_order_and_kind_of_the_people(here: str, there: str):
    table, matched = joined(KINDS[here](PEOPLE), KINDS[there](REGISTER), ["sex", "age<25", "race"])
    assert type(table.to_native()) is type(KINDS[here](PEOPLE))
    assert table.columns == ["nr", "v", "sex", "age", "race"]
    assert table["v"].to_list() == [10, 11, 12, 13, 14]
    assert matched == 3
    np.testing.assert_array_equal(read_protected("age<25", table).encode(table), [0, 1, np.nan, np.nan, 1])
    assert read_protected("race", table).variable.levels == ("4", "6")
    sex = [None if value is None or value != value else value for value in table["sex"].to_list()]
    assert sex == [None, "F", None, None, "F"]


@pytest.mark.parametrize(
    ("here", "there", "same"),
    [
        ([7], [7.0], True),
        ([7], ["7"], True),
        ([7.0], ["7"], True),
        (["7"], [" 7 "], True),
        (["007"], [7], False),
        (["a1"], ["A1"], False),
        ([10**17], [10**17 + 1], False),  # one float, two people
        ([10**17], [str(10**17)], True),
    ],
)
def test_ids_are_compared_as_they_are_written(here: list[Any], there: list[Any], same: bool):
    people, register = pd.DataFrame({"nr": here * 2 + ["x"]}), pd.DataFrame({"nr": [*there, "x"], "sex": ["F", "M"]})
    assert joined(people, register, ["sex"])[1] == (3 if same else 1)


@settings(deadline=None)
@given(st.lists(st.integers(0, 30), min_size=1, max_size=30), st.sets(st.integers(0, 30), min_size=1))
def test_everyone_gets_the_value_of_their_own_id(ids: list[int], register: set[int]):
    if not set(ids) & register:
        return
    people = pl.DataFrame({"nr": ids})
    other = pl.DataFrame({"nr": sorted(register), "c": [f"of {i}" for i in sorted(register)]})
    table, matched = joined(people, other, ["c"])
    assert table["nr"].to_list() == ids
    assert table["c"].to_list() == [f"of {i}" if i in register else None for i in ids]
    assert matched == sum(i in register for i in ids)


def test_a_protected_column_that_only_the_people_have_stays():
    table, _ = joined(
        PEOPLE_FRAME.assign(sex=["F", "M", "F", "M", "F"]), REGISTER_FRAME[["nr", "race"]], ["sex", "race"]
    )
    assert table.columns == ["nr", "v", "sex", "race"]


def test_ids_that_are_missing_on_both_sides_do_not_meet():
    register = pd.DataFrame({"nr": [1, None, None], "sex": ["F", "M", "M"]})
    table, matched = joined(pd.DataFrame({"nr": [1, None]}), register, ["sex"])
    assert matched == 1
    assert table["sex"].is_null().to_list() == [False, True]


PEOPLE_FRAME, REGISTER_FRAME = pd.DataFrame(PEOPLE), pd.DataFrame(REGISTER)


OTHER = "The table with the protected columns"


@pytest.mark.parametrize(
    ("change", "specs", "error", "message"),
    [
        ({"on": "nrr"}, ["sex"], ColumnError, "The table has no id column 'nrr'. Did you mean 'nr'?"),
        (
            {"register": REGISTER_FRAME.rename(columns={"nr": "number"})},
            ["sex"],
            ColumnError,
            f"{OTHER} has no id column",
        ),
        ({}, ["sx"], ColumnError, f"{OTHER} has no column 'sx'. Did you mean 'sex'?"),
        ({}, ["agee<25"], ColumnError, f"{OTHER} has no column 'agee'. Did you mean 'age'?"),
        ({"people": PEOPLE_FRAME.assign(sex="F")}, ["sex"], OptionError, "'sex' is in the audited table and in"),
        ({}, ["v", "v<3"], OptionError, f"{OTHER} has none of 'v', but the audited table does; leave out"),
        (
            {"register": pd.DataFrame({"nr": [1, 2, 2, 2], "sex": list("FMFM")})},
            *(["sex"], DataError, "The id '2' is in 3 rows of the table with the protected columns"),
        ),
        (
            {"register": pd.DataFrame({"nr": ["p-1", "p-2"], "sex": ["F", "M"]})},
            *(["sex"], DataError, "'nr' is, for example, '3' in the first and 'p-1' in the second; use the same"),
        ),
        (
            {"register": pd.DataFrame({"nr": [np.nan], "sex": ["F"]})},
            *(["sex"], DataError, "'3' in the first and none in the second; use the same format"),
        ),
    ],
)
def test_tables_that_cannot_be_joined_are_refused(
    change: dict[str, Any], specs: list[str], error: type[Exception], message: str
):
    given = {"people": PEOPLE_FRAME, "register": REGISTER_FRAME} | change
    with pytest.raises(error) as caught:
        joined(specs=specs, **given)
    assert message in str(caught.value)
