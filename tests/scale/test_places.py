from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairfox.errors import FileError
from fairfox.scale.places import find_sources, is_parquet, read_batches, read_pilot, split, spread_order


def write(path: Path, numbers: list[int], row_group: int = 2) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"n": numbers, "other": numbers}), path, row_group_size=row_group)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Six people in three files of two years, and files that are no data."""
    write(tmp_path / "in/year=2023/b.parquet", [2])
    write(tmp_path / "in/year=2023/a.parquet", [0, 1])
    write(tmp_path / "in/year=2024/a.pq", [3, 4, 5])
    write(tmp_path / "in/_temporary/x.parquet", [9])
    write(tmp_path / "in/.hidden.parquet", [9])
    (tmp_path / "in/year=2024/README.md").write_text("no table")
    return tmp_path / "in"


def names(tables: list[str]) -> list[str]:
    return ["/".join(source.path.split("/")[-2:]) for source in find_sources(tables)]


def everyone(tables: list[str], part_rows: int = 100, columns: tuple[str, ...] = ("n", "year")) -> list[dict]:
    parts, failed = split(find_sources(tables), part_rows)
    assert failed == {}
    return [row for part in parts for batch in read_batches(part, columns, 2) for row in batch.to_pylist()]


def test_folders_patterns_files_and_urls_name_the_same_people(folder: Path):
    whole = ["year=2023/a.parquet", "year=2023/b.parquet", "year=2024/a.pq"]
    assert names([str(folder)]) == names([f"file://{folder}"]) == names([f"{folder}/**"]) == whole
    assert names([f"{folder}/*/a.*"]) == [whole[0], whole[2]]
    assert names([f"{folder}/year=2023/[b-z].parquet", str(folder)]) == [whole[1], whole[0], whole[2]]  # each once
    assert names([f"{folder}/**/?.pq"]) == [whole[2]]


def test_folders_that_name_a_column_are_one(folder: Path):
    found = everyone([str(folder)])
    assert [row["n"] for row in found] == [0, 1, 2, 3, 4, 5]
    assert [row["year"] for row in found] == [2023] * 3 + [2024] * 3
    write(folder / "year=__HIVE_DEFAULT_PARTITION__/c.parquet", [6])
    write(folder / "year=a%20b/d.parquet", [7])
    assert [row["year"] for row in everyone([str(folder)])][-2:] == [None, "a b"]  # and all of them are texts now
    assert everyone([f"{folder}/year=2024/a.pq"])[0] == {"n": 3}  # one file: its folders say nothing


def test_fsspec_knows_file_systems_that_arrow_does_not(folder: Path):
    fsspec = pytest.importorskip("fsspec")
    with fsspec.open("memory://people/x.parquet", "wb") as file:
        file.write((folder / "year=2024/a.pq").read_bytes())
    assert [row["n"] for row in everyone(["memory://people"])] == [3, 4, 5]
    assert [row["n"] for row in everyone(["memory://people/*.parquet"])] == [3, 4, 5]


def test_what_is_not_there_is_said(folder: Path):
    for table, message in (
        (str(folder / "nothing.parquet"), "There is no Parquet file at"),
        (str(folder / "*.csv"), "There is no Parquet file at"),
        ("nowhere://x/y.parquet", "cannot be reached"),
    ):
        with pytest.raises(FileError, match=message):
            find_sources([table])


@given(st.lists(st.integers(min_value=0, max_value=7), min_size=1, max_size=12), st.integers(min_value=1, max_value=9))
def test_parts_have_every_row_group_once_and_as_many_people_as_asked(groups: list[int], part_rows: int):
    from fairfox.scale.places import Source, _parts

    class Footer:
        num_row_groups = len(groups)

        def row_group(self, n: int):
            return type("Group", (), {"num_rows": groups[n]})

    parts = list(_parts(Source("", "f", 1, None), Footer(), part_rows))
    covered = [n for part in parts for n in range(*part.groups)]
    assert [n for n in range(len(groups)) if groups[n] and n not in covered] == []
    assert covered == sorted(set(covered))
    assert [part.first_row for part in parts] == [sum(part.rows for part in parts[:k]) for k in range(len(parts))]
    assert sum(part.rows for part in parts) == sum(groups)
    assert all(part.rows >= part_rows for part in parts[:-1])


def test_a_file_that_is_cut_off_is_named_and_the_others_are_split(folder: Path):
    path = folder / "year=2023/a.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    parts, failed = split(find_sources([str(folder)]), 2)
    assert list(failed) == [str(path)]
    assert "cannot be read and may be damaged" in failed[str(path)]
    assert [(part.source.path[-12:], part.groups, part.first_row) for part in parts] == [
        ("23/b.parquet", (0, 1), 0),
        ("ear=2024/a.pq"[1:], (0, 1), 0),
        ("ear=2024/a.pq"[1:], (1, 2), 2),
    ]


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


@given(st.integers(min_value=0, max_value=40))
def test_an_order_that_is_spread_has_every_place_once(count: int):
    assert sorted(spread_order(count)) == list(range(count))


def test_one_file_of_another_kind_is_not_streamed(folder: Path):
    streamed = [str(folder), f"{folder}/*", "s3://bucket/x", "x.PARQUET", "x.pq", "x.csv", str(folder / "x.arrow")]
    assert [is_parquet(table) for table in streamed] == [True] * 5 + [False] * 2
