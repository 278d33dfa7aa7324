"""The terminal: nothing from outside steers it, nothing that becomes of it changes a result, and signals end a command.

Commands run as processes here, as a shell would run them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from fairfox.benchmark.worlds import LENDING
from fairfox.cli.main import cli
from fairfox.fairtests.storage import save_test
from tests.support import fitted_on, refusal_of

pytestmark = [pytest.mark.brief, pytest.mark.usefixtures("undrawn")]

COMMAND = [sys.executable, "-c", "import sys; sys.argv[0] = 'fairfox'; from fairfox.cli.main import main; main()"]
MODEL = """
import time
from pathlib import Path

def predict(table):
    return table["income"] / 100_000

def slow(table):
    Path("started").touch()
    time.sleep(60)
"""
ESCAPE = "\x1b[2J\x1b]0;evil\x07"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    pq.write_table(LENDING.sample(80, seed=0).table.rename_columns({"sex": "séx"}), "people.parquet")
    (tmp_path / "model.py").write_text(MODEL)
    return tmp_path


FEW = ["--refits", "1", "--folds", "2"]
AUDIT = ["audit", "model.py:predict", "people.parquet", "-c", "séx", "--columns", "income,debt_ratio", *FEW]


def run(arguments: list[str], **given: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], check=False, text=True, **given)  # type: ignore[call-overload]


# --- text from outside ---------------------------------------------------------------------------------------------


def test_names_and_values_from_a_table_do_not_steer_the_terminal(folder: Path):
    people = LENDING.sample(80, seed=0).table.select(["sex", "income", "sector"])
    sector = [f"{word}{ESCAPE}" for word in people["sector"].to_pylist()]
    table, test = f"peo{ESCAPE}ple.parquet", f"te{ESCAPE}st.fox"
    named = people.set_column(2, f"sec{ESCAPE}tor", [sector]).rename_columns({"sex": f"s{ESCAPE}x"})
    pq.write_table(named, table)
    protected = ["-c", f"s{ESCAPE}x", "-c", f"sec{ESCAPE}tor", "--refits", "1"]
    code = ["model.py:predict", table]
    commands = [
        ["audit", *code, *protected, "--columns", "income"],
        ["audit", *code, "-c", "sex"],
        ["audit", *code, *protected, "--drop", f"n{ESCAPE}"],
        ["audit", "model.py:predict", f"no{ESCAPE}.csv", "-c", "sex"],
        ["audit", f"no{ESCAPE}", table, "-c", "sex"],
        ["fit", table, *protected, "--columns", "income", "-o", test],
        ["score", test, *code],
        ["compare", "model.py:predict", *code, *protected, "--columns", "income"],
        ["report", f"fairfox{ESCAPE}"],
        [f"au{ESCAPE}dit"],
    ]
    for command in commands:
        done = CliRunner().invoke(cli, command, color=True)
        assert done.exception is None or isinstance(done.exception, SystemExit), done.output
        shown = (done.stdout + done.stderr).replace("\x1b[1m", "").replace("\x1b[0m", "")  # our own bold words
        assert all(letter.isprintable() or letter == "\n" for letter in shown), command
        assert "\\x1b[2J" in shown


# --- streams -------------------------------------------------------------------------------------------------------


def test_neither_the_locale_nor_a_full_disk_behind_stdout_changes_what_is_found(folder: Path):
    plain = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    whole = run([*AUDIT, "--out", "résult"], capture_output=True, env={**plain, "PYTHONIOENCODING": "ascii"})
    assert whole.returncode in (0, 1, 3)
    assert "s\\xe9x=Female" in whole.stdout
    assert (folder / "résult/summary.json").is_file()
    with Path("/dev/full").open("w") as full:
        done = run([*AUDIT, "--out", "résult"], stdout=full, stderr=subprocess.PIPE, env=plain)
    assert done.returncode == whole.returncode
    assert "Written: résult" in done.stderr


def test_a_closed_stdout_is_no_error(folder: Path):
    closed = [*COMMAND[:2], f"import os; os.close(1); {COMMAND[2]}", "--help"]
    assert subprocess.run(closed, capture_output=True, check=False).returncode == 0
    with subprocess.Popen([*COMMAND, "audit", "--help"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


def test_a_name_that_is_too_long_is_one_sentence(folder: Path):
    long = "a" * 300
    for command in (
        ["audit", long, "people.parquet", "-c", "séx"],
        ["audit", f"{long}.py:predict", "people.parquet", "-c", "séx"],
        ["audit", "model.py:predict", f"{long}.csv", "-c", "séx"],
        [*AUDIT, "--out", long],
        ["fit", "people.parquet", "-c", "séx", "--refits", "1", "-o", long],
        ["score", long, "model.py:predict", "people.parquet"],
        ["compare", long, long],
        ["report", long],
    ):
        refusal_of(CliRunner().invoke(cli, command))


# --- signals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "command", "said"),
    [
        (signal.SIGINT, "audit", "Interrupted.\n"),
        (signal.SIGTERM, "score", "Stopped by a signal.\n"),
        (signal.SIGHUP, "fit", "The terminal was closed.\n"),
    ],
)
def test_a_signal_ends_a_command_in_a_sentence_and_leaves_nothing(
    folder: Path, number: signal.Signals, command: str, said: str
):
    people = pq.read_table("people.parquet")
    save_test(fitted_on(people, protected="séx", columns=["income"], refits=1), folder / "test.fox")
    os.mkfifo("pipe.csv")  # nobody writes to it, so that who reads it waits
    given = {
        "audit": ["model.py:slow", "people.parquet", "-c", "séx"],
        "score": ["test.fox", "model.py:slow", "people.parquet", "-o", "out", "--engine", "memory"],
        "fit": ["pipe.csv", "-c", "séx"],
    }[command]
    before = {path.name for path in folder.iterdir()}
    # under nohup, or in the background, the tests themselves ignore a signal, and a process would inherit that
    heard = f"import signal; signal.signal({int(number)}, signal.SIG_DFL); {COMMAND[2]}"
    with subprocess.Popen([*COMMAND[:2], heard, command, *given], stderr=subprocess.PIPE, text=True) as process:
        if command == "fit":
            writer = os.open("pipe.csv", os.O_WRONLY)  # returns once it is read
            time.sleep(0.2)
        while command != "fit" and not (folder / "started").exists():
            time.sleep(0.05)
        process.send_signal(number)
        _, stderr = process.communicate(timeout=30)
    if command == "fit":
        os.close(writer)
    assert (process.returncode, stderr) == (128 + number, said)
    assert {path.name for path in folder.iterdir()} - {"started", "__pycache__"} == before


# --- the working folder --------------------------------------------------------------------------------------------


def test_a_module_in_the_working_folder_does_not_take_the_place_of_a_library(folder: Path):
    (folder / "scipy.py").write_text(MODEL)
    (folder / "sklearn.py").write_text("raise RuntimeError('not the library')")
    script = folder / "bin" / "fairfox"
    script.parent.mkdir()
    script.write_text("from fairfox.cli.main import main\nmain()\n")  # as pip installs it

    def audited(model: str) -> tuple[int, str]:
        command = [sys.executable, str(script), "audit", model, *AUDIT[2:]]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, done.stderr

    assert audited("scipy.py:predict")[0] in (0, 1, 3)
    sentence = "'scipy' is installed and has no 'predict'; for your own file write scipy.py:predict"
    assert audited("scipy:predict") == (2, f"Error: {sentence}\n")
