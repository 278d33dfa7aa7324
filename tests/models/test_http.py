"""Endpoints against servers like MLflow's, one that insists on the Open Inference Protocol, and bad ones.

`tests/contracts` has MLflow's own server.
"""

import json
import pickle
import socket
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from contracts.kinds import pipeline
from populations import people
from servers import Asked, HangUp, Reply, free_address, open_inference, serving
from support import audited

from fairfox.errors import ColumnError, DataError, ModelError, OptionError
from fairfox.models.http import Endpoint, load_endpoint

FRAME = people(60)
NUMBERS = FRAME[["income", "age", "debt"]]
ONE = np.array([[1.5, np.nan]])
MATRIX = [("x", "FP64", [-1, 3])]
EACH = [("age", "INT64", [-1]), ("income", "FP64", [-1, 1]), ("job", "BYTES", [-1]), ("member", "BOOL", [-1])]
SECRET = "Bearer s3cret-t0ken"
GOOD = Reply({"predictions": [0.5]})


def endpoint(root: str, **options: Any) -> Endpoint:
    return Endpoint(f"{root}/invocations", **{"pause": 0.01, "timeout": 5.0} | options)


def first(*replies: Any) -> Callable[[Asked], Reply]:
    """Return a server that gives these answers in turn, the last one from then on."""
    left = list(replies)

    def answer(asked: Asked) -> Reply:
        reply = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(reply, Exception):
            raise reply
        assert isinstance(reply, Reply)
        return reply

    return answer


def mlflow_like(predictions: Any) -> Callable[[Asked], Reply]:
    """Return a server that answers as MLflow does: what a function of the rows says, or the same to everyone."""

    def answer(asked: Asked) -> Reply:
        rows = asked.body.get("dataframe_split", {}).get("data") or asked.body.get("inputs")
        found = predictions(rows) if callable(predictions) else predictions
        return found if isinstance(found, Reply) else Reply({"predictions": found})

    return answer


# --- MLflow ---------------------------------------------------------------------------------------------------------


def sent(rows: Any) -> Any:
    """Return the body in which rows arrive at an MLflow server."""
    with serving(mlflow_like(lambda rows: [0.5] * len(rows))) as server:
        endpoint(server.root).predict(rows)
    assert (server.asked[0].method, server.asked[0].path) == ("POST", "/invocations")
    assert server.asked[0].headers["Content-Type"] == "application/json"
    assert "Authorization" not in server.asked[0].headers
    return server.asked[0].body


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
    polars = sent(pl.from_pandas(frame.drop(columns="kind")))["dataframe_split"]["data"]
    assert polars[1] == [2, None, False, None, None]
    assert sent(np.array([[1.5, np.nan], [0.0, 2.0]])) == {"inputs": [[1.5, None], [0.0, 2.0]]}


TWO = np.array([[0.1, 0.9], [0.8, 0.2]])


@pytest.mark.parametrize(
    ("predictions", "expected"),
    [
        (TWO.tolist(), TWO),
        ([{"no": 0.1, "yes": 0.9}, {"yes": 0.2, "no": 0.8}], TWO),
        (Reply(TWO.tolist()), TWO),
        (Reply({"predictions": TWO.tolist(), "model_version": "3"}), TWO),
        ([0.25, 1], np.array([[0.25], [1.0]])),
        ([{"p": 0.25}, {"p": 1}], np.array([[0.25], [1.0]])),
        ([0.25, None], np.array([[0.25], [np.nan]])),  # refused where predictions are checked, for all models
    ],
)
def test_every_form_of_predictions_is_understood(predictions: Any, expected: np.ndarray):
    with serving(mlflow_like(predictions)) as server:
        np.testing.assert_array_equal(endpoint(server.root).predict(NUMBERS[:2]), expected)


@pytest.mark.parametrize(
    ("predictions", "message"),
    [
        ([0.5], "1 predictions for 2 individuals"),
        ([], "0 predictions for 2 individuals"),
        (0.5, "a single number for 2 individuals"),
        (["yes", "no"], "text such as 'yes'.*predict_proba"),
        ([[0.1, 0.9], [0.5]], "mixed types"),
        ([{"a": 1}, {"b": 1}], "mixed types"),
        ({"a": [1, 2], "b": [2]}, "mixed types"),
        (Reply({"outputs": []}), "without 'predictions'"),
        (Reply("well"), "without 'predictions'"),
    ],
)
def test_answers_that_are_no_predictions_are_refused(predictions: Any, message: str):
    with serving(mlflow_like(predictions)) as server, pytest.raises(ModelError, match=message):
        endpoint(server.root).predict(NUMBERS[:2])


