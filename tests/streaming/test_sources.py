"""Where people and models come from: tables in files, folders, patterns and URLs; the pilot; ids; models by name."""

import pickle
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairfox.errors import DataError, FileError
from fairfox.streaming.sources import (
    ModelSource,
    TableFile,
    _runs,
    decoded,
    find_tables,
    hash_of,
    ids_of,
    is_parquet,
    read_batches,
    read_pilot,
    split_tables,
)
from tests.streaming.world import MODEL


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
    return ["/".join(source.path.split("/")[-2:]) for source in find_tables(tables)]


def everyone(tables: list[str], part_rows: int = 100, columns: tuple[str, ...] = ("n", "year")) -> list[dict]:
    runs, failed = split_tables(find_tables(tables), part_rows)
    assert failed == {}
    return [row for run in runs for batch in read_batches(run, columns, 2) for row in batch.to_pylist()]


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
    whole = everyone([str(folder)])
    assert [row["year"] for row in whole][-2:] == [None, "a b"]  # and all of them are texts now


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
    write(folder / "n=9 a/c.parquet", [6])
    assert everyone([f"file://{folder}/n=9%20a"], columns=("n",)) == [{"n": 6}]


def test_fsspec_knows_other_file_systems_and_the_same_path_in_two_is_two_files(folder: Path):
    fsspec = pytest.importorskip("fsspec")
    path = str(folder / "year=2024/a.pq")
    with fsspec.open(f"memory://{path}", "wb") as file:
        file.write((folder / "year=2023/a.parquet").read_bytes())
    found = find_tables([path, f"memory://{path}"])
    assert [source.name for source in found] == [path, f"memory://{path.lstrip('/')}"]
    assert [row["n"] for row in everyone([path, f"memory://{folder}/*/*.pq"])] == [3, 4, 5, 0, 1]


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
    assert TableFile(root, path, 1, None).name == name


def test_what_is_not_there_is_said(folder: Path):
    for table, message in (
        (str(folder / "nothing.parquet"), "There is no Parquet file at"),
        (str(folder / "*.csv"), "There is no Parquet file at"),
        ("nowhere://x/y.parquet", "cannot be reached"),
    ):
        with pytest.raises(FileError, match=message):
            find_tables([table])


@given(st.lists(st.integers(min_value=0, max_value=7), min_size=1, max_size=12), st.integers(min_value=1, max_value=9))
def test_parts_have_every_row_group_once_and_as_many_people_as_asked(groups: list[int], part_rows: int):
    runs = list(_runs(TableFile("", "f", 1, None), groups, part_rows))
    covered = [n for run in runs for n in range(*run.groups)]
    assert [n for n in range(len(groups)) if groups[n] and n not in covered] == []
    assert covered == sorted(set(covered))
    assert [run.first_row for run in runs] == [sum(run.rows for run in runs[:k]) for k in range(len(runs))]
    assert sum(run.rows for run in runs) == sum(groups)
    assert all(run.rows >= part_rows for run in runs[:-1])


def test_a_file_that_is_cut_off_is_named_and_the_others_are_split(folder: Path):
    path = folder / "year=2023/a.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    runs, failed = split_tables(find_tables([str(folder)]), 2)
    assert list(failed) == [str(path)]
    assert "cannot be read and may be damaged" in failed[str(path)]
    assert [(run.file.path[-12:], run.groups, run.first_row) for run in runs] == [
        ("23/b.parquet", (0, 1), 0),
        ("ear=2024/a.pq"[1:], (0, 1), 0),
        ("ear=2024/a.pq"[1:], (1, 2), 2),
    ]


def test_a_file_that_is_gone_is_not_called_damaged(folder: Path):
    runs, _ = split_tables(find_tables([str(folder / "year=2024")]), 2)
    (folder / "year=2024/a.pq").unlink()
    with pytest.raises(FileError, match=r"a.pq' is gone or not visible to this worker; all workers must see"):
        list(read_batches(runs[0], ["n"], 2))


def test_one_file_of_another_kind_is_not_streamed(folder: Path):
    streamed = [str(folder), f"{folder}/*", "s3://bucket/x", "x.PARQUET", "x.pq", "x.csv", str(folder / "x.arrow")]
    assert [is_parquet(table) for table in streamed] == [True] * 5 + [False] * 2


