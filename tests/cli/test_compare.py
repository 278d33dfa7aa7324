from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from fairfox.cli.main import cli
from tests.schemas import assert_valid_summary
from tests.support import ended, refusal_of
from tests.test_compare_audits import DAMAGES, SETTINGS, audited, spoil, write

pytestmark = pytest.mark.brief


@pytest.fixture
def audits(tmp_path: Path) -> Path:
    write(audited(), tmp_path / "first")
    write(audited(times=3.0), tmp_path / "second")
    return tmp_path


def run(folder: Path, *options: str, models: tuple[str, str] = ("model.py:score", "model.py:gentle")) -> Result:
    named = [*(str(folder / model) if "://" not in model else model for model in models), str(folder / "people.csv")]
    return CliRunner().invoke(cli, ["compare", *named, "--out", str(folder / "out"), *options])


def test_a_comparison_prints_the_verdict_and_writes_its_files(folder: Path):
    columns = ["--columns", "income, age", "--columns-b", " income"]
    done = ended(run(folder, "--protected", "sex", "--refits", "2", "--sample", "100", *columns), 0)
    assert "Verdict: B is fairer. On the same 100 people" in done.stdout
    assert "Written: " in done.stderr
    fields = assert_valid_summary((folder / "out/summary.json").read_text(), "compare")
    assert fields["sides"]["a"]["name"].endswith("model.py:score")
    assert fields["sides"]["a"]["columns"] == ["income", "age"]
    assert fields["sides"]["b"]["columns"] == ["income"]
    rows = pq.read_table(folder / "out/people.parquet")["row_id"].to_pylist()
    assert len(rows) == 100
    assert max(rows) > 100  # of the table, not of the sample


@pytest.mark.parametrize(
    ("options", "models", "message"),
    [
        (("-c", "sex"), ("https://host/invocations", "model.py:gentle"), "in Python with a fairfox.Endpoint"),
        (("-c", "sex"), ("model.py:score", "model.py:none"), "none"),
        (("-c", "race"), ("model.py:score", "model.py:gentle"), "race"),
        ((), ("model.py:score", "model.py:gentle"), "--protected"),
        (("-c", "sex", "--test", "nosuch"), ("model.py:score", "missing.pkl"), "nosuch"),
        (
            ("-c", "sex", "--margin", "1"),
            ("model.py:score", "model.py:gentle"),
            "margin is an option for two stored audits",
        ),
    ],
)
def test_what_cannot_be_compared_is_refused_in_one_sentence(folder: Path, options, models, message: str):
    assert message in refusal_of(run(folder, *options, models=models))
    assert not (folder / "out").exists()


def run_audits(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, ["compare", *map(str, arguments)])


@pytest.mark.parametrize(
    ("first", "second", "code", "word", "moved"),
    [("first", "second", 1, "worse", "rose"), ("second", "first", 0, "not worse", "fell")],
)
def test_of_two_audits_the_exit_code_says_whether_the_second_is_worse(
    audits: Path, first: str, second: str, code: int, word: str, moved: str
):
    means = {"first": "6.1 points", "second": "18.3 points"}
    done = run_audits(audits / first, audits / second)
    assert done.exit_code == code, done.stderr
    assert done.stderr == ""
    went = f"{moved} from {means[first]} to {means[second]} (95 % interval of the difference: "
    title, verdict, share = done.stdout.splitlines()
    assert title.startswith(f"fairfox compare: before is {audits / first}, now is ")
    assert verdict.startswith(f"Verdict: {word}. The mean size of the effect of the same 38 people {went}")
    assert verdict.endswith(" it has not risen by more than the margin of 0.5 points.") == (moved == "fell")
    assert share.startswith("Flagged: ")


def test_files_of_two_audits_are_written_where_a_folder_is_named(audits: Path):
    done = ended(run_audits(audits / "first", audits / "second", "--out", audits / "out"), 1)
    assert done.stderr.startswith(f"Written: {audits / 'out'}")
    names = {"report.html", "report.json", "summary.json", "summary.md", "junit.xml"}
    assert {path.name for path in (audits / "out").iterdir()} == names
    fields = assert_valid_summary((audits / "out/summary.json").read_text(), "compare")
    assert (fields["word"], fields["sides"]["a"]["name"]) == ("worse", str(audits / "first"))


def test_a_share_without_an_interval_is_printed_without(tmp_path: Path):
    for times in (1.0, 3.0):
        write(audited(times=times, settings={**SETTINGS, "decision_threshold": 0.5}), tmp_path / f"{times:g}")
    done = ended(run_audits(tmp_path / "1", tmp_path / "3"), 1)
    assert done.stdout.splitlines()[2] == "Flagged: 60.5 % before, 89.5 % now; a difference of +28.9 points."


@pytest.mark.parametrize("command", ["compare", "plan"])
@pytest.mark.parametrize(("keys", "value"), DAMAGES[::4])
def test_a_damaged_audit_is_one_sentence(audits: Path, command: str, keys, value):
    spoil(audits / "first", keys, value)
    named = [str(audits / "first"), *([str(audits / "second")] if command == "compare" else [])]
    refusal_of(CliRunner().invoke(cli, [command, *named]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["nowhere"], "give a folder that `fairfox audit` wrote, or the table of people as well"),
        (["first", "--margin", "-1"], "-1"),
        (["first", "--refits", "3"], "--refits says how to audit two models, but there is no TABLE"),
    ],
)
def test_bad_input_is_one_sentence(audits: Path, options: list[str], message: str):
    assert message in refusal_of(run_audits(audits / "first", audits / options[0], *options[1:]))
