"""What Spark and Dask have in common when they score files: workers elsewhere that are lost, lack something, or err."""

from __future__ import annotations

import os
from dataclasses import replace

from fairfox.errors import FairfoxError, FileError, MissingExtraError
from fairfox.scale.parts import Outcome, Task


def lost(task: Task) -> Outcome:
    """Return what came of a task that no worker has survived."""
    first, last = task.part.first_row, task.part.first_row + task.part.rows - 1
    said = (
        f"'{task.part.source.name}', rows {first} to {last}: workers died with it again and again (out of memory, "
        "or the model ended them); give them more memory, or fewer people at a time (--part-rows)"
    )
    return Outcome(task, error=said)


def arrived(outcome: Outcome) -> Outcome:
    """Return the outcome, or what to say of a part that a worker has written to a folder which is not the one here."""
    path = outcome.task.path
    if outcome.record is None or os.path.exists(path):
        return outcome
    said = f"A worker has written '{path}', which is not seen here; choose a folder that all workers and this one share"
    return replace(outcome, record=None, error=said, fatal=True)


def unfit(engine: str, reason: str) -> FairfoxError:
    """Return what to say where workers cannot even begin."""
    return MissingExtraError(
        f"{engine}'s workers cannot run fairfox ({reason}); give all of them the Python of this machine, with fairfox "
        "and what the model needs"
    )


def gave_up(engine: str, reason: str) -> FairfoxError:
    """Return what to say where an engine does not start, or ends before the work does."""
    return FileError(f"{engine} has given up ({reason}); once that is put right, the same command goes on from there")