# --- the Open Inference Protocol --------------------------------------------------------------------------------------


def on_matrix(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    (x,) = inputs.values()
    return {"probability": pipeline().predict_proba(pd.DataFrame(x, columns=NUMBERS.columns))[:, 1]}


def on_columns(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    named = {name: values.reshape(-1) for name, values in inputs.items()}
    value = named["income"] / 1000 + 0.01 * named["age"] + (named["job"] == "nurse") - 0.5 * named["member"]
    return {"score": 1 / (1 + np.exp(3.5 - value.astype(float)))}


def v2(root: str, **options: Any) -> Endpoint:
    return load_endpoint(f"{root}/v2/models/rule/infer", **options)


@pytest.mark.parametrize(
    ("path", "inputs"),
    [
        ("/v2/models/rule/infer", MATRIX),
        ("/v2/models/rule/versions/1/infer", [("x", "FP32", [-1, -1])]),
        ("/v2/models/rule/infer?k=1", None),
    ],
)
def test_a_v2_server_gets_one_matrix(path: str, inputs: Any):
    with serving(open_inference(on_matrix, inputs)) as server:
        asked = load_endpoint(server.root + path, batch_rows=25)
        found = asked.predict(NUMBERS.to_numpy())
    np.testing.assert_allclose(found[:, 0], pipeline().predict_proba(NUMBERS)[:, 1], atol=1e-6)
    assert (asked.describe().kind, asked.describe().names) == ("matrix", None)
    assert [request.method for request in server.asked] == ["GET", "POST", "POST", "POST"]
    assert asked.calls == 3  # a request for metadata is no call


def test_a_v2_server_gets_one_input_per_column_in_its_own_types():
    frame = FRAME.assign(member=np.arange(60) % 3 == 0, age=FRAME["age"] + 0.4)  # whole numbers are rounded
    with serving(open_inference(on_columns, EACH)) as server:
        asked = v2(server.root)
        described = asked.describe()
        found = asked.predict(frame[list(described.names or ())])
    assert (described.kind, described.names) == ("table", ("age", "income", "job", "member"))
    assert described.as_category == {"job"}
    rounded = frame.assign(age=FRAME["age"])
    expected = on_columns({name: rounded[name].to_numpy() for name in ("age", "income", "job", "member")})["score"]
    np.testing.assert_allclose(found[:, 0], expected, atol=1e-12)
    inputs = {given["name"]: given for given in server.asked[1].body["inputs"]}
    assert (inputs["income"]["shape"], inputs["age"]["shape"]) == ([60, 1], [60])
    assert inputs["member"]["data"][:2] == [True, False]


LABEL = np.array([1, 0])


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
    with serving(open_inference(lambda inputs: outputs, MATRIX)) as server:
        found = v2(server.root, output_name=name).predict(NUMBERS[:2].to_numpy())
    assert found.tolist() == expected.tolist()


def test_text_where_a_v2_server_takes_numbers_is_refused_before_the_call():
    inputs = [("income", "FP64", [-1]), ("job", "FP32", [-1])]
    with (
        serving(open_inference(on_matrix, inputs)) as server,
        pytest.raises(DataError, match=r"'job' as FP32.*holds '"),
    ):
        v2(server.root).predict(FRAME[["income", "job"]])
    assert server.predictions == 0


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (EACH, "has no column 'job'.* The model needs it"),
        ([("x", "FP64", [-1, 5])], "trained on 5 columns without names, but gets 3"),
    ],
)
def test_a_table_with_other_columns_than_the_server_takes_is_refused(inputs: Any, message: str):
    with serving(open_inference(on_columns, inputs)) as server, pytest.raises(ColumnError, match=message):
        audited(v2(server.root), FRAME[["sex", *NUMBERS]], protected="sex")
    assert server.predictions == 0


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"inputs": [{"name": "x", "datatype": "IMAGE", "shape": [-1, 3]}]}, "fairfox cannot send, .*IMAGE"),
        ({"inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 3, 3]}]}, "expected .* one matrix"),
        ({"inputs": [{"name": n, "datatype": "FP32", "shape": [-1, 3]} for n in "xy"]}, "one input per column"),
        ({"inputs": [{"name": "x"}]}, "expected name, datatype and shape"),
        ({"inputs": 7}, "expected name, datatype and shape"),
    ],
)
def test_metadata_that_cannot_be_met_are_refused(metadata: Any, message: str):
    with serving(first(Reply(metadata))) as server, pytest.raises(ModelError, match=message):
        v2(server.root)


