"""Endpoints against real servers: MLflow's own, and a small one that insists on the Open Inference Protocol."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from contracts.kinds import pipeline
from contracts.kinds_http import mlflow_server
from populations import people
from servers import Asked, Reply, open_inference, serving

import fairfox
from fairfox.errors import ColumnError, DataError, ModelError, OptionError
from fairfox.models.http_model import Endpoint, is_url, load_endpoint
from fairfox.models.wrap import describe

FRAME = people(60)
NUMBERS = FRAME[["income", "age", "debt"]]
MATRIX = [("x", "FP64", [-1, 3])]
EACH = [("age", "INT64", [-1]), ("income", "FP64", [-1, 1]), ("job", "BYTES", [-1]), ("member", "BOOL", [-1])]


@pytest.fixture(scope="module")
def mlflow_url() -> str:
    pytest.importorskip("mlflow")
    return mlflow_server()


def on_matrix(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    (x,) = inputs.values()
    return {"probability": pipeline().predict_proba(pd.DataFrame(x, columns=NUMBERS.columns))[:, 1]}


def on_columns(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    named = {name: values.reshape(-1) for name, values in inputs.items()}
    value = named["income"] / 1000 + 0.01 * named["age"] + (named["job"] == "nurse") - 0.5 * named["member"]
    return {"score": 1 / (1 + np.exp(3.5 - value.astype(float)))}


def mlflow_like(predictions: Any) -> Callable[[Asked], Reply]:
    """Return a server that answers in MLflow's way what a function of the rows says, or the same to everyone."""

    def answer(asked: Asked) -> Reply:
        rows = asked.body.get("dataframe_split", {}).get("data") or asked.body.get("inputs")
        found = predictions(rows) if callable(predictions) else predictions
        return found if isinstance(found, Reply) else Reply({"predictions": found})

    return answer


def sent(rows: Any, **options: Any) -> Any:
    """Return the body in which rows arrive at an MLflow server."""
    with serving(mlflow_like(lambda rows: [0.5] * len(rows))) as server:
        Endpoint(f"{server.root}/invocations", **options).predict(rows)
    return server.asked[0].body


# --- MLflow ---------------------------------------------------------------------------------------------------------


def test_mlflows_server_predicts_what_the_model_predicts(mlflow_url: str):
    endpoint = Endpoint(mlflow_url)
    np.testing.assert_allclose(endpoint.predict(NUMBERS), pipeline().predict_proba(NUMBERS), atol=1e-12)
    assert endpoint.calls == 1


@pytest.mark.parametrize(("rows", "calls"), [(1, 60), (7, 9), (60, 1), (1000, 1)])
def test_batches_do_not_change_the_predictions(mlflow_url: str, rows: int, calls: int):
    endpoint = Endpoint(mlflow_url, batch_rows=rows)
    np.testing.assert_allclose(endpoint.predict(NUMBERS), pipeline().predict_proba(NUMBERS), atol=1e-12)
    assert endpoint.calls == endpoint.calls_for(len(NUMBERS)) == calls


def test_an_audit_of_mlflows_server_is_that_of_the_model(mlflow_url: str):
    options: dict[str, Any] = {"protected": "sex", "drop": ["job"], "refits": 1, "folds": 2}
    expected = fairfox.audit(pipeline(), FRAME, **options)
    found = fairfox.audit(Endpoint(mlflow_url), FRAME, **options)
    torch.testing.assert_close(found.scores, expected.scores, atol=1e-9, rtol=0)
    assert float(found.scores.abs().max()) > 1e-3


def test_what_mlflow_says_about_wrong_columns_is_passed_on(mlflow_url: str):
    with pytest.raises(ModelError, match=r"HTTP 400.*it was sent the columns income, age$"):
        Endpoint(mlflow_url).predict(NUMBERS[["income", "age"]])


