"""A progress bar on stderr for anything that takes over a second."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Timer

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

Report = Callable[[str, float], None]  # what is being done, and which fraction of the whole is done
DELAY = 1.0  # seconds before the bar appears


@contextmanager
def progress_bar(console: Console) -> Iterator[Report | None]:
    """Yield a function that moves the bar; None where nobody watches: not a terminal."""
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
        yield lambda what, done: bar.update(task, description=what, completed=done)
    finally:
        timer.cancel()
        timer.join()  # a bar that is just starting must not outlive the stop
        bar.stop()
