"""The benchmark runs, and its README shows the numbers of its results."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest
import torch

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def bench():
    spec = importlib.util.spec_from_file_location("bench_score", FOLDER / "bench_score.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.fixture(scope="module")
def quick(bench, tmp_path_factory):
    """What --quick writes."""
    out = tmp_path_factory.mktemp("bench") / "deep" / "score.json"
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng():
            assert bench.main(["--quick", "--out", str(out)]) == 0
    finally:
        torch.set_num_threads(threads)
    return json.loads(out.read_text(encoding="utf-8"))


def test_quick_measures_every_ratio(quick):
    assert [r["name"] for r in quick["ratios"]] == ["gradient tests", "row by row", "rank on trees", "training"]
    assert [r["bar"] for r in quick["ratios"]] == [6.5, 150, 2.3, 1.0]
    for r in quick["ratios"]:
        assert r["ratio"] > 0
        assert r["fastest"] > 0
        assert r["seconds_of"] > 0
        assert r["seconds_over"] > 0
        assert r["holds"] is None  # no bar counts at these sizes


def test_results_say_where_and_how_they_were_measured(quick):
    assert quick["quick"] is True
    assert quick["seed"] == 0
    assert quick["settings"]["rows"] == 2048
    assert quick["machine"]["cores"] >= 1
    assert quick["machine"]["threads"] == 1
    assert quick["machine"]["cpu"]
    assert set(quick["versions"]) == {"python", "fairfox", "torch", "numpy", "scikit-learn"}
    assert quick["seconds"] > 0


def test_a_quick_run_leaves_the_results_and_the_readme_alone(bench, quick):
    results = json.loads(bench.RESULTS.read_text(encoding="utf-8"))
    assert results["quick"] is False
    assert bench.as_table(quick) not in bench.README.read_text(encoding="utf-8")


def test_the_readme_shows_the_numbers_of_the_results(bench):
    results = json.loads(bench.RESULTS.read_text(encoding="utf-8"))
    assert bench.as_table(results) in bench.README.read_text(encoding="utf-8")


def test_the_readme_is_written_between_its_marks_only(bench, quick, tmp_path, monkeypatch):
    readme, results = tmp_path / "README.md", tmp_path / "score.json"
    readme.write_text(f"before\n{bench.BEGIN}\nold\n{bench.END}\nafter\n", encoding="utf-8")
    results.write_text(json.dumps(quick), encoding="utf-8")
    monkeypatch.setattr(bench, "README", readme)
    monkeypatch.setattr(bench, "RESULTS", results)
    assert bench.main(["--readme"]) == 0
    assert readme.read_text(encoding="utf-8") == (
        f"before\n{bench.BEGIN}\n{bench.as_table(quick)}\n{bench.END}\nafter\n"
    )


@pytest.mark.parametrize(("at_most", "ratio", "holds"), [(True, 1.9, True), (True, 2.1, False), (False, 2.1, True)])
def test_a_ratio_holds_on_the_right_side_of_its_bar(bench, at_most, ratio, holds):
    assert bench.Ratio("name", "of", "over", 2.0, at_most, ratio, ratio, 1.0, 1.0).holds is holds


def test_what_is_short_is_called_as_often_as_it_takes(bench):
    calls = {"long": 0, "short": 0}

    def spend(name, steps):
        calls[name] += 1
        sum(range(steps))

    bench.compare(lambda: spend("long", 400_000), lambda: spend("short", 20_000), laps=5)
    assert calls["long"] == 3 + 5
    assert calls["short"] > 3 + 5 * 5  # twenty times shorter: about twenty calls a lap


def test_algorithm_1_by_hand(bench):
    target, auxiliary = torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)
    with torch.no_grad():
        target.weight.copy_(torch.tensor([[2.0, 1.0]]))
        target.bias.zero_()
        auxiliary.weight.copy_(torch.tensor([[3.0, 4.0]]))
    # at 0 the sigmoid's slope is 1/4: (0.5, 0.25) . (3, 4) / 25
    assert bench.algorithm_1(target, auxiliary, torch.zeros(2)) == pytest.approx(0.1)