def test_values_keep_their_types_and_missing_ones_are_null():
    frame = pd.DataFrame(
        {
            "whole": [1, 2],
            "real": [1.0, np.nan],
            "yes": [True, False],
            "text": ["a", None],
            "kind": pd.Categorical(["u", None]),
            "maybe": pd.array([3, None], dtype="Int64"),
        }
    )
    body = sent(frame)["dataframe_split"]
    assert body["columns"] == list(frame.columns)
    assert json.dumps(body["data"]) == '[[1, 1.0, true, "a", "u", 3], [2, null, false, null, null, null]]'
    assert sent(pl.from_pandas(frame.drop(columns="kind")))["dataframe_split"]["data"][1] == [
        2,
        None,
        False,
        None,
        None,
    ]


def test_a_matrix_is_sent_as_a_tensor():
    assert sent(np.array([[1.5, np.nan], [0.0, 2.0]])) == {"inputs": [[1.5, None], [0.0, 2.0]]}


def test_columns_by_name_are_the_models_own():
    described = describe(Endpoint("http://127.0.0.1:1/invocations", columns=["age", "income"]))
    assert described is not None
    assert (described.kind, described.names) == ("table", ("age", "income"))


@pytest.mark.parametrize(
    "predictions",
    [
        [[0.1, 0.9], [0.8, 0.2]],
        [{"no": 0.1, "yes": 0.9}, {"no": 0.8, "yes": 0.2}],
        [{"no": 0.1, "yes": 0.9}, {"yes": 0.2, "no": 0.8}],
        {"no": [0.1, 0.8], "yes": [0.9, 0.2]},
        Reply([[0.1, 0.9], [0.8, 0.2]]),
        Reply({"predictions": [[0.1, 0.9], [0.8, 0.2]], "model_version": "3"}),
    ],
)
def test_every_form_of_several_columns_is_understood(predictions: Any):
    with serving(mlflow_like(predictions)) as server:
        found = Endpoint(f"{server.root}/invocations").predict(NUMBERS[:2])
    assert found.tolist() == [[0.1, 0.9], [0.8, 0.2]]


@pytest.mark.parametrize("predictions", [[0.25, 1], [[0.25], [1.0]], [{"p": 0.25}, {"p": 1}], {"p": [0.25, 1]}])
def test_every_form_of_one_column_is_understood(predictions: Any):
    with serving(mlflow_like(predictions)) as server:
        found = Endpoint(f"{server.root}/invocations").predict(NUMBERS[:2])
    assert found.tolist() == [[0.25], [1.0]]


@pytest.mark.parametrize(
    ("predictions", "message"),
    [
        ([0.5], "1 predictions for 2 rows"),
        ([0.5] * 3, "3 predictions for 2 rows"),
        ([], "0 predictions for 2 rows"),
        (0.5, "a single number for 2 rows"),
        ([0.5, None], "null, NaN or infinity for 1 of 2 rows"),
        ([float("nan"), float("inf")], "null, NaN or infinity for 2 of 2 rows"),
        (["yes", "no"], "text such as 'yes'.*predict_proba"),
        ([[0.1, 0.9], [0.5]], "uneven"),
        ([{"a": 1}, {"b": 1}], "uneven"),
        ([0.5, {"b": 1}], "uneven"),
        ({"a": 1, "b": [2]}, "uneven"),
        ({"a": [1, 2], "b": [2]}, "uneven"),
        (None, "single number"),
        (Reply({"outputs": []}), "without 'predictions'"),
        (Reply("well"), "without 'predictions'"),
        (Reply(b'{"predictions": [0.5'), "not JSON"),
    ],
)
def test_answers_that_are_no_predictions_are_refused(predictions: Any, message: str):
    with serving(mlflow_like(predictions)) as server, pytest.raises(ModelError, match=message):
        Endpoint(f"{server.root}/invocations").predict(NUMBERS[:2])


