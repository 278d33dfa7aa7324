"""The code blocks of the README and the docs, and what running a page takes."""

from __future__ import annotations

import io
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from click.testing import CliRunner

from fairfox.cli.main import cli

ROOT = Path(__file__).parents[1]
PAGES = ["README.md", *sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("docs/**/*.md"))]
MARKS = r"(?P<marks>(?:^<!-- [^\n]* -->\n)*)"
FENCE = re.compile(MARKS + r"^```(?P<language>[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
GENERATED = re.compile(r"<!-- results: .*?<!-- /results -->", re.DOTALL)  # other tests renew these
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")


class Block(NamedTuple):
    """A fenced block: where it is, what it holds, and what the comments just above it say."""

    page: str
    line: int
    language: str
    text: str
    marks: dict[str, str]

    @property
    def file(self) -> str | None:
        """The name under which the block is a file, from `<!-- example: model.py -->`; None where it is to be run."""
        name = self.marks.get("example", "")
        return name if "." in name else None


def blocks(page: str) -> Iterator[Block]:
    """Yield the blocks of a page, without what is generated."""
    content = GENERATED.sub(lambda found: "\n" * found[0].count("\n"), (ROOT / page).read_text(encoding="utf-8"))
    for found in FENCE.finditer(content):
        marks = dict(re.findall(r"<!-- ([\w ]+?): *(.*?) *-->", found["marks"]))
        line = content.count("\n", 0, found.start("language")) + 1
        yield Block(page, line, found["language"].strip(), found["text"], marks)


def commands(text: str) -> Iterator[tuple[list[str], list[str]]]:
    """Yield each command of a console block as its words, with the lines of output that are shown below it."""
    for part in re.split(r"^\$ ", text.replace("\\\n", " "), flags=re.MULTILINE)[1:]:
        command, *shown = part.rstrip("\n").split("\n")
        yield shlex.split(command, comments=True), shown


@dataclass
class Session:
    """A reader who follows pages in a folder: names that were given, and what blocks printed, one after the other."""

    folder: Path
    names: dict[str, Any] = field(default_factory=lambda: {"__name__": "__main__"})
    said: list[str] = field(default_factory=list)

    @property
    def printed(self) -> str:
        """What the last block printed that printed anything."""
        return self.said[-1] if self.said else ""

    def execute(self, block: Block) -> None:
        """Run a block of Python, or write it down where it is a file."""
        if block.file is not None:
            (self.folder / block.file).write_text(block.text, encoding="utf-8")
            return
        code = "\n" * block.line + block.text  # so that errors name the line of the page
        out = io.StringIO()
        with redirect_stdout(out):
            exec(compile(code, str(ROOT / block.page), "exec"), self.names)
        if out.getvalue():
            self.said.append(out.getvalue())

    def command(self, words: list[str]) -> None:
        """Run a command of fairfox in this process, another one in its own; a model may fail, no more."""
        if words[0] == "fairfox":
            done = CliRunner().invoke(cli, words[1:], catch_exceptions=False)
            code, said = done.exit_code, done.output
        else:
            ended = subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True, check=False)
            code, said = ended.returncode, ended.stdout + ended.stderr
        self.said.append(said)
        told = re.search(r"^Exit code (\d): ", said, re.MULTILINE)  # of an audit
        expected = int(told[1]) if told else int(words[0] == "pytest")  # the pages' tests have something to find
        assert code == expected, f"{shlex.join(words)} ended with {code}: {said}"


def differences(shown: list[str], printed: str) -> list[str]:
    """Return the lines that are shown and were not printed, in this order; `...` stands for any lines.

    Words have to be the same, and numbers within 2 % or one of their last digit: machines and versions
    round differently.
    """
    left = iter(printed.splitlines())
    return [line for line in shown if line.strip() not in ("", "...") and not any(same(line, one) for one in left)]


def same(shown: str, printed: str) -> bool:
    """Return whether a line says what was printed."""
    if NUMBER.sub("#", shown.strip()) != NUMBER.sub("#", printed.strip()):
        return False
    return all(map(_near, NUMBER.findall(shown), NUMBER.findall(printed)))


def _near(shown: str, printed: str) -> bool:
    one, other = (float(number.replace(",", "")) for number in (shown, printed))
    last = 10.0 ** -len(shown.partition(".")[2])
    return abs(one - other) <= max(1.01 * last, 0.02 * one)
