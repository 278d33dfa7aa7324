"""What the benchmarks share: comparing durations, judging ratios, writing numbers."""

import json
from dataclasses import dataclass, replace

import pytest

BENCH = "timing"


@dataclass(frozen=True)
class Settings:
    rows: int = 10


@pytest.fixture
def example(bench, tmp_path):
    """A benchmark of nothing, whose bar of 2 is kept at 1.5 and broken at 2.5."""
    readme = tmp_path / "README.md"
    readme.write_text("before\n<begin>\nold\n<end>\nafter\n", encoding="utf-8")
    return bench.Benchmark(
        description="nothing",
        measure=lambda s: [bench.Ratio("name", "of", "over", 2.0, True, s.rows / 10 + 0.5, 1.4, 1.0, 1.0)],
        settings=Settings(),
        quick=Settings(rows=5),
        seed=0,
        sizes=lambda s: f"{s['rows']} rows.",
        results=tmp_path.resolve() / "found.json",
        readme=readme,
        marks=("<begin>", "<end>"),
    )


def test_a_run_writes_its_results_and_the_readme_between_its_marks_only(example):
    assert example.run([]) == 0
    found = json.loads(example.results.read_text(encoding="utf-8"))
    assert found["ratios"][0]["holds"] is True
    assert found["settings"] == {"rows": 10}
    table = example.table(found)
    assert "| of | over | ≤ 2 | 1.5 | 1.4 | yes |" in table
    assert "\n10 rows.\n" in table
    assert example.readme.read_text(encoding="utf-8") == f"before\n<begin>\n{table}\n<end>\nafter\n"


def test_a_quick_run_writes_nothing_unless_it_is_told_where(example, tmp_path):
    assert example.run(["--quick"]) == 0
    assert example.run(["--quick", "--out", str(tmp_path / "else.json")]) == 0
    assert not example.results.exists()
    assert "old" in example.readme.read_text(encoding="utf-8")
    assert json.loads((tmp_path / "else.json").read_text(encoding="utf-8"))["settings"] == {"rows": 5}


def test_what_has_no_bar_is_reported_whatever_it_is(bench, example):
    reported = [bench.Ratio("name", "of", "over", None, True, 99.0, 98.0, 1.0, 1.0)]
    free = replace(example, measure=lambda s: reported)
    assert free.run([]) == 0
    assert "| of | over | none | 99 | 98 | - |" in example.readme.read_text(encoding="utf-8")
    worse = replace(example, measure=lambda s: [replace(reported[0], sound=False)])
    assert worse.run([]) == 1  # what ours found is not as good


def test_a_bar_that_is_not_kept_ends_with_1(example):
    worse = replace(example, settings=Settings(rows=20))
    assert worse.run([]) == 1
    assert "| 2.5 | 1.4 | **no** |" in example.readme.read_text(encoding="utf-8")


@pytest.mark.parametrize(("at_most", "ratio", "holds"), [(True, 1.9, True), (True, 2.1, False), (False, 2.1, True)])
def test_a_ratio_holds_on_the_right_side_of_its_bar(bench, at_most, ratio, holds):
    assert bench.Ratio("name", "of", "over", 2.0, at_most, ratio, ratio, 1.0, 1.0).holds is holds
