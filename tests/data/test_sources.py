import numpy as np
import pytest
from populations import table_of

from fairfox.data.dataset import Protected
from fairfox.data.sources import Crossing, Cut, Number, ProtectedSource, Reader, Values
from fairfox.errors import DataError

NAN = np.nan
SEX = ProtectedSource(Protected("sex", "binary", ("F", "M"), "sex"), Values("sex", ("F", "M"), (0, 1)))
AGE = ProtectedSource(Protected("age<30", "binary", ("not age<30", "age<30"), "age"), Cut("age", "<", "30"))


def test_values_have_the_classes_they_were_given():
    reader = Values("v", ("a", "b", "c"), (1, 0, 1))
    np.testing.assert_array_equal(reader.read(table_of(v=["a", "b", None, "c"])), [1, 0, NAN, 1])
    with pytest.raises(DataError, match="The protected column 'v' holds 'z' here, and the groups to compare are 'a', "):
        reader.read(table_of(v=["a", "z"]))


@pytest.mark.parametrize("rest", [0, 1])
def test_values_nobody_knows_go_to_the_rest_where_there_is_one(rest: int):
    reader = Values("v", (1, 2), (0, 1), rest=rest)
    np.testing.assert_array_equal(reader.read(table_of(v=[2.0, 9.0, NAN])), [1, rest, NAN])


def test_many_groups_are_not_all_named_in_an_error():
    reader = Values("v", tuple("abcdefg"), tuple(range(7)))
    with pytest.raises(DataError, match="'a', 'b', 'c', 'd', 'e' and 2 more; spell them alike"):
        reader.read(table_of(v=["z", "a"]))


def test_a_number_is_read_as_it_is():
    np.testing.assert_array_equal(Number("v").read(table_of(v=[1.5, NAN])), [1.5, NAN])


@pytest.mark.parametrize(
    ("cut", "sides"),
    [
        (Cut("v", "<", "2"), [1, 0, 0, NAN]),
        (Cut("v", ">=", "2"), [0, 1, 1, NAN]),
        (Cut("v", "=", "2"), [0, 1, 0, NAN]),
        (Cut("v", "!=", "2"), [1, 0, 1, NAN]),
    ],
)
def test_a_cut_has_two_sides(cut: Cut, sides: list[float]):
    np.testing.assert_array_equal(cut.read(table_of(v=[1.0, 2.0, 3.0, NAN])), sides)


def test_a_cut_through_a_column_without_values_knows_nobody():
    assert np.isnan(Cut("v", "<", "2").read(table_of(v=[None, None]))).all()


def test_a_crossing_reads_its_parts():
    crossing = Crossing((SEX, AGE), ((0, 0), (0, 1), (1, 1)), (0, 1, 2))
    table = table_of(sex=["F", "F", "M", "M", None, "F"], age=[40.0, 20.0, 20.0, 40.0, 20.0, NAN])
    np.testing.assert_array_equal(crossing.read(table), [0, 1, 2, NAN, NAN, NAN])  # nobody was M and 30 or older
    assert crossing.columns == ("sex", "age")
    merged = Crossing((SEX, AGE), ((0, 0), (0, 1), (1, 1)), (0, 1, 1), rest=1)
    np.testing.assert_array_equal(merged.read(table), [0, 1, 1, 1, NAN, NAN])


def test_a_crossing_of_two_cuts_through_one_column_reads_it_once():
    old = ProtectedSource(Protected("age>60", "binary", ("not age>60", "age>60"), "age"), Cut("age", ">", "60"))
    assert Crossing((AGE, old), ((0, 0),), (0,)).columns == ("age",)


@pytest.mark.parametrize(
    "reader", [SEX.reader, Number("sex"), Cut("sex", "=", "F"), Crossing((SEX, AGE), ((0, 0), (1, 0)), (0, 1))]
)
def test_a_table_without_a_column_leaves_everyone_unknown(reader: Reader):
    found = ProtectedSource(Protected("v"), reader).encode(table_of(age=[1, 2, 3]))
    np.testing.assert_array_equal(found, [NAN] * 3)
