"""What every hostile file must end in: exit code 2, one sentence, and nothing else."""

from __future__ import annotations

import resource
from pathlib import Path
from time import perf_counter

import pytest
from click.testing import CliRunner

from fairfox.cli.main import cli

SECONDS, KILOBYTES = 60, 2 * 2**20


def refused(capfd: pytest.CaptureFixture[str], model: str, *options: str) -> str:
    """Return the one sentence with which an audit refuses a model, having checked that nothing else happened."""
    sentence = refuses(capfd, "audit", model, "people.csv", "--protected", "sex", "--drop", "job", *options)
    assert Path(model).name in sentence
    return sentence


def refuses(capfd: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Return the one sentence with which a command ends; `ran` is the canary that a file would leave."""
    start, before = perf_counter(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = CliRunner().invoke(cli, [*arguments, "--out", "out"])
    assert perf_counter() - start < SECONDS
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < KILOBYTES
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss < KILOBYTES
    assert result.exit_code == 2, result.output
    assert not Path("ran").exists()
    assert not Path("out").exists()
    lines = [line for line in result.stderr.splitlines() if line.strip()]
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("Error: ")
    assert lines[0].isprintable()
    assert "Traceback" not in result.output
    assert capfd.readouterr() == ("", "")  # libraries in C++ say nothing either
    return lines[0]