def answering(**output: Any) -> Callable[[Asked], Reply]:
    """Return a v2 server without metadata that returns one output."""
    answer = {"outputs": [{"name": "p", "datatype": "FP32", **output}]}
    return lambda asked: Reply(answer) if asked.method == "POST" else Reply({}, 404)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (first(Reply({"inputs": []}), Reply({"outputs": []})), "without 'outputs'"),
        (first(Reply({"inputs": []}), Reply({"outputs": [7]})), "without 'outputs'"),
        (answering(shape=[2]), "do not fit their shape"),
        (answering(shape=[2, 2], data=[1, 2]), "do not fit their shape"),
        (answering(shape=["two", 2], data=[1, 2]), "do not fit their shape"),
        (answering(shape=[1], data=[0.5]), "1 predictions for 2 individuals"),
        (answering(shape=[2], data=["y", "n"]), "text such as 'y'"),
    ],
)
def test_v2_answers_that_are_no_predictions_are_refused(answer: Callable[[Asked], Reply], message: str):
    with serving(answer) as server, pytest.raises(ModelError, match=message):
        v2(server.root).predict(NUMBERS[:2].to_numpy())


# --- addresses and options ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["", "/predict", "/v2/models/rule", "/v2/models//infer", "/v1/models/rule/infer"])
def test_an_unknown_path_is_refused_with_the_two_that_are_known(path: str):
    with pytest.raises(
        OptionError, match=r"MLflow .*/invocations.* Open Inference Protocol v2 .*/v2/models/NAME/infer"
    ):
        Endpoint(f"http://127.0.0.1:1{path}")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("ftp://host/invocations", "is not valid; write it as http"),
        ("http:///invocations", "is not valid"),
        ("http://host:port/invocations", "is not valid"),
        ("http://[::1/invocations", "is not valid"),
        ("http://host/a b", "is not valid"),
        ("http://host/a\nb", "is not valid"),
        ("http://user:hunter2@host/invocations", "--auth-env"),
    ],
)
def test_urls_that_cannot_be_asked_are_refused_without_being_repeated(url: str, message: str):
    with pytest.raises(OptionError, match=message) as caught:
        Endpoint(url)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("timeout", 0),
        ("timeout", np.nan),
        ("timeout", np.inf),
        ("retries", -1),
        ("max_calls", 0),
        ("pause", -1),
        ("timeout", None),
    ],
)
def test_numbers_that_make_no_sense_are_refused(name: str, value: Any):
    with pytest.raises(OptionError, match=f"{name} is {value}.*; expected"):
        Endpoint("http://127.0.0.1/invocations", **{name: value})


# --- further tries ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "trouble", [Reply(status=429), Reply(status=502), Reply(status=503), Reply(status=504), HangUp()]
)
def test_what_may_pass_is_tried_again(trouble: Any):
    with serving(first(trouble, trouble, GOOD)) as server:
        asked = endpoint(server.root)
        assert asked.predict(ONE).tolist() == [[0.5]]
    assert len(server.asked) == asked.calls == 3


def test_a_server_that_names_a_pause_gets_it():
    started = time.monotonic()
    with serving(first(Reply(status=429, headers={"Retry-After": "1"}), GOOD)) as server:
        endpoint(server.root).predict(ONE)
    assert time.monotonic() - started >= 1


@pytest.mark.parametrize("status", [307, 400, 401, 404, 413, 422, 500, 501])
def test_what_will_not_pass_is_not_tried_again(status: int):
    with serving(first(Reply({"message": "no"}, status))) as server, pytest.raises(ModelError, match=f"HTTP {status}"):
        endpoint(server.root).predict(ONE)
    assert len(server.asked) == 1


def test_repeated_tries_count_and_the_limit_is_hard():
    with serving(first(GOOD, Reply(status=503))) as server:
        asked = endpoint(server.root, max_calls=3, retries=5)
        asked.predict(ONE)
        with pytest.raises(OptionError, match=r"called 3 times.*--max-calls"):
            asked.predict(ONE)
    assert len(server.asked) == 3


