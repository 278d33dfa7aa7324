import gzip
from decimal import Decimal
from pathlib import Path

import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
import torch

from fairfox.data.frames import to_native_frame
from fairfox.data.table import check_column, load_table
from fairfox.errors import ColumnError, DataError, FairfoxError, FileError, ShapeError

ROWS = {"age": [41, 23], "job": ["clerk", None], "pay": [1.5, 2.0]}


def written(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def complaint(source: object, kind: type[FairfoxError]) -> str:
    with pytest.raises(kind) as caught:
        load_table(source)
    message = str(caught.value)
    assert "\n" not in message
    return message


# --- what is accepted


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("name", ["t.csv", "t.txt", "T.CSV"])
def test_the_delimiter_of_a_text_file_is_found_out(tmp_path, name, delimiter):
    lines = ["age,job,pay", "41,clerk,1.5", "23,,2.0"]
    path = written(tmp_path, name, "\n".join(lines).replace(",", delimiter))
    assert load_table(path).to_dict(as_series=False) == ROWS


def test_ids_keep_their_leading_zeros(tmp_path):
    path = written(tmp_path, "t.csv", "id,age\n007,041\n12,023\n")
    assert load_table(path, ids=("id", None)).to_dict(as_series=False) == {"id": ["007", "12"], "age": [41, 23]}


def test_other_delimiters_inside_quoted_names_and_values_do_not_mislead(tmp_path):
    path = written(tmp_path, "t.csv", '"a,b,c";"d"\n"1,2";3\n')
    assert load_table(path).to_dict(as_series=False) == {"a,b,c": ["1,2"], "d": [3]}


@pytest.mark.parametrize("name", ["t.csv.gz", "t.tsv.gz", "t.txt.gz"])
def test_compressed_text_is_read(tmp_path, name):
    content = gzip.compress(b"age\tjob\tpay\n41\tclerk\t1.5\n23\t\t2.0\n", mtime=0)
    assert load_table(written(tmp_path, name, content)).to_dict(as_series=False) == ROWS


def test_a_byte_order_mark_quoted_newlines_and_windows_line_ends_are_no_trouble(tmp_path):
    path = written(tmp_path, "t.csv", '\ufeffage,note\r\n41,"two\nlines"\r\n\r\n23,"a ""word"""\r\n')
    assert load_table(path).to_dict(as_series=False) == {"age": [41, 23], "note": ["two\nlines", 'a "word"']}


def test_a_bare_carriage_return_ends_a_line_outside_quotes_only(tmp_path):
    rows = {"a": [1, 2], "b": ["x", "y"]}
    assert load_table(written(tmp_path, "t.csv", "a,b\r1,x\r2,y\r")).to_dict(as_series=False) == rows
    quoted = written(tmp_path, "t.csv", 'a,b\n1,"x\rz"\n2,y\n')
    assert load_table(quoted).to_dict(as_series=False) == {"a": [1, 2], "b": ["x\rz", "y"]}
    torn = complaint(written(tmp_path, "t.csv", "a,b\n1,x\rz\n2,y\n"), DataError)
    assert torn.endswith("has 1 field(s) on line 3 but 2 in its header; give every line the same number")


@pytest.mark.parametrize("name", ["t.parquet", "t.pq", "t.feather", "t.arrow", "t.ipc", "stream.arrow"])
def test_binary_files_are_read(tmp_path, name):
    table, path = pa.table(ROWS), tmp_path / name
    if path.suffix in (".parquet", ".pq"):
        pa.parquet.write_table(table, path)
    else:
        new = pa.ipc.new_stream if "stream" in name else pa.ipc.new_file
        with new(path, table.schema) as writer:
            writer.write_table(table)
    loaded = load_table(str(path))
    assert loaded.to_dict(as_series=False) == ROWS
    assert isinstance(loaded.to_native(), pa.Table)


def test_folder_names_do_not_become_columns(tmp_path):
    path = tmp_path / "year=2024" / "t.parquet"
    path.parent.mkdir()
    pa.parquet.write_table(pa.table(ROWS), path)
    assert load_table(path).columns == list(ROWS)


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table], ids=["pandas", "polars", "pyarrow"])
def test_frames_keep_their_kind(make):
    frame = make({"age": [41, 23], "pay": [1.5, 2.0]})
    table = load_table(frame)
    assert isinstance(table.to_native(), type(frame))
    assert load_table(table).to_dict(as_series=False) == {"age": [41, 23], "pay": [1.5, 2.0]}


