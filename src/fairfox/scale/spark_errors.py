"""What Spark says when it gives up, as one sentence: pages of Java become the task, or the reason, that is in them."""

from __future__ import annotations

import re

from fairfox.scale.engines import gave_up, unfit

_LOST = r"Task (\d+) in stage \S+ failed \d+ times.*(?:Python worker exited unexpectedly|ExecutorLostFailure)"
_UNFIT = r"ModuleNotFoundError|ImportError|PYTHON_VERSION_MISMATCH|Cannot run program"


def lost_task(error: BaseException) -> int:
    """Return which task of a job has lost its workers until Spark gave up; raise where the reason is another one.

    Example:
        >>> lost_task(RuntimeError("Task 3 in stage 1.0 failed 4 times: Python worker exited unexpectedly (crashed)"))
        3
    """
    text = str(error)
    place = re.search(_LOST, text)
    if place:
        return int(place[1])
    python = _traceback(text)
    reason = _raised(python) or reason_of(error)
    if re.search(_UNFIT, reason):
        raise unfit("Spark", reason) from error
    if python:
        raise RuntimeError(f"A worker failed in a way that was not expected:\n{python}") from error
    raise gave_up("Spark", reason) from error


def reason_of(error: BaseException) -> str:
    """Return the line that says why: of the last try where there were several, without who was called.

    Example:
        >>> reason_of(ValueError("An error occurred while calling x.\\n: java.io.IOException: no such host\\n\\tat y"))
        'java.io.IOException: no such host'
    """
    last = re.search(r"most recent failure: Lost task .*?\): (.*)", str(error))
    if last:
        return last[1]
    lines = [line.lstrip(": ") for line in str(error).splitlines() if line.strip(": ")]
    return next((line for line in lines if not line.startswith("An error occurred while calling")), repr(error))


def _traceback(text: str) -> str:
    """Return what Python said within what Java says; nothing where it said nothing."""
    found = re.search(r"^.*?(Traceback \(most recent call last\):.*?)(?=\n\s+at |\Z)", text, re.DOTALL)
    return found[1].rstrip() if found else ""


def _raised(traceback: str) -> str:
    """Return the last exception of a traceback with what it said, without the module it is from."""
    found = re.findall(r"^(?:\w+\.)*(\w*(?:Error|Exception|Exit|Interrupt)\b.*)", traceback, re.MULTILINE)
    return found[-1] if found else ""
