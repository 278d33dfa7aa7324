from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from fairfox.cli.audit import audit
from fairfox.cli.config import config_values
from fairfox.cli.main import cli
from fairfox.errors import FileError, OptionError
from tests.support import ended, refusal_of

pytestmark = [pytest.mark.brief, pytest.mark.usefixtures("undrawn")]

CONFIG = """
model = "model.py:score"
table = "people.csv"
protected = ["sex"]
refits = 1
delta = [0.02, "sex=Male=0.5"]
max_flagged = 0.9
certify = false
include-rows = true
"""


def configured(folder: Path, text: str) -> Path:
    (folder / "audit.toml").write_text(text, encoding="utf-8")
    return folder / "audit.toml"


def values(folder: Path, text: str) -> dict[str, Any]:
    return config_values(audit, configured(folder, text))


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["audit", *map(str, arguments)])


def test_owner_and_reason_are_recorded_and_the_hash_of_the_file_is_in_every_output(folder: Path):
    file = configured(folder, CONFIG + 'owner = "Lending"\nreason = "Five points change the price <b>."\n')
    ended(run("--config", file, "--out", folder / "found"))
    digest = sha256(file.read_bytes()).hexdigest()
    for name in ("summary.json", "report.json", "report.html", "junit.xml", "summary.md"):
        assert digest in (folder / "found" / name).read_text(encoding="utf-8"), name
    assert pq.read_schema(folder / "found/scores.parquet").metadata[b"config_sha256"] == digest.encode()
    settings = json.loads((folder / "found/summary.json").read_text())["settings"]
    assert (settings["owner"], settings["reason"]) == ("Lending", "Five points change the price <b>.")
    page = (folder / "found/report.html").read_text(encoding="utf-8")
    assert "Five points change the price &lt;b&gt;." in page
    ended(run(folder / "model.py:score", folder / "people.csv", "-c", "sex", "--out", folder / "other"))
    assert "config_sha256" not in (folder / "other/junit.xml").read_text()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("owner = 3\nreason = 'x'", None),  # as on the command line, a number is its text
        (f"owner = '{'x' * 201}'", "owner has 201 characters; expected at most 200 printable characters"),
        (f"reason = '{'x' * 2001}'", "reason has 2,001 characters; expected at most 2,000"),
        ('reason = """a\nb"""', "not printable"),
        ("owner = ['a', 'b']", "takes one value, not a list"),
    ],
)
def test_owner_and_reason_are_short_and_printable(folder: Path, text: str, message: str | None):
    done = run("--config", configured(folder, CONFIG + text), "--out", folder / "found")
    if message is None:
        ended(done)
    else:
        assert message in refusal_of(done)


def test_an_audit_runs_from_a_file_alone_and_the_command_line_wins(folder: Path, tmp_path: Path):
    file = configured(folder, CONFIG)
    ended(run("--config", file, "--out", folder / "found"))
    fields = json.loads((folder / "found/summary.json").read_text())
    assert (fields["delta"], fields["deltas"]) == (0.02, {"sex=Male": 0.5})
    assert (fields["settings"]["refits"], fields["settings"]["max_flagged"]) == (1, {"": 0.9})
    assert fields["settings"]["table"] == str(folder / "people.csv")
    ended(run("--config", file, "--max-flagged", "0.01", "--delta", "0.03", "--out", tmp_path / "other"))
    fields = json.loads((tmp_path / "other/summary.json").read_text())
    assert (fields["delta"], fields["deltas"]) == (0.03, {})
    assert fields["settings"]["max_flagged"] == {"": 0.01}


def test_relative_paths_start_from_the_file(folder: Path):
    given = values(folder, 'table = "a.csv"\nreference = "/b.csv"\ngraph = "x/y"\nmodel = "m.onnx#p"')
    assert given == {
        "table": str(folder / "a.csv"),
        "reference": ["/b.csv"],
        "graph": [str(folder / "x/y")],
        "model": str(folder / "m.onnx#p"),
    }


@pytest.mark.parametrize("model", ["package.module:function", "https://host/invocations"])
def test_modules_and_urls_stay_as_they_are(folder: Path, model: str):
    assert values(folder, f'model = "{model}"') == {"model": model}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("refit = 2", "has 'refit', which is not an option. Did you mean 'refits'?"),
        ("max_flaged = 2", "Did you mean 'max-flagged'?"),
        ("config = 'other.toml'", "has 'config', which is not an option."),
        ("[audit]\nrefits = 2", "has 'audit', which is not an option."),
        ("hold-others = true\nhold_others = true", "has 'hold_others' twice, with - and with _"),
        ("certify = 'yes'", "'certify' in .* is 'yes'; write certify = true or certify = false"),
        ("refits = [1, 2]", "'refits' in .* takes one value, not a list"),
        ("id = true", "'id' in .* is True; expected a text or a number"),
        ("drop = [['a']]", "'drop' in .*; expected a text or a number"),
        ("delta = {sex = [1]}", "'delta' in .* is \\[1\\]; expected a text or a number"),
        ("refits = {a = 1}", "'refits' in .*; expected a text or a number"),
        ("set = 'a=1'", "has 'set', which is not an option. Did you mean 'settings'?"),
        ('id = "a\\nb"', r"'id' in .* is 'a\\nb', not printable"),
        *(
            (f"{name} = {value}", f"which a file may not set, for safety; remove it, and give --{name} on the command")
            for name, value in {"trust-model": "true", "auth-env": "'HOME'", "out": "'..'"}.items()
        ),
    ],
)
def test_what_the_command_line_could_not_say_is_refused(folder: Path, text: str, message: str):
    with pytest.raises(OptionError, match=message):
        values(folder, text)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"refits = ", "is not valid TOML: Invalid value"),
        (b"refits = 1\nrefits = 2", "is not valid TOML: Cannot overwrite a value"),
        (b"id = '\xff'", r"cannot be read \('utf-8' codec .*\); give a text file in UTF-8"),
    ],
)
def test_a_file_that_is_no_toml_is_refused(folder: Path, content: bytes, message: str):
    (folder / "audit.toml").write_bytes(content)
    with pytest.raises(FileError, match=message):
        config_values(audit, folder / "audit.toml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("refit = 2", "Did you mean 'refits'?"),
        (CONFIG.replace("refits = 1", "refits = 2.5"), "'2.5' is not a valid integer"),
        (CONFIG.replace("0.9", "1.9"), "1.9 is above 1; did you mean 0.019?"),
        (CONFIG.replace('table = "people.csv"', ""), "TABLE"),
        (CONFIG.replace('protected = ["sex"]', ""), "--protected"),
    ],
)
def test_the_command_refuses_in_one_sentence(folder: Path, text: str, message: str):
    done = run("--config", configured(folder, text), "--out", folder / "found")
    assert message in refusal_of(done)
    assert not (folder / "found").exists()


def test_a_file_that_is_not_there_is_named(tmp_path: Path):
    assert "no.toml' cannot be read (No such file or directory)" in refusal_of(run("--config", tmp_path / "no.toml"))
