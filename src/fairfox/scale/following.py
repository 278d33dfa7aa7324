"""How far a run is, how fast, and how long it will take."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

Progress = Callable[[str, float], None]  # what is being done, and which fraction of the whole is done


class Follower:
    """Tells how many people are scored, how fast, and how long the rest will take."""

    def __init__(self, people: int, left: int, progress: Progress | None) -> None:
        self.people, self.before, self.progress = people, people - left, progress
        self.scored, self.start = 0, monotonic()

    def tick(self, rows: int) -> None:
        """Count more people."""
        self.scored += rows
        if self.progress is None:
            return
        rate = self.scored / max(monotonic() - self.start, 1e-9)
        done = min(self.before + self.scored, self.people)  # what a lost worker did is done again
        left = f", {duration((self.people - done) / rate)} left" if rate else ""
        self.progress(f"{done:,} of {self.people:,} people, {rate:,.0f} a second{left}", done / self.people)


def duration(seconds: float) -> str:
    """Return a duration as people say it.

    Example:
        >>> duration(4000), duration(75), duration(9.2)
        ('1 h 6 min', '1 min 15 s', '9 s')
    """
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
