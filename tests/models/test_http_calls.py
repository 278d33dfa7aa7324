"""Every way in which a server can disappoint, on real sockets."""

import datetime
import ipaddress
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from servers import Asked, HangUp, Reply, free_address, serving

from fairfox.errors import ModelError, OptionError
from fairfox.models import http_calls
from fairfox.models.http_calls import HttpCalls, check_url, without_secrets

SECRET = "Bearer s3cret-t0ken"


def calls(root: str, **options: Any) -> HttpCalls:
    return HttpCalls(f"{root}/invocations", **{"pause": 0.01, "timeout": 5.0} | options)


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


def test_a_call_sends_json_and_returns_what_the_answer_holds():
    with serving(first(Reply({"predictions": [1]}))) as server:
        asking = calls(server.root)
        assert asking.post({"inputs": [[1.5, None]]}) == {"predictions": [1]}
    asked = server.asked[0]
    assert (asked.method, asked.path, asked.body) == ("POST", "/invocations", {"inputs": [[1.5, None]]})
    assert asked.headers["Content-Type"] == "application/json"
    assert "Authorization" not in asked.headers
    assert asking.made == 1


# --- tries ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "trouble", [Reply(status=429), Reply(status=502), Reply(status=503), Reply(status=504), HangUp()]
)
def test_what_may_pass_is_tried_again(trouble: Any):
    with serving(first(trouble, trouble, Reply("well"))) as server:
        asking = calls(server.root)
        assert asking.post({}) == "well"
    assert len(server.asked) == asking.made == 3


def test_pauses_double_and_do_not_vary():
    times: list[float] = []

    def answer(asked: Asked) -> Reply:
        times.append(time.monotonic())
        return Reply(status=503)

    with serving(answer) as server, pytest.raises(ModelError, match=r"busy or away \(HTTP 503\), 4 times in a row"):
        calls(server.root, retries=3, pause=0.05).post({})
    pauses = [after - before for before, after in pairwise(times)]
    for pause, expected in zip(pauses, (0.05, 0.1, 0.2), strict=True):
        assert expected <= pause < expected + 0.5


def test_a_server_that_names_a_pause_gets_it():
    started = time.monotonic()
    with serving(first(Reply(status=429, headers={"Retry-After": "1"}), Reply([]))) as server:
        calls(server.root).post({})
    assert time.monotonic() - started >= 1


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 413, 422, 500, 501])
def test_what_will_not_pass_is_not_tried_again(status: int):
    with serving(first(Reply({"message": "no"}, status))) as server, pytest.raises(ModelError, match=f"HTTP {status}"):
        calls(server.root).post({})
    assert len(server.asked) == 1


def test_repeated_tries_count_and_the_limit_is_hard():
    with serving(first(Reply(1), Reply(status=503))) as server:
        asking = calls(server.root, max_calls=3, retries=5)
        asking.post({})
        with pytest.raises(OptionError, match=r"called 3 times.*--max-calls"):
            asking.post({})
    assert len(server.asked) == 3


def test_a_refused_connection_is_one_sentence():
    root = free_address()
    with pytest.raises(ModelError, match=f"^The endpoint {root}/invocations refused the connection, 2 times in a row$"):
        calls(root, retries=1).post({})


# --- answers that are none ------------------------------------------------------------------------------------------


def test_a_server_that_does_not_answer_is_given_up():
    def answer(asked: Asked) -> Reply:
        time.sleep(0.5)
        return Reply([])

    with serving(answer) as server, pytest.raises(ModelError, match=r"did not answer within 0\.1 s \(--timeout\)$"):
        calls(server.root, timeout=0.1, retries=0).post({})


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


def test_an_answer_that_drips_is_given_up_at_the_deadline():
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"
    with raw(head, drips=40) as root:
        started = time.monotonic()
        with pytest.raises(ModelError, match="did not answer within"):
            calls(root, timeout=0.3, retries=0).post({})
        assert time.monotonic() - started < 1


