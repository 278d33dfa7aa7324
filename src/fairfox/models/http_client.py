"""JSON over HTTP: urllib3's retries, a limit on calls, and no secrets in errors."""

from __future__ import annotations

import json
import logging
import os
import re
import time
import urllib.request
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import SplitResult, parse_qsl, urljoin, urlsplit, urlunsplit

import urllib3
from urllib3.exceptions import HTTPError, NewConnectionError, ProtocolError, ReadTimeoutError, SSLError, TimeoutError

from fairfox.errors import FairfoxError, ModelError, OptionError, redacted

_MOST_BYTES = 64 * 2**20  # of an answer; a batch of predictions takes far less
_CHUNK = 2**16
LONGEST_QUOTE = 200  # letters of what a server said
_LONGEST_ERROR = 1000  # letters
_LONGEST_PAUSE = 60.0  # seconds between two tries
_BUSY = (429, 502, 503, 504)  # worth another try
_ABSENT = (404, 405, 501)


def _without_queries(record: logging.LogRecord) -> bool:
    """Take the queries of URLs, which may hold keys, out of what urllib3 logs about tries."""
    given = record.args if isinstance(record.args, tuple) else ()
    record.args = tuple(re.sub(r"\?\S+", "?***", each) if isinstance(each, str) else each for each in given)
    return True


logging.getLogger("urllib3.connectionpool").addFilter(_without_queries)


class _Retries(urllib3.Retry):
    """urllib3's retries, each of which counts as a call."""

    def __init__(self, *args: Any, count: Callable[[], None], **options: Any) -> None:
        super().__init__(*args, **options)
        self.count = count

    def new(self, **options: Any) -> _Retries:
        return super().new(count=self.count, **options)

    def increment(self, *args: Any, **options: Any) -> _Retries:
        following = super().increment(*args, **options)
        self.count()
        return following

    def parse_retry_after(self, retry_after: str) -> float:
        return min(super().parse_retry_after(retry_after), _LONGEST_PAUSE)


