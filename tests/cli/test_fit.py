from pathlib import Path

import pyarrow.csv
import pytest
from click.testing import CliRunner, Result

from fairfox.benchmark.worlds import LENDING
from fairfox.cli.main import cli
from fairfox.fairtests.storage import load_test
from tests.support import ended, refusal_of

pytestmark = pytest.mark.brief


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    pyarrow.csv.write_csv(LENDING.sample(200, seed=0).table, tmp_path / "people.csv")
    return tmp_path


def run(folder: Path, *options: str) -> Result:
    return CliRunner().invoke(cli, ["fit", str(folder / "people.csv"), "-o", str(folder / "test.fox"), *options])


def test_a_fit_writes_one_file_and_says_what_models_take(folder: Path):
    done = ended(run(folder, "--protected", "sex", "--columns", "income,debt_ratio", "--refits", "2", "--seed", "3"), 0)
    assert "rank was fitted on 200 people, protected: sex." in done.stdout
    assert "Models take the columns income, debt_ratio." in done.stdout
    assert done.stderr == f"Written: {folder / 'test.fox'}\n"
    test = load_test(folder / "test.fox")
    assert (test.options.main, test.options.seed, test.encoding.columns) == ("rank", 3, ("income", "debt_ratio"))
    assert sorted(path.name for path in folder.iterdir()) == ["people.csv", "test.fox"]


def test_settings_of_the_test_are_kept(folder: Path):
    given = ["--test", "move", "--settings", "steps=2", "--label", "approved"]
    ended(run(folder, "--protected", "sex", "--refits", "1", *given), 0)
    test = load_test(folder / "test.fox")
    assert test.options.settings == {"steps": 2}
    assert "approved" not in test.encoding.columns


def test_given_columns_are_kept_and_refused_with_a_test_that_cannot_hold_them(folder: Path):
    given = ["--protected", "sex", "--refits", "1", "--given", "sector, contract"]
    assert run(folder, *given).exit_code == 0
    assert load_test(folder / "test.fox").options.given == ("sector", "contract")
    refused = refusal_of(run(folder, *given, "--test", "move"))
    assert "move takes no given columns; use rank with given (--given)" in refused


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--protected", "sx"], "Did you mean 'sex'?"),
        (["--protected", "sex", "--test", "fliptest"], "fliptest cannot be stored in a file"),
        (["--protected", "sex", "--test", "move", "--settings", "stpes=2"], "Did you mean 'steps'?"),
        (["--protected", "sex", "--columns", "income,debt"], "has no column 'debt'"),
        ([], "Missing option '-c' / '--protected'"),
    ],
)
def test_a_fit_that_cannot_be_is_one_sentence(folder: Path, options: list[str], message: str):
    assert message in refusal_of(run(folder, *options))
    assert not (folder / "test.fox").exists()