def test_a_pilot_is_everyone_of_few_and_some_from_everywhere_of_many(tmp_path: Path):
    for n in range(20):
        write(tmp_path / f"{n:02d}.parquet", [10 * n, 10 * n + 1])
    write(tmp_path / "99.parquet", [0])
    runs, _ = split_tables(find_tables([str(tmp_path)]), 1)
    whole = read_pilot(runs, ["n"], 1000, len)
    assert whole["n"].to_pylist() == [m for n in range(20) for m in (10 * n, 10 * n + 1)] + [0]
    some = read_pilot(runs, ["n"], 8, len)["n"].to_pylist()
    assert len(some) == 8
    assert {n // 100 for n in some} == {0, 1}  # from the first and the second half
    with pytest.raises(FileError, match="no rows"):
        read_pilot([], ["n"], 8, len)


def test_a_pilot_leaves_out_files_that_do_not_fit_and_names_one_where_none_does(tmp_path: Path):
    write(tmp_path / "a.parquet", [0, 1])
    pq.write_table(pa.table({"n": ["text"]}), tmp_path / "b.parquet")
    write(tmp_path / "c.parquet", [13, 2])
    write(tmp_path / "d.parquet", [3])

    def no_13(table: pa.Table) -> None:
        if 13 in table["n"].to_pylist():
            raise DataError("13 is no number")

    runs, _ = split_tables(find_tables([str(tmp_path)]), 2)
    assert read_pilot(runs, ["n"], 100, no_13)["n"].to_pylist() == [0, 1, 3]
    assert read_pilot(runs, ["n"], 1, no_13)["n"].to_pylist() in ([0], [1])
    with pytest.raises(DataError, match=r"c.parquet': 13 is no number"):
        read_pilot(runs[2:3], ["n"], 100, no_13)


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
            DataError, match=r"The ids 'id' are .* here and .* in tables read first; give ids of one type"
        ):
            ids_of(table, "id", first.type)
    else:
        found = ids_of(table, "id", first.type)
        assert found.to_pylist() == kept
        assert found.type == first.type


def test_dictionaries_become_what_they_stand_for_and_views_what_rows_can_be_taken_from():
    words, views = pa.array(["x", "y", "x"]), pa.array([b"x", b"y", b"z"], pa.binary_view())
    table = pa.table({"a": words.dictionary_encode(), "b": views, "c": words.cast(pa.string_view())})
    assert decoded(table).take([1]).equals(pa.table({"a": ["y"], "b": [b"y"], "c": ["y"]}))


def test_a_model_file_goes_with_the_job_and_is_recognised_by_its_content(tmp_path: Path):
    (tmp_path / "model.py").write_text(MODEL)
    source = ModelSource(str(tmp_path / "model.py:predict"))
    shipped = pickle.loads(pickle.dumps(source.shipped()))
    assert shipped.identity == source.identity
    assert source.identity["name"] == "model.py:predict"
    (tmp_path / "model.py").write_text(MODEL + "# another")
    assert source.identity != shipped.identity
    (tmp_path / "model.py").unlink()
    assert shipped.load()({"income": 30_000}) == pytest.approx(0.5)
    with pytest.raises(FileError, match="There is no file"):
        source.load()


def test_a_model_without_a_file_is_recognised_by_its_name():
    assert ModelSource("sys:getsizeof").identity == {"name": "sys:getsizeof"}
    assert ModelSource("https://models.example/a/invocations").identity == {
        "name": "https://models.example/a/invocations"
    }
    assert ModelSource("dict", pickled=pickle.dumps({"a": 1})).load() == {"a": 1}


def test_a_folder_is_recognised_by_its_files_and_what_is_no_file_by_all_of_its_name(tmp_path: Path):
    (tmp_path / "model/data").mkdir(parents=True)
    weights, source, found = tmp_path / "model/data/weights", ModelSource(str(tmp_path / "model")), set()
    for text in ("one", "two"):
        weights.write_text(text)
        found.add(source.identity["sha256"])
    weights.rename(tmp_path / "model/data/moved")
    assert len({*found, source.identity["sha256"]}) == 3
    assert ModelSource("models:/a/1").identity != ModelSource("models:/b/1").identity


def test_a_module_is_recognised_by_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(tmp_path)
    for name, code in (("ours_a/__init__", ""), ("ours_a/inner", "x = 1"), ("ours_b/__init__", "raise RuntimeError")):
        path = tmp_path / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(code)
    model = ModelSource("ours_a.inner:predict")
    assert model.identity == {"name": "ours_a.inner:predict", "sha256": sha256(b"x = 1").hexdigest()}
    assert model.shipped().content is None
    for name in ("sys", "ours_a.other", "ours_b.inner", "ours_c", "", "ours_a."):
        assert hash_of(f"{name}:predict") is None
