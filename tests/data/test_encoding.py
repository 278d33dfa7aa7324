from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import polars.testing
import pyarrow as pa
import pytest
import torch
from populations import people, table_of

from fairfox.data.encoding import Encoding, fit_encoding
from fairfox.data.frames import to_native_frame
from fairfox.data.table import Table, load_table
from fairfox.errors import ColumnError, DataError, OptionError

N = 30


def mixed_columns() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {
        "sex": ["female", "male"] * (N // 2),
        "age": rng.integers(18, 90, N),
        "small": rng.integers(0, 9, N).astype("int8"),
        "income": rng.normal(3000, 500, N).round(2),
        "ratio": rng.random(N),
        "narrow": rng.random(N).astype("float32"),
        "member": rng.random(N) < 0.5,
        "code": rng.choice([3, 7], N),
        "job": rng.choice(["clerk", "nurse", "smith"], N),
        "one": ["same"] * N,
        "seven": [7] * N,
    }


def with_gaps(values: Any) -> list[Any]:
    return [None if i % 7 == 3 else value for i, value in enumerate(values)]


def pandas_frame() -> pd.DataFrame:
    columns = mixed_columns()
    job = columns["job"]
    return pd.DataFrame(
        columns
        | {
            "category": pd.Categorical(job),
            "ordered": pd.Categorical(job, categories=["smith", "nurse", "clerk", "never"], ordered=True),
            "category gaps": pd.Categorical(with_gaps(job)),
            "int gaps": pd.array(with_gaps(columns["age"]), dtype="Int64"),
            "two gaps": pd.array(with_gaps(columns["code"]), dtype="Int64"),
            "bool gaps": pd.array(with_gaps(columns["member"]), dtype="boolean"),
            "string gaps": pd.array(with_gaps(job), dtype="string"),
            "text none": pd.Series(with_gaps(job), dtype=object),
            "text nan": pd.Series(with_gaps(job), dtype=object).fillna(np.nan),
            "float gaps": [np.nan if v is None else v for v in with_gaps(columns["income"])],
            "two float gaps": [np.nan if v is None else float(v) for v in with_gaps(columns["code"])],
        }
    )


def polars_frame() -> pl.DataFrame:
    columns = mixed_columns()
    job = columns["job"].tolist()
    return pl.DataFrame(
        columns
        | {
            "category": pl.Series(with_gaps(job), dtype=pl.Categorical),
            "enum": pl.Series(job, dtype=pl.Enum(["smith", "nurse", "clerk", "never"])),
            "int gaps": pl.Series(with_gaps(columns["age"].tolist()), dtype=pl.Int32),
            "bool gaps": with_gaps(columns["member"].tolist()),
            "text gaps": with_gaps(job),
            "float gaps": with_gaps(columns["income"].tolist()),
            "two float gaps": pl.Series(with_gaps([float(v) for v in columns["code"]])),
        }
    )


def crowd(**more: Any) -> Table:
    return table_of(
        sex=["F", "M"] * 6,
        race=["a", "a", "b", "b", "c", "c"] * 2,
        age=np.arange(12) + 20.5,
        v=np.arange(12) * 1.5,
        **more,
    )


def fitted(table: Table, **options: Any) -> Encoding:
    return fit_encoding(table, **({"protected": ["sex"]} | options))


@pytest.mark.parametrize(("dtype", "lossy"), [(torch.float64, 1e-14), (torch.float32, 1e-6)])
@pytest.mark.parametrize("make", [pandas_frame, polars_frame])
def test_a_frame_comes_back_as_it_was(make: Any, dtype: torch.dtype, lossy: float):
    table = load_table(make())
    encoding = fitted(table, dtype=dtype)
    out, frame = encoding.table(encoding.encode(table).x), make()
    long = ["ratio", "narrow"]  # numbers with more than nine decimals, which alone lose any
    if make is pandas_frame:
        pd.testing.assert_frame_equal(out.drop(columns=long), frame.drop(columns=["sex", *long]), check_exact=True)
        pd.testing.assert_frame_equal(out[long], frame[long], rtol=lossy)
    else:
        polars.testing.assert_frame_equal(out.drop(long), frame.drop("sex", *long), check_exact=True)
        polars.testing.assert_frame_equal(out.select(long), frame.select(long), rel_tol=lossy)


def test_a_csv_comes_back_as_pandas_would_read_it(tmp_path: Path):
    columns = mixed_columns() | {
        "gaps": with_gaps(mixed_columns()["age"]),
        "text gaps": with_gaps(mixed_columns()["job"]),
    }
    pd.DataFrame(columns).drop(columns=["ratio", "narrow"]).to_csv(tmp_path / "people.csv", index=False)
    table = load_table(tmp_path / "people.csv")
    encoding = fitted(table)
    out = encoding.table(encoding.encode(table).x)
    expected = to_native_frame(table).drop(columns=["sex"])
    pd.testing.assert_frame_equal(out, expected, check_exact=True)
    assert str(out["gaps"].dtype) == "float64"
    assert str(out["age"].dtype) == "int64"


def test_the_matrix_has_the_numbers_in_their_own_units_and_order():
    table = table_of(age=[20, 30, 41], member=[True, False, True], income=[1.5, 2.5, 3.25], code=[3, 7, 3])
    encoding = fit_encoding(table, protected=["c"], dtype=torch.float64)
    x = encoding.encode(table).x
    expected = torch.tensor([[20, 1, 1.5, 3], [30, 0, 2.5, 7], [41, 1, 3.25, 3]]).double()
    assert torch.equal(encoding.matrix(x), expected)
    x.requires_grad_()
    torch.testing.assert_close(encoding.matrix(x), expected)
    (grad,) = torch.autograd.grad(encoding.matrix(x)[:, 0].sum(), x)
    assert grad[:, 0].tolist() == [encoding.features[0].scale] * 3


def test_what_is_missing_or_unseen_is_nan_in_the_matrix():
    table = table_of(age=[20.0, np.nan, 41.0, 50.0], code=[3, 7, 3, 7])
    encoding = fit_encoding(table, protected=["c"], dtype=torch.float64)
    other = table_of(age=[np.nan, 41.0], code=[7, 9])
    found = encoding.matrix(encoding.encode(other).x).numpy()
    np.testing.assert_array_equal(found, [[np.nan, 7.0], [41.0, np.nan]])


def test_columns_of_a_model_come_in_its_order_and_no_others():
    table = load_table(people())
    encoding = fitted(table, columns=["job", "age"])
    assert encoding.columns == ("job", "age")
    assert encoding.encode(table).names == ("job=clerk", "job=nurse", "job=smith", "age")
    assert encoding.blocks == (slice(0, 3),)
    assert encoding.width == 4
    assert list(encoding.table(encoding.encode(table).x).columns) == ["job", "age"]


def test_protected_label_id_and_dropped_columns_are_left_out():
    table = table_of(y=[0, 1, 1], name=["a", "b", "c"], v=[1, 2, 3], w=[3, 2, 1])
    encoding = fit_encoding(table, protected=["c"], label="y", id_column="name", drop="w")
    data = encoding.encode(table)
    assert encoding.columns == ("v",)
    assert (data.y.tolist(), data.ids.tolist()) == ([0, 1, 1], ["a", "b", "c"])
    assert data.c[:, 0].tolist() == [0, 1, 0]


def test_labels_are_classes_or_numbers():
    few = table_of(v=[1, 2, 3], y=["no", "yes", None])
    np.testing.assert_array_equal(fit_encoding(few, protected=["c"], label="y").encode(few).y, [0, 1, np.nan])
    many = table_of(v=np.arange(12), y=np.arange(12) * 1.5)
    encoding = fit_encoding(many, protected=["c"], label="y")
    assert encoding.label_values is None
    assert encoding.encode(many).y.tolist() == (np.arange(12) * 1.5).tolist()


def test_source_columns_that_the_model_uses_are_withheld():
    table = load_table(people())
    used = fitted(table, columns=["sex", "age", "job"])
    assert used.withheld.tolist() == [True, True, False, False, False, False]
    cut = fitted(table, protected=["age<40"], columns=["sex", "age", "job"])
    assert cut.withheld.tolist() == [False, False, True, False, False, False]
    assert torch.equal(cut.encode(table).withheld, cut.withheld)
    assert not fitted(table).withheld.any()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"weights": "debts"}, ColumnError, "has no column of weights 'debts'. Did you mean 'debt'.$"),
        ({"also": load_table(people()), "weights": "w"}, ColumnError, "has no column of weights 'w'"),
        ({"label": "incme"}, ColumnError, "has no column 'incme'. Did you mean 'income'?"),
        ({"id_column": "nr"}, ColumnError, "has no column 'nr'"),
        ({"drop": ["ages"]}, ColumnError, "has no column 'ages'. Did you mean 'age'?"),
        ({"categorical": ["jobs"]}, ColumnError, "has no column 'jobs'. Did you mean 'job'?"),
        ({"continuous": "debts"}, ColumnError, "has no column 'debts'. Did you mean 'debt'?"),
        (
            {"categorical": ["age"], "continuous": ["age"]},
            OptionError,
            "Column 'age' is given as categorical and as continuous; choose one",
        ),
        ({"columns": ["income", "wealth"]}, ColumnError, "has no column 'wealth'.* The model needs it.$"),
        (
            {"protected": ["race"], "also": crowd()},
            ColumnError,
            r"The reference table has no protected column 'race'\..* give a reference table that has it",
        ),
        ({"drop": ["income", "age", "debt", "job"]}, DataError, "No column is left for the model besides protected"),
        ({"continuous": ["job"]}, DataError, "Column 'job' is given as continuous but holds String"),
    ],
)
def test_options_that_do_not_fit_the_table_are_refused(options: dict[str, Any], error: type[Exception], message: str):
    with pytest.raises(error, match=message):
        fitted(load_table(people()), **options)


