"""Every code block of the README and the docs runs, and prints what the page shows."""

from __future__ import annotations

import json
import os
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from shutil import copy
from unittest.mock import patch

import pyarrow.csv
import pytest
import torch
import yaml
from page_blocks import PAGES, ROOT, Block, Session, blocks, commands, differences, same

from fairfox.benchmark.worlds import LENDING

BLOCKS = {page: list(blocks(page)) for page in PAGES}
FIRST = "docs/get_started/first_audit.md"
# These have tests of their own, pytest.md in tests/test_pytest_plugin.py
CLOSER = {f"docs/{page}.md" for page in ("how_to/own_test", "how_to/ci", "how_to/pytest", "reference/files")}
# where 200 and 500 people are too few
PEOPLE = {"docs/how_to/compare.md": 400, "docs/how_to/failed.md": 2000, "docs/how_to/reuse.md": 800}
PRINTED = {  # beside what the pages show
    "docs/how_to/compare.md": ("Verdict: B is fairer.", "\ncannot tell\n"),
    "docs/how_to/reuse.md": ("fairfox audit of 300 people for sex, test rank",),
}
PARSERS = {"toml": tomllib.loads, "yaml": yaml.safe_load, "json": json.loads}
# Commands that are shown and not run here, and why
LEFT_OUT = {
    "fairfox demo": "tests/test_demo.py runs it, and the folder has the people it writes",
    "make": ".ci/run runs lint, docs, test, test-browser and test-engines, and tests/test_demo.py what demo does",
    "pip install": "it changes the environment the tests run in",
    "python experiments/": "hours; tests/research runs each of them on few people",
}
# Blocks with the comment `<!-- not run: reason -->`, as the pages give the reasons
NOT_RUN = {
    "docs/reference/datasets.md": ["it may have to download a table"],
    "docs/how_to/models.md": ["there is no such server"],
    "docs/how_to/cluster.md": ["tests/engines runs it, on engines of this machine"] * 2,
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield a folder, the current one, with people as `fairfox demo` writes them and the model of the first audit."""
    (tmp_path / "demo-report").mkdir()
    (model,) = (block for block in BLOCKS[FIRST] if block.file == "model.py")
    (tmp_path / "model.py").write_text(model.text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "400")  # lines are not broken
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    before = set(sys.modules)
    with patch.dict(os.environ):  # a page may set variables
        yield tmp_path
    for name in set(sys.modules) - before:
        if str(tmp_path) in (getattr(sys.modules[name], "__file__", None) or ""):
            del sys.modules[name]  # another page may have a file of this name


@pytest.mark.parametrize("page", [page for page in PAGES if BLOCKS[page] and page not in CLOSER])
def test_every_block_of_the_page_runs_and_prints_what_is_shown(page: str, folder: Path):
    printed = read(page, Session(folder))
    assert [line for line in PRINTED.get(page, ()) if line not in printed] == []


def test_a_test_of_ones_own_is_benchmarked_in_three_lines_and_does_better_than_chance(folder: Path):
    printed = read("docs/how_to/own_test.md", Session(folder))
    (judging,) = (block.text for block in BLOCKS["docs/how_to/own_test.md"] if "judge(MeanShift()" in block.text)
    assert len([line for line in judging.splitlines() if line]) == 3
    found = re.search(r"^AP (0\.\d\d|1\.00) \(by chance (0\.\d\d)\), rho (-?\d\.\d\d)$", printed, re.MULTILINE)
    assert found, printed
    ap, chance, _ = map(float, found.groups())
    assert 0.2 < chance <= 0.5
    assert ap > chance + 0.1, printed
    assert list(folder.glob("fused*"))  # the generator that the page saves


def test_the_audit_of_the_page_on_build_servers_fails_and_its_summary_has_the_schema(folder: Path):
    session = Session(folder)
    assert read("docs/how_to/ci.md", session).count("Exit code 1: ") == 1
    copy(ROOT / "docs/schemas/audit.schema.json", folder)
    assert "\n2 500 fails\n" in "\n" + read("docs/reference/files.md", session)


def test_the_workflow_of_the_page_on_build_servers_is_the_example_and_uploads_nobody_s_row():
    (shown,) = (block.text for block in BLOCKS["docs/how_to/ci.md"] if block.language == "yaml")
    assert shown == (Path(__file__).parents[2] / "examples/fairness.yml").read_text(encoding="utf-8")
    *_, upload = yaml.safe_load(shown)["jobs"]["audit"]["steps"]
    assert upload["with"]["path"].split() == [f"report/{name}" for name in ("summary.json", "summary.md", "junit.xml")]


def read(page: str, session: Session) -> str:
    """Follow all blocks of a page, and return what they print; what the first audit has too is run there."""
    for name, size in (("people.csv", 200), ("demo-report/people.csv", 500)):
        pyarrow.csv.write_csv(LENDING.sample(PEOPLE.get(page, size), seed=1).table, session.folder / name)
    before = len(session.said)
    elsewhere = "".join(block.text for block in BLOCKS[FIRST]) if page == "README.md" else ""
    with torch.random.fork_rng():
        for block in BLOCKS[page]:
            if "not run" not in block.marks and block.text not in elsewhere:
                follow(session, block)
    return "".join(session.said[before:])


def follow(session: Session, block: Block) -> None:
    """Do what a reader does with a block."""
    where = f"{block.page}, line {block.line}"
    if block.language == "python":
        session.execute(block)
    elif block.language == "console":
        for words, shown in commands(block.text):
            if not any(" ".join(words).startswith(left) for left in LEFT_OUT):
                session.command(words)
                assert differences(shown, session.printed) == [], f"{where} shows other lines than\n{session.printed}"
    elif block.language == "text":
        shown = block.text.splitlines()
        assert differences(shown, session.printed) == [], f"{where} shows other lines than\n{session.printed}"
    elif not block.language.startswith("{"):  # what Sphinx is told
        assert PARSERS[block.language](block.text), where
        if block.file is not None:
            (session.folder / block.file).write_text(block.text, encoding="utf-8")


@pytest.mark.parametrize("page", PAGES)
def test_every_block_is_of_a_kind_that_is_run_or_read(page: str):
    known = {"python", "console", "text", *PARSERS}
    odd = [b for b in BLOCKS[page] if b.language not in known and not re.fullmatch(r"\{[\w-]+\}.*", b.language)]
    assert [(b.line, b.language) for b in odd] == []
    assert all(block.text.startswith("$ ") for block in BLOCKS[page] if block.language == "console")


def test_what_is_not_run_is_known_and_says_why():
    found = {page: [b.marks["not run"] for b in each if "not run" in b.marks] for page, each in BLOCKS.items()}
    assert {page: reasons for page, reasons in found.items() if reasons} == NOT_RUN
    assert all(reason for reasons in NOT_RUN.values() for reason in reasons)


def test_lines_that_are_shown_are_held_against_what_was_printed():
    printed = "7 of 10 people (70.0 %)\nfails\nNext: nothing\n"
    assert differences(["7 of 10 people (70.1 %)", "...", "Next: nothing"], printed) == []
    assert differences(["9 of 10 people (70.1 %)"], printed) == ["9 of 10 people (70.1 %)"]
    assert differences(["7 of 10 people (72.0 %)"], printed) == ["7 of 10 people (72.0 %)"]
    assert differences(["Next: nothing", "fails"], printed) == ["fails"]
    assert same("1,540 people", "1,541 people")
    assert not same("1,540 people", "1,540 persons")


def test_a_command_may_go_on_in_the_next_line_and_be_followed_by_what_it_prints():
    found = list(commands("$ fairfox plan \\\n    --effect 0.1\nIt takes 5\n$ make test   # all of it\n"))
    assert found == [(["fairfox", "plan", "--effect", "0.1"], ["It takes 5"]), (["make", "test"], [])]
