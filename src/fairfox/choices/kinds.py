"""Kinds of values that an option or a setting takes: a number within bounds, names, a choice; each checks its own."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

from fairfox.errors import OptionError


@dataclass(frozen=True)
class Text:
    """One word, such as the name of a column, or words to show."""

    most: int | None = None  # characters of words to show, which are all printable

    def check(self, name: str, value: Any) -> Any:
        """Return the text, or refuse what is none."""
        if value is not None and not isinstance(value, str):
            raise OptionError(f"{name} is of type {type(value).__name__}; expected text, such as a column name")
        if value is not None and self.most is not None and not (len(value) <= self.most and value.isprintable()):
            fits = len(value) <= self.most
            fault = "unprintable characters, such as line breaks" if fits else f"{len(value):,} characters"
            raise OptionError(f"{name} has {fault}; expected at most {self.most:,} printable characters")
        return value


@dataclass(frozen=True)
class Names:
    """Names of columns, each once, or of groups."""

    example: str = "a column name"
    commas: bool = True  # the command line takes several in one text, with commas between them

    def check(self, name: str, value: Any) -> Any:
        """Return the names as a tuple; None stays None."""
        if value is None:
            return None
        items = [value] if isinstance(value, str) else value
        if not isinstance(items, Sequence) or not all(isinstance(text, str) for text in items):
            raise OptionError(f"{name} is {value!r}; expected {self.example}, or a list of them")
        if not all(items):
            raise OptionError(f"{name} is {value!r}, which has an empty name; expected {self.example}")
        return tuple(dict.fromkeys(items) if self.commas else items)


@dataclass(frozen=True)
class Flag:
    """On or off; None where what is best is chosen."""

    chosen: bool = False

    def check(self, name: str, value: Any) -> Any:
        """Return whether it is on."""
        if not (isinstance(value, bool) or (self.chosen and value is None)):
            raise OptionError(f"{name} is {value!r}; expected True or False")
        return value


@dataclass(frozen=True)
class Choice:
    """One of some words; None where the option has no default."""

    words: tuple[str, ...]

    def check(self, name: str, value: Any) -> Any:
        """Return the word."""
        if value is not None and value not in self.words:
            raise OptionError(f"{name} is {value!r}; expected {' or '.join(map(repr, self.words))}")
        return value


def meant_share(value: Any) -> str:
    """Return what was probably meant by a percentage where a share of at most one is expected; else nothing."""
    percent = isinstance(value, Real) and 1 < float(value) <= 100
    return f"; did you mean {float(value) / 100:g}?" if percent else ""


@dataclass(frozen=True)
class Number:
    """A number within bounds."""

    low: float = -math.inf
    high: float = math.inf
    low_open: bool = False
    high_open: bool = False
    whole: bool = False
    by_group: bool = False  # or several by the names of groups: {"race=Black": 0.05}
    share: bool = False  # of people: a percentage is a likely mistake

    def check(self, name: str, value: Any) -> Any:
        """Return the number, or a dict of numbers by group."""
        if value is None:
            return None
        if self.by_group and isinstance(value, Mapping):
            if not all(isinstance(group, str) for group in value):
                raise OptionError(f"{name} is {value!r}; expected numbers by group, such as {{'sex=Female': 0.03}}")
            return {group: self.required(f"{name} of '{group or 'everyone'}'", own) for group, own in value.items()}
        return self.required(name, value)

    def required(self, name: str, value: Any) -> float | int:
        """Return the number; None is refused."""
        right = isinstance(value, Integral if self.whole else Real) and not isinstance(value, bool)
        if not right or not self.allows(value):
            meant = meant_share(value) if self.share else ""
            raise OptionError(f"{name} is {value!r}; expected {self.words}{meant}")
        return int(value) if self.whole else float(value)

    def allows(self, number: float) -> bool:
        """Return whether a number lies within the bounds."""
        above = number > self.low if self.low_open else number >= self.low
        below = number < self.high if self.high_open else number <= self.high
        return above and below and abs(number) <= sys.float_info.max

    @property
    def words(self) -> str:
        """The bounds in words: "a number from 0 to below 1"."""
        what = "a whole number" if self.whole else "a number"
        if math.isinf(self.low):
            return f"a finite {what.removeprefix('a ')}"
        start = f"above {self.low:g}" if self.low_open else f"from {self.low:g}"
        if math.isinf(self.high):
            return f"{what} {start}" if self.low_open else f"{what} of at least {self.low:g}"
        end = f"to below {self.high:g}" if self.high_open else f"to {self.high:g}"
        return f"{what} {start} {end}" if not self.low_open else f"{what} {start} and {end.removeprefix('to ')}"


@dataclass(frozen=True)
class Settings:
    """Settings of a test by name: {"epsilon": 0.5}."""

    def check(self, name: str, value: Any) -> Any:
        """Return the settings as a dict."""
        if not isinstance(value, Mapping | None):
            raise OptionError(f"{name} is {value!r}; expected settings by name, such as {{'steps': 100}}")
        return dict(value or {})


@dataclass(frozen=True)
class Anything:
    """A value that is checked where it is used: a table, a class of the model."""

    is_table: bool = False

    def check(self, name: str, value: Any) -> Any:
        """Return the value as it is."""
        return value


Kind = Text | Names | Flag | Choice | Number | Settings | Anything
