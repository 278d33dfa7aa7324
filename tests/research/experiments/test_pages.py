"""The pages on experiments show what the results files hold."""

import json

import pytest

EXPERIMENT = "pages"
ABOUT = {
    "experiment": "bias_histograms",
    "quick": False,
    "only": None,
    "seed": 3,
    "core_seconds": 7200.0,
    "machine": {"workers": 2, "cores": 4},
    "versions": {"python": "3.12"},
}


def entry(setting, test, auxiliary, ap, std=0.01):
    numbers = {"ap_mean": ap, "ap_std": std, "ap_draws": [ap - std, ap + std]}
    return {"setting": setting, "test": test, "auxiliary": auxiliary, **numbers}


@pytest.fixture
def found():
    names = ("Synthetic-1", "Synthetic-2")
    results = [entry(name, "lic", "none", 0.9, 0.0) for name in names]
    for name, ap in zip(names, (0.5, 0.7), strict=True):
        results += [entry(name, "faux", "disentangled", ap + 0.1, ap / 10), entry(name, "faux", "plain", ap)]
    return ABOUT | {
        "results": results,
        "trials": [{"name": name} for name in names],
        "paper": {"faux": dict(zip(names, (0.332, 0.998), strict=True))},
        "bars": [{"bar": "low", "value": {"x": {"ours": 0.12345, "paper": 0.5}, "y": [1, 0.25]}, "holds": False}],
    }


@pytest.fixture
def report(experiment):
    return experiment.import_module("table1_report")


def test_pages_are_what_the_results_files_give(experiment):
    for path in experiment.PAGES:
        text = path.read_text(encoding="utf-8")
        assert experiment.SECTION.search(text), path.name
        assert experiment.page(text, kept=experiment.COUNTED) == text, f"{path.name}: run python experiments/pages.py"


def test_an_experiment_may_have_parts_of_its_own(experiment, tmp_path):
    found = ABOUT | {"cases": {}, "not_run": {}}
    (tmp_path / "use_cases.json").write_text(json.dumps(found))
    assert experiment.section("use_cases-credit", tmp_path) == "not run: file not available"
    with pytest.raises(KeyError, match="insurance"):
        experiment.section("use_cases-insurance", tmp_path)
    bars = [{"part": part, "bar": f"of {part}", "value": 1, "holds": True} for part in ("audits", "shuffled")]
    (tmp_path / "black_boxes.json").write_text(json.dumps(ABOUT | {"shuffled": {"results": []}, "bars": bars}))
    assert experiment.section("black_boxes-shuffled", tmp_path).splitlines()[5:] == ["| of shuffled | 1 | yes |"]


def test_our_rows_stand_above_the_papers_and_the_mean_is_theirs(report, found):
    rows = report.average_precisions(found).splitlines()[2:]
    # draws differ by ± 0.01 or by ± 0.06 on average: times √2
    assert rows == [
        "| `faux` | plain | 0.500 | 0.700 | 0.600 | 0.014 | 0.010 |",
        "| `faux` | disentangled | 0.600 | 0.800 | 0.700 | 0.085 | 0.070 |",
        "| `faux` | *the paper* | *0.332* | *0.998* | *0.665* |  |  |",
        "| `lic` |  | 0.900 | 0.900 | 0.900 | 0.000 | 0.000 |",
    ]


def test_another_experiment_is_shown_in_its_own_words_with_its_picture(experiment, tmp_path):
    numbers = {"mean": 0.25}
    bar = {"bar": "the mean grows", "value": {}, "holds": False}
    found = ABOUT | {"results": [{"world": "here", "bias": 0.5, **numbers}], "bars": [bar]}
    (tmp_path / "bias_histograms.json").write_text(json.dumps(found))
    assert experiment.section("bias_histograms", tmp_path).startswith("| mean true score | bias 0.5 |")
    (tmp_path / "bias_histograms.svg").write_bytes(b"")
    picture, *lines = experiment.section("bias_histograms", tmp_path).splitlines()
    assert picture == "![bias_histograms](../../experiments/results/bias_histograms.svg)"
    assert "| here | 0.250 |" in lines
    assert "- **fails**: the mean grows" in lines
    assert lines[-1] == experiment.about(found)


@pytest.mark.parametrize("partial", [{"quick": True}, {"only": ["Synthetic-1"]}])
def test_runs_that_did_not_do_everything_are_not_shown(experiment, found, tmp_path, partial):
    assert experiment.section("table1-bars", tmp_path) == experiment.NOT_YET
    (tmp_path / "table1.json").write_text(json.dumps(found | partial))
    assert experiment.section("table1-bars", tmp_path) == experiment.NOT_YET
    (tmp_path / "table1.json").write_text(json.dumps(found))
    text = "before\n<!-- results: table1-bars -->\nearlier\n<!-- /results -->\nafter"
    once = experiment.page(text, tmp_path)
    assert once.startswith("before\n<!-- results: table1-bars -->\n\n| what")
    assert "earlier" not in once
    assert experiment.page(once, tmp_path) == once
