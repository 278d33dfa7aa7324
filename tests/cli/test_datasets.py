"""`fairfox datasets`: the list, the fetching, one sentence on errors."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest
from click.testing import CliRunner
from servers import Reply, free_address, serving
from support import ended, refusal_of

from fairfox.cli.main import cli
from fairfox.data.catalog import DATASETS


def run(*arguments: str):
    return CliRunner().invoke(cli, ["datasets", *arguments], env={"COLUMNS": "200"})


def served(monkeypatch: pytest.MonkeyPatch, root: str, content: bytes = b"rows") -> None:
    """Let the file of german come from a server on this machine."""
    german = DATASETS["german"]
    file = replace(german.files[0], address=f"{root}/g", sha256=sha256(content).hexdigest())
    monkeypatch.setitem(DATASETS, "german", replace(german, files=(file,)))


def test_the_list_says_where_each_dataset_is(home: Path):
    (home / "law_data.csv").write_text("")
    done = ended(run(), 0)
    lines = {line.split("│")[1].strip(): line for line in done.stdout.splitlines() if line.startswith("│")}
    assert list(lines) == list(DATASETS)
    assert "in FAIRFOX_DATA" in lines["law"]
    assert "must be downloaded by hand" in lines["chicago"]
    assert "can be downloaded" in lines["adult"]


def test_a_dataset_is_fetched_into_the_cache_and_described(home: Path, monkeypatch: pytest.MonkeyPatch):
    with serving(lambda asked: Reply(b"rows")) as server:
        served(monkeypatch, server.root)
        done = ended(run("german"), 0)
    assert done.stdout == f"{home / 'cache' / 'german.data'}\n"
    assert (home / "cache" / "german.data").read_bytes() == b"rows"
    assert "What is wrong with it: sex is part of marital status" in done.stderr
    assert "Args:" not in done.stderr
    assert "from fairfox.data.datasets import load_german" in done.stderr
    monkeypatch.delenv("FAIRFOX_DATA")
    assert "in the cache" in run().stdout


def test_files_in_the_data_home_are_named_in_order(home: Path):
    (home / "adult.data.gz").write_bytes(b"")
    (home / "adult.test.gz").write_bytes(b"")
    (home / "law_data.csv.gz").write_bytes(b"")
    done = run("law", "adult")
    assert done.stdout.split() == [str(home / name) for name in ("law_data.csv.gz", "adult.data.gz", "adult.test.gz")]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("chicago", "'chicago-ssl-clean.csv' is not on this machine and cannot be downloaded from here; get the CSV"),
        ("adlt", "There is no dataset 'adlt'. Did you mean 'adult'?"),
        ("german", "'german.data' is not on this machine and could not be downloaded from http://127.0.0.1"),
    ],
)
def test_errors_are_one_sentence_and_exit_code_2(name: str, message: str, home: Path, monkeypatch: pytest.MonkeyPatch):
    served(monkeypatch, free_address())
    assert refusal_of(run(name)).startswith(f"Error: {message}")


def test_nothing_is_fetched_when_one_name_is_wrong(home: Path, monkeypatch: pytest.MonkeyPatch):
    with serving(lambda asked: Reply(b"rows")) as server:
        served(monkeypatch, server.root)
        assert run("german", "nothing").exit_code == 2
    assert server.asked == []
