"""The options of commands: made from what `fairfox.options` declares, in kinds that click does not have itself."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any

import click

from fairfox.choices.kinds import Anything, Choice, Flag, Names, Number, Settings, meant_share
from fairfox.errors import OptionError, redacted
from fairfox.options import DATA, ESTIMATION, MODEL, OUTPUT, SECTIONS, AuditOptions, split_names

TYPED = "fairfox.typed"  # where a command finds the words as they were typed
_EVERYTHING = "fairfox.help"  # whether the help shows every option
DECLARED = {f.name: f for f in fields(AuditOptions)}
AUDIT_FILES = "report.html, report.json, summary.json, summary.md, junit.xml and scores.parquet"
COUNT, FILE = click.IntRange(min=1), click.Path(path_type=Path)
FOLDER = click.Path(path_type=Path, file_okay=False)


def typed_command() -> str:
    """Return the command line as it was typed, but for keys in URLs; other secrets come from the environment."""
    return shlex.join(["fairfox", *map(redacted, click.get_current_context().meta.get(TYPED, []))])


class Option(click.Option):
    """An option in a section of the help; `--help` shows the common ones, `--help-all` all of them."""

    def __init__(self, *args: Any, section: str = OUTPUT, common: bool = True, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.section, self.common = section, common


class Grouped(click.Command):
    """A command whose help has sections of options."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the parameters, with --help-all where there are options that --help leaves out."""
        params = super().get_params(ctx)
        if all(getattr(param, "common", True) for param in self.params):
            return params
        shown = "Show this message and exit. --help-all shows every option."
        everything = click.Option(["--help-all"], is_flag=True, is_eager=True, expose_value=False, callback=_help_all)
        everything.hidden = True
        for param in params[len(self.params) :]:
            assert isinstance(param, click.Option)
            param.help = shown
        return [*params, everything]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options by section."""
        everything = ctx.meta.get(_EVERYTHING, False)
        params = [param for param in self.get_params(ctx) if isinstance(param, click.Option)]
        options = sorted(params, key=lambda param: not getattr(param, "common", True))
        options = [param for param in options if getattr(param, "common", True) or everything]
        for section in SECTIONS:
            lines = [p.get_help_record(ctx) for p in options if getattr(p, "section", OUTPUT) == section]
            if lines := [line for line in lines if line is not None]:
                with formatter.section(section):
                    formatter.write_dl(lines)


def _help_all(ctx: click.Context, param: click.Parameter, wanted: bool) -> None:
    if wanted:
        ctx.meta[_EVERYTHING] = True
        click.echo(ctx.get_help())
        ctx.exit()


class Once(Option):
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


def once(names: str, kind: Any, metavar: str | None, help: str, **more: Any) -> Callable[[Any], Any]:
    """Return a decorator that gives a command an option that may be given once; `names` as they are typed."""
    return click.option(*names.split(), cls=Once, type=kind, metavar=metavar, help=help, **more)


def switch(name: str, help: str, **more: Any) -> Callable[[Any], Any]:
    """Return a decorator that gives a command an option that is on or off."""
    return click.option(name, cls=Option, is_flag=True, help=help, **more)


class FiniteRange(click.FloatRange):
    """A range of numbers that NaN and infinity are not in; a `share` is of people."""

    def __init__(self, *args: Any, share: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.share = share

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number."""
        number = click.FLOAT.convert(value, param, ctx)
        if self.share and (meant := meant_share(number)):
            self.fail(f"{number:g} is above 1{meant}", param, ctx)
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{number} is not a finite number.", param, ctx)
        return number

    def _describe_range(self) -> str:
        return "" if self.min is None and self.max is None else super()._describe_range()  # click writes x<=None


class ByGroup(FiniteRange):
    """A number for everyone, or for one group as GROUP=NUMBER: (group, number), with group "" for everyone."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the group and its number."""
        group, _, number = str(value).rpartition("=")
        return group.strip(), super().convert(number, param, ctx)


def audit_options(*names: str, required: bool = True) -> Callable[[Any], Any]:
    """Return a decorator that gives a command the declared options of these names, in the order of declaration."""

    def decorate(command: Any) -> Any:
        for name in reversed([*names]):
            command.__click_params__ = [*getattr(command, "__click_params__", []), _option(name, required=required)]
        return command

    return decorate


def trust_option(command: Any) -> Any:
    """Return the command with --trust-model."""
    return switch("--trust-model", "Load model files that can run code, such as pickles.", section=DATA)(command)


