"""`fairfox audit URL TABLE` against real servers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from populations import people
from servers import Asked, Reply, open_inference, serving
from support import ended, refusal_of

from fairfox.cli.main import cli

pytestmark = [pytest.mark.brief, pytest.mark.usefixtures("undrawn")]

TABLE = people(80)
MODEL = """
def score(table):
    return 1 / (1 + 2.718281828459045 ** (3.2 - table["income"] / 1000))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    TABLE.to_csv(tmp_path / "people.csv", index=False)
    (tmp_path / "model.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def plain(model: str, *options: str) -> Result:
    """Run without any option of an endpoint."""
    fixed = ["-c", "sex", "--refits", "1", "--out", "out"]
    return CliRunner().invoke(cli, ["audit", model, "people.csv", *fixed, *options])


def run(model: str, *options: str) -> Result:
    return plain(model, "--retries", "0", *options)


def refused(done: Result) -> str:
    """Return the sentence, having checked that nothing was written and nothing else was said."""
    assert not Path("out").exists()
    return refusal_of(done)


def score(asked: Asked) -> Reply:
    """Answer as the model in model.py does, in MLflow's way."""
    frame = asked.body["dataframe_split"]
    place = frame["columns"].index("income")
    income = np.array([row[place] for row in frame["data"]])
    return Reply({"predictions": (1 / (1 + np.exp(3.2 - income / 1000))).tolist()})


def v2_score(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {"p": 1 / (1 + np.exp(3.2 - inputs["income"] / 1000)) + 0 * inputs["age"]}


V2 = open_inference(v2_score, [("income", "FP64", [-1]), ("age", "FP32", [-1])])


@pytest.mark.parametrize("table", ["people.csv", "people.parquet"])
def test_keys_in_addresses_are_in_no_file_and_are_told_apart(folder: Path, table: str):
    TABLE.to_parquet("people.parquet")
    invoke = CliRunner().invoke
    assert invoke(cli, ["fit", "people.csv", "-c", "sex", "--refits", "1"]).exit_code == 0
    with serving(score) as server:
        url = f"{server.root}/invocations?api_key="
        scored = [table, "-o", "scored", *(["--workers", "1"] if table == "people.parquet" else [])]
        ended(invoke(cli, ["score", "test.fox", f"{url}k3y-one", *scored]), 0)
        if table == "people.parquet":
            other = invoke(cli, ["score", "test.fox", f"{url}k3y-two", *scored])
            assert "holds scores with another model" in other.stderr
            assert "k3y" not in other.output
        ended(run(f"{url}k3y-one"))
    assert not [path for path in folder.rglob("*") if path.is_file() and b"k3y" in path.read_bytes()]
    assert "/invocations?***" in (folder / "out/summary.json").read_text()  # in the command


@pytest.mark.parametrize(
    "table", ["s3://anna:k3y@b/x.parquet?k=k3y", "nope://anna:k3y@b/x.parquet?k=k3y", "https://anna:k3y@h/x.csv?k=k3y"]
)
def test_keys_in_addresses_of_tables_are_in_no_error(folder: Path, table: str):
    assert CliRunner().invoke(cli, ["fit", "people.csv", "-c", "sex", "--refits", "1"]).exit_code == 0
    command = ["audit", "model.py:score", table, "-c", "sex"]
    for done in (
        CliRunner().invoke(cli, command),
        CliRunner().invoke(cli, ["score", "test.fox", "model.py:score", table]),
    ):
        assert "k3y" not in refused(done)
        assert "***@" in done.stderr


def test_a_model_behind_a_url_is_audited_like_the_same_code(folder: Path):
    with serving(score) as server:
        ended(run(f"{server.root}/invocations"))
    found = json.loads((folder / "out/summary.json").read_text())
    ended(plain("model.py:score"))
    expected = json.loads((folder / "out/summary.json").read_text())
    assert found["share_flagged"] == expected["share_flagged"]
    for ours, theirs in zip(*(fields["variables"][0]["groups"] for fields in (found, expected)), strict=True):
        assert ours["mean_effect"] == pytest.approx(theirs["mean_effect"], abs=1e-9)
    assert found["settings"]["model_source"] == f"{server.root}/invocations"
    assert found["settings"]["calls"] == server.predictions
    assert found["settings"]["batch_rows"] == 1000


def test_a_v2_server_is_audited_on_the_columns_it_names(folder: Path):
    with serving(V2) as server:
        ended(run(f"{server.root}/v2/models/rule/infer"))
    assert json.loads((folder / "out/summary.json").read_text())["settings"]["columns"] == ["income", "age"]


# --- the limit ------------------------------------------------------------------------------------------------------


def test_an_audit_within_its_limit_of_calls_passes(folder: Path):
    with serving(score) as server:
        ended(run(f"{server.root}/invocations", "--batch-rows", "30", "--drop", "job", "--max-calls", "10000"))
    assert max(len(asked.body["dataframe_split"]["data"]) for asked in server.asked) == 30


def test_the_limit_of_calls_is_hard_and_repeated_tries_count(folder: Path):
    def busy_once(asked: Asked) -> Reply:
        return Reply(status=503) if server.predictions == 5 else score(asked)

    with serving(busy_once) as server:
        message = refused(plain(f"{server.root}/invocations", "--retries", "1", "--max-calls", "10"))
    assert "called 10 times, retries included, as often as --max-calls (max_calls=...) allows" in message
    assert server.predictions == 10


# --- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("option", "value"), [("--max-calls", "5"), ("--retries", "0"), ("--auth-env", "HOME")])
def test_options_of_an_endpoint_are_refused_for_other_models(folder: Path, option: str, value: str):
    assert f"{option} is for a model behind a URL" in refused(plain("model.py:score", option, value))


# --- secrets --------------------------------------------------------------------------------------------------------


def test_the_credentials_are_sent_and_found_nowhere_else(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MODEL_TOKEN", "Bearer s3cret-t0ken")
    with serving(score) as server:
        done = ended(run(f"{server.root}/invocations?key=hunter2", "--auth-env", "MODEL_TOKEN"))
    assert {asked.headers["Authorization"] for asked in server.asked} == {"Bearer s3cret-t0ken"}
    assert {asked.path for asked in server.asked} == {"/invocations?key=hunter2"}
    written = b"".join(path.read_bytes() for path in (folder / "out").iterdir()) + done.output.encode()
    assert b"s3cret" not in written
    assert b"hunter2" not in written
