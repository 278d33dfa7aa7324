import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairfox.errors import FileError
from fairfox.models import intact
from fairfox.models.intact import check_catboost, check_lightgbm, check_xgboost

X = np.random.default_rng(0).normal(size=(80, 3))
Y = (X[:, 0] > 0).astype(int)


def save_xgboost(path: Path) -> None:
    pytest.importorskip("xgboost").XGBClassifier(n_estimators=4, n_jobs=1).fit(X, Y).save_model(path)


def save_lightgbm(path: Path) -> None:
    model = pytest.importorskip("lightgbm").LGBMClassifier(n_estimators=4, n_jobs=1, verbose=-1)
    model.fit(X, Y).booster_.save_model(path)


def save_catboost(path: Path) -> None:
    model = pytest.importorskip("catboost").CatBoostClassifier(iterations=4, verbose=0, allow_writing_files=False)
    model.fit(X, Y).save_model(str(path), format=path.suffix[1:])


FILES: dict[str, tuple[Callable[[Path], Any], Callable[[Path], None]]] = {
    "xgboost.json": (check_xgboost, save_xgboost),
    "xgboost.ubj": (check_xgboost, save_xgboost),
    "lightgbm.txt": (check_lightgbm, save_lightgbm),
    "catboost.cbm": (check_catboost, save_catboost),
    "catboost.json": (check_catboost, save_catboost),
}


@pytest.fixture(params=list(FILES))
def saved(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Callable[[Path], Any], Path]:
    check, save = FILES[request.param]
    save(tmp_path / request.param)
    return check, tmp_path / request.param


def test_a_whole_file_passes(saved: tuple[Callable[[Path], Any], Path]):
    check, path = saved
    assert check(path) in (None, path.suffix[1:])


def test_a_file_cut_short_is_refused_wherever_it_was_cut(
    saved: tuple[Callable[[Path], Any], Path], monkeypatch: pytest.MonkeyPatch
):
    check, path = saved
    whole = path.read_bytes()
    core = 8 + int.from_bytes(whole[4:8], "little")  # of a cbm; the library itself checks what follows
    whole = whole[:core] if path.suffix == ".cbm" else whole.rstrip()
    monkeypatch.setattr(intact, "_try_out", lambda *_: None)  # found by the form alone
    cuts = range(0, len(whole), len(whole) // 150)
    for cut in cuts:
        path.write_bytes(whole[:cut])
        if path.suffix == ".txt" and whole[:cut].rstrip().endswith(b"end of parameters"):
            continue  # what LightGBM writes without Python
        with pytest.raises(FileError, match=rf"^'{path.name}' [^\n]+; [^\n]+$"):
            check(path)


def test_a_file_cut_in_half_is_refused_in_one_sentence(saved: tuple[Callable[[Path], Any], Path]):
    check, path = saved
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(FileError, match=rf"^'{path.name}' is damaged or cut short: [^\n]+; copy or save it again$"):
        check(path)


def test_an_empty_or_missing_file_is_refused(tmp_path: Path):
    (tmp_path / "model.cbm").touch()
    with pytest.raises(FileError, match=r"'model.cbm' is empty; give a model file"):
        check_catboost(tmp_path / "model.cbm")
    with pytest.raises(FileError, match=r"missing.json' cannot be read: No such file"):
        check_xgboost(tmp_path / "missing.json")


def test_trees_that_point_outside_themselves_do_not_end_the_process(tmp_path: Path):
    path = tmp_path / "xgboost.json"
    save_xgboost(path)
    model = json.loads(path.read_text())
    for tree in model["learner"]["gradient_booster"]["model"]["trees"]:
        tree["left_children"][0] = tree["right_children"][0] = 10**9
    path.write_text(json.dumps(model))
    with pytest.raises(FileError, match=r"^'xgboost.json' is damaged or cut short: xgboost [^\n]+; copy or save it"):
        check_xgboost(path)


def test_trees_of_lightgbm_that_lost_a_number_do_not_end_the_process(tmp_path: Path):
    path = tmp_path / "lightgbm.txt"
    save_lightgbm(path)
    text = path.read_text()
    line = next(line for line in text.splitlines() if line.startswith("leaf_value="))
    path.write_text(text.replace(line, "leaf_value=" + "x" * (len(line) - 11), 1))
    with pytest.raises(FileError, match=r"^'lightgbm.txt' is damaged or cut short: lightgbm [^\n]+; copy or save it"):
        check_lightgbm(path)


def test_a_file_on_which_a_library_never_ends_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "catboost.cbm"
    save_catboost(path)
    monkeypatch.setattr(intact, "_SECONDS", 0.01)
    with pytest.raises(FileError, match="catboost does not come to an end with it"):
        check_catboost(path)


def test_a_trial_that_cannot_start_says_nothing_about_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "catboost.cbm"
    save_catboost(path)
    monkeypatch.setattr(intact, "_TRIAL", "import a_package_that_is_not_there")
    assert check_catboost(path) == "cbm"
    monkeypatch.setattr("sys.executable", "")
    assert check_catboost(path) == "cbm"


def ubjson(body: bytes) -> bytes:
    return b"{i\x07learner" + body + b"}"


@pytest.mark.parametrize(
    "body",
    [
        b"Z",
        b"T",
        b"i\x05",
        b"Si\x03abc",
        b"d" + struct.pack(">f", 1.5),
        b"D" + bytes(8),
        b"[]",
        b"[i\x01Si\x01ai\x02]",
        b"[#i\x02TF",
        b"[$d#i\x02" + bytes(8),
        b"[$U#L" + (3).to_bytes(8, "big") + b"abc",
        b"{}",
        b"{i\x01a{i\x01b[]}}",
        b"{#i\x01i\x01aZ",
    ],
)
def test_ubjson_is_walked_to_its_end(body: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(intact, "_try_out", lambda *_: None)
    path = tmp_path / "model.ubj"
    path.write_bytes(ubjson(body))
    check_xgboost(path)
    for cut in range(1, len(ubjson(body))):
        path.write_bytes(ubjson(body)[:cut])
        with pytest.raises(FileError):
            check_xgboost(path)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"[$d#L" + (2**40).to_bytes(8, "big"), "it ends too early"),  # claims four terabytes
        (b"Si\xff", "it ends too early"),
        (b"q", "found 'q' where a value should be"),
        (b"SS", "found 'S' where a length should be"),
        (b"[$[#i\x01", "found an array of no known kind"),
        (b"[" * 100_000, "recursion"),
        (b"Z}Z", "something follows its model"),
    ],
)
def test_what_is_no_ubjson_is_refused(body: bytes, message: str, tmp_path: Path):
    path = tmp_path / "model.ubj"
    path.write_bytes(ubjson(body))
    with pytest.raises(FileError, match=f"'model.ubj' is damaged or cut short: .*{message}"):
        check_xgboost(path)