def test_columns_that_come_and_go_are_refused():
    def narrower(rows: list[Any]) -> Any:
        return [[0.5, 0.5]] * 2 if len(rows) == 2 else [0.5]

    with serving(mlflow_like(narrower)) as server, pytest.raises(ModelError, match="from batch to batch"):
        Endpoint(f"{server.root}/invocations", batch_rows=2).predict(NUMBERS[:3])


def test_nobody_is_asked_about_without_a_call():
    endpoint = Endpoint("http://127.0.0.1:1/invocations")
    assert endpoint.predict(NUMBERS[:0]).shape == (0, 1)
    assert endpoint.calls == 0


# --- the Open Inference Protocol --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["/v2/models/rule/infer", "/v2/models/rule/versions/1/infer", "/v2/models/rule/infer?k=1"]
)
@pytest.mark.parametrize("inputs", [MATRIX, [("x", "FP32", [-1, -1])], None])
def test_a_v2_server_gets_one_matrix(path: str, inputs: Any):
    with serving(open_inference(on_matrix, inputs)) as server:
        endpoint = load_endpoint(server.root + path, batch_rows=25)
        found = endpoint.predict(NUMBERS.to_numpy())
    np.testing.assert_allclose(found[:, 0], pipeline().predict_proba(NUMBERS)[:, 1], atol=1e-6)
    described = endpoint.describe()
    assert (described.kind, described.names) == ("matrix", None)
    assert [asked.method for asked in server.asked] == ["GET", "POST", "POST", "POST"]
    assert endpoint.calls == 3  # what is asked about the model is no call


def test_a_v2_server_gets_one_input_per_column_in_its_own_types():
    frame = FRAME.assign(member=np.arange(60) % 3 == 0)
    with serving(open_inference(on_columns, EACH)) as server:
        endpoint = load_endpoint(f"{server.root}/v2/models/rule/infer")
        described = endpoint.describe()
        found = endpoint.predict(frame[list(described.names or ())])
    assert (described.kind, described.names) == ("table", ("age", "income", "job", "member"))
    assert described.as_category == {"job"}
    expected = on_columns({name: frame[name].to_numpy() for name in ("age", "income", "job", "member")})["score"]
    np.testing.assert_allclose(found[:, 0], expected, atol=1e-12)
    inputs = {one["name"]: one for one in server.asked[1].body["inputs"]}
    assert inputs["income"]["shape"] == [60, 1]
    assert inputs["age"]["shape"] == [60]
    assert inputs["member"]["data"][:2] == [True, False]


