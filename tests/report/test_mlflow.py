"""Audits in runs of a local file store, read back by MLflow's own client."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from fairfox.errors import MissingExtraError, OptionError
from fairfox.report.files import scores_table
from fairfox.report.mlflow import log_audit
from fairfox.result import AuditResult
from tests.support import example_result, example_table, many_result, with_finding, without_sign

pytestmark = pytest.mark.usefixtures("undrawn")

FILES = {"report.html", "report.json", "summary.json", "summary.md", "junit.xml", "scores.parquet"}


@pytest.fixture
def mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    found = pytest.importorskip("mlflow")
    found.set_tracking_uri((tmp_path / "runs").as_uri())
    yield found
    while found.active_run():
        found.end_run()
    found.set_tracking_uri(None)


def folder_of(mlflow: Any, run_id: str, prefix: str = "fairfox") -> Path:
    """Return where the artifacts of a run lie."""
    return Path(mlflow.artifacts.download_artifacts(run_id=run_id, artifact_path=prefix))


def test_an_audit_goes_to_the_active_run_with_its_numbers_its_question_and_its_files(mlflow: Any):
    result = many_result()
    with mlflow.start_run() as run:
        assert log_audit(AuditResult(result)) == run.info.run_id
    data = mlflow.get_run(run.info.run_id).data
    assert data.metrics["fairfox/people"] == 200
    assert data.metrics["fairfox/judged"] == 196
    assert data.metrics["fairfox/share_flagged"] == pytest.approx(result.share_flagged)
    race = result.findings[1]
    assert data.metrics["fairfox/mean_score.race"] == pytest.approx(race.tally(result.weights).mean_score)
    assert data.metrics["fairfox/share_flagged.race"] == pytest.approx(race.tally(result.weights).share_flagged)
    assert data.metrics["fairfox/mean_effect.race_Black"] == pytest.approx(race.groups[1].mean_effect)
    assert data.metrics["fairfox/share_flagged.age_18 to 33"] == pytest.approx(result.groups[7].share_flagged)
    assert data.params == {
        "fairfox/test": "rank",
        "fairfox/delta": "0.05",
        "fairfox/protected": "sex, race, age",
        "fairfox/seed": "0",
        "fairfox/refits": "5",
    }
    assert data.tags["fairfox/verdict"] == "none"
    folder = folder_of(mlflow, run.info.run_id)
    assert {path.name for path in folder.iterdir()} == FILES
    assert json.loads((folder / "summary.json").read_text()) == json.loads(AuditResult(result).to_json())
    assert pq.read_table(folder / "scores.parquet").equals(scores_table(result))


def test_raw_rows_are_logged_only_where_the_table_is_given(mlflow: Any):
    result = example_result()
    with mlflow.start_run() as run:
        log_audit(AuditResult(result))
        log_audit(AuditResult(result), prefix="with rows", rows=example_table())
    without, with_them = (
        pq.read_table(folder_of(mlflow, run.info.run_id, prefix) / "scores.parquet").column_names
        for prefix in ("fairfox", "with rows")
    )
    assert [name for name in with_them if name not in without] == ["row.sex", "row.income", "row.job", "row.age"]


def test_an_audit_can_be_added_to_a_run_that_is_over(mlflow: Any):
    with mlflow.start_run() as run:
        pass
    assert mlflow.active_run() is None
    assert log_audit(AuditResult(example_result()), run_id=run.info.run_id) == run.info.run_id
    assert mlflow.active_run() is None
    assert mlflow.get_run(run.info.run_id).data.metrics["fairfox/judged"] == 38


def test_without_an_active_run_it_says_how_to_open_one_and_opens_none(mlflow: Any):
    with pytest.raises(
        OptionError, match=r"no active MLflow run to log to; open one with `with mlflow.start_run\(\):`"
    ):
        log_audit(AuditResult(example_result()))
    assert mlflow.active_run() is None


@pytest.mark.parametrize("prefix", ["", "/fairfox", "a//b", "..", "a/../b", "a=b", "a/"])
def test_a_prefix_that_is_no_name_is_refused_before_anything_is_logged(mlflow: Any, prefix: str):
    with mlflow.start_run() as run, pytest.raises(OptionError, match="prefix is '"):
        log_audit(AuditResult(example_result()), prefix=prefix)
    assert mlflow.get_run(run.info.run_id).data.params == {}


def test_names_that_mlflow_does_not_take_are_written_otherwise_and_told_apart(mlflow: Any):
    result = example_result()
    levels = ("../" + "x" * 400, "../" + "x" * 400 + "é", "<b>", "[b]")
    groups = tuple(replace(result.groups[0], level=level, mean_effect=0.1 * k) for k, level in enumerate(levels))
    with mlflow.start_run() as run:
        log_audit(AuditResult(with_finding(result, groups=groups)))
    metrics = mlflow.get_run(run.info.run_id).data.metrics
    found = {key: value for key, value in metrics.items() if key.startswith("fairfox/mean_effect.")}
    assert sorted(found.values()) == pytest.approx([0.0, 0.1, 0.2, 0.3])
    assert found["fairfox/mean_effect.sex__b_"] == pytest.approx(0.2)
    assert found["fairfox/mean_effect.sex__b__2"] == pytest.approx(0.3)
    assert max(len(key) for key in metrics) == 250


def test_a_test_without_sign_and_interval_logs_what_it_has(mlflow: Any):
    with mlflow.start_run() as run:
        log_audit(AuditResult(without_sign()))
    metrics = mlflow.get_run(run.info.run_id).data.metrics
    assert "fairfox/share_flagged.sex_Female" in metrics
    assert not [key for key in metrics if "confident" in key or "mean_effect" in key]


def test_without_mlflow_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'fairfox\[mlflow\]'"):
        log_audit(AuditResult(example_result()))
