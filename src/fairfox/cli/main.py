"""The `fairfox` command: a group whose commands are imported when they are used, so that help is instant."""

from __future__ import annotations

import io
import logging
import os
import signal
import sys
import traceback
from importlib import import_module
from typing import Any

import click

from fairfox.cli.options import TYPED
from fairfox.errors import FairfoxError, did_you_mean, installed_versions, printable, redacted

# name -> (module, short help); the function has the name of the command
COMMANDS = {
    "alternatives": ("fairfox.cli.remedies", "Find less unequal alternatives to a model, and what they cost."),
    "audit": ("fairfox.cli.audit", "Find the people whose prediction depends on a protected column."),
    "compare": ("fairfox.cli.compare", "Compare two models on the same people, or two audits."),
    "datasets": ("fairfox.cli.demo", "List the public datasets that fairfox can load, or download some."),
    "demo": ("fairfox.cli.demo", "Audit a biased and a fair lending model on generated people."),
    "fit": ("fairfox.cli.score", "Fit a fairness test on a table and save it to a file."),
    "plan": ("fairfox.cli.compare", "Say how many people an audit needs to detect an effect of a given size."),
    "repair": ("fairfox.cli.remedies", "Repair a model without training it again, and save the repair."),
    "report": ("fairfox.cli.compare", "Write the page of a result again."),
    "score": ("fairfox.cli.score", "Score the people of a table with a saved fairness test."),
}
_SIGNALLED = 128  # plus the signal: what shells report after it; 1 would read as "fails"
_ENDINGS = {"SIGINT": "Interrupted.", "SIGTERM": "Stopped by a signal.", "SIGHUP": "The terminal was closed."}


class BadInput(click.ClickException):
    """Something the user can put right: one sentence on stderr, exit code 2."""

    exit_code = 2

    def format_message(self) -> str:
        """Return the sentence, without what could steer a terminal and without keys."""
        return redacted(printable(self.message))


class LazyGroup(click.Group):
    """A group that imports a command when it runs, and turns every expected error into one sentence."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep the words as they were typed, for results to say how they came about."""
        ctx.meta[TYPED] = list(args)
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command, imported now; None when there is none of this name."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(import_module(COMMANDS[cmd_name][0]), cmd_name)
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """Return the command; another name is refused with the one that it may stand for."""
        if args and args[0] not in COMMANDS and not ctx.resilient_parsing:
            raise BadInput(f"No such command '{args[0]}'.{did_you_mean(args[0], list(COMMANDS))}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the short helps from the table: asking the commands would import them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, short) for name, (_, short) in COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; errors become `BadInput`."""
        try:
            return super().invoke(ctx)
        except click.UsageError as error:  # click would print the usage as well
            raise BadInput(error.format_message()) from error
        except FairfoxError as error:
            raise BadInput(str(error)) from error
        except OSError as error:  # of a file; those of stdout do not come here
            if error.filename is None:
                raise
            raise BadInput(f"'{error.filename}' cannot be used ({error.strerror}); give another path") from error
        except KeyboardInterrupt as error:
            number = next((each for each in error.args if isinstance(each, int)), signal.SIGINT)
            click.echo(_ENDINGS[signal.Signals(number).name], err=True)
            ctx.exit(_SIGNALLED + number)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(installed_versions("fairfox")["fairfox"], prog_name="fairfox")
def cli() -> None:
    """Find the people whose prediction depends on their sex, race, age or another protected variable."""
    logging.getLogger("fairfox").addHandler(logging.NullHandler())  # commands print warnings themselves


class _Unbroken(io.FileIO):
    """A standard stream that takes all that is written, also once nobody reads it or the disk is full."""

    def write(self, content: Any) -> int:
        """Return how much was taken: everything. The results are in files, and the exit code stays what it was."""
        try:
            return super().write(content)
        except OSError:
            return len(content)


def _open_streams() -> None:
    """Make streams that no letter and no reader breaks; closed ones lead nowhere, and not into a file of results."""
    while os.open(os.devnull, os.O_RDWR) < 3:  # the lowest number that is free
        pass
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        buffer = getattr(stream, "buffer", None)
        if isinstance(getattr(buffer, "raw", buffer), io.FileIO):
            raw = io.BufferedWriter(_Unbroken(stream.fileno(), "wb", closefd=False))
            setattr(sys, name, io.TextIOWrapper(raw, stream.encoding, "backslashreplace", line_buffering=True))


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt(number)


def main() -> None:
    """Run the command and exit: 0 passes, 1 fails, 2 after bad input or an error, 3 cannot tell."""
    if sys.getfilesystemencoding() == "ascii":  # names that were typed would be unreadable
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])
    _open_streams()
    for name in _ENDINGS:
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:  # nohup stays nohup
            signal.signal(number, _interrupt)
    # before torch is imported: its threads would spin while they wait, and beside another busy process an audit of a
    # small network takes twice as long then
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        cli()
    except Exception:  # a bug: show where, and do not let Python's exit code 1 read as "fails"
        traceback.print_exc()
        sys.exit(2)


if __name__ == "__main__":
    main()
