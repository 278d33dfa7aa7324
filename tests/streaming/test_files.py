import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import torch
from click.testing import CliRunner, Result

from fairfox.cli.main import cli
from fairfox.errors import ColumnError, DataError, FileError, ModelError, OptionError
from fairfox.fairtests.storage import load_test, save_test
from fairfox.models.loading import load_model
from fairfox.pipeline import audit
from fairfox.report.files import scores_table
from fairfox.streaming import files
from fairfox.streaming.batches import BatchScorer, prepare_job
from fairfox.streaming.files import Manifest, only_run_in, read_manifest, score_files
from fairfox.streaming.sources import RowGroups, TableFile, must_stream
from tests.schemas import assert_valid_summary
from tests.streaming.world import (
    COLUMNS,
    MODEL,
    assert_same_columns,
    at_once,
    lending,
    make_world,
    model_of,
    score_here,
    scores_of,
)
from tests.support import fitted_on

pytestmark = [pytest.mark.brief, pytest.mark.usefixtures("undrawn")]

SLOW = MODEL.replace("    return", "    import time; time.sleep(0.05)\n    return")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_world(tmp_path_factory.mktemp("world"))


@pytest.fixture
def folder(world: Path, tmp_path: Path) -> Path:
    """A copy of the world to do harm to."""
    shutil.copytree(world, tmp_path, dirs_exist_ok=True)
    return tmp_path


def run(folder: Path, out: str = "out", **options: Any) -> dict[str, Any]:
    score_here(folder, out, **{"part_rows": 200, **options})
    return assert_valid_summary((folder / out / "summary.json").read_text())


def part_names(folder: Path, out: str = "out") -> list[str]:
    return sorted(path.name for path in (folder / out / "scores.parquet").iterdir())


def manifest_of(folder: Path, out: str = "out") -> dict[str, Any]:
    return json.loads((folder / out / "manifest.json").read_text())


def test_parts_have_everyone_once_with_the_scores_from_memory(folder: Path):
    run(folder)
    scores = scores_of(folder / "out")
    assert part_names(folder) == [f"part-{n:05d}.parquet" for n in range(6)]  # 200, 200 and 100 people of each file
    assert_same_columns(scores, scores_table(at_once(load_test(folder / "test.fox"), lending(1000), folder)))
    assert scores["row_id"].to_pylist() == [*range(500), *range(500)]
    assert scores["file"].to_pylist() == [str(folder / "in/a.parquet")] * 500 + [str(folder / "in/b.parquet")] * 500
    manifest = manifest_of(folder)
    assert manifest["complete"]
    assert manifest["rows"] == 1000
    assert [(part["first_row"], part["rows"]) for part in manifest["parts"][:3]] == [(0, 200), (200, 200), (400, 100)]


def test_a_run_that_stopped_goes_on_and_comes_to_the_same_end(folder: Path):
    whole = run(folder, "whole")
    run(folder)
    kept = (folder / "out/scores.parquet/part-00001.parquet").stat().st_mtime_ns
    for name in ("part-00000.parquet", "part-00004.parquet"):
        (folder / "out/scores.parquet" / name).unlink()
    (folder / "out/scores.parquet/.part-00004.parquet.0f1e2d3c.tmp").write_text("of a run that was killed")
    (folder / "out/summary.json").unlink()
    again = run(folder)
    clean = [{k: v for k, v in s.items() if k != "settings"} for s in (again, whole)]
    assert clean[0] == clean[1]  # to the last bit
    assert part_names(folder) == part_names(folder, "whole")
    assert (folder / "out/scores.parquet/part-00001.parquet").stat().st_mtime_ns == kept
    assert scores_of(folder / "out").equals(scores_of(folder / "whole"))
    assert manifest_of(folder)["complete"]


