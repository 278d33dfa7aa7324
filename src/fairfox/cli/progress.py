"""Lines of text, and a progress bar on stderr for anything that takes over a second."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Timer

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from fairfox.errors import printable

Report = Callable[[str, float], None]  # what is being done, and which fraction of the whole is done
DELAY = 1.0  # seconds before the bar appears


def say(*lines: str, err: bool = True) -> None:
    """Print lines, in which nothing from a table, a file or a server steers the terminal: on stderr, or on stdout."""
    for line in lines:
        click.echo(printable(line), err=err)


@contextmanager
def progress_bar(console: Console | None = None) -> Iterator[Report | None]:
    """Yield a function that moves the bar; None where nobody watches: not a terminal."""
    console = console or Console(stderr=True)
    if not console.is_interactive:
        yield None
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    bar = Progress(*columns, console=console, transient=True)
    task = bar.add_task("starting", total=1.0)
    timer = Timer(DELAY, bar.start)
    timer.daemon = True
    timer.start()
    try:
        yield lambda what, done: bar.update(task, description=printable(what), completed=done)
    finally:
        timer.cancel()
        timer.join()  # a bar that is just starting must not outlive the stop
        bar.stop()
