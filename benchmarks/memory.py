"""The largest resident memory that processes have had, as Linux keeps it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from time import sleep


def peak(process: str) -> float:
    """Return the largest resident memory that a process has had, in MB; 0 where it has ended and is not waited for."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")), 0.0)


def watch(peaks: dict[str, float]) -> None:
    """Keep the largest memory of every child of this process, for as long as this one lives."""
    while True:
        look(peaks)
        sleep(0.2)


def look(peaks: dict[str, float]) -> None:
    """Note the largest memory of every child so far; one that has ended keeps what it had."""
    for thread in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # the thread or the child has just ended
            for child in (thread / "children").read_text().split():
                peaks[child] = max(peaks.get(child, 0.0), peak(child))
