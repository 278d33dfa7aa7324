from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairfox.errors import DataError, FileError
from fairfox.scale.pilot import read_pilot, spread_order
from fairfox.scale.places import find_sources, split


def write(path: Path, numbers: list[int]) -> None:
    pq.write_table(pa.table({"n": numbers, "other": numbers}), path, row_group_size=2)


def test_a_pilot_is_everyone_of_few_and_some_from_everywhere_of_many(tmp_path: Path):
    for n in range(20):
        write(tmp_path / f"{n:02d}.parquet", [10 * n, 10 * n + 1])
    write(tmp_path / "99.parquet", [0])
    pq.write_table(pa.table({"other": [1]}), tmp_path / "98.parquet")  # without the column that is needed
    parts, _ = split(find_sources([str(tmp_path)]), 1)
    whole = read_pilot(parts, ["n"], ["n"], 1000)
    assert whole["n"].to_pylist() == [m for n in range(20) for m in (10 * n, 10 * n + 1)] + [0]
    some = read_pilot(parts, ["n"], ["n"], 8)["n"].to_pylist()
    assert len(some) == 8
    assert {n // 100 for n in some} == {0, 1}  # from the first and the second half
    with pytest.raises(FileError, match="no rows"):
        read_pilot([], ["n"], ["n"], 8)


def test_a_pilot_leaves_out_files_that_do_not_fit_and_names_one_where_none_does(tmp_path: Path):
    write(tmp_path / "a.parquet", [0, 1])
    pq.write_table(pa.table({"n": ["text"]}), tmp_path / "b.parquet")
    write(tmp_path / "c.parquet", [13, 2])
    write(tmp_path / "d.parquet", [3])

    def no_13(table: pa.Table) -> None:
        if 13 in table["n"].to_pylist():
            raise DataError("13 is no number")

    parts, _ = split(find_sources([str(tmp_path)]), 2)
    assert read_pilot(parts, ["n"], ["n"], 100, no_13)["n"].to_pylist() == [0, 1, 3]
    assert read_pilot(parts, ["n"], ["n"], 1, no_13)["n"].to_pylist() == [0]
    with pytest.raises(DataError, match=r"c.parquet': 13 is no number"):
        read_pilot(parts[2:3], ["n"], ["n"], 100, no_13)


def test_a_pilot_is_whole_where_it_fits_as_a_whole(tmp_path: Path):
    write(tmp_path / "a.parquet", [0])
    write(tmp_path / "b.parquet", [0, 1])

    def some_count(table: pa.Table) -> None:
        if not any(table["n"].to_pylist()):
            raise DataError("the weights are 0 for everyone")

    parts, _ = split(find_sources([str(tmp_path)]), 2)
    assert read_pilot(parts, ["n"], ["n"], 100, some_count)["n"].to_pylist() == [0, 0, 1]


@given(st.integers(min_value=0, max_value=40))
def test_an_order_that_is_spread_has_every_place_once(count: int):
    assert sorted(spread_order(count)) == list(range(count))
