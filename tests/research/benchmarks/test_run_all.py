"""All benchmarks in one run, all results in one file."""

import json

BENCH = "run_all"


def between(marks, page):
    return page.read_text(encoding="utf-8").split(marks[0])[1].split(marks[1])[0].strip()


def test_pages_show_the_numbers_of_the_results(bench):
    for name, one in bench.benchmarks().items():
        shown = between(one.marks, one.readme)
        if not one.results.is_file():
            assert shown == "Not measured yet.", name
            continue
        results = json.loads(one.results.read_text(encoding="utf-8"))
        assert results["quick"] is False, name
        assert shown == one.table(results), name


def test_the_page_begins_with_every_ratio_of_the_one_file(bench):
    found = json.loads(bench.RESULTS.read_text(encoding="utf-8"))
    shown = between(bench.MARKS, bench.README)
    assert shown == bench.summary(found)
    for peer in ("captum", "inFairness", "FlipTest", "Algorithm 1 one row at a time"):
        assert peer in shown


def test_the_page_on_speed_has_the_main_numbers_of_the_one_file(bench):
    found = json.loads(bench.RESULTS.read_text(encoding="utf-8"))
    shown = between(bench.FRONT_MARKS, bench.FRONT)
    assert shown == bench.headlines(found)
    (workers,) = (r for r in found["bench_stream"]["ratios"] if r["name"] == "workers")
    assert f"{workers['seconds_over']:.0f} s" in shown.splitlines()[0]
    assert len(shown.splitlines()) == 4


def test_the_one_file_is_small_and_says_how_everything_was_measured(bench, tmp_path):
    found = json.loads(bench.RESULTS.read_text(encoding="utf-8"))
    assert found == bench.collect(tmp_path / "bench.json"), "run benchmarks/run_all.py --collect"
    assert bench.RESULTS.stat().st_size < 100_000
    assert [name for name, one in found.items() if "defaults" not in one] in ([], ["bench_gpu"])  # an older one
    for one in found.values():
        assert {"seed", "settings", "machine", "versions", "seconds", "ratios"} <= set(one)
        assert one["quick"] is False
        assert {"cpu", "cores", "threads", "load"} <= set(one["machine"])


def test_a_quick_run_of_one_script_writes_nothing(bench, monkeypatch, tmp_path):
    monkeypatch.setattr(bench, "RESULTS", tmp_path / "bench.json")
    assert bench.run(["--quick", "--only", "bench_scaling"]) == 0
    assert not (tmp_path / "bench.json").exists()
