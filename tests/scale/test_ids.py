from typing import Any

import pyarrow as pa
import pytest

from fairfox.errors import DataError
from fairfox.scale.ids import ids_of, weights_of


@pytest.mark.parametrize(
    ("first", "second", "kept"),
    [
        (pa.array([7, 8]), pa.array(["0007", "0008"]), None),
        (pa.array([7, 8]), pa.array([True, False]), None),
        (pa.array(["7", "8"]), pa.array([1, 2]), None),
        (pa.array([7, 8]), pa.array([0, 1], pa.timestamp("us")), None),
        (pa.array([0, 1], pa.timestamp("us", "UTC")), pa.array([2, 3], pa.timestamp("us", "Europe/Paris")), None),
        (pa.array([7, 8]), pa.array([9, 10], pa.int32()), [9, 10]),
        (pa.array([7, 8]), pa.array([9.0, None]), [9, None]),
        (pa.array(["7", "8"]), pa.array(["9", "10"], pa.large_string()), ["9", "10"]),
        (pa.array([7, 8]), pa.array([None, None]), [None, None]),
    ],
)
def test_ids_of_another_file_stay_what_they_are_or_are_refused(
    first: pa.Array, second: pa.Array, kept: list[Any] | None
):
    table = pa.table({"id": second})
    if kept is None:
        with pytest.raises(
            DataError, match=r"The ids 'id' are .* here and .* in the tables read first; score them apart"
        ):
            ids_of(table, "id", first.type)
    else:
        found = ids_of(table, "id", first.type)
        assert found.to_pylist() == kept
        assert found.type == first.type


def test_weights_are_numbers_of_at_least_0_for_everyone():
    assert weights_of(pa.table({"w": [1, 0, 3]}), "w").to_pylist() == [1.0, 0.0, 3.0]
    for values, said in (([1.0, None], "hold nothing"), ([1.0, -2.0], "hold -2;"), (["much"], "are no numbers")):
        with pytest.raises(DataError, match=said):
            weights_of(pa.table({"w": values}), "w")
    with pytest.raises(DataError, match="There is no column 'w' with the weights"):
        weights_of(pa.table({"v": [1]}), "w")