def test_a_refused_connection_is_one_sentence():
    root = free_address()
    sentence = f"The endpoint {root}/invocations refused the connection 2 times in a row; try again once it runs"
    with pytest.raises(ModelError, match=f"^{sentence}$"):
        endpoint(root, retries=1).predict(ONE)


@pytest.mark.parametrize(
    ("location", "where"),
    [
        ("{other}/invocations?key=k", "{other}"),
        ("file:///etc/passwd", "file://"),
        ("https://user:pw@evil.example/x?key=s3cret", "https://evil.example"),
        ("//evil.example/x?key=s3cret", "http://evil.example"),
        ("/login?token=s3cret", "{root}"),
        ("", "{root}"),
    ],
)
def test_rows_are_not_sent_on_to_where_a_server_redirects_and_a_sentence_says_where_it_leads(
    monkeypatch: pytest.MonkeyPatch, location: str, where: str
):
    monkeypatch.setenv("TOKEN", SECRET)
    with serving(first(GOOD)) as other:
        headers = {"Location": location.format(other=other.root)} if location else {}
        with serving(first(Reply(status=307, headers=headers))) as server, pytest.raises(ModelError) as caught:
            endpoint(server.root, auth_env="TOKEN").predict(ONE)
    assert other.asked == []
    there = where.format(root=server.root, other=other.root)
    assert str(caught.value) == (
        f"The endpoint {server.root}/invocations redirects to {there} (HTTP 307), but rows are sent only to the "
        "address you gave; give the final one"
    )


def test_a_server_that_fails_later_is_one_sentence_with_its_words_at_the_end():
    with serving(first(GOOD, Reply({"message": "Out of memory."}, 500))) as server:
        asked = endpoint(server.root)
        asked.predict(ONE)
        with pytest.raises(ModelError) as caught:
            asked.predict(ONE)
    assert str(caught.value) == (
        f"After 1 answered call the endpoint {server.root}/invocations failed (HTTP 500): Out of memory; try again "
        "once it runs"
    )


# --- answers that are none ------------------------------------------------------------------------------------------