def test_a_device_gets_what_the_processor_gets_gaps_included():
    rng = np.random.default_rng(0)
    numbers = {f"x{j}": rng.normal(3, 2, 40).astype(dtype) for j, dtype in enumerate(("float32", "float64", "int32"))}
    gaps = [None if i % 7 == 0 else float(i) for i in range(40)]
    nan = np.where(np.arange(40) % 5, 1.5 * np.arange(40), np.nan)
    table = load_table(pa.table({**numbers, "gaps": gaps, "nan": nan, "c": ["a", "b"] * 20}))
    encoding = fit_encoding(table, protected="c")
    elsewhere = encoding.encode(table, device="cpu:0")  # this processor, by the way to a GPU
    assert torch.equal(elsewhere.x, encoding.encode(table).x)
    full = load_table(table.to_native().slice(1, 4))
    assert torch.equal(encoding.encode(full, device="cpu:0").x, encoding.encode(full).x)


def test_what_is_kept_for_decoding_serves_gradients_also_after_inference_mode():
    table = load_table(pa.table({"c": ["a", "b"] * 2, "x": [0.25, 1.5, 2.0, 4.0], "y": [0.0, 2.0, 2.0, 4.0]}))
    encoding = fit_encoding(table, protected="c", columns=["x", "y"], dtype=torch.float64).only(["y"])
    x = torch.zeros(2, 2, dtype=torch.float64)
    with torch.inference_mode():
        encoding.matrix(x)
    (grad,) = torch.autograd.grad(encoding.matrix(x.requires_grad_()).sum(), x)
    assert grad[0].tolist() == [0.0, 2**0.5]  # the standard deviation of y: the root of 8 / 4


