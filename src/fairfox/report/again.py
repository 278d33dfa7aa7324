"""The page of a result again, from the report.json in its folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jinja2 import TemplateError

from fairfox.errors import FileError
from fairfox.report.html import render
from fairfox.report.pair import PAIR_VERSION
from fairfox.report.pair_files import render_pair
from fairfox.report.view import VIEW_VERSION

_ANEW = "make the result anew"
_DAMAGES = (LookupError, TypeError, ValueError, AttributeError, TemplateError)
_PAGES: dict[str, tuple[int, Callable[[Any], str]]] = {  # by kind: the version that is understood, and who renders it
    "audit": (VIEW_VERSION, render),
    "compare": (PAIR_VERSION, render_pair),
    "drift": (PAIR_VERSION, render_pair),
}


def page_again(folder: str | Path) -> str:
    """Return the page of an audit, a comparison or a drift from what its folder holds, without model and table."""
    path = Path(folder) / "report.json"
    if not path.is_file():
        raise FileError(
            f"There is no file '{path}'; give a folder that `fairfox audit`, `compare` or `drift` wrote, or that of a "
            "model of the demo"
        )
    shown = _read(path)
    kind, version = shown.get("kind"), shown.get("view_version")
    if not isinstance(kind, str) or kind not in _PAGES or type(version) is not int:
        raise FileError(f"'{path}' is not what fairfox writes: it is of kind {kind!r}, version {version!r}; {_ANEW}")
    known, render_kind = _PAGES[kind]
    if version > known:
        raise FileError(
            f"'{path}' has version {version} and this fairfox reads up to {known}; update fairfox, or {_ANEW}"
        )
    try:
        return render_kind(shown)
    except _DAMAGES as error:
        raise FileError(f"'{path}' is damaged ({_line(error)}); {_ANEW}") from error


def _read(path: Path) -> dict[str, Any]:
    try:
        shown = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise FileError(f"'{path}' cannot be read ({_line(error)}); {_ANEW}") from error
    if not isinstance(shown, dict):
        raise FileError(f"'{path}' is not what fairfox writes: it holds a {type(shown).__name__}; {_ANEW}")
    return shown


def _line(error: BaseException) -> str:
    """Return what an error says, on one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
