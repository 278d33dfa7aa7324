"""Models behind a URL on the command line: their options, and how many calls an audit will take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from fairfox.cli.options import FiniteRange, Once
from fairfox.errors import OptionError

if TYPE_CHECKING:  # imported in the functions: help must not wait for torch
    import numpy as np

    from fairfox.cli.progress import Report
    from fairfox.models.description import Description
    from fairfox.models.http_model import Endpoint

_MORE = 1.2  # people explained: up to a fifth more than in the rehearsal, where nobody's score is the worst

_OPTIONS = (
    click.option(
        "--max-calls",
        cls=Once,
        type=click.IntRange(min=1),
        metavar="N",
        help="For a URL: stop before the first call when more than N are needed, and never make more.",
    ),
    click.option(
        "--batch-rows",
        cls=Once,
        type=click.IntRange(min=1),
        metavar="N",
        help="For a URL: rows per call.  [default: 1000]",
    ),
    click.option(
        "--timeout",
        cls=Once,
        type=FiniteRange(min=0, min_open=True),
        metavar="SECONDS",
        help="For a URL: longest wait for one answer.  [default: 30]",
    ),
    click.option(
        "--retries",
        cls=Once,
        type=click.IntRange(min=0),
        metavar="N",
        help="For a URL: further tries, with growing pauses, when it cannot be reached or is busy.  [default: 3]",
    ),
    click.option(
        "--auth-env",
        cls=Once,
        metavar="NAME",
        help="For a URL: environment variable that holds the Authorization header.",
    ),
)
_NAMES = ("max_calls", "batch_rows", "timeout", "retries", "auth_env")


def endpoint_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return the command with the options of models behind a URL."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def take_endpoint_options(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of an endpoint that were given, and take all of them out of the others."""
    taken = {name: options.pop(name) for name in _NAMES}
    return {name: value for name, value in taken.items() if value is not None}


def find_model(spec: str, *, trust: bool, endpoint: dict[str, Any]) -> object:
    """Return the model that was named: behind a URL with its options, or from a file or code without any."""
    from fairfox.models.http_model import is_url, load_endpoint
    from fairfox.models.loading import load_model

    if is_url(spec):
        return load_endpoint(spec, **endpoint)
    if endpoint:
        name = next(iter(endpoint)).replace("_", "-")
        raise OptionError(f"--{name} is for a model behind a URL, and '{spec}' is none; leave it out")
    return load_model(spec, trust=trust)


def count_calls(endpoint: Endpoint, table: object, options: dict[str, Any], *, progress: Report | None = None) -> int:
    """Return how many calls an audit with these options will take, found by a rehearsal that makes none.

    The audit itself runs on the same table with a model that returns a constant and counts the rows.
    """
    from fairfox.auditing import audit

    rehearsal = _Rehearsal(endpoint, progress)
    own = {"positive", "returns"}  # of the real predictions
    audit(rehearsal, table, **{k: v for k, v in options.items() if k not in own}, progress=rehearsal.follow)
    return rehearsal.calls


def check_calls(endpoint: Endpoint, needed: int) -> None:
    """Refuse an audit that needs more calls than are allowed."""
    if endpoint.max_calls is not None and needed > endpoint.max_calls:
        raise OptionError(
            f"The audit needs about {needed} calls of up to {endpoint.batch_rows} rows, and --max-calls allows "
            f"{endpoint.max_calls}; none was made: allow more, raise --batch-rows, or audit fewer people (--sample)"
        )


class _Rehearsal:
    """An endpoint's double that takes the same rows, answers by itself and counts the calls."""

    def __init__(self, endpoint: Endpoint, progress: Report | None) -> None:
        self.endpoint = endpoint
        self.progress = progress
        self.calls = 0
        self.explaining = False

    def describe(self) -> Description:
        """Return the endpoint's description with predictions that cost nothing."""
        return replace(self.endpoint.describe(), predict=self.predict)

    def predict(self, rows: Any) -> np.ndarray:
        """Return a half for everyone."""
        import numpy as np

        self.calls += self.endpoint.calls_for(round(len(rows) * (_MORE if self.explaining else 1)))
        return np.full(len(rows), 0.5)

    def follow(self, what: str, done: float) -> None:
        """Take note of where the audit is."""
        self.explaining = what == "explaining"
        if self.progress is not None:
            self.progress("counting the calls", done)
