import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from fairfox.cli.main import COMMANDS, cli, main
from tests.support import refusal_of


def failing(error: BaseException) -> click.Command:
    @click.command()
    def command() -> None:
        raise error

    return command


@pytest.mark.parametrize("words", ["--help", "audit --help", "datasets --help", "--version"])
def test_help_imports_neither_torch_nor_scikit_learn(words: str):
    code = (
        "import sys\n"
        "from fairfox.cli.main import cli\n"
        f"cli({words.split()!r}, standalone_mode=False)\n"
        "heavy = {'torch', 'sklearn', 'pandas', 'pyarrow', 'altair'} & set(sys.modules)\n"
        "sys.exit(f'imported: {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_help_lists_every_command_with_its_short_help():
    shown = " ".join(CliRunner().invoke(cli, ["--help"]).stdout.split())
    for name, (_, short) in COMMANDS.items():
        assert f"{name} {short}" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["adit"], "No such command 'adit'"),
        (["audit"], "Missing argument 'MODEL'."),
        (["audit", "model", "table", "--nonsense"], "No such option '--nonsense'"),
    ],
)
def test_wrong_use_is_one_sentence(arguments: list[str], message: str):
    assert refusal_of(CliRunner().invoke(cli, arguments)).startswith(f"Error: {message}")


def test_completion_after_a_mistyped_command_offers_what_there_is():
    typed = {"_FAIRFOX_COMPLETE": "bash_complete", "COMP_WORDS": "fairfox adit --", "COMP_CWORD": "2"}
    found = CliRunner().invoke(cli, env=typed, prog_name="fairfox")
    assert (found.exit_code, found.output.split()) == (0, ["plain,--version", "plain,--help"])


def test_a_bug_shows_where_and_does_not_read_as_over_the_limit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(type(cli), "get_command", lambda self, ctx, name: failing(ZeroDivisionError("a bug")))
    monkeypatch.setattr(sys, "argv", ["fairfox", "audit"])
    with pytest.raises(SystemExit) as exit:
        main()
    assert exit.value.code == 2
    assert "ZeroDivisionError: a bug" in capsys.readouterr().err
