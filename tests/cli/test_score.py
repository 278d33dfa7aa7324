import json
import pickle
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from sklearn.linear_model import LogisticRegression

from fairfox.benchmark.worlds import LENDING
from fairfox.cli.main import cli
from fairfox.fairtests.storage import save_test
from tests.schemas import assert_valid_summary
from tests.streaming.world import COLUMNS, MODEL
from tests.support import ended, fitted_on, refusal_of

pytestmark = [pytest.mark.brief, pytest.mark.usefixtures("undrawn")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a fitted test, a model, and people to be scored."""
    out = tmp_path_factory.mktemp("score")
    save_test(
        fitted_on(LENDING.sample(200, seed=0).table, protected="sex", columns=COLUMNS, refits=2), out / "test.fox"
    )
    (out / "model.py").write_text(MODEL)
    pyarrow.csv.write_csv(LENDING.sample(100, seed=1).table, out / "new.csv")
    return out


def run(
    folder: Path,
    out: Path,
    *options: str,
    test: str = "test.fox",
    model: str = "model.py:predict",
    table: str = "new.csv",
) -> Result:
    named = [str(folder / test), str(folder / model), str(folder / table)]
    return CliRunner().invoke(cli, ["score", *named, "-o", str(out), *options])


def test_scores_have_the_columns_of_an_audit(folder: Path, tmp_path: Path):
    done = ended(run(folder, tmp_path / "out"), 0)
    assert "fairfox audit of 100 people for sex, test rank" in done.stdout
    assert "of 100 people" in done.stdout
    given = [str(folder / "model.py:predict"), str(folder / "new.csv"), "-c", "sex", "--columns", ",".join(COLUMNS)]
    audit = ["audit", *given, "--refits", "2", "--out", str(tmp_path / "audit")]
    ended(CliRunner().invoke(cli, audit), 3)  # the gap of 100 people is left unexplained
    found, audited = (pq.read_table(tmp_path / name / "scores.parquet") for name in ("out", "audit"))
    assert found.schema == audited.schema
    written = [{path.name for path in (tmp_path / name).iterdir()} for name in ("out", "audit")]
    assert written[0] == written[1]


def test_the_summary_counts_what_the_scores_show(folder: Path, tmp_path: Path):
    done = ended(run(folder, tmp_path, "--delta", "0.02"), 0)
    fields = assert_valid_summary((tmp_path / "summary.json").read_text())
    scores = pq.read_table(tmp_path / "scores.parquet")
    assert fields["delta"] == 0.02
    assert fields["counts"]["flagged"] == sum(score > 0.02 for score in scores["score"].to_pylist()) > 0
    assert fields["settings"]["fitted"].endswith("test.fox")
    assert fields["settings"]["reference_rows"] == 200
    assert done.stderr.count("Warning: ") == len(fields["warnings"])


def test_a_model_file_that_can_run_code_needs_trust(folder: Path, tmp_path: Path):
    frame = LENDING.sample(200, seed=0).table.to_pandas()
    model = LogisticRegression(max_iter=1000).fit(frame[COLUMNS], frame["approved"])
    (folder / "model.pkl").write_bytes(pickle.dumps(model))
    assert "--trust-model" in refusal_of(run(folder, tmp_path / "out", model="model.pkl"))
    ended(run(folder, tmp_path / "out", "--trust-model", "--output", "logit", model="model.pkl"), 0)
    assert "(logit)" in json.loads((tmp_path / "out/summary.json").read_text())["unit"]


def test_bad_input_is_one_sentence_and_leaves_nothing(folder: Path, tmp_path: Path):
    content = (folder / "test.fox").read_bytes()
    (folder / "short.fox").write_bytes(content[:-100])
    (folder / "changed.fox").write_bytes(content[:-1] + b"?")
    pyarrow.csv.write_csv(pa.table({"income": [1.0, 2.0], "sex": ["Male", "Female"]}), folder / "narrow.csv")
    for given, message in (
        ({"test": "nowhere.fox"}, "There is no file"),
        ({"test": "new.csv"}, "'new.csv' is not a usable fitted test"),
        ({"test": "short.fox"}, "'short.fox' is not a usable fitted test: it is truncated"),
        ({"test": "changed.fox"}, "its checksum differs"),
        ({"table": "narrow.csv"}, "The table has no column 'debt_ratio', which the test was fitted on"),
        ({"model": "model.py:nothing"}, "nothing"),
    ):
        assert message in refusal_of(run(folder, tmp_path / "out", **given))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("option", "value"), [("--delta", "20"), ("--delta", "1e308"), ("--max-flagged", "Nobody=0.1")]
)
def test_limits_are_checked_before_a_stream_begins(folder: Path, tmp_path: Path, option: str, value: str):
    pq.write_table(LENDING.sample(100, seed=1).table, folder / "new.parquet")
    one, other = (
        refusal_of(run(folder, tmp_path / "out", option, value, "--engine", engine, table="new.parquet"))
        for engine in ("memory", "files")
    )
    assert one == other
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("engine", ["memory", "files"])
def test_a_model_of_other_columns_is_refused_with_what_to_fit_anew(folder: Path, tmp_path: Path, engine: str):
    table = LENDING.sample(100, seed=1).table
    pq.write_table(table, folder / "new.parquet")
    model = LogisticRegression().fit(table.select(["income"]).to_pandas(), table["approved"].to_pylist())
    (folder / "one.pkl").write_bytes(pickle.dumps(model))
    given = {"model": "one.pkl", "table": "new.parquet"}
    assert refusal_of(run(folder, tmp_path / "out", "--trust-model", "--engine", engine, **given)) == (
        "Error: The model takes the columns income, but the test was fitted on income, debt_ratio; fit it on the "
        "model's columns, in their order (columns=[...], --columns)\n"
    )
    assert not (tmp_path / "out").exists()


def test_one_person_is_scored(folder: Path, tmp_path: Path):
    pyarrow.csv.write_csv(LENDING.sample(1, seed=1).table, folder / "one.csv")
    ended(run(folder, tmp_path / "out", "--delta", "0", table="one.csv"), 0)
    assert len(pq.read_table(tmp_path / "out/scores.parquet")) == 1


def test_compare_and_plan_take_its_output(folder: Path, tmp_path: Path):
    assert run(folder, tmp_path / "out").exit_code == 0
    for command in (["compare", str(tmp_path / "out"), str(tmp_path / "out")], ["plan", str(tmp_path / "out")]):
        ended(CliRunner().invoke(cli, command), 0)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--workers", "2"], "--workers is for Parquet"),
        (["--overwrite"], "--overwrite is for Parquet"),
        (["--engine", "dask"], "new.csv' is not Parquet"),
        (["other.csv"], "is not Parquet; give one table of another kind at a time"),
    ],
)
def test_what_is_for_parquet_alone_is_refused_for_other_tables(
    folder: Path, tmp_path: Path, more: list[str], message: str
):
    assert message in refusal_of(run(folder, tmp_path / "out", *more))
    assert not (tmp_path / "out").exists()