def test_an_audit_of_a_v2_server_with_categories_is_that_of_the_same_function():
    frame = FRAME.assign(member=np.arange(60) % 3 == 0)[["sex", "income", "job", "member"]]

    def direct(table: pd.DataFrame) -> np.ndarray:
        return on_columns({name: table[name].to_numpy() for name in table} | {"age": np.zeros(len(table))})["score"]

    def served(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return on_columns(inputs | {"age": np.zeros(len(inputs["job"]))})

    options: dict[str, Any] = {"protected": "sex", "refits": 1, "folds": 2}
    expected = fairfox.audit(direct, frame, **options)
    with serving(open_inference(served, EACH[1:])) as server:
        found = fairfox.audit(Endpoint(f"{server.root}/v2/models/rule/infer"), frame, **options)
    torch.testing.assert_close(found.scores, expected.scores, atol=1e-9, rtol=0)
    assert float(found.scores.abs().max()) > 1e-3


def test_a_server_that_takes_whole_numbers_gets_the_nearest_and_missing_values_are_null():
    with serving(
        open_inference(lambda x: {"p": np.full(3, 0.5)}, [("age", "INT64", [-1]), ("z", "FP64", [-1])])
    ) as server:
        rows = pd.DataFrame({"age": [30.4, 30.6, 31.0], "z": [1.0, np.nan, 2.0]})
        Endpoint(f"{server.root}/v2/models/rule/infer").predict(rows)
    assert [one["data"] for one in server.asked[1].body["inputs"]] == [[30, 31, 31], [1.0, None, 2.0]]


def several(**outputs: np.ndarray) -> Callable[[Asked], Reply]:
    return open_inference(lambda inputs: outputs, MATRIX)


LABEL, TWO = np.array([1, 0]), np.array([[0.1, 0.9], [0.8, 0.2]])


@pytest.mark.parametrize(
    ("outputs", "name", "expected"),
    [
        ({"label": LABEL, "probabilities": TWO}, None, TWO),
        ({"a": LABEL, "b": TWO}, None, TWO),
        ({"label": LABEL, "probabilities": TWO}, "label", LABEL[:, None]),
        ({"only": LABEL}, None, LABEL[:, None]),
    ],
)
def test_the_audited_output_is_found_by_name_or_kind(outputs: Any, name: str | None, expected: np.ndarray):
    with serving(several(**outputs)) as server:
        found = Endpoint(f"{server.root}/v2/models/rule/infer", output_name=name).predict(NUMBERS[:2].to_numpy())
    assert found.tolist() == expected.tolist()


def test_outputs_that_leave_it_open_are_refused_by_name():
    with serving(several(up=TWO, down=TWO)) as server, pytest.raises(ModelError, match=r"up, down; .*output_name"):
        Endpoint(f"{server.root}/v2/models/rule/infer").predict(NUMBERS[:2].to_numpy())


@pytest.mark.parametrize(
    ("inputs", "rows", "message"),
    [
        ([("x", "FP64", [-1, 5])], NUMBERS, "takes 5 columns and the table has 3"),
        ([("income", "FP64", [-1]), ("job", "FP32", [-1])], FRAME[["income", "job"]], "'job' as FP32.*holds '"),
        ([("income", "FP64", [-1]), ("job", "BYTES", [-1])], NUMBERS, "takes the columns income, job"),
    ],
)
def test_rows_that_a_v2_server_does_not_take_are_refused_before_the_call(inputs: Any, rows: Any, message: str):
    with serving(open_inference(on_matrix, inputs)) as server, pytest.raises(DataError, match=message):
        Endpoint(f"{server.root}/v2/models/rule/infer").predict(rows)
    assert server.predictions == 0


def test_a_table_without_a_column_of_the_server_is_refused():
    with (
        serving(open_inference(on_columns, EACH)) as server,
        pytest.raises(ColumnError, match="'member', which the table does not have"),
    ):
        fairfox.audit(Endpoint(f"{server.root}/v2/models/rule/infer"), FRAME, protected="sex")
    assert server.predictions == 0


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"inputs": [{"name": "x", "datatype": "IMAGE", "shape": [-1, 3]}]}, "IMAGE, which fairfox cannot send"),
        ({"inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 3, 3]}]}, "one matrix"),
        ({"inputs": [{"name": n, "datatype": "FP32", "shape": [-1, 3]} for n in "xy"]}, "one input per column"),
        ({"inputs": [{"name": "x"}]}, "metadata"),
        ({"inputs": 7}, "metadata"),
    ],
)
def test_metadata_that_cannot_be_met_are_refused(metadata: Any, message: str):
    with serving(lambda asked: Reply(metadata)) as server, pytest.raises(ModelError, match=message):
        load_endpoint(f"{server.root}/v2/models/rule/infer")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"predictions": [0.5]}, "without 'outputs'"),
        ({"outputs": []}, "without 'outputs'"),
        ({"outputs": [7]}, "without 'outputs'"),
        ({"outputs": [{"name": "p", "shape": [2], "datatype": "FP32"}]}, "without 'data'"),
        ({"outputs": [{"name": "p", "shape": [2, 2], "datatype": "FP32", "data": [1, 2]}]}, r"2 numbers for the shape"),
        ({"outputs": [{"name": "p", "shape": ["two", 2], "datatype": "FP32", "data": [1, 2]}]}, r"for the shape"),
        ({"outputs": [{"name": "p", "shape": [1], "datatype": "FP32", "data": [0.5]}]}, "1 predictions for 2 rows"),
        ({"outputs": [{"name": "p", "shape": [2], "datatype": "BYTES", "data": ["y", "n"]}]}, "text such as 'y'"),
        ({"outputs": [{"name": "p", "shape": [2], "datatype": "FP32", "data": [0.5, None]}]}, "null"),
    ],
)
def test_v2_answers_that_are_no_predictions_are_refused(answer: Any, message: str):
    with (
        serving(lambda asked: Reply(answer) if asked.method == "POST" else Reply({}, 404)) as server,
        pytest.raises(ModelError, match=message),
    ):
        Endpoint(f"{server.root}/v2/models/rule/infer").predict(NUMBERS[:2].to_numpy())


