"""Whether a file of boosted trees is whole, found out before a library reads it.

The libraries are written in C++ and trust their files: a few bytes lost or changed may end the whole process. So the
form of a file is checked here, and a process of its own tries it first.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fairfox.errors import FileError
from fairfox.extras import require

_SECONDS = 20  # for the trial, and one more for each megabyte
_REFUSED = 3  # exit code of a trial in which the library gave an error of its own


def check_xgboost(path: Path) -> None:
    """Raise a FileError unless this is a whole XGBoost model in JSON or UBJSON."""
    data = _content(path)
    if not data.startswith(b"{"):
        raise FileError(
            f"'{path.name}' is no XGBoost model in JSON or UBJSON; the old binary format is not read: "
            "save the model again with save_model('model.json')"
        )
    binary = data[1:2] in b"iUIlL"  # a UBJSON object begins with the length of its first key
    keys = _ubjson_keys(path, data) if binary else set(_json(path, data))
    if "learner" not in keys:
        raise FileError(f"'{path.name}' holds no XGBoost model; expected what its save_model writes")
    _try_out("xgboost", path, "json")


def check_lightgbm(path: Path) -> None:
    """Raise a FileError unless this is a whole LightGBM model as text."""
    data = _content(path)
    if not data.startswith(b"tree\n"):
        raise FileError(f"'{path.name}' is no LightGBM model as text; expected what its save_model writes")
    head = data.partition(b"\nTree=0\n")[0]
    sizes = next((line[11:].split() for line in head.splitlines() if line.startswith(b"tree_sizes=")), [])
    place = len(head) + 1
    for number, size in enumerate(sizes):
        if not size.isdigit() or not data.startswith(b"Tree=%d\n" % number, place):
            raise _damaged(path, f"tree {number} is not where its header says")
        place += int(size)
    if b"\nend of trees" not in data[place - 1 :]:
        raise _damaged(path, "its trees do not end")
    _, ended, levels = data.partition(b"\nend of parameters")
    levels = levels.strip()
    if not ended or not b"pandas_categorical:".startswith(levels[:19]):
        raise _damaged(path, "its parameters do not end")
    if levels:
        _json(path, levels[19:])
    _try_out("lightgbm", path, "text")


def check_catboost(path: Path) -> str:
    """Return the format of a whole CatBoost model, "cbm" or "json"; raise a FileError for anything else."""
    data = _content(path)
    if data.startswith(b"CBM1"):
        if len(data) < 8 + int.from_bytes(data[4:8], "little"):
            raise _damaged(path, "it is shorter than its header says")
        form = "cbm"
    elif data.lstrip().startswith(b"{"):
        if not {"features_info", "model_info"} <= set(_json(path, data)):
            raise FileError(f"'{path.name}' holds no CatBoost model; expected what its save_model writes")
        form = "json"
    else:
        raise FileError(f"'{path.name}' is no CatBoost model in cbm or JSON; expected what its save_model writes")
    _try_out("catboost", path, form)
    return form


def _content(path: Path) -> bytes:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise FileError(f"'{path}' cannot be read: {error.strerror}") from error
    if not data:
        raise FileError(f"'{path.name}' is empty; give a model file")
    return data


def _damaged(path: Path, why: str) -> FileError:
    return FileError(f"'{path.name}' is damaged or cut short: {why}; copy or save it again")


def _json(path: Path, data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _damaged(path, f"its JSON does not parse ({error})") from error


# --- UBJSON --------------------------------------------------------------------------------------------------------

_NUMBERS = {"i": 1, "U": 1, "I": 2, "l": 4, "L": 8}  # bytes of whole numbers
_FIXED = {**_NUMBERS, "d": 4, "D": 8, "C": 1, "Z": 0, "N": 0, "T": 0, "F": 0}


def _ubjson_keys(path: Path, data: bytes) -> set[str]:
    """Return the keys of a UBJSON object that ends where the file ends."""
    try:
        reader = _Ubjson(data)
        keys = reader.object_keys()
    except (EOFError, ValueError, RecursionError) as error:
        raise _damaged(path, f"its UBJSON does not parse ({error})") from error
    if reader.place != len(data):
        raise _damaged(path, "something follows its model")
    return keys


class _Ubjson:
    """Walks over UBJSON without keeping anything but the keys of the outermost object."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.place = 1  # after the first brace

    def object_keys(self) -> set[str]:
        keys = set()

        def member() -> None:
            keys.add(self._take(self._number()).decode())
            self._skip(self._mark())

        self._items("}", member)
        return keys

    def _take(self, count: int) -> bytes:
        start, self.place = self.place, self.place + count
        if count < 0 or self.place > len(self.data):
            raise EOFError("it ends too early")
        return self.data[start : self.place]

    def _mark(self) -> str:
        return self._take(1).decode("latin-1")

    def _number(self) -> int:
        mark = self._mark()
        if mark not in _NUMBERS:
            raise ValueError(f"found {mark!r} where a length should be")
        return int.from_bytes(self._take(_NUMBERS[mark]), "big", signed=mark != "U")

    def _skip(self, mark: str) -> None:
        if mark in _FIXED:
            self._take(_FIXED[mark])
        elif mark in ("S", "H"):
            self._take(self._number())
        elif mark == "{":
            self.object_keys()
        elif mark == "[":
            self._skip_array()
        else:
            raise ValueError(f"found {mark!r} where a value should be")

    def _skip_array(self) -> None:
        if self.data[self.place : self.place + 1] != b"$":
            return self._items("]", lambda: self._skip(self._mark()))
        self._take(1)
        kind = self._mark()
        if self._mark() != "#" or kind not in _FIXED:
            raise ValueError("found an array of no known kind")
        self._take(self._number() * _FIXED[kind])
        return None

    def _items(self, end: str, item: Callable[[], None]) -> None:
        """Walk over items, as many as are declared or else up to the end mark."""
        if self.data[self.place : self.place + 1] == b"#":
            self._take(1)
            for _ in range(self._number()):
                item()
            return
        while self.data[self.place : self.place + 1] != end.encode():
            item()
        self._take(1)