@contextmanager
def raw(content: bytes, *, drips: int = 0) -> Iterator[str]:
    """Run a server that sends these bytes whatever it is asked, then some more, a byte at a time."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(content)
                try:
                    for _ in range(drips):
                        time.sleep(0.05)
                        connection.sendall(b" ")
                except OSError:
                    return  # the client hung up

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        thread.join(5)


HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"


@pytest.mark.parametrize(
    ("content", "drips", "message"),
    [
        (HEAD, 40, "did not answer within"),
        (HEAD + b"[1]", 0, "closed the connection"),
        (b"220 mail.example ESMTP\r\n", 0, "does not use HTTP"),
    ],
    ids=["dripping", "ends early", "mail"],
)
def test_what_gives_no_whole_answer_is_given_up_at_the_deadline(content: bytes, drips: int, message: str):
    with raw(content, drips=drips) as root:
        started = time.monotonic()
        with pytest.raises(ModelError, match=message):
            endpoint(root, timeout=0.3, retries=0).predict(ONE)
        assert time.monotonic() - started < 1


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"<html>\n<body>Log in", "answered '<html> <body>Log in', not JSON"),
        (b'{"predictions": [0.5', "not JSON"),
        (b"\xff\xfe\xfa", "not JSON"),
        (b"[" * 200_000, "not JSON"),
        (b"\x1b[31mred", r"' ?\[31mred'"),
    ],
)
def test_an_answer_that_is_no_json_is_said_so(content: bytes, found: str):
    with serving(first(Reply(content))) as server, pytest.raises(ModelError, match=found):
        endpoint(server.root).predict(ONE)


def test_a_servers_own_words_are_passed_on_in_one_short_line():
    words = {"error_code": "BAD", "message": "No column\n'income' " + "x" * 500}
    with serving(first(Reply(words, 400))) as server, pytest.raises(ModelError) as caught:
        endpoint(server.root).predict(ONE)
    assert "refused the request (HTTP 400): No column 'income' xxx" in str(caught.value)
    assert str(caught.value).endswith("; it was sent 2 columns")
    assert len(str(caught.value)) < 400


# --- secrets --------------------------------------------------------------------------------------------------------


def test_the_header_comes_from_the_named_variable_and_is_kept_nowhere(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TOKEN", SECRET)
    with serving(first(GOOD)) as server:
        asked = endpoint(server.root, auth_env="TOKEN")
        asked.predict(ONE)
    assert server.asked[0].headers["Authorization"] == SECRET
    assert b"s3cret" not in pickle.dumps(asked)


BASIC = "Basic " + b64encode(b"anna:passw0rd").decode()


@pytest.mark.parametrize(("header", "echoed"), [(SECRET, SECRET), (SECRET, "s3cret-t0ken"), (BASIC, "passw0rd")])
@pytest.mark.parametrize("status", [200, 400, 500])
def test_a_server_that_repeats_the_credentials_does_not_get_them_printed(
    monkeypatch: pytest.MonkeyPatch, status: int, header: str, echoed: str
):
    monkeypatch.setenv("TOKEN", header)
    with serving(first(Reply(f"you sent {echoed}!".encode(), status))) as server, pytest.raises(ModelError) as caught:
        endpoint(server.root, auth_env="TOKEN").predict(ONE)
    assert "you sent ***!" in str(caught.value)


def test_keys_in_the_address_are_in_no_error_and_no_log(caplog: pytest.LogCaptureFixture):
    def busy_then_blunt(asked: Asked) -> Reply:
        if len(server.asked) == 1:
            raise HangUp
        return Reply({"message": f"no such key {asked.path}, k3y/k3y"}, 400)

    with serving(busy_then_blunt) as server:
        asked = Endpoint(f"{server.root}/invocations?api_key=k3y%2Fk3y&v=2", retries=1, pause=0)
        with pytest.raises(ModelError) as caught:
            asked.predict(ONE)
    assert "no such key /invocations?***, ***" in str(caught.value)
    assert caplog.records
    for text in (str(caught.value), caplog.text, repr(asked)):
        assert "k3y" not in text


def test_what_a_server_declares_is_quoted_in_200_letters():
    declared = {"inputs": [{"name": "x" * 900, "datatype": "FP99", "shape": [-1, 1]}]}
    with serving(lambda asked: Reply(declared)) as server, pytest.raises(ModelError) as caught:
        Endpoint(f"{server.root}/v2/models/m/infer").describe()
    assert 100 < str(caught.value).count("x" * 10) * 10 <= 200


def echoing(asked: Asked) -> Reply:
    """Write the credentials into the predictions, or into the metadata."""
    secret = asked.headers["Authorization"]
    if asked.method == "GET":
        return Reply({"inputs": [{"name": f"a {secret}", "datatype": "FP99", "shape": [-1, 1]}]})
    return Reply({"predictions": [f"{secret}\n\x1b[31m"] * 3})


@pytest.mark.parametrize("path", ["/invocations", "/v2/models/m/infer"])
def test_credentials_in_predictions_and_metadata_are_in_no_error(monkeypatch: pytest.MonkeyPatch, path: str):
    monkeypatch.setenv("TOKEN", SECRET)
    with serving(echoing) as server, pytest.raises(ModelError) as caught:
        Endpoint(server.root + path, auth_env="TOKEN").describe().predict(np.zeros((3, 1)))
    assert "s3cret" not in str(caught.value)
    assert "***" in str(caught.value)
    assert str(caught.value).isprintable()
    assert caught.value.__suppress_context__


@pytest.mark.parametrize("value", [None, "  ", "two\nlines", "caf\u00e9"])
def test_a_variable_that_holds_no_header_is_refused_without_its_value(
    monkeypatch: pytest.MonkeyPatch, value: str | None
):
    monkeypatch.delenv("TOKEN", raising=False)
    if value is not None:
        monkeypatch.setenv("TOKEN", value)
    with pytest.raises(OptionError, match=r"'TOKEN' .* is not set to one line of plain text") as caught:
        Endpoint("http://127.0.0.1/invocations", auth_env="TOKEN")
    assert "two" not in str(caught.value)
    assert "caf" not in str(caught.value)


# --- TLS ------------------------------------------------------------------------------------------------------------


def test_https_where_http_is_spoken_is_one_sentence():
    with serving(first(GOOD)) as server, pytest.raises(ModelError, match=r"^No secure .* to your authority"):
        endpoint(server.root.replace("http:", "https:")).predict(ONE)
    assert server.asked == []
