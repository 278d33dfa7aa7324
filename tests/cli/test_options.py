import click
import pytest
from click.testing import CliRunner

from fairfox.cli.options import TYPED, FiniteRange, Once, typed_command


@click.command()
@click.option("--label", cls=Once)
@click.option("--seed", cls=Once, type=int, default=7, show_default=True)
@click.option("--delta", cls=Once, type=FiniteRange(min=0))
@click.option("--cut", cls=Once, type=FiniteRange())
def command(label: str | None, seed: int, delta: float | None, cut: float | None) -> None:
    click.echo(f"{label!r} {seed!r} {delta!r}")


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        ([], "None 7 None"),
        (["--label", "y", "--seed", "3", "--delta", "0"], "'y' 3 0.0"),
    ],
)
def test_an_option_given_once_has_its_value(arguments: list[str], printed: str):
    done = CliRunner().invoke(command, arguments)
    assert (done.exit_code, done.stdout.strip()) == (0, printed)


def test_an_option_given_twice_is_refused_even_with_the_same_value():
    done = CliRunner().invoke(command, ["--label", "y", "--label", "y"])
    assert done.exit_code == 2
    assert "Invalid value for '--label': it was given 2 times; give it once." in done.stderr


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "-0.1", "much"])
def test_numbers_out_of_range_are_refused(value: str):
    done = CliRunner().invoke(command, [f"--delta={value}"])
    assert done.exit_code == 2
    assert "'--delta'" in done.stderr


def test_defaults_and_bounds_are_shown():
    shown = CliRunner().invoke(command, ["--help"]).stdout
    assert "[default: 7]" in shown
    assert "[x>=0]" in shown
    assert "None" not in shown  # of the option without bounds


def test_the_command_is_kept_as_it_was_typed_but_for_keys_in_addresses():
    with click.Context(click.Command("audit"), info_name="audit") as ctx:
        ctx.meta[TYPED] = ["audit", "https://host?key=1", "people.csv", "-c", "a b"]
        assert typed_command() == "fairfox audit 'https://host?***' people.csv -c 'a b'"
