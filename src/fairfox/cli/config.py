"""Options in a file: `--config audit.toml`, with the long names of the options as keys."""

from __future__ import annotations

from pathlib import Path
from reprlib import repr as short
from typing import Any

import click

from fairfox.cli.options import FILE, Once, once
from fairfox.data.files import read_toml
from fairfox.errors import OptionError, did_you_mean
from fairfox.options import DATA

_TYPED_ONLY = ("trust_model", "auth_env", "out")  # what may run code, sends secrets or says where files are written

CONFIG = "fairfox.config"  # where a command finds the file of --config


def config_option(command: Any) -> Any:
    """Return the command with --config: a file whose values hold where the command line says nothing."""
    about = (
        "TOML file with options by name, also model and table. The command line takes precedence. Not for --out, "
        "--trust-model and --auth-env."
    )
    eager = {"is_eager": True, "expose_value": False, "callback": _take}  # before the options it has values for
    return once("--config", FILE, "FILE", about, section=DATA, **eager)(command)


def _take(ctx: click.Context, param: click.Parameter, files: tuple[Path, ...]) -> tuple[Path, ...]:
    for file in files[:1]:  # of more than one `Once` complains after this
        ctx.meta[CONFIG] = file
        ctx.default_map = {**(ctx.default_map or {}), **config_values(ctx.command, file)}
    return files


def config_values(command: click.Command, file: Path) -> dict[str, Any]:
    """Return the values in a TOML file by the names of a command's parameters, as the command line would give them.

    Keys are long names of options, with - or _, and the names of arguments; relative paths start from the file.
    """
    out: dict[str, Any] = {}
    known: dict[str, click.Parameter] = {}
    for param in command.params:
        long = [name for name in param.opts if not name.startswith("-") or name.startswith("--")]
        if long and not param.is_eager:  # as --config itself is
            known[long[0].removeprefix("--").replace("_", "-")] = param
    for key, value in read_toml(file).items():
        found = known.get(key.replace("_", "-"))
        if found is not None and found.name in _TYPED_ONLY:
            raise OptionError(
                f"'{file}' has '{key}', which a file may not set, for safety; remove it, and give "
                f"--{key.replace('_', '-')} on the command line"
            )
        if found is None:
            hint = did_you_mean(key, list(known))
            raise OptionError(f"'{file}' has {short(key)}, which is not an option.{hint}")
        name = str(found.name)
        if name in out:
            raise OptionError(f"'{file}' has '{key}' twice, with - and with _; keep one")
        out[name] = _value(found, key, value, file)
    return out


def _value(param: click.Parameter, key: str, value: Any, file: Path) -> Any:
    """Return a value as click takes it from a map of defaults; refuse what the command line could not say."""
    if isinstance(param, click.Option) and param.is_flag:
        if not isinstance(value, bool):
            raise OptionError(f"'{key}' in '{file}' is {short(value)}; write {key} = true or {key} = false")
        return value
    single = isinstance(param, Once) or not getattr(param, "multiple", False)
    if isinstance(value, dict) and param.name in ("delta", "max_flagged", "settings"):  # by group or name
        value = [f"{name}={_text(param, key, each, file)}" for name, each in value.items()]
    values = value if isinstance(value, list) else [value]
    if single and isinstance(value, list):
        raise OptionError(f"'{key}' in '{file}' takes one value, not a list")
    texts = [_text(param, key, each, file) for each in values]
    return texts[0] if isinstance(param, click.Argument) else texts


def _text(param: click.Parameter, key: str, value: Any, file: Path) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise OptionError(f"'{key}' in '{file}' is {short(value)}; expected a text or a number, as on the command line")
    if isinstance(value, str) and not value.isprintable():
        raise OptionError(f"'{key}' in '{file}' is {short(value)}, not printable; give it on the command line")
    text = str(value)  # numbers too, so that 2.5 is refused where the command line refuses it
    is_code = ":" in text and ".py:" not in text  # or a URL; a model's file, or that of its code, is beside the config
    is_path = isinstance(param.type, click.Path) or (param.name == "model" and not is_code)
    return str(file.parent / text) if is_path else text