def test_an_answer_that_ends_too_early_is_a_broken_connection():
    with (
        raw(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n[1]") as root,
        pytest.raises(ModelError, match="broke the connection off"),
    ):
        calls(root, retries=0).post({})


def test_what_is_no_http_is_said_so():
    with raw(b"220 mail.example ESMTP\r\n") as root, pytest.raises(ModelError, match="does not speak HTTP"):
        calls(root).post({})


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"<html>\n<body>Log in", "it begins with '<html> <body>Log in'"),
        (b"", "it is empty"),
        (b"\xff\xfe\xfa", "not JSON"),
        (b"[" * 200_000, "not JSON"),
        (b"\x1b[31mred", r"' ?\[31mred'"),
    ],
)
def test_an_answer_that_is_no_json_is_said_so(content: bytes, found: str):
    with serving(first(Reply(content))) as server, pytest.raises(ModelError, match=found):
        calls(server.root).post({})


def test_an_endless_answer_is_not_read(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(http_calls, "_MOST_BYTES", 1000)
    with serving(first(Reply([0] * 1000))) as server, pytest.raises(ModelError, match="more than 0 MiB"):
        calls(server.root).post({})


def test_a_servers_own_words_are_passed_on_in_one_line():
    with (
        serving(first(Reply({"error_code": "BAD", "message": "No column\n'income' " + "x" * 500}, 400))) as server,
        pytest.raises(ModelError, match=r"refused the request \(HTTP 400\): No column 'income' x+$"),
    ):
        calls(server.root).post({})


def test_rows_that_json_cannot_hold_are_refused_before_the_call():
    with serving(first(Reply([]))) as server, pytest.raises(ModelError, match="cannot be sent"):
        calls(server.root).post({"inputs": [float("inf")]})
    assert server.asked == []


# --- redirects ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_on_the_same_host_is_followed_with_the_rows(status: int):
    def answer(asked: Asked) -> Reply:
        return Reply(asked.body) if asked.path == "/new" else Reply(status=status, headers={"Location": "/new"})

    with serving(answer) as server:
        assert calls(server.root).post({"rows": 1}) == {"rows": 1}


def test_a_redirect_to_another_host_is_not_followed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TOKEN", SECRET)
    with serving(first(Reply([]))) as other:
        there = {"Location": f"{other.root}/invocations?key=k"}
        with (
            serving(first(Reply(status=307, headers=there))) as server,
            pytest.raises(ModelError, match="redirects to another server, which is not followed"),
        ):
            calls(server.root, auth_env="TOKEN").post({})
        assert other.asked == []


@pytest.mark.parametrize("place", ["file:///etc/passwd", "http://user@127.0.0.1:1/", ""])
def test_a_redirect_to_nowhere_good_is_not_followed(place: str):
    with (
        serving(first(Reply(status=302, headers={"Location": place}))) as server,
        pytest.raises(ModelError, match="not followed"),
    ):
        calls(server.root).post({})


def test_a_redirect_in_circles_ends():
    with (
        serving(first(Reply(status=307, headers={"Location": "/invocations"}))) as server,
        pytest.raises(ModelError, match="circles"),
    ):
        calls(server.root).post({})
    assert len(server.asked) == 4


# --- secrets --------------------------------------------------------------------------------------------------------


def test_the_header_comes_from_the_named_variable_and_is_kept_nowhere(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TOKEN", SECRET)
    with serving(first(Reply([]))) as server:
        asking = calls(server.root, auth_env="TOKEN")
        asking.post({})
    assert server.asked[0].headers["Authorization"] == SECRET
    assert "s3cret" not in repr(vars(asking))


@pytest.mark.parametrize("echoed", [SECRET, "s3cret-t0ken"])
@pytest.mark.parametrize("status", [200, 400, 500])
def test_a_server_that_repeats_the_credentials_does_not_get_them_printed(
    monkeypatch: pytest.MonkeyPatch, status: int, echoed: str
):
    monkeypatch.setenv("TOKEN", SECRET)
    with serving(first(Reply(f"you sent {echoed}!".encode(), status))) as server, pytest.raises(ModelError) as caught:
        calls(server.root, auth_env="TOKEN").post({})
    assert "you sent ***!" in str(caught.value)


@pytest.mark.parametrize("value", [None, "", "  ", "two\nlines", "caf\u00e9"])
def test_a_variable_that_holds_no_header_is_refused_without_its_value(
    monkeypatch: pytest.MonkeyPatch, value: str | None
):
    monkeypatch.delenv("TOKEN", raising=False)
    if value is not None:
        monkeypatch.setenv("TOKEN", value)
    with pytest.raises(OptionError, match="'TOKEN'") as caught:
        HttpCalls("http://127.0.0.1/invocations", auth_env="TOKEN")
    assert "two" not in str(caught.value)
    assert "caf" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("ftp://host/invocations", "only http and https"),
        ("file:///etc/passwd", "only http and https"),
        ("http:///invocations", "no host"),
        ("http://host:port/invocations", "cannot be read"),
        ("http://[::1/invocations", "cannot be read"),
        ("http://user:hunter2@host/invocations", "--auth-env"),
        ("http://hunter2@host/invocations", "--auth-env"),
        ("http://host/a b", "strange characters"),
        ("http://host/a\nb", "strange characters"),
    ],
)
def test_urls_that_cannot_be_asked_are_refused_without_being_repeated(url: str, message: str):
    with pytest.raises(OptionError, match=message) as caught:
        check_url(url)
    assert "hunter2" not in str(caught.value)