def test_a_column_missing_from_the_second_table_is_named():
    encoding = fitted(load_table(people()))
    with pytest.raises(ColumnError, match="has no column 'debt'"):
        encoding.encode(load_table(people().drop(columns=["debt"])))


def test_rows_come_back_in_the_users_own_kind_of_table():
    frame = pd.DataFrame({"sex": ["F", "M"] * 3, "age": [20, 30, 40, 50, 60, None], "job": [*list("abcab"), None]})
    for native in (frame, pl.from_pandas(frame), pa.Table.from_pandas(frame, preserve_index=False)):
        encoding = fit_encoding(load_table(native), protected=["sex"])
        own = encoding.own_table(encoding.encode(load_table(native)).x)
        assert type(own) is type(native)
        back = own if isinstance(own, pd.DataFrame) else own.to_pandas()
        pd.testing.assert_frame_equal(back.astype({"job": object}), frame[["age", "job"]], check_dtype=False)


# --- protected variables of every kind


def test_several_variables_and_their_crossing_are_columns_of_c():
    table = crowd()
    encoding = fit_encoding(table, protected=["sex", "race", "age<25"], intersections=True, reference_group="b")
    data = encoding.encode(table)
    assert [p.name for p in data.protected] == ["sex", "race", "age<25", "sex x race x age<25"]
    assert [p.kind for p in data.protected] == ["binary", "categorical", "binary", "categorical"]
    assert [p.reference for p in data.protected] == [None, 1, None, 10]  # two M & c & not age<25, others are one
    assert [p.second for p in data.protected] == [None, None, None, 0]
    assert data.c.shape == (12, 4)
    assert data.c[:, 1].tolist() == [0, 0, 1, 1, 2, 2] * 2
    assert encoding.columns == ("c", "v")


