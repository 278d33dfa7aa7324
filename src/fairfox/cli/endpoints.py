"""Models behind a URL on the command line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from fairfox.cli.options import FiniteRange, once
from fairfox.errors import OptionError
from fairfox.options import MODEL

_COUNT = click.IntRange(min=1)
_OPTIONS: dict[str, tuple[Any, str | None, str]] = {  # type, metavar, help
    "max_calls": (_COUNT, "N", "make at most N calls, then stop."),
    "batch_rows": (_COUNT, "N", "rows per call.  [default: 1000]"),
    "timeout": (FiniteRange(min=0, min_open=True), "SECONDS", "longest wait for one answer.  [default: 30]"),
    "retries": (click.IntRange(min=0), "N", "how often to try again when the server is busy or down.  [default: 3]"),
    "auth_env": (str, "NAME", "environment variable that holds the Authorization header."),
}


def endpoint_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return the command with the options of models behind a URL."""
    for name, (kind, metavar, text) in reversed(_OPTIONS.items()):
        flag = f"--{name.replace('_', '-')}"
        command = once(flag, kind, metavar, f"For a URL: {text}", section=MODEL, common=False)(command)
    return command


def take_endpoint_options(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of an endpoint that were given, and take all of them out of the others."""
    taken = {name: options.pop(name) for name in _OPTIONS}
    return {name: value for name, value in taken.items() if value is not None}


def find_model(spec: str, *, trust: bool, endpoint: dict[str, Any]) -> object:
    """Return the model that was named: behind a URL with its options, or from a file or code without any."""
    from fairfox.models.http import is_url, load_endpoint  # help must not wait for torch
    from fairfox.models.loading import load_model

    if is_url(spec):
        return load_endpoint(spec, **endpoint)
    if endpoint:
        name = next(iter(endpoint)).replace("_", "-")
        raise OptionError(f"--{name} is for a model behind a URL, and '{spec}' is not a URL; omit it")
    return load_model(spec, trust=trust)