def test_killed_in_the_middle_it_finishes_the_second_time_with_everyone_once(folder: Path):
    whole = run(folder, "whole", part_rows=100)
    (folder / "model.py").write_text(SLOW)
    command = [sys.executable, "-m", "fairfox.cli.main", "score", "test.fox", "model.py:predict", "in", "-o", "out"]
    process = subprocess.Popen([*command, "--workers", "1", "--part-rows", "100"], cwd=folder)
    scores, deadline = folder / "out/scores.parquet", time.monotonic() + 60
    while len(list(scores.glob("part-*"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    done = len(list(scores.glob("part-*")))
    assert 2 <= done < 10
    assert not (folder / "out/summary.json").exists()
    again = run(folder, part_rows=100)
    assert scores_of(folder / "out")["score"].equals(scores_of(folder / "whole")["score"])
    assert again["variables"] == whole["variables"]
    assert again["counts"] == whole["counts"]


def test_another_model_test_or_delta_is_refused_and_named_until_it_begins_anew(folder: Path):
    run(folder)
    with pytest.raises(OptionError, match=r"holds scores with another delta: none there, '0.2' now; .*--overwrite"):
        run(folder, delta=0.2)
    (folder / "model.py").write_text(SLOW)
    with pytest.raises(OptionError, match=r"another model: 'model.py:predict' \(hash \w{8}\) there, 'model.py"):
        run(folder)
    before = scores_of(folder / "out")["flagged"].to_pylist()
    assert run(folder, delta=0.2, overwrite=True)["delta"] == 0.2
    assert scores_of(folder / "out")["flagged"].to_pylist() != before
    with pytest.raises(OptionError, match="another part_rows: '200' there, '300' now"):
        run(folder, delta=0.2, part_rows=300)


def test_tables_that_changed_are_refused_and_new_ones_are_added(folder: Path):
    first = run(folder)
    pq.write_table(lending(100, seed=3), folder / "in/0.parquet")
    more = run(folder)
    assert more["counts"]["people"] == 1100
    assert manifest_of(folder)["constants"]["people"] == 1000  # the population constants stay
    assert part_names(folder)[-1] == "part-00006.parquet"
    assert first["delta"] == more["delta"]
    pq.write_table(lending(100, seed=4), folder / "in/0.parquet")
    with pytest.raises(FileError, match=r"0.parquet', which has changed since; .*--overwrite"):
        run(folder)
    (folder / "in/0.parquet").unlink()
    with pytest.raises(FileError, match=r"0.parquet', which is no longer among the tables"):
        run(folder)


def test_a_damaged_file_is_named_and_all_others_are_done(folder: Path):
    whole = run(folder, "whole")
    path = folder / "in/b.parquet"
    content = path.read_bytes()
    path.write_bytes(content[:-100])  # without its end: nobody knows how many people it has
    with pytest.raises(FileError, match=r"b.parquet' cannot be read and may be damaged.* 3 of 3 parts"):
        run(folder)
    assert part_names(folder) == ["part-00000.parquet", "part-00001.parquet", "part-00002.parquet"]
    assert list(manifest_of(folder)["failed"]) == [str(path)]
    assert not (folder / "out/summary.json").exists()
    path.write_bytes(content)
    assert run(folder)["variables"] == whole["variables"]

    path.write_bytes(content[:3000] + b"\0" * 3000 + content[6000:])  # in the middle: some parts can be read
    with pytest.raises(FileError, match=r"b.parquet' cannot be read and may be damaged"):
        run(folder, "other")
    assert {"part-00000.parquet", "part-00001.parquet", "part-00002.parquet"} <= set(part_names(folder, "other"))
    assert len(part_names(folder, "other")) < 6


def test_people_who_cannot_be_scored_are_named_and_all_others_are_done(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("fairfox.streaming.files.PILOT", 100)  # the first 13 of each part
    table, place = lending(100, seed=5), lending(1).column_names.index("income")
    incomes = pa.array([1000.0] * 50 + [None] * 50)
    pq.write_table(table.set_column(place, "income", incomes), folder / "in/c.parquet")
    with pytest.raises(FileError, match=r"c.parquet', rows from 0: Column 'income' has 50 missing value"):
        run(folder)
    assert len(part_names(folder)) == 6


def test_a_report_that_fails_after_everyone_is_scored_says_so_and_is_made_the_second_time(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    def broken(*given: Any, **options: Any) -> None:
        raise ModelError("The model failed on a table of 24 rows: no weights.")

    with monkeypatch.context() as patched:
        patched.setattr(files, "result_of", broken)
        with pytest.raises(
            ModelError, match=r"^The model .*: no weights\. Everyone is scored; fix that and run the same"
        ):
            run(folder)
    assert len(part_names(folder)) == 6
    before = {path: path.stat().st_mtime_ns for path in (folder / "out/scores.parquet").iterdir()}
    run(folder)
    assert manifest_of(folder)["complete"]
    assert {path: path.stat().st_mtime_ns for path in before} == before


def changed(table: pa.Table, name: str, values: Any) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, pa.array(values))


def test_files_of_other_types_or_classes_are_named_and_all_others_are_done(folder: Path):
    people = lending(100, seed=5)
    pq.write_table(changed(people, "income", ["much"] * 100), folder / "in/0.parquet")
    pq.write_table(changed(people, "sex", ["Martian"] * 100), folder / "in/1.parquet")
    with pytest.raises(FileError, match=r"0.parquet', rows from 0: .*income.*1.parquet', rows from 0: .*Martian"):
        run(folder)
    assert len(part_names(folder)) == 6
    assert [Path(name).name for name in manifest_of(folder)["failed"]] == ["0.parquet", "1.parquet"]


def test_ids_are_of_one_kind_and_files_with_others_are_named(folder: Path):
    people = lending(300).append_column("id", pa.array(range(300)))
    save_test(fitted_on(people, protected="sex", columns=COLUMNS, refits=1, id="id"), folder / "test.fox")
    tables = [people.slice(0, 100), changed(people, "id", ["x"] * 300).slice(0, 100), people.drop_columns(["id"])]
    for n, table in enumerate(tables):
        pq.write_table(table, folder / f"{n}.parquet")
    with pytest.raises(
        FileError, match=r"1.parquet', rows .* are string here and int64 .*2.parquet', .* has no column 'id'"
    ):
        score_files(
            folder / "test.fox", model_of(folder), [f"{folder}/?.parquet"], folder / "out", workers=1, part_rows=500
        )
    assert scores_of(folder / "out")["row_id"].to_pylist() == list(range(100))


@pytest.mark.parametrize("begun", [False, True])
def test_a_run_that_finds_another_one_has_been_there_meanwhile_is_refused(folder: Path, monkeypatch, begun: bool):
    if begun:  # a run that was interrupted
        run(folder)
        (folder / "out/scores.parquet/part-00001.parquet").unlink()

    def overtaken(*given: Any, **options: Any) -> Any:
        monkeypatch.setattr(files, "prepare_job", prepare_job)
        run(folder, delta=0.5, overwrite=True)
        return prepare_job(*given, **options)

    monkeypatch.setattr(files, "prepare_job", overtaken)
    with pytest.raises(OptionError, match=r"Another run has just written to .*; run the same command again"):
        run(folder)
    assert manifest_of(folder)["settings"]["delta"] == 0.5
    assert manifest_of(folder)["complete"]


def test_a_part_of_a_run_with_other_settings_is_refused(folder: Path):
    run(folder, "other", delta=0.5)
    run(folder)
    name = "scores.parquet/part-00001.parquet"
    manifest = manifest_of(folder)
    for entry in manifest["parts"]:
        entry["sha256"] = ""  # as while a run is going on
    (folder / "out/manifest.json").write_text(json.dumps(manifest))
    shutil.copy(folder / "other" / name, folder / "out" / name)
    with pytest.raises(FileError, match=r"part-00001.parquet' holds scores of a run with other settings"):
        run(folder)


def test_a_device_without_the_memory_is_told_in_a_sentence(folder: Path, monkeypatch):
    def full(*given: Any, **options: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has ...")

    monkeypatch.setattr(BatchScorer, "coded", full)
    monkeypatch.setattr(BatchScorer, "coded_schema", pa.schema([("row_id", pa.int64())]))
    with pytest.raises(
        FileError, match=r"rows from 0: the device has too little memory \(CUDA out of memory\); use fewer"
    ):
        run(folder)


def test_there_is_a_process_per_core_as_far_as_the_memory_of_a_gpu_goes(monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 16)
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda device: (22 << 30, 24 << 30))
    assert files.worker_count(None, "cpu") == 16
    assert files.worker_count(None, "cuda:0") == 5
    assert files.worker_count(3, "cuda") == 3
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda device: (1 << 30, 24 << 30))
    assert files.worker_count(None, "cuda") == 1


def test_groups_in_the_names_of_folders_are_known_and_lacking_ones_are_warned_of(folder: Path):
    people = lending(400)
    for level in ("Female", "Male"):
        (folder / f"hive/sex={level}").mkdir(parents=True)
        own = people.filter(pc.equal(people["sex"], level)).drop_columns(["sex"])
        pq.write_table(own, folder / f"hive/sex={level}/x.parquet")
    given = (folder / "test.fox", model_of(folder))
    for n, tables in enumerate(([f"{folder}/hive"], [f"{folder}/hive/sex={level}" for level in ("Female", "Male")])):
        found = score_files(*given, tables, folder / f"out{n}", workers=1).record
        assert (found.tally.people, found.tally.inferred) == (400, 0)
        assert not any("unknown" in warning for warning in found.warnings)
    pq.write_table(people.rename_columns([{"sex": "Sex"}.get(n, n) for n in people.column_names]), folder / "x.parquet")
    found = score_files(*given, [f"{folder}/x.parquet"], folder / "out", workers=1)
    assert found.warnings[0].startswith("'sex' is unknown for 400 of 400 people; the most probable value")


def test_scores_below_the_tables_are_no_tables(folder: Path):
    first = run(folder, "in/one")
    before = (folder / "in/one/scores.parquet/part-00000.parquet").stat().st_mtime_ns
    for out in ("in/one", "in/two"):
        assert run(folder, out)["counts"] == first["counts"]
        assert manifest_of(folder, out)["complete"]
    assert (folder / "in/one/scores.parquet/part-00000.parquet").stat().st_mtime_ns == before
    with pytest.raises(DataError, match="not fairfox's scores"):
        score_files(folder / "test.fox", model_of(folder), [str(folder / "in/one")], folder / "out", workers=1)


def test_a_part_that_changed_since_is_refused_until_it_is_deleted(folder: Path):
    run(folder)
    path = folder / "out/scores.parquet/part-00001.parquet"
    content = path.read_bytes()
    path.write_bytes(content[:500] + bytes([content[500] ^ 1]) + content[501:])  # its footer is as before
    with pytest.raises(FileError, match=r"part-00001.parquet' has changed since it was written: .* delete it"):
        run(folder)
    assert (folder / "out/summary.json").exists()
    path.unlink()
    assert run(folder)["counts"]["people"] == 1000


@pytest.mark.skipif(os.name != "posix", reason="files are locked on POSIX systems alone")
def test_two_runs_do_not_write_to_one_folder(folder: Path):
    with only_run_in(folder / "out"), pytest.raises(OptionError, match="Another run is writing to"):
        run(folder)
    assert list((folder / "out").iterdir()) == []
    assert run(folder)["counts"]["people"] == 1000
    names = ("junit.xml", "report.html", "report.json", "scores.parquet", "summary.json", "summary.md")
    assert {path.name for path in (folder / "out").iterdir()} == {*names, "manifest.json"}


def test_what_is_wrong_with_everything_shows_before_anything_is_written(folder: Path):
    pq.write_table(lending(0), folder / "empty.parquet")
    pq.write_table(lending(9).drop_columns(["income"]), folder / "narrow.parquet")
    for table, error, message in (
        ("empty.parquet", DataError, "no rows"),
        ("narrow.parquet", ColumnError, "has no column 'income'"),
        ("nothing.parquet", FileError, "no Parquet file"),
    ):
        with pytest.raises(error, match=message):
            score_files(folder / "test.fox", model_of(folder), [str(folder / table)], folder / "out", workers=1)
    assert not (folder / "out").exists()
    (folder / "out").mkdir()
    (folder / "out/scores.parquet").write_text("of somebody else")
    with pytest.raises(OptionError, match="already exists"):
        run(folder)
    (folder / "out/manifest.json").write_text("{")
    with pytest.raises(FileError, match="is damaged"):
        run(folder)


def test_a_full_disk_is_one_sentence_and_leaves_no_half_part(folder: Path, monkeypatch: pytest.MonkeyPatch):
    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(FileError, match=r"part-00000.parquet' cannot be written \(No space left on device\); fix"):
        run(folder)
    assert part_names(folder) == []
    monkeypatch.undo()
    assert run(folder)["counts"]["people"] == 1000


def test_progress_tells_rate_and_time_left(folder: Path):
    reports: list[tuple[str, float]] = []
    run(folder, progress=lambda what, done: reports.append((what, done)))
    assert [round(done, 1) for _, done in reports] == [0.2, 0.4, 0.5, 0.7, 0.9, 1.0]
    assert "200 of 1,000 people, " in reports[0][0]
    assert " a second, " in reports[0][0]
    assert reports[0][0].endswith(" left")


DEVICES = ["cpu:0", pytest.param("cuda", marks=pytest.mark.gpu)]  # the first is this processor, treated as a GPU


@pytest.mark.parametrize("device", DEVICES)
def test_another_device_gives_the_same_scores(folder: Path, device: str):
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("there is no GPU")
    run(folder)
    summary = run(folder, "elsewhere", device=device)
    assert_same_columns(
        scores_of(folder / "elsewhere"), scores_of(folder / "out"), within=1e-12 if device == "cpu:0" else 1e-4
    )
    assert summary["settings"]["device"] == device


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": "cuda:99"}, "There is no device 'cuda:99' here"),
        ({"device": "meta"}, "There is no device 'meta' here"),
        ({"device": "cpu:0", "engine": "spark"}, "--device cpu:0 works only with processes of this machine"),
    ],
)
def test_a_device_that_is_not_there_or_no_engine_has_is_refused(folder: Path, options: dict[str, Any], message: str):
    with pytest.raises(OptionError, match=message):
        run(folder, **options)
    assert not (folder / "out").exists()


PART = RowGroups(TableFile("in", "/in/a.parquet", 9, "7"), (2, 4), 100, 50)


def test_a_plan_that_would_lose_people_is_refused(tmp_path: Path):
    with pytest.raises(FileError, match="share a name, so one would be lost"):
        Manifest({}, {}).planned([PART, PART], tmp_path, {})


def test_a_manifest_is_read_as_it_was_written_and_damage_is_named(tmp_path: Path):
    assert read_manifest(tmp_path) is None
    manifest = Manifest({"delta": 0.1}, {"people": 3}).planned([PART], tmp_path, {})
    manifest.write(tmp_path)
    assert read_manifest(tmp_path) == manifest
    path = tmp_path / "manifest.json"
    fields = json.loads(path.read_text())
    for change, message in (
        ({"format": 99}, "was written by another version of fairfox"),
        ({"parts": [{"name": "part-00000.parquet"}]}, r"is damaged \(KeyError\); choose another folder, or start over"),
    ):
        path.write_text(json.dumps(fields | change))
        with pytest.raises(FileError, match=rf"manifest.json' {message}"):
            read_manifest(tmp_path)


def test_of_many_people_a_sample_says_what_is_no_count(folder: Path, monkeypatch: pytest.MonkeyPatch):
    whole = run(folder, "whole")
    monkeypatch.setattr("fairfox.streaming.files.PILOT", 300)
    found = run(folder)
    for name in ("people", "judged", "flagged"):
        assert found["counts"][name] == whole["counts"][name]
    assert found["variables"][0]["groups"][0]["people"] == whole["variables"][0]["groups"][0]["people"]
    assert found["verdict"]["judged"] == 1000
    assert found["stream"]["sample"] == 300
    drawn = "all else, such as selection rates, rests on 300 of 1,000 people, drawn at random."
    assert any(drawn in line for line in found["in_words"])
    page = (folder / "out/report.html").read_text()
    assert "1,000 people" in page
    assert drawn in page
    for exact, about in zip(*(each["variables"][0]["groups"] for each in (whole, found)), strict=True):
        lower, upper = about["intervals"]["selection_rate"]  # of 95 %, from the sample
        assert lower < exact["selection_rate"] < upper
        assert about["selection_rate"] != exact["selection_rate"]
    mean = found["verdict"]["mean"]
    assert mean["value"] == pytest.approx(whole["verdict"]["mean"]["value"])
    assert mean["lower"] < mean["value"] < mean["upper"]


def test_people_who_do_not_fit_into_memory_are_audited_in_a_stream(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("os.cpu_count", lambda: 1)  # one process

    def stream(*more: str) -> Result:
        given = ["-c", "sex", "--columns", ",".join(COLUMNS), "--refits", "2", "--out", f"{folder}/stream", *more]
        return CliRunner().invoke(cli, ["audit", f"{folder}/model.py:predict", f"{folder}/in", *given])

    done, people = stream(), lending(1000)
    assert done.exit_code in (0, 1, 3), done.stderr
    word = {0: "passes", 1: "fails", 3: "cannot tell"}[done.exit_code]
    fields = assert_valid_summary((folder / "stream/summary.json").read_text())
    assert (fields["counts"]["people"], fields["verdict"]["word"]) == (1000, word)
    assert fields["settings"]["reference_rows"] == 1000
    given = {"protected": "sex", "columns": COLUMNS, "options": {"refits": 2}}
    audited = audit(load_model(str(folder / "model.py:predict")), people, reference=people, **given).record
    assert scores_of(folder / "stream")["score"].to_pylist() == pytest.approx(audited.scores.tolist(), abs=1e-6)
    compared = CliRunner().invoke(cli, ["compare", f"{folder}/stream", f"{folder}/stream"])
    assert (compared.exit_code, "holds the parts of a stream" in compared.stderr) == (2, True)
    # one file is streamed where its cells need more than the machine has; the same command resumes
    assert not must_stream(str(folder / "in/a.parquet"))
    monkeypatch.setattr("fairfox.streaming.sources._BYTES", 1e12)
    assert must_stream(str(folder / "in/a.parquet"))
    part = folder / "stream/scores.parquet/part-00000.parquet"
    before = part.stat().st_mtime_ns
    again = stream()
    assert (again.exit_code, part.stat().st_mtime_ns) == (done.exit_code, before)
    other = stream("--delta", "0.2")
    assert json.loads((folder / "stream/summary.json").read_text())["delta"] == 0.2, other.stderr  # it began anew
    assert part.stat().st_mtime_ns > before


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (["--null", "2"], "--null needs everyone in memory"),
        (["--test", "all"], "--test all needs everyone in memory"),
        (["--delta", "sex=Female=0.1"], "A delta per group needs everyone in memory"),
        (["--decision-threshold", "0.5"], "--decision-threshold needs everyone in memory"),
        (["--decision-threshold", "0"], "--decision-threshold needs everyone in memory"),
        (["--include-rows"], "--include-rows needs everyone in memory"),
    ],
)
def test_what_needs_everyone_in_memory_is_refused_in_a_sentence(folder: Path, options: list[str], found: str):
    given = ["audit", f"{folder}/model.py:predict", f"{folder}/in", "-c", "sex", "--out", f"{folder}/stream", *options]
    done = CliRunner().invoke(cli, given)
    assert (done.exit_code, len(done.stderr.splitlines())) == (2, 1), done.stderr
    assert found in done.stderr
    assert not (folder / "stream").exists()