def test_nested_data_are_understood():
    nested = {"outputs": [{"name": "p", "shape": [2, 2], "datatype": "FP32", "data": TWO.tolist()}]}
    with serving(lambda asked: Reply(nested) if asked.method == "POST" else Reply({}, 404)) as server:
        found = Endpoint(f"{server.root}/v2/models/rule/infer").predict(NUMBERS[:2].to_numpy())
    assert found.tolist() == TWO.tolist()


def test_a_model_that_the_server_does_not_have_is_said_so():
    with (
        serving(open_inference(on_matrix, MATRIX)) as server,
        pytest.raises(ModelError, match=r"no model there.*unknown model"),
    ):
        Endpoint(f"{server.root}/v2/models/other/infer").predict(NUMBERS.to_numpy())


# --- addresses --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["", "/", "/predict", "/v2/models/rule", "/v2/models//infer", "/models/rule/infer", "/v1/models/rule/infer"]
)
def test_an_unknown_path_is_refused_with_the_two_that_are_known(path: str):
    with pytest.raises(
        OptionError, match=r"MLflow .*/invocations.* Open Inference Protocol v2 .*/v2/models/NAME/infer"
    ):
        Endpoint(f"http://127.0.0.1:1{path}")


@pytest.mark.parametrize("path", ["/invocations", "/serving/rule/invocations/", "/gateway/v2/models/rule/infer"])
def test_known_paths_may_have_a_prefix(path: str):
    assert Endpoint(f"http://127.0.0.1:1{path}").shown == f"http://127.0.0.1:1{path}"


def test_an_endpoint_shows_itself_without_its_query():
    assert repr(Endpoint("http://127.0.0.1:1/invocations?key=k")) == "Endpoint('http://127.0.0.1:1/invocations')"


def test_no_rows_at_once_are_refused():
    with pytest.raises(OptionError, match="batch_rows is 0"):
        Endpoint("http://127.0.0.1:1/invocations", batch_rows=0)


@pytest.mark.parametrize(("spec", "expected"), [("https://h/p", True), ("m.py:f", False), ("C:/m.onnx", False)])
def test_urls_are_told_from_files_and_code(spec: str, expected: bool):
    assert is_url(spec) is expected


def echoing(asked: Asked) -> Reply:
    """Write the credentials into the predictions, or into the metadata."""
    secret = asked.headers["Authorization"]
    if asked.method == "GET":
        return Reply({"inputs": [{"name": f"a {secret}", "datatype": "FP99", "shape": [-1, 1]}]})
    return Reply({"predictions": [f"{secret}\n\x1b[31m"] * 3})


@pytest.mark.parametrize("path", ["/invocations", "/v2/models/m/infer"])
def test_credentials_that_a_server_echoes_are_in_no_error(monkeypatch: pytest.MonkeyPatch, path: str):
    monkeypatch.setenv("TOKEN", "Bearer s3cr3t-XYZ")
    with serving(echoing) as server:
        endpoint = Endpoint(server.root + path, auth_env="TOKEN")
        with pytest.raises(ModelError) as caught:
            endpoint.describe().predict(np.zeros((3, 1)))
    message = str(caught.value)
    assert "s3cr3t" not in message
    assert "***" in message
    assert message.isprintable()
    assert caught.value.__suppress_context__