@pytest.mark.parametrize(
    "make",
    [
        np.array,
        torch.tensor,
        lambda rows: torch.tensor(rows, requires_grad=True),
        lambda rows: torch.tensor(rows, dtype=torch.bfloat16),
        lambda rows: np.array(rows, dtype=np.float16),
    ],
    ids=["numpy", "torch", "torch with gradient", "bfloat16", "float16"],
)
def test_the_columns_of_an_array_are_named_by_number(make):
    table = load_table(make([[1.0, 2.0], [3.0, float("nan")], [5.0, 6.0]]))
    assert table.to_dict(as_series=False) == {"x0": [1.0, 3.0, 5.0], "x1": [2.0, None, 6.0]}


# --- how the columns of a text file are understood


def test_a_column_has_the_kind_all_its_values_have(tmp_path):
    header = "whole,number,big,flag,text,date,hex,mixed"
    path = written(
        tmp_path,
        "t.csv",
        f"{header}\n1, 2.5,9007199254740993,TRUE,a,2024-01-31,0x1F,1\n-2,1e3 ,2,false,b,2024-02-01,0x2A,true\n",
    )
    assert load_table(path).to_dict(as_series=False) == {
        "whole": [1, -2],
        "number": [2.5, 1000.0],
        "big": [9007199254740993, 2],  # not a float's 9007199254740992
        "flag": [True, False],
        "text": ["a", "b"],
        "date": ["2024-01-31", "2024-02-01"],
        "hex": ["0x1F", "0x2A"],
        "mixed": ["1", "true"],
    }


@pytest.mark.parametrize("word", ["", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "?", " ?"])
def test_missing_values_are_recognised_in_columns_of_any_kind(tmp_path, word):
    path = written(tmp_path, "t.csv", f"n,b,s\n1,true,x\n{word},{word},{word}\n")
    assert load_table(path).to_dict(as_series=False) == {"n": [1, None], "b": [True, None], "s": ["x", None]}


def test_a_column_without_any_value_is_one_of_missing_numbers(tmp_path):
    table = load_table(written(tmp_path, "t.csv", "a,b\n1,\n2,NA\n"))
    assert table.schema["b"] == nw.Float64
    assert table["b"].to_list() == [None, None]


@pytest.mark.parametrize(("late", "kind"), [("many", nw.String), ("0.5", nw.Float64)])
def test_a_value_of_another_kind_megabytes_into_the_file_still_counts(tmp_path, late, kind):
    rows = 200_000  # more than the 1 MiB that Arrow's own guess looks at
    path = written(tmp_path, "t.csv", "id,value\n" + "".join(f"{i},7\n" for i in range(rows)) + f"{rows},{late}\n")
    table = load_table(path)
    assert table.schema["id"] == nw.Int64
    assert table.schema["value"] == kind
    assert table["value"].to_list()[-1] == (late if kind == nw.String else 0.5)


def test_decimals_and_half_floats_are_numbers_and_a_column_of_nulls_too(tmp_path):
    half = pa.array([np.float16(0.5), None], pa.float16())
    table = pa.table({"half": half, "pay": pa.array([Decimal("1.25"), Decimal(2)]), "none": pa.nulls(2)})
    pa.parquet.write_table(table, tmp_path / "t.parquet")
    loaded = load_table(tmp_path / "t.parquet")
    assert loaded.to_dict(as_series=False) == {"half": [0.5, None], "pay": [1.25, 2.0], "none": [None, None]}
    assert set(loaded.schema.values()) == {nw.Float64}


# --- what is refused, each with one sentence


