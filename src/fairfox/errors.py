"""What can go wrong, each kind a FairfoxError and also the builtin it resembles; optional packages."""

from __future__ import annotations

import re
from functools import cache
from hashlib import pbkdf2_hmac
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType

_URL = re.compile(r"\b([a-z][a-z0-9+.-]+:/{1,2})([^/\s'\"?#]*@)?([^\s'\"?#]*)(\?[^\s'\"#]*)?", re.IGNORECASE)


class FairfoxError(Exception):
    """Bad input or an impossible request; the message says what was found, expected, and what to do."""

    def __str__(self) -> str:
        return redacted(super().__str__())


class DataError(FairfoxError, ValueError):
    """A table that cannot be audited as it is."""


class ColumnError(FairfoxError, LookupError):
    """A column that is not in the table."""


class FileError(FairfoxError, OSError):
    """A file that is missing, empty or damaged."""


class ShapeError(FairfoxError, ValueError):
    """Arrays whose sizes do not fit together."""


class ModelError(FairfoxError, RuntimeError):
    """A target model that failed, or returned what cannot be a prediction."""


class UntrustedModelError(FairfoxError, PermissionError):
    """A model file that could run code when loaded."""


class OptionError(FairfoxError, ValueError):
    """An option with a value that is not allowed."""


class NotFittedError(FairfoxError, RuntimeError):
    """Something was used before `fit`."""


class MissingExtraError(FairfoxError, ImportError):
    """An optional package is not installed."""


def did_you_mean(name: str, known: list[str]) -> str:
    """Return " Did you mean 'x'?" for the closest known name, else the known names."""
    from difflib import get_close_matches

    folded = {k.casefold(): k for k in known}
    part = [k for k in folded if len(name) > 2 and name.casefold() in k]
    close = get_close_matches(name.casefold(), list(folded), n=1, cutoff=0.6) or part
    if not known:
        return ""
    if close:
        return f" Did you mean '{folded[close[0]]}'?"
    shown = ", ".join(known[:12]) + (", ..." if len(known) > 12 else ".")
    return f" Choose from: {shown}"


def redacted(text: str) -> str:
    """Return a text without the users and queries of its URLs, which may hold keys.

    Example:
        >>> redacted("no file at s3://me:pw@bucket/x?key=1; check it")
        'no file at s3://***@bucket/x?*** check it'
    """
    return _URL.sub(lambda url: f"{url[1]}{(url[2] and '***@') or ''}{url[3]}{(url[4] and '?***') or ''}", text)


@cache
def url_digest(url: str) -> str:
    """Return a salted, slow digest that differs where the keys in two URLs differ; "" for a URL without keys."""
    shown = redacted(url)
    return "" if shown == url else pbkdf2_hmac("sha256", url.encode(), shown.encode(), 100_000).hex()


def printable(text: str) -> str:
    """Return a text that is safe to print: control characters and line breaks are escaped.

    Example:
        >>> printable("a\\x1b[31mb")
        'a\\\\x1b[31mb'
    """
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message without its full stop; the error's type where it has no message."""
    return (str(error) or type(error).__name__).splitlines()[0].rstrip(". ")


def require(package: str, *, extra: str | None = None, why: str = "") -> ModuleType:
    """Return the imported package, or raise with the command that installs it."""
    try:
        return import_module(package)
    except ImportError as error:
        reason = f" {why}" if why else ""
        raise MissingExtraError(
            f"The package '{package}' is needed{reason} but is not installed; "
            f"run: pip install 'fairfox[{extra or package}]'"
        ) from error


def installed_versions(*packages: str) -> dict[str, str]:
    """Return the versions of packages by name, or "not installed"."""
    out = {}
    for package in packages:
        try:
            out[package] = version(package)
        except PackageNotFoundError:
            out[package] = "not installed"
    return out
