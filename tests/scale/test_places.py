from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairfox.errors import FileError
from fairfox.scale.places import Source, find_sources, is_parquet, read_batches, split


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


def test_folders_name_the_same_column_however_they_are_given(folder: Path):
    whole = everyone([str(folder)])
    assert everyone([f"{folder}/year=2023", f"{folder}/year=2024"]) == whole
    assert everyone([f"{folder}/year=2023/*.parquet", f"{folder}/year=2024/*"]) == whole
    assert everyone([str(path) for path in sorted(folder.glob("year=*/*.p*"))]) == whole  # as a shell spells patterns
    write(folder / "year=x/c.parquet", [6])
    mixed = everyone([f"{folder}/year=2024", f"{folder}/year=x"])
    assert [row["year"] for row in mixed] == ["2024"] * 3 + ["x"]  # one type for all tables


def test_a_column_of_the_file_counts_more_than_its_folders(folder: Path):
    assert [row["n"] for row in everyone([str(folder)], columns=("n",))] == [0, 1, 2, 3, 4, 5]
    write(folder / "n=9/c.parquet", [6])
    assert everyone([f"{folder}/n=9"], columns=("n",)) == [{"n": 6}]


def test_fsspec_knows_file_systems_that_arrow_does_not(folder: Path):
    fsspec = pytest.importorskip("fsspec")
    with fsspec.open("memory://people/x.parquet", "wb") as file:
        file.write((folder / "year=2024/a.pq").read_bytes())
    assert [row["n"] for row in everyone(["memory://people"])] == [3, 4, 5]
    assert [row["n"] for row in everyone(["memory://people/*.parquet"])] == [3, 4, 5]


def test_the_same_path_in_two_file_systems_is_two_files(folder: Path):
    fsspec = pytest.importorskip("fsspec")
    path = str(folder / "year=2024/a.pq")
    with fsspec.open(f"memory://{path}", "wb") as file:
        file.write((folder / "year=2023/a.parquet").read_bytes())
    found = find_sources([path, f"memory://{path}"])
    assert [source.name for source in found] == [path, f"memory://{path.lstrip('/')}"]
    assert [row["n"] for row in everyone([path, f"memory://{path}"])] == [3, 4, 5, 0, 1]


@pytest.mark.parametrize(
    ("root", "path", "name"),
    [
        ("/data/in", "/data/in/a.parquet", "/data/in/a.parquet"),
        ("file:///data", "/data/a.parquet", "/data/a.parquet"),
        ("s3://key:secret@bucket/in", "bucket/in/a.parquet", "s3://bucket/in/a.parquet"),
        ("s3://b/in?endpoint_override=x:9", "b/in/a.parquet", "s3://b/in/a.parquet?endpoint_override=x:9"),
        ("hdfs://one:8020/in", "/in/a.parquet", "hdfs://one:8020/in/a.parquet"),
        ("https://h/a.parquet", "https://h/a.parquet", "https://h/a.parquet"),
    ],
)
def test_a_file_is_named_with_its_place_and_without_secrets(root: str, path: str, name: str):
    assert Source(root, path, 1, None).name == name


def test_marks_of_a_file_url_are_read(folder: Path):
    write(folder / "a b/x.parquet", [8])
    assert everyone([f"file://{folder}/a%20b"], columns=("n",)) == [{"n": 8}]


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
    from fairfox.scale.places import _parts

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


def test_a_file_that_is_gone_is_not_called_damaged(folder: Path):
    parts, _ = split(find_sources([str(folder / "year=2024")]), 2)
    (folder / "year=2024/a.pq").unlink()
    with pytest.raises(FileError, match=r"a.pq' is no longer there, or not for this worker; all workers must see"):
        list(read_batches(parts[0], ["n"], 2))


def test_one_file_of_another_kind_is_not_streamed(folder: Path):
    streamed = [str(folder), f"{folder}/*", "s3://bucket/x", "x.PARQUET", "x.pq", "x.csv", str(folder / "x.arrow")]
    assert [is_parquet(table) for table in streamed] == [True] * 5 + [False] * 2