# --- a trial in a process of its own -------------------------------------------------------------------------------

_TRIAL = """
import sys
import numpy as np
library, path, form, memory = sys.argv[1:]
package = __import__(library)
try:
    import resource
    resource.setrlimit(resource.RLIMIT_AS, (int(memory), resource.getrlimit(resource.RLIMIT_AS)[1]))
except (ImportError, ValueError, OSError):
    pass
rows = np.array([0.0, 1e9, -1e9, np.nan])[:, None]
try:
    if library == "xgboost":
        model = package.Booster(model_file=path)
        width = model.num_features()
        model.predict(package.DMatrix(np.repeat(rows, width, axis=1)), validate_features=False)
        model.save_config()
    elif library == "lightgbm":
        model = package.Booster(model_file=path)
        model.predict(np.repeat(rows, model.num_feature(), axis=1))
        model.model_to_string(num_iteration=1)
    else:
        model = package.CatBoost().load_model(path, format=form)
        special = {*model.get_text_feature_indices(), *model.get_embedding_feature_indices()}
        coded = set(model.get_cat_feature_indices())
        width = len(model.feature_names_)
        if not special:
            model.predict([["0" if j in coded else v for j in range(width)] for v in rows[:, 0].tolist()])
        model.get_all_params()
except Exception as error:
    lines = [line for line in str(error).splitlines() if line] or [type(error).__name__]
    sys.stdout.write("\\n" + lines[0])
    sys.stdout.flush()
    sys.exit(3)
"""


def _try_out(library: str, path: Path, form: str) -> None:
    """Raise a FileError when the library fails on a file, or does not survive it, in a process of its own."""
    require(library)
    if not sys.executable:  # Python inside another program
        return
    size = path.stat().st_size
    command = [sys.executable, "-P", "-c", _TRIAL, library, os.fspath(path), form, str(16 * 2**30 + 64 * size)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            command, capture_output=True, env=environment, timeout=_SECONDS + size / 2**20, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise _damaged(path, f"{library} does not come to an end with it") from error
    if done.returncode == _REFUSED:
        words = done.stdout.decode(errors="replace").rsplit("\n", 1)[-1].strip().rstrip(".")
        raise _damaged(path, f"{library} says: {words}")
    if done.returncode not in (0, 1):  # 1: the trial itself could not start, which says nothing about the file
        raise _damaged(path, f"{library} does not survive reading it")
