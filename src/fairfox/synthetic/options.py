"""What numbers given as options may be."""

from __future__ import annotations

import math
from numbers import Integral, Real

from fairfox.errors import OptionError


def check_whole(name: str, value: object, *, least: int = 1) -> int:
    """Return a whole number, or raise an OptionError that names the option."""
    if not isinstance(value, Integral) or isinstance(value, bool) or int(value) < least:
        raise OptionError(f"{name} is {value!r}; expected a whole number of at least {least}")
    return int(value)


def check_number(name: str, value: object, *, above_zero: bool) -> float:
    """Return a finite number from 0 upwards (or above 0), or raise an OptionError that names the option."""
    found = float(value) if isinstance(value, Real) and not isinstance(value, bool) else math.nan
    if not (math.isfinite(found) and (found > 0 if above_zero else found >= 0)):
        raise OptionError(f"{name} is {value!r}; expected a number {'above 0' if above_zero else 'from 0 upwards'}")
    return found
