"""All benchmarks in one run, all results in one file."""

import json

import pytest

BENCH = "run_all"


def test_one_file_holds_what_each_script_found(bench, tmp_path):
    found = bench.collect(tmp_path / "bench.json")
    assert json.loads((tmp_path / "bench.json").read_text(encoding="utf-8")) == found
    assert {"bench_score", "bench_peers", "bench_classes"} <= set(found)
    for name, one in found.items():
        assert one == json.loads(bench.benchmarks()[name].results.read_text(encoding="utf-8"))


def test_every_script_of_the_folder_is_known(bench):
    assert {"bench_audit", "bench_engine", "bench_scaling", "bench_score"} <= set(bench.benchmarks())


def test_a_quick_run_of_one_script_writes_nothing(bench, monkeypatch, tmp_path):
    monkeypatch.setattr(bench, "RESULTS", tmp_path / "bench.json")
    assert bench.run(["--quick", "--only", "bench_scaling"]) == 0
    assert not (tmp_path / "bench.json").exists()


def test_a_script_that_is_not_there_is_named(bench, capsys):
    with pytest.raises(SystemExit):
        bench.run(["--only", "bench_nothing"])
    assert "there is no bench_nothing" in capsys.readouterr().err