@pytest.mark.parametrize(
    ("name", "content", "kind", "message"),
    [
        ("t.xlsx", "PK", FileError, "' is not a file fairfox can read; give one that ends in .csv, .csv.gz, .tsv"),
        ("t.csv", "\ufeff\n \n", FileError, " is empty; give a table with a row of column names"),
        ("t.csv.gz", gzip.compress(b"", mtime=0), FileError, " is empty; give a table"),
        ("t.parquet", "", FileError, "cannot be read and may be damaged: Parquet file size is 0 bytes"),
        ("t.csv.gz", b"not gzip", FileError, "cannot be read and may be damaged: "),
        ("t.csv.gz", gzip.compress(b"a,b\n1,2\n", mtime=0)[:-12], FileError, "cannot be read and may be damaged: "),
        ("t.csv", "größe,b\n1,2\n".encode("latin-1"), DataError, "is not UTF-8 text on line 1; save it again as UTF-8"),
        ("t.csv", b"a,b\n" + b"1,2\n" * 99_999 + b"3,\xe9\n", DataError, "is not UTF-8 text on line 100001; save it"),
        ("t.csv", "a,b\n1,2\n".encode("utf-16"), DataError, "is not UTF-8 text on line 1; save it again as UTF-8"),
        ("t.csv", "a,b,c\n1,2,3\n1,2\n", DataError, "has 2 field(s) on line 3 but 3 in its header; give every line"),
        ("t.csv", 'a,b\n1,"x\ny"\n\n1,2\n1,2,3\n', DataError, "has 3 field(s) on line 6 but 2 in its header; give"),
    ],
)
def test_a_file_that_is_no_table_is_refused(
    tmp_path: Path, name: str, content: str | bytes, kind: type[FairfoxError], message: str
):
    assert message in complaint(written(tmp_path, name, content), kind)


def test_a_file_that_does_not_exist_and_a_folder_are_refused(tmp_path: Path):
    for path in (tmp_path / "none" / "loans.csv", "x" * 5000 + "/t.csv"):  # the second is too long for a name
        assert complaint(path, FileError) == f"There is no file '{path}'; check the path"
    assert complaint(tmp_path, FileError).endswith("is a folder; give one CSV, Parquet, Arrow or Feather file")


@pytest.mark.parametrize(
    ("source", "kind", "message"),
    [
        (pd.DataFrame(), DataError, "The table has no columns; give one row per individual"),
        (np.zeros((3, 0)), DataError, "The array has no columns; give one row per individual"),
        (pd.DataFrame([[1, 2]]), DataError, "The table has the column name 0; column names must be text"),
        (np.zeros(3), ShapeError, "The array has 1 dimension(s); give two, one row per individual and one column"),
        (torch.zeros(2, 2, 2), ShapeError, "The array has 3 dimension(s); give two"),
        (pd.Series([1]), ShapeError, "The array has 1 dimension(s); give two"),
        (np.zeros((2, 2), dtype=complex), DataError, "The array holds values of type complex128; give numbers"),
        (np.array([[{}], [1]], dtype=object), DataError, "The array holds values of type object; give numbers"),
        ({"a": [1]}, DataError, "A dict is not a table fairfox can read; give a file, a pandas, polars or pyarrow"),
        (pl.LazyFrame({"a": [1]}), DataError, "or a 2-D array; call .collect() on it first"),
        (pl.DataFrame({"a": [[1, 2]]}), DataError, "The table has lists or records in column 'a'; give one value per"),
    ],
)
def test_an_object_that_is_no_table_is_refused(source: object, kind: type[FairfoxError], message: str):
    assert message in complaint(source, kind)


def test_lists_and_records_are_left_out_where_they_are_not_needed():
    for table in (pa.table({"a": [1], "b": [[1, 2]], "c": [{"d": 1}]}), pl.DataFrame({"a": [1], "b": [[1, 2]]})):
        assert load_table(table, needed=["a"]).columns == ["a"]
        with pytest.raises(DataError, match="lists or records in column 'b'"):
            load_table(table, needed=["a", "b"])


def test_a_header_without_rows_is_refused_in_files_and_frames(tmp_path):
    sentence = "has column names but no rows; give one row per individual"
    assert complaint(written(tmp_path, "t.csv", "age,sex\n"), DataError).endswith(f"t.csv' {sentence}")
    pa.parquet.write_table(pa.table({"a": pa.array([], pa.int64())}), tmp_path / "t.parquet")
    assert complaint(tmp_path / "t.parquet", DataError).endswith(sentence)
    for frame in (pd.DataFrame({"a": []}), pl.DataFrame({"a": []}), np.zeros((0, 2))):
        assert complaint(frame, DataError).endswith(sentence)