@dataclass
class JsonClient:
    """Sends JSON to one server, counts the calls, and keeps secrets out of errors."""

    url: str
    timeout: float
    retries: int
    max_calls: int | None
    auth_env: str | None
    pause: float
    calls: int = 0  # repeated tries count, requests for metadata do not
    answered: int = 0

    def __post_init__(self) -> None:
        parts = check_url(self.url)
        self.shown = urlunsplit((parts.scheme, parts.netloc, parts.path, "", ""))
        self._credentials()  # refused now rather than at the first call

    def __getstate__(self) -> dict[str, Any]:
        """Return everything but the open connections."""
        return {name: value for name, value in vars(self).items() if name != "_pool"}

    @cached_property
    def _pool(self) -> urllib3.PoolManager:
        parts = urlsplit(self.url)
        proxy = urllib.request.getproxies().get(parts.scheme)
        bypassed = proxy is None or urllib.request.proxy_bypass(parts.netloc)
        return urllib3.PoolManager() if bypassed else urllib3.ProxyManager(str(proxy))

    def post(self, body: object, *, sent: str) -> Any:
        """Return the answer to a JSON body, which counts as a call; `sent` describes it in errors."""
        try:
            content = json.dumps(body, allow_nan=False, default=_plain).encode()
        except ValueError as error:
            raise ModelError(f"The rows cannot be sent to {self.shown} as JSON: {error}") from None
        answer = self._request("POST", self.url, content, sent)
        self.answered += 1
        return answer

    def get(self, url: str) -> Any | None:
        """Return the server's answer at another address, or None where there is none."""
        return self._request("GET", url, None, "")

    def _request(self, method: str, url: str, body: bytes | None, sent: str) -> Any:
        tries = 0

        def count() -> None:
            nonlocal tries
            tries += 1
            if body is None:
                return
            if self.max_calls is not None and self.calls >= self.max_calls:
                raise OptionError(
                    f"The endpoint {self.shown} was called {self.calls} times, retries included, as often as "
                    "--max-calls (max_calls=...) allows; raise it or --batch-rows, or audit fewer people (--sample)"
                )
            self.calls += 1

        count()
        try:
            status, content, location = self._answer(method, url, body, count)
        except HTTPError as error:
            raise self._failure(getattr(error, "reason", error), tries) from None
        if status in _ABSENT and body is None:
            return None
        if 300 <= status < 400:
            there = urlsplit(urljoin(self.url, location))
            host = self.quoted(f"{there.scheme}://{there.netloc.rpartition('@')[2]}", 100)
            raise ModelError(
                f"The endpoint {self.shown} redirects to {host} (HTTP {status}), but rows are sent only to the address "
                "you gave; give the final one"
            )
        if status >= 300:
            raise self._refusal(status, content, tries, sent)
        try:
            return json.loads(content)
        except (ValueError, RecursionError):
            begins = self.quoted(content.decode(errors="replace"), 60)
            raise ModelError(f"The endpoint {self.shown} answered '{begins}', not JSON; check the URL") from None

    def _answer(self, method: str, url: str, body: bytes | None, count: Callable[[], None]) -> tuple[int, bytes, str]:
        """Return status, content and Location of an answer; broken connections and busy servers are tried again."""
        headers = {"Accept": "application/json", "Content-Type": "application/json", "User-Agent": "fairfox"}
        headers |= {} if self.auth_env is None else {"Authorization": self._credentials()}
        options: dict[str, Any] = {"redirect": False, "preload_content": False, "timeout": self.timeout}
        retries: urllib3.Retry = _Retries(
            self.retries,
            other=0,  # TLS
            allowed_methods=None,
            status_forcelist=_BUSY,
            raise_on_status=False,
            backoff_factor=self.pause,
            backoff_max=_LONGEST_PAUSE,
            count=count,
        )
        while True:
            response = self._pool.urlopen(method, url, body=body, headers=headers, retries=retries, **options)
            try:
                content = self._content(response)
                response.release_conn()
                return response.status, content, response.headers.get("Location", "")
            except HTTPError as error:  # while the content is read
                retries = (response.retries or retries).increment(method, url, error=error)
                retries.sleep()
            finally:
                response.close()

    def _content(self, response: urllib3.BaseHTTPResponse) -> bytes:
        content, deadline = bytearray(), time.monotonic() + self.timeout
        while part := response.read1(_CHUNK, decode_content=False):
            content += part
            if len(content) > _MOST_BYTES:
                raise ModelError(
                    f"The endpoint {self.shown} answered with more than {_MOST_BYTES // 2**20} MiB; "
                    "send fewer rows at once (--batch-rows, batch_rows=...)"
                )
            if time.monotonic() > deadline:  # the socket's own timeout starts anew with every chunk
                raise ReadTimeoutError(self._pool.connection_from_url(self.url), None, "the content took too long")
        return bytes(content)

    def _failure(self, reason: Exception, tries: int) -> ModelError:
        """Return the error for a call that got no HTTP answer."""
        refused = isinstance(reason, NewConnectionError)
        cause = reason.__cause__ if refused else reason.args[-1] if reason.args else None
        if isinstance(reason, SSLError):
            return ModelError(
                f"No secure connection to {self.shown} ({getattr(cause, 'verify_message', cause)}); set the "
                "environment variable SSL_CERT_FILE to your authority's certificate, or check that the port uses https"
            )
        if isinstance(cause, ConnectionRefusedError):
            return self._given_up("refused the connection", tries)
        if isinstance(reason, TimeoutError) and not refused:
            return self._given_up(f"did not answer within {self.timeout:g} s (--timeout)", tries)
        if isinstance(reason, ProtocolError):
            return self._given_up("closed the connection, or does not use HTTP", tries)
        why = getattr(cause, "strerror", None) or type(reason).__name__
        return self._given_up(f"cannot be reached ({why})", tries)

    def _refusal(self, status: int, content: bytes, tries: int, sent: str) -> ModelError:
        """Return the error for an answer with an error's status."""
        words = self._server_words(content)
        if status in _BUSY:
            return self._given_up(f"was busy or unavailable (HTTP {status})", tries)
        if status >= 500 and status not in _ABSENT:
            return self._given_up(f"failed (HTTP {status})", tries, words)
        what = f"refused the request (HTTP {status}){words.rstrip('.')}{sent and f'; it was sent {sent}'}"
        if status in _ABSENT:
            what = f"has no model there (HTTP {status}){words}; check the address"
        elif status in (401, 403, 407):
            what = (
                f"requires authorization (HTTP {status}); name the environment variable that holds the Authorization "
                "header with --auth-env (auth_env=...)"
            )
        elif status == 413:
            what = "rejected the batch as too large (HTTP 413); lower --batch-rows (batch_rows=...)"
        return ModelError(f"The endpoint {self.shown} {what}")

    def _given_up(self, what: str, tries: int, words: str = "") -> ModelError:
        often = "" if tries == 1 else f" {tries} times in a row"
        start = f"After {self.answered:,} answered call{'s'[: self.answered - 1]} the" if self.answered else "The"
        return ModelError(f"{start} endpoint {self.shown} {what}{often}{words.rstrip('.')}; try again once it runs")

    def _server_words(self, content: bytes) -> str:
        """Return ": " and a server's words about its error, on one line; empty where there are none."""
        text = content[:_CHUNK].decode(errors="replace")
        with suppress(ValueError, RecursionError, AttributeError):
            found = json.loads(content)
            text = next((str(found[key]) for key in ("message", "error", "detail") if found.get(key)), text)
        quoted = self.quoted(text, LONGEST_QUOTE)
        return f": {quoted}" if quoted else ""

    def _credentials(self) -> str:
        """Return the value of the Authorization header: read when it is needed, stored nowhere."""
        value = "" if self.auth_env is None else os.environ.get(self.auth_env, "")
        if self.auth_env is not None and not (value.strip() and value.isascii() and value.isprintable()):
            raise OptionError(
                f"The environment variable '{self.auth_env}' (--auth-env, auth_env=...) is not set to one line of "
                "plain text; set it to the Authorization header, such as 'Bearer ...'"
            )
        return value

    @contextmanager
    def redacting(self) -> Iterator[None]:
        """Keep the credentials out of errors that quote what a server sent."""
        try:
            yield
        except FairfoxError as error:
            raise type(error)(self.quoted(str(error), _LONGEST_ERROR)) from None

    def quoted(self, text: str, length: int) -> str:
        """Return a text that may be a server's as one short printable line; credentials go before it is cut."""
        secret, query = self._credentials(), urlsplit(self.url).query
        words = [secret, secret.partition(" ")[2].strip(), query, *(value for _, value in parse_qsl(query))]
        with suppress(ValueError):
            words += b64decode(words[1], validate=True).decode().split(":")  # user and password of Basic
        for part in sorted(filter(None, words), key=len, reverse=True):
            text = text.replace(part, "***") if len(part) > 3 else text  # shorter ones are no keys
        text = redacted(text)
        line = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
        return line if len(line) <= length else f"{line[:length]}..."


def check_url(url: str) -> SplitResult:
    """Return the parts of an http or https URL without a user name, or say what is wrong with it."""
    try:
        parts = urlsplit(url)
        readable = bool(parts.hostname) and parts.port != 0 and url.isascii() and url.isprintable() and " " not in url
    except ValueError:
        readable = False
    if readable and "@" in parts.netloc:
        raise OptionError(
            "The URL of the model holds a user name or password; remove it and put the Authorization header in an "
            "environment variable that --auth-env (auth_env=...) names"
        )
    if not readable or parts.scheme not in ("http", "https"):
        raise OptionError("The URL of the model is not valid; write it as http://host:port/path or https://...")
    return parts


def _plain(value: Any) -> Any:
    """Return a NumPy scalar as the Python value it holds, anything else as text."""
    return value.item() if hasattr(value, "item") else str(value)