def test_the_query_is_sent_and_never_shown():
    with serving(first(Reply(status=500))) as server:
        asking = HttpCalls(f"{server.root}/invocations?key=hunter2")
        with pytest.raises(ModelError) as caught:
            asking.post({})
    assert server.asked[0].path == "/invocations?key=hunter2"
    assert "hunter2" not in str(caught.value) + asking.shown
    assert without_secrets(check_url("https://host:8/p?key=1#x")) == "https://host:8/p"


# --- TLS ------------------------------------------------------------------------------------------------------------


def test_https_where_http_is_spoken_is_one_sentence():
    with serving(first(Reply([]))) as server, pytest.raises(ModelError, match="does this port speak https"):
        calls(server.root.replace("http:", "https:")).post({})
    assert server.asked == []


def test_a_certificate_that_nobody_vouches_for_is_refused_until_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    pytest.importorskip("cryptography")
    files = self_signed(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*files)
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    with serving(first(Reply("well")), tls=context) as server:
        with pytest.raises(ModelError, match=r"cannot be trusted.*SSL_CERT_FILE"):
            calls(server.root).post({})
        assert server.asked == []
        monkeypatch.setenv("SSL_CERT_FILE", str(files[0]))
        assert calls(server.root).post({}) == "well"


def self_signed(folder: Path) -> tuple[Path, Path]:
    """Write a certificate of 127.0.0.1 and its key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    certificate, secret = folder / "certificate.pem", folder / "key.pem"
    certificate.write_bytes(built.public_bytes(serialization.Encoding.PEM))
    encoding, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    secret.write_bytes(key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, plain))
    return certificate, secret


# --- options --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"timeout": 0},
        {"timeout": float("nan")},
        {"timeout": float("inf")},
        {"retries": -1},
        {"max_calls": 0},
        {"pause": -1},
    ],
)
def test_numbers_that_make_no_sense_are_refused(options: dict[str, Any]):
    with pytest.raises(OptionError, match=next(iter(options))):
        HttpCalls("http://127.0.0.1/invocations", **options)


def test_numpy_values_are_sent_as_what_they_hold():
    import numpy as np

    with serving(first(Reply([]))) as server:
        calls(server.root).post([np.int64(3), np.bool_(True), np.float32(0.5)])
    assert json.dumps(server.asked[0].body) == "[3, true, 0.5]"