def test_a_quote_that_is_never_closed_does_not_swallow_the_rows_after_it(tmp_path):
    message = complaint(written(tmp_path, "t.csv", 'a,b\n1,x\n2,"y\n3,z\n'), DataError)
    assert message.endswith("t.csv' opens a quote on line 3 and never closes it; close or remove it")


def test_a_cell_of_many_characters_is_no_trouble(tmp_path):
    path = written(tmp_path, "t.csv", f'a;b\n1;"{"x, " * 100_000}"\n2;y\n')
    assert load_table(path)["a"].to_list() == [1, 2]


@pytest.mark.parametrize("kind", ["csv", "parquet", "pandas", "pyarrow"])
def test_two_columns_of_one_name_are_refused(tmp_path, kind):
    twice = pa.table([[1], [2], [3]], names=["a", "b", "a"])
    if kind == "parquet":
        pa.parquet.write_table(twice, tmp_path / "t.parquet")
    source = {
        "csv": written(tmp_path, "t.csv", "a,b,a\n1,2,3\n"),
        "parquet": tmp_path / "t.parquet",
        "pandas": pd.DataFrame([[1, 2, 3]], columns=["a", "b", "a"]),
        "pyarrow": twice,
    }[kind]
    assert complaint(source, DataError).endswith("has more than one column 'a'; give every column a unique name")


def test_a_column_without_a_name_is_refused_in_files_and_frames(tmp_path):
    sentence = "has no name for column 1; name it, or leave it out if it is a row index (pandas: index=False)"
    assert complaint(written(tmp_path, "t.csv", ",a\n0,1\n"), DataError).endswith(sentence)
    assert complaint(pd.DataFrame({" ": [1]}), DataError).endswith(sentence)
    assert complaint(pl.DataFrame({"": [1]}), DataError).endswith(sentence)


@pytest.mark.parametrize("name", ["t.parquet", "t.feather", "t.arrow"])
@pytest.mark.parametrize("how", ["cut short", "overwritten", "another kind"])
def test_a_damaged_binary_file_is_refused(tmp_path, name, how):
    path = tmp_path / name
    table = pa.table({"a": list(range(1000))})
    pa.parquet.write_table(table, path) if path.suffix == ".parquet" else pa.feather.write_feather(table, path)
    whole = path.read_bytes()
    damaged = {
        "cut short": whole[: len(whole) // 2],
        "overwritten": whole[:4] + b"\xff" * len(whole),
        "another kind": b"a",
    }
    path.write_bytes(damaged[how])
    assert f"{name}' cannot be read and may be damaged: " in complaint(path, FileError)


# --- columns, and the frame a model receives


def test_an_unknown_column_suggests_the_closest_one():
    table = load_table(pa.table({"gender": [1], "age": [2]}))
    check_column(table, "gender")
    with pytest.raises(ColumnError) as caught:
        check_column(table, "gendre", role="protected column")
    assert str(caught.value) == "The table has no protected column 'gendre'. Did you mean 'gender'?"


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame], ids=["pandas", "polars"])
def test_a_model_receives_the_very_frame_its_owner_gave(make):
    frame = make({"age": [41, 23]})
    assert to_native_frame(load_table(frame)) is frame


def test_a_model_receives_what_pandas_would_have_read_from_the_file(tmp_path):
    path = written(tmp_path, "t.csv", "w,wm,n,b,bm,s,sm\n1,1,0.5,true,true,x,x\n2,,,false,,y,\n")
    frame = to_native_frame(load_table(path))
    kinds = {"w": "int64", "wm": "float64", "n": "float64", "b": "bool", "bm": "object", "s": "object", "sm": "object"}
    assert {name: str(dtype) for name, dtype in frame.dtypes.items()} == kinds
    assert frame["bm"][0] is True
    assert all(isinstance(frame[name][1], float) and np.isnan(frame[name][1]) for name in ("bm", "sm"))
    expected = pd.read_csv(path).astype(kinds)
    pd.testing.assert_frame_equal(frame, expected)


def test_categories_stay_categories(tmp_path):
    pd.DataFrame({"job": pd.Categorical(["clerk", "cook"])}).to_parquet(tmp_path / "t.parquet")
    assert str(to_native_frame(load_table(tmp_path / "t.parquet"))["job"].dtype) == "category"
