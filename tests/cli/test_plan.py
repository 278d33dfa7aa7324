from pathlib import Path

from click.testing import CliRunner

from fairfox.cli.main import cli
from tests.support import ended, refusal_of
from tests.test_compare_audits import audited, write


def test_a_plan_says_how_many_people_and_what_others_would_show():
    done = ended(CliRunner().invoke(cli, ["plan", "--effect", "0.08", "--limit", "0.05", "--spread", "0.3"]), 0)
    lines = done.stdout.splitlines()
    needed = "An audit of 619 people detects that a mean |effect| of 0.08 is above delta (0.05) 80 % of the time."
    assert lines[0] == needed
    assert lines[-2] == "An audit of 619 people detects it 80 % of the time."
    assert len(lines) == 6


def test_sizes_can_be_asked_for_and_the_pilot_is_a_folder(tmp_path: Path):
    write(audited(), tmp_path / "pilot")
    command = ["plan", str(tmp_path / "pilot"), "--effect", "0.2", "--power", "0.9", "--people", "7", "--people", "70"]
    done = ended(CliRunner().invoke(cli, command), 0)
    assert "above delta (0.05) 90 % of the time" in done.stdout
    assert [line.split()[3] for line in done.stdout.splitlines()[2:]] == ["7", "70"]


def test_what_cannot_be_planned_is_one_sentence():
    for options in (["--effect", "0.08"], ["--effect", "0.01", "--limit", "0.05", "--spread", "0.3"], ["nowhere"]):
        refusal_of(CliRunner().invoke(cli, ["plan", *options]))
