"""The demo's claims, on a smaller population than `fairfox demo` uses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from fairfox.cli.main import cli
from tests.schemas import assert_valid_summary

pytestmark = pytest.mark.brief


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    folder = tmp_path_factory.mktemp("demo")
    result = CliRunner().invoke(cli, ["demo", "--people", "6000", "--out", str(folder / "out")], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout, folder / "out"


def test_the_biased_model_is_measured_in_true_units_and_the_right_people_come_first(demo: tuple[str, Path]):
    biased = json.loads((demo[1] / "summary.json").read_text())["models"]["biased"]
    assert biased["mean_effect"] / biased["mean_truth"] == pytest.approx(1.0, abs=0.25)
    assert biased["rho"] >= 0.65
    assert biased["precision"] > 0.8
    assert biased["recall"] > 0.8


def test_the_fair_model_is_left_alone(demo: tuple[str, Path]):
    found = json.loads((demo[1] / "summary.json").read_text())["models"]
    assert found["fair"]["mean_truth"] == 0.0
    assert found["fair"]["mean_effect"] <= 0.1 * found["biased"]["mean_effect"]
    assert found["fair"]["confident"] == 0


def test_the_findings_are_printed_and_the_reports_written(demo: tuple[str, Path]):
    printed = " ".join(demo[0].split())
    found = assert_valid_summary((demo[1] / "summary.json").read_text(), "demo")
    assert f"Spearman correlation with it {found['models']['biased']['rho']:.2f}" in printed
    assert "0 people confidently flagged" in printed
    for name in ("biased", "fair"):
        written = {path.name for path in (demo[1] / name).iterdir()}
        assert written == {"summary.json", "scores.parquet", "report.html", "report.json", "junit.xml", "summary.md"}
        assert_valid_summary((demo[1] / name / "summary.json").read_text())
    assert {path.name for path in demo[1].iterdir()} == {"biased", "fair", "summary.json", "people.csv"}
    settings = found["settings"]["biased"]
    assert settings["seed"] == 0
    assert settings["versions"]["torch"]
    assert settings["seconds"] > 0
