"""Kinds of options that click does not have."""

from __future__ import annotations

import math
from typing import Any

import click


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


class FiniteRange(click.FloatRange):
    """A range of numbers that NaN and infinity are not in."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number
