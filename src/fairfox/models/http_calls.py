"""JSON over HTTP: retries, deadlines and limits, and nothing secret in what is said about it."""

from __future__ import annotations

import http.client
import json
import math
import os
import ssl
import time
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import SplitResult, urljoin, urlsplit, urlunsplit

from fairfox.errors import ModelError, OptionError

_MOST_BYTES = 64 * 2**20  # of an answer; a batch of predictions takes far less
_PIECE = 2**16
_MOST_REDIRECTS = 3
_LONGEST_PAUSE = 60.0  # seconds between two tries
_BUSY = (429, 502, 503, 504)  # worth another try
_MOVED = (301, 302, 307, 308)
_SHOWN = 200  # characters of what a server said


class _Unanswered(Exception):
    """A call that failed in a way that may pass; `wait` is how many seconds the server asked for."""

    def __init__(self, what: str, wait: float = 0.0) -> None:
        super().__init__(what)
        self.wait = wait


class HttpCalls:
    """Asks one server for JSON and counts the calls.

    Connection errors, timeouts and the statuses 429, 502, 503 and 504 are tried again after a pause that doubles
    each time; nothing else is. Redirects are followed on the same host only.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout: float = 30.0,
        retries: int = 3,
        max_calls: int | None = None,
        auth_env: str | None = None,
        pause: float = 0.5,
    ) -> None:
        self.url = url
        self.shown = without_secrets(check_url(url))
        self.timeout = timeout
        self.retries = retries
        self.max_calls = max_calls
        self.auth_env = auth_env
        self.pause = pause
        self.made = 0  # calls that count: repeated tries do, questions about the model do not
        self.answered = 0
        _check_numbers(timeout=timeout, retries=retries, max_calls=max_calls, pause=pause)
        self._credentials()  # refused now rather than at the first call
        self._opener = urllib.request.build_opener(_NoRedirects())

    def post(self, body: object, *, sent: str = "") -> Any:
        """Return what the server answers to a JSON body; this is what counts as a call.

        `sent` says what the body holds, for the case that the server refuses it.
        """
        try:
            content = json.dumps(body, allow_nan=False, default=_plain).encode()
        except ValueError as error:
            raise ModelError(f"The rows cannot be sent to {self.shown} as JSON: {error}") from None
        try:
            answer = self._patiently(self.url, content)
        except _RefusedError as error:
            raise ModelError(f"{error}; it was sent {sent}" if sent else str(error)) from None
        self.answered += 1
        return answer

    def get(self, url: str) -> Any | None:
        """Return what the server says at another of its addresses, or None where it has nothing there."""
        try:
            return self._patiently(url, None)
        except _NothingThereError:
            return None

    def _patiently(self, url: str, content: bytes | None) -> Any:
        pause = self.pause
        for tries in range(1, self.retries + 2):
            try:
                return self._once(url, content)
            except _Unanswered as failed:
                if tries > self.retries:
                    often = "" if tries == 1 else f", {tries} times in a row"
                    raise ModelError(f"The endpoint {self.shown} {failed}{often}{self._progress()}") from None
                time.sleep(min(max(pause, failed.wait), _LONGEST_PAUSE))
                pause *= 2
        raise AssertionError("a call either returns or raises")

    def _once(self, url: str, content: bytes | None) -> Any:
        """Return the parsed answer of one call; raise `_Unanswered` where another try may help."""
        for _ in range(_MOST_REDIRECTS + 1):
            if content is not None:
                self._count()
            try:
                return self._parsed(self._sent(url, content))
            except urllib.error.HTTPError as error:
                with error:
                    if error.code not in _MOVED:
                        raise self._refusal(error) from None
                    url = self._followed(url, error.headers.get("Location"))
        raise ModelError(f"The endpoint {self.shown} redirects in circles; give the address that answers")

    def _sent(self, url: str, content: bytes | None) -> bytes:
        headers = {"Accept": "application/json", "User-Agent": "fairfox"}
        headers |= {} if content is None else {"Content-Type": "application/json"}
        headers |= {} if self.auth_env is None else {"Authorization": self._credentials()}
        request = urllib.request.Request(url, content, headers)
        deadline = time.monotonic() + self.timeout
        try:
            with self._opener.open(request, timeout=self.timeout) as response:
                return self._read(response, deadline)
        except urllib.error.HTTPError:
            raise
        except urllib.error.URLError as error:
            raise self._failure(error.reason if isinstance(error.reason, Exception) else error) from None
        except (OSError, http.client.HTTPException) as error:
            raise self._failure(error) from None

    def _read(self, response: Any, deadline: float) -> bytes:
        parts: list[bytes] = []
        size = 0
        while part := response.read1(_PIECE):
            size += len(part)
            if size > _MOST_BYTES:
                raise ModelError(
                    f"The endpoint {self.shown} answered with more than {_MOST_BYTES // 2**20} MiB; "
                    "ask for fewer rows at once (--batch-rows, batch_rows=...)"
                )
            if time.monotonic() > deadline:  # the socket's own timeout starts anew with every piece
                raise TimeoutError
            parts.append(part)
        if response.length:
            raise ConnectionResetError  # it announced more than it sent
        return b"".join(parts)

    def _parsed(self, content: bytes) -> Any:
        try:
            return json.loads(content)
        except (ValueError, RecursionError):
            begins = self._quoted(content[:_SHOWN].decode(errors="replace"))[:60]
            found = f"it begins with '{begins}'" if begins else "it is empty"
            raise ModelError(
                f"The endpoint {self.shown} answered with something that is not JSON ({found}); "
                "give the address that predicts"
            ) from None

    def _failure(self, error: Exception) -> Exception:
        """Return what to raise for a call that got no HTTP answer."""
        if isinstance(error, TimeoutError):
            return _Unanswered(f"did not answer within {self.timeout:g} s (--timeout)")
        if isinstance(error, ssl.SSLCertVerificationError):
            return ModelError(
                f"The certificate of {self.shown} cannot be trusted ({error.verify_message}); "
                "name your own authority's certificate in the environment variable SSL_CERT_FILE"
            )
        if isinstance(error, ssl.SSLError):
            reason = (error.reason or "no TLS").replace("_", " ").lower()
            return ModelError(f"No secure connection to {self.shown} ({reason}); does this port speak https?")
        if isinstance(error, ConnectionRefusedError):
            return _Unanswered("refused the connection")
        if isinstance(error, http.client.BadStatusLine) and not isinstance(error, ConnectionError):
            return ModelError(f"What listens at {self.shown} does not speak HTTP; give the address of a model server")
        if isinstance(error, ConnectionError | http.client.IncompleteRead):
            return _Unanswered("broke the connection off")
        detail = self._quoted(getattr(error, "strerror", None) or type(error).__name__)
        return _Unanswered(f"cannot be reached ({detail})")

    def _refusal(self, error: urllib.error.HTTPError) -> Exception:
        """Return what to raise for an answer with an error's status."""
        code = error.code
        if code in _BUSY:
            return _Unanswered(f"was busy or away (HTTP {code})", _seconds(error.headers.get("Retry-After")))
        said = self._said(error)
        where = f"The endpoint {self.shown}"
        if code in (404, 405, 501):
            return _NothingThereError(f"{where} has no model there (HTTP {code}){said}; check the address")
        if code in (401, 403, 407):
            return ModelError(
                f"{where} did not let us in (HTTP {code}); name the environment variable that holds the "
                "Authorization header with --auth-env (auth_env=...)"
            )
        if code == 413:
            return ModelError(f"{where} found the batch too large (HTTP 413); lower --batch-rows (batch_rows=...)")
        if 400 <= code < 500:
            return _RefusedError(f"{where} refused the request (HTTP {code}){said.rstrip('.')}")
        return ModelError(f"{where} failed (HTTP {code}){said}{self._progress()}")

    def _said(self, error: urllib.error.HTTPError) -> str:
        """Return ": " and what a server said about its error, on one line; empty where it said nothing."""
        try:
            content = error.read(_PIECE)
        except (OSError, http.client.HTTPException):  # it hung up: the status alone is known
            return ""
        text = content.decode(errors="replace")
        try:
            found = json.loads(content)
        except (ValueError, RecursionError):
            found = None
        if isinstance(found, dict):
            text = next((str(found[key]) for key in ("message", "error", "detail") if found.get(key)), text)
        quoted = self._quoted(text)
        return f": {quoted}" if quoted else ""

    def redacted(self, text: str) -> str:
        """Return words that may be a server's as one line that cannot steer a terminal or give the credentials away."""
        if self.auth_env is not None:
            secret = self._credentials()
            for part in (secret, secret.partition(" ")[2].strip()):
                text = text.replace(part, "***") if part else text
        return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())

    def _quoted(self, text: str) -> str:
        """Return a server's words, redacted and cut to a short line."""
        line = self.redacted(text)
        return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}..."

    def _followed(self, url: str, location: str | None) -> str:
        old, new = urlsplit(url), urlsplit(urljoin(url, location or ""))
        same = (new.scheme, new.netloc) == (old.scheme, old.netloc)
        safer = (old.scheme, new.scheme) == ("http", "https") and new.hostname == old.hostname and "@" not in new.netloc
        if not location or not (same or safer):
            raise ModelError(
                f"The endpoint {self.shown} redirects to another server, which is not followed; "
                "give the address that answers"
            )
        return urlunsplit(new)

    def _count(self) -> None:
        if self.max_calls is not None and self.made >= self.max_calls:
            raise OptionError(
                f"The endpoint {self.shown} was called {self.made} times, repeated tries included, which is all that "
                "--max-calls (max_calls=...) allows; allow more, or audit fewer people"
            )
        self.made += 1

    def _progress(self) -> str:
        return f", after {self.answered} answered calls" if self.answered else ""

    def _credentials(self) -> str:
        """Return the value of the Authorization header: read when it is needed, kept nowhere."""
        if self.auth_env is None:
            return ""
        value = os.environ.get(self.auth_env, "")
        if not value.strip():
            raise OptionError(
                f"The environment variable '{self.auth_env}' is not set; "
                "--auth-env (auth_env=...) names the one that holds the Authorization header"
            )
        if not (value.isascii() and value.isprintable()):
            raise OptionError(
                f"The environment variable '{self.auth_env}' holds characters that cannot stand in a header; "
                "it must be one line of plain text, such as 'Bearer ...'"
            )
        return value


