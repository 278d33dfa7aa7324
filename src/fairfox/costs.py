"""What a piece of work costs: seconds, and memory at its peak."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from time import perf_counter

_STATM = Path("/proc/self/statm")
_PAUSE = 0.01  # seconds between two looks


@dataclass
class Cost:
    """Seconds, and how many bytes more than at the start were in use at the peak."""

    seconds: float = 0.0
    memory: int = 0

    def __add__(self, other: Cost) -> Cost:
        """Return the cost of both, one after the other."""
        return Cost(self.seconds + other.seconds, max(self.memory, other.memory))


@contextmanager
def measured_cost() -> Iterator[Cost]:
    """Return a Cost that is filled in when the block ends.

    A thread looks at the memory every hundredth of a second: shorter peaks may be missed, and memory that was free in
    the process before is not seen again.
    """
    cost, before, done = Cost(), resident_bytes(), Event()

    def look() -> None:
        while not done.wait(_PAUSE):
            cost.memory = max(cost.memory, resident_bytes() - before)

    watching = Thread(target=look, daemon=True)
    watching.start()
    started = perf_counter()
    try:
        yield cost
    finally:
        cost.seconds = perf_counter() - started
        done.set()
        watching.join()
        cost.memory = max(cost.memory, resident_bytes() - before)


def resident_bytes() -> int:
    """Return how much memory the process has; where the system does not say it, how much it had at most."""
    if _STATM.exists():
        return int(_STATM.read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    if sys.platform == "win32":
        return 0
    import resource

    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else 1024 * most