def test_the_columns_of_a_crossing_are_withheld():
    options: dict[str, Any] = {"columns": ["sex", "age", "v"], "intersections": True}
    encoding = fit_encoding(crowd(), protected=["sex", "age<25"], **options)
    assert encoding.withheld.tolist() == [True, True, True, False]


def test_an_audited_table_may_lack_what_a_reference_has():
    reference = crowd(y=[0, 1] * 6, name=[f"r{i}" for i in range(12)])
    audited = table_of(v=[1.0, 2.0, 3.0], person=["p", "q", "r"])
    encoding = fit_encoding(
        reference, protected=["sex", "race", "age"], label="y", id_column="person", drop=["c", "name"], also=audited
    )
    assert encoding.columns == ("v",)
    data = encoding.encode(audited)
    assert data.c.shape == (3, 3)
    assert data.c.isnan().all()
    assert (data.y, list(data.ids)) == (None, ["p", "q", "r"])
    known = encoding.encode(reference)
    assert not known.c.isnan().any()
    assert known.ids is None


def test_a_reference_may_lack_the_label():
    audited = crowd(y=["no", "yes"] * 6)
    encoding = fit_encoding(crowd(), protected=["sex"], label="y", also=audited)
    assert encoding.label_values == ("no", "yes")
    assert encoding.encode(crowd()).y is None
    assert encoding.encode(audited).y.tolist() == [0, 1] * 6


def test_hidden_columns_are_features_only_where_the_model_names_them():
    table = crowd(nr=list(range(12)))
    assert fit_encoding(table, protected=["sex"], hidden=["nr", "c"]).columns == ("race", "age", "v")
    assert fit_encoding(table, protected=["sex"], hidden=["nr"], columns=["nr", "v"]).columns == ("nr", "v")
    assert fit_encoding(table, protected=["sex"], hidden=["nr"], id_column="nr").columns == ("c", "race", "age", "v")


# --- weights


def test_weights_are_no_feature_and_go_to_the_people():
    table = crowd(w=[0, 2.5] * 6)
    encoding = fit_encoding(table, protected=["sex"], weights="w", dtype=torch.float64)
    assert "w" not in encoding.columns
    data = encoding.encode(table)
    assert data.weights.tolist() == [0, 2.5] * 6
    assert data.weights.dtype == torch.float64
    assert fit_encoding(table, protected=["sex"]).encode(table).weights is None


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (
            [1, 2, -3, -4] * 3,
            r"The weights 'w' hold -3 in row 2 \(counted from 0\); give a finite number of at least 0",
        ),
        ([1.0, np.nan, 2.0] * 4, "The weights 'w' hold a missing value in row 1 "),
        (pd.array([1, 2, None] * 4, dtype="Int64"), "The weights 'w' hold a missing value in row 2 "),
        ([np.inf] * 12, "The weights 'w' hold inf in row 0 "),
        ([0] * 12, "The weights 'w' are 0 for everyone; at least one person must count"),
        (["1"] * 12, "The weights 'w' hold String; give numbers of at least 0"),
    ],
)
def test_weights_that_count_nobody_are_refused(weights: Any, message: str):
    table = crowd(w=weights)
    with pytest.raises(DataError, match=message):
        fit_encoding(table, protected=["sex"], weights="w").encode(table)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"label": "w"}, "Column 'w' is given as the label and as the weights; choose one"),
        ({"id_column": "w"}, "Column 'w' is given as the id and as the weights; choose one"),
        ({"drop": ["w"]}, "Column 'w' is given as the weights and as to be dropped; choose one"),
        ({"protected": ["w<2"]}, "Column 'w' is given as the weights and as protected; choose one"),
        ({"columns": ["v", "w"]}, "Column 'w' is given as the weights and as a column of the model; choose one"),
    ],
)
def test_weights_have_no_other_role(options: dict[str, Any], message: str):
    table = crowd(w=[1, 2, 3] * 4)
    with pytest.raises(OptionError, match=message):
        fit_encoding(table, **({"protected": ["sex"], "weights": "w"} | options))