def reference_option(command: Any) -> Any:
    """Return the command with --reference."""
    about = "Fit on the people of this table, which has the protected columns. Without it, TABLE is cross-fitted."
    return once("--reference", FILE, "TABLE", about, section=ESTIMATION, common=False)(command)


_ENDPOINT: dict[str, tuple[Any, str | None, str]] = {  # type, metavar, help
    "max_calls": (COUNT, "N", "make at most N calls, then stop."),
    "batch_rows": (COUNT, "N", "rows per call.  [default: 1000]"),
    "timeout": (FiniteRange(min=0, min_open=True), "SECONDS", "longest wait for one answer.  [default: 30]"),
    "retries": (click.IntRange(min=0), "N", "how often to try again when the server is busy or down.  [default: 3]"),
    "auth_env": (str, "NAME", "environment variable that holds the Authorization header."),
}


def endpoint_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return the command with the options of models behind a URL."""
    for name, (kind, metavar, text) in reversed(_ENDPOINT.items()):
        flag = f"--{name.replace('_', '-')}"
        command = once(flag, kind, metavar, f"For a URL: {text}", section=MODEL, common=False)(command)
    return command


def take_endpoint_options(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of an endpoint that were given, and take all of them out of the others."""
    taken = {name: options.pop(name) for name in _ENDPOINT}
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


def given_options(values: dict[str, Any], names: Iterable[str] = tuple(DECLARED)) -> dict[str, Any]:
    """Take the declared options out of a command's values and return those that were given, for `AuditOptions`."""
    taken = {name: values.pop(name) for name in names if name in values}
    return {name: value for name, value in taken.items() if value is not None and value != () and value != {}}


def _option(name: str, *, required: bool) -> click.Option:
    """Return the click option of a declared option."""
    declared = DECLARED[name]
    kind, default = declared.metadata["kind"], declared.default
    words = [f"--{name.replace('_', '-')}", name]
    more: dict[str, Any] = {key: declared.metadata[key] for key in ("help", "metavar", "section", "common")}
    if name == "protected":
        return Option(["-c", *words], multiple=True, required=required, callback=_names, **more)
    if isinstance(kind, Flag):
        if default is not False:
            words[0] = f"{words[0]}/--no-{name.replace('_', '-')}"
        return Option(words, is_flag=True, default=default, **more | {"metavar": None})
    if isinstance(kind, Names):
        return Option(words, multiple=True, callback=_names, **more)
    if isinstance(kind, Settings):
        return Option(words, multiple=True, callback=_settings, **more)
    if isinstance(kind, Number) and kind.by_group:
        kinds = ByGroup(*_bounds(kind), share=kind.share)
        return Option(words, multiple=True, type=kinds, callback=_by_group, **more)
    if default not in (None, ()):
        more |= {"default": default, "show_default": True}
    return Once(words, type=_type(kind), **more)


def _type(kind: Any) -> Any:
    if isinstance(kind, Choice):
        return click.Choice(list(kind.words))
    if isinstance(kind, Number) and kind.whole:
        low, high = _bounds(kind)
        return click.IntRange(None if low is None else int(low), None if high is None else int(high))
    if isinstance(kind, Number):
        return FiniteRange(*_bounds(kind), min_open=kind.low_open, max_open=kind.high_open, share=kind.share)
    return click.Path(path_type=Path) if isinstance(kind, Anything) and kind.is_table else click.STRING


def _bounds(kind: Number) -> tuple[float | None, float | None]:
    return (None if math.isinf(kind.low) else kind.low, None if math.isinf(kind.high) else kind.high)


def _names(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names in all texts; column names have commas between them."""
    assert param.name is not None
    if not DECLARED[param.name].metadata["kind"].commas:
        return values
    return tuple(name for text in values for name in split_names(text))


def _by_group(ctx: click.Context, param: click.Parameter, values: tuple[tuple[str, float], ...]) -> dict[str, float]:
    """Return the numbers by group, each group given once."""
    out = dict(values)
    if len(out) < len(values):
        groups = [group for group, _ in values]
        twice = next(group for group in groups if groups.count(group) > 1)
        raise click.BadParameter(f"{twice or 'the one for everyone'} was given twice; give it once.", ctx, param)
    return out


def _settings(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> dict[str, bool | int | float | str]:
    """Return settings given as NAME=VALUE by name, each given once; a value is a number, true, false or a word."""
    out: dict[str, bool | int | float | str] = {}
    for given in values:
        name, _, text = (part.strip() for part in given.partition("="))
        if not (name and text):
            raise click.BadParameter(f"{given!r} is not a setting; give name=value, such as epsilon=0.5.", ctx, param)
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