class _NothingThereError(ModelError):
    """An address at which the server has nothing."""


class _RefusedError(ModelError):
    """A request that the server did not like."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Leaves redirects to us: the standard handler would follow them to any host."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        """Return nothing: the redirect is raised as an error with its status."""


def check_url(url: str) -> SplitResult:
    """Return the parts of an http or https URL without a user name, or say what is wrong with it."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise OptionError("The URL of the model cannot be read; write it as https://host:port/path") from None
    if parts.scheme not in ("http", "https"):
        raise OptionError(f"The URL of the model begins with '{parts.scheme}:'; only http and https are known")
    if "@" in parts.netloc:
        raise OptionError(
            "The URL of the model holds a user name or password; take it out and put the Authorization header in an "
            "environment variable that --auth-env (auth_env=...) names"
        )
    strange = any(not letter.isprintable() or letter.isspace() or not letter.isascii() for letter in url)
    if not parts.hostname or port == 0 or strange:
        raise OptionError("The URL of the model has no host or strange characters; write it as https://host:port/path")
    return parts


def without_secrets(parts: SplitResult) -> str:
    """Return a URL as it may be shown: without the query, in which keys may stand."""
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _check_numbers(*, timeout: float, retries: int, max_calls: int | None, pause: float) -> None:
    if not (timeout > 0 and math.isfinite(timeout)):
        raise OptionError(f"timeout is {timeout}; expected seconds above 0")
    if retries < 0:
        raise OptionError(f"retries is {retries}; expected at least 0")
    if max_calls is not None and max_calls < 1:
        raise OptionError(f"max_calls is {max_calls}; expected at least 1")
    if not (pause >= 0 and math.isfinite(pause)):
        raise OptionError(f"pause is {pause}; expected seconds of at least 0")


def _seconds(retry_after: str | None) -> float:
    """Return the seconds a server asks to wait; 0 where it names none (or a date)."""
    return float(retry_after) if retry_after and retry_after.isascii() and retry_after.isdigit() else 0.0


def _plain(value: Any) -> Any:
    """Return a NumPy scalar as the Python value it holds, anything else as text."""
    return value.item() if hasattr(value, "item") else str(value)
