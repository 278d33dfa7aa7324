"""Kinds of options that click does not have, and the words as they were typed."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from typing import Any

import click

TYPED = "fairfox.typed"  # where a command finds the words as they were typed


def typed_command(**shown: str) -> str:
    """Return the command line as it was typed, some words as they may be shown: `typed_command(**{url: without_key})`.

    Secrets are not on it otherwise: they come from the environment.
    """
    words = click.get_current_context().meta.get(TYPED, [])
    return shlex.join(["fairfox", *(shown.get(word, word) for word in words)])


class Once(click.Option):
    """An option that may be given once: click itself would silently take the last value."""

    def __init__(self, *args: Any, default: Any = None, **kwargs: Any) -> None:
        kwargs |= {"multiple": True, "default": None if default is None else (default,)}
        super().__init__(*args, **kwargs)

    def process_value(self, ctx: click.Context, value: Any) -> Any:
        """Return the one value, or None when the option was not given."""
        values = super().process_value(ctx, value)
        if values is not None and len(values) > 1:
            raise click.BadParameter(f"it was given {len(values)} times; give it once.", ctx=ctx, param=self)
        return values[0] if values else None


def options_among(command: click.Command, names: Sequence[str]) -> list[click.Parameter]:
    """Return those options of another command, for one in which they mean the same."""
    return [option for option in command.params if option.name in names]


class FiniteRange(click.FloatRange):
    """A range of numbers that NaN and infinity are not in."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number."""
        return _finite(self, super().convert(value, param, ctx), param, ctx)


class Finite(click.types.FloatParamType):
    """Any number but NaN and infinity."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number."""
        return _finite(self, super().convert(value, param, ctx), param, ctx)


def _finite(
    kind: click.types.FloatParamType, number: float, param: click.Parameter | None, ctx: click.Context | None
) -> float:
    if not math.isfinite(number):
        kind.fail(f"{number} is not a finite number.", param, ctx)
    return number


class ByGroup(FiniteRange):
    """A number for everyone, or for one group as GROUP=NUMBER: (group, number), with group "" for everyone."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the group and its number."""
        group, _, number = str(value).rpartition("=")
        return group.strip(), super().convert(number, param, ctx)


def by_group(ctx: click.Context, param: click.Parameter, values: tuple[tuple[str, float], ...]) -> dict[str, float]:
    """Return the numbers by group, each group given once."""
    out = dict(values)
    if len(out) < len(values):
        groups = [group for group, _ in values]
        twice = next(group for group in groups if groups.count(group) > 1)
        raise click.BadParameter(f"{twice or 'the one for everyone'} was given twice; give it once.", ctx, param)
    return out


def settings(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> dict[str, bool | int | float | str]:
    """Return settings given as NAME=VALUE by name, each given once; a value is a number, true, false or a word."""
    out: dict[str, bool | int | float | str] = {}
    for given in values:
        name, _, text = (part.strip() for part in given.partition("="))
        if not (name and text):
            raise click.BadParameter(f"{given!r} is no setting; give name=value, such as epsilon=0.5.", ctx, param)
        if name in out:
            raise click.BadParameter(f"{name} was given twice; give it once.", ctx, param)
        out[name] = _value(text)
    return out


def _value(text: str) -> bool | int | float | str:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
