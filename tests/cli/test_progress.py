import io
import time

import pytest
from rich.console import Console

from fairfox.cli import progress
from fairfox.cli.progress import progress_bar


def terminal() -> Console:
    return Console(file=io.StringIO(), force_terminal=True, force_interactive=True, width=80)


def test_nothing_is_drawn_where_nobody_watches():
    console = Console(file=io.StringIO())
    with progress_bar(console) as report:
        assert report is None
    assert console.file.getvalue() == ""


def test_longer_work_is_shown(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(progress, "DELAY", 0.01)
    console = terminal()
    with progress_bar(console) as report:
        report("fitting [bold]", 0.5)
        time.sleep(0.3)
    assert "fitting [bold]" in console.file.getvalue()
    assert "50%" in console.file.getvalue()
