"""The pages on experiments show what the results files hold."""

import json
import re

import pytest

EXPERIMENT = "pages"
ABOUT = {
    "quick": False,
    "only": None,
    "seed": 3,
    "seconds": 90.0,
    "core_seconds": 7200.0,
    "machine": {"workers": 2, "cores": 4},
    "versions": {"python": "3.12"},
}


def entry(setting, test, auxiliary, ap, std=0.01):
    numbers = {"ap_mean": ap, "ap_std": std, "rho_mean": -ap, "rho_std": std, "prevalence": 0.45}
    return {"setting": setting, "test": test, "auxiliary": auxiliary, **numbers}


def trial(name):
    both = {"unfair": {"balanced_accuracy": 0.6, "mean_ifs": 0.1}, "fair": {"balanced_accuracy": 0.5, "mean_ifs": 0.0}}
    return {
        **{"name": name, "c": "magic", "y": "backache", "fusion": "outer", "bias": 0.5},
        **{"targets": {"a": both, "b": both}, "thresholds": {"a": 0.01, "b": 0.03}},
        "auxiliary_balanced_accuracy": {"plain": [0.7, 0.9], "disentangled": [0.9, 0.9]},
    }


@pytest.fixture
def found():
    names = ("Synthetic-1", "Synthetic-2")
    results = [entry(name, "lic", "none", 0.9, 0.0) for name in names]
    for name, ap in zip(names, (0.5, 0.7), strict=True):
        results += [entry(name, "faux", "disentangled", ap + 0.1, ap / 10), entry(name, "faux", "plain", ap)]
    printed = {"fliptest": dict.fromkeys(names, 0.6), "faux": dict(zip(names, (0.332, 0.998), strict=True))}
    return ABOUT | {
        "results": results,
        "trials": [trial(name) for name in names],
        "paper": printed,
        "generators": {"pair": {"magic": {"model_score": 0.97, "spread": 0.8, "draws": [0.96, 0.97]}}},
        "bars": [{"bar": "low", "value": {"x": {"ours": 0.12345, "paper": 0.5}, "y": [1, 0.25]}, "holds": False}],
    }


def sections(page):
    return re.findall(r"<!-- results: (.*?) -->", page.read_text(encoding="utf-8"))


@pytest.fixture
def page_of(experiment):
    """A page by its name."""

    def find(name):
        (page,) = [page for page in experiment.PAGES if page.stem == name]
        if not page.is_file():
            pytest.skip(f"there is no page {page.name} yet")
        return page

    return find


@pytest.mark.parametrize(
    "name",
    ["benchmark", "real_data", "use_cases", "abstention", "beyond", "legitimate", "intervals", "comparing", "verdicts"],
)
def test_the_page_is_what_the_results_files_give(experiment, page_of, name):
    text = page_of(name).read_text(encoding="utf-8")
    assert experiment.page(text) == text, "run: python experiments/pages.py"


def test_every_page_is_looked_at(experiment):
    names = {
        "benchmark",
        "real_data",
        "use_cases",
        "abstention",
        "beyond",
        "legitimate",
        "intervals",
        "comparing",
        "verdicts",
    }
    assert {page.stem for page in experiment.PAGES} == names


def test_the_benchmark_has_every_part_of_table_1_and_every_experiment(experiment, page_of):
    others = ["bias_histograms", "operating_range", "gan_metrics", "table1_draws"]
    assert sorted(sections(page_of("benchmark"))) == sorted([*(f"table1-{p}" for p in experiment.PARTS), *others])


def test_the_use_cases_are_both_told(page_of):
    assert sections(page_of("use_cases")) == ["use_cases-policing", "use_cases-credit"]


def test_the_page_on_real_data_shows_every_experiment_on_it(page_of):
    shown = {name.partition("-")[0] for name in sections(page_of("real_data"))}
    assert shown >= {"fair_vs_unfair", "fair_training", "transparency", "resources", "black_boxes"}


@pytest.mark.parametrize(
    "name",
    ["benchmark", "real_data", "use_cases", "abstention", "beyond", "legitimate", "intervals", "comparing", "verdicts"],
)
def test_every_section_of_a_page_can_be_made(experiment, page_of, name):
    for section in sections(page_of(name)):  # also where there is no full run yet
        script, _, part = section.partition("-")
        module = experiment.import_module(script)
        assert module.EXPERIMENT.name == script
        assert not part or part in experiment.PARTS | getattr(module, "SECTIONS", {}), section


def test_an_experiment_may_have_parts_of_its_own(experiment, tmp_path):
    found = ABOUT | {"cases": {}, "not_run": {}}
    (tmp_path / "use_cases.json").write_text(json.dumps(found))
    assert experiment.section("use_cases-credit", tmp_path) == "not run: file not available"
    with pytest.raises(KeyError, match="insurance"):
        experiment.section("use_cases-insurance", tmp_path)


def test_our_rows_stand_above_the_papers_and_the_mean_is_theirs(experiment, found):
    rows = experiment.average_precisions(found).splitlines()[2:]
    assert rows == [
        "| `faux` | plain | 0.500 | 0.700 | 0.600 | 0.010 |",
        "| `faux` | disentangled | 0.600 | 0.800 | 0.700 | 0.070 |",
        "| `faux` | *the paper* | *0.332* | *0.998* | *0.665* |  |",
        "| `lic` |  | 0.900 | 0.900 | 0.900 | 0.000 |",
        "| `fliptest` | *the paper* | *0.600* | *0.600* | *0.600* |  |",
    ]


def test_rank_correlations_have_no_row_of_the_paper(experiment, found):
    rows = experiment.rank_correlations(found).splitlines()[2:]
    assert [row.split(" | ")[:3] for row in rows] == [
        ["| `faux`", "plain", "-0.500"],
        ["| `faux`", "disentangled", "-0.600"],
        ["| `lic`", "", "-0.900"],
    ]


def test_settings_and_generators_are_shown_by_their_means(experiment, found):
    first = experiment.settings(found).splitlines()[2]
    shown = "0.450 | 0.020 | 0.100 | 0.600 | 0.500 | 0.800 | 0.900"
    assert first == f"| Synthetic-1 | magic | backache | outer | 0.5 | {shown} |"
    assert experiment.generators(found).splitlines()[2:] == ["| magic | 0.970 | 0.987 | 0.960, 0.970 | 0.80 |"]


def test_a_bar_that_fails_and_where_it_ran_are_told(experiment, found):
    assert experiment.bars(found).splitlines()[2:] == ["| low | x 0.1235 (the paper 0.5); y 1, 0.25 | **no** |"]
    assert experiment.about(found) == "Seed 3; 1.5 minutes with 2 workers on 4 cores (2.0 core hours); python 3.12."


def test_another_experiment_is_shown_in_its_own_words_with_its_picture(experiment, tmp_path):
    numbers = {"mean": 0.25, "std": 0.125, "q10": 0.0, "median": 0.2, "q90": 0.5}
    bar = {"bar": "the mean grows", "value": {}, "holds": False}
    found = ABOUT | {"results": [{"world": "here", "bias": 0.5, **numbers}], "bars": [bar]}
    (tmp_path / "bias_histograms.json").write_text(json.dumps(found))
    assert experiment.section("bias_histograms", tmp_path).startswith("| world | bias |")
    (tmp_path / "bias_histograms.png").write_bytes(b"")
    picture, *lines = experiment.section("bias_histograms", tmp_path).splitlines()
    assert picture == "![bias_histograms](../experiments/results/bias_histograms.png)"
    assert "| here | 0.5 | 0.250 | 0.125 | 0.000 | 0.200 | 0.500 |" in lines
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


@pytest.fixture
def with_peers(experiment, found):
    """Two peers in all settings, behind a test of ours but for one setting; one of them has other targets."""
    names = experiment.peer_pages.NAMES
    results = [entry(name, "rank/a", "plain", 0.9) for name in names]
    for peer in ("fliptest", "transport"):
        results += [entry(name, peer, "none", 0.6, 0.03) | {"rho_mean": -0.95} for name in names]
    results += [entry(name, "fliptest/a", "plain", 0.99) for name in names]
    next(e for e in results if (e["setting"], e["test"]) == ("Synthetic-3", "fliptest"))["ap_mean"] = 0.95
    checks = {"ks": 0.25, "ks_unmapped": 0.5, "ks_chance": 0.02, "mse": 0.3, "mse_real": 0.1}
    fliptest = {name: {"checks": checks, "training": {"device": "cuda"}} for name in names}
    transport = {name: {"checks": {"spread_kept": 0.8}, "solver": "POT 0.9"} for name in names}
    thresholds = {name: {"a": 0.01} for name in names}
    other = thresholds | {"Synthetic-2": {"a": 0.02}}
    runs = {
        "fliptest": ABOUT | {"together": ["fliptest"], "thresholds": thresholds, "details": fliptest},
        "transport": ABOUT | {"together": ["transport"], "thresholds": other, "details": transport},
        "costs": ABOUT | {"together": ["costs"]},
    }
    ahead = "best single test with what a user has (rank/a): mean {} ahead of every peer's"
    bars = [{"bar": ahead.format(number), "value": {}, "holds": True} for number in ("AP", "rho")]
    printed = {"fliptest": dict.fromkeys(names, 0.5)}
    trials = [trial(name) for name in names]
    return found | {"results": results, "runs": runs, "bars": bars, "paper": printed, "trials": trials}


def test_peers_stand_below_the_best_test_beside_the_papers_mean(experiment, with_peers):
    lines = experiment.peers(with_peers).splitlines()
    assert lines[2:6] == [
        "| `rank/a` | 0.900 |  | -0.900 | 0.900 | 0.010 |",
        "| `fliptest` | 0.644 | *0.500* | -0.950 | 0.600 | 0.030 |",  # (7 x 0.6 + 0.95) / 8
        "| `transport` | 0.600 |  | -0.950 | 0.600 | 0.030 |",
        "| `fliptest/a` | 0.990 |  | -0.990 | 0.990 | 0.010 |",
    ]
    assert any("is ahead of every peer on mean AP and on mean rho." in line for line in lines)
    assert "| Synthetic-1 | 0.250 | 0.500 | 0.020 | 0.300 | 0.100 |" in lines
    assert any("Transport was solved by POT 0.9." in line and "80% to 80%" in line for line in lines)


def test_where_a_peer_is_ahead_is_in_bold(experiment, with_peers):
    text = experiment.peers(with_peers)
    assert "- **Synthetic-3: fliptest has the higher AP, 0.950 against 0.900 of rank/a**" in text
    assert text.count("- **Synthetic") == 1
    with_peers["bars"][1]["holds"] = False
    text = experiment.peers(with_peers)
    assert (
        "**`rank/a`, fairfox's best single test with what a user has, is not ahead of every peer on mean rho.**" in text
    )
    with_peers["bars"][0]["holds"] = False
    assert "is not ahead of every peer on mean AP and on mean rho.**" in experiment.peers(with_peers)


def test_a_peer_that_was_judged_by_other_targets_is_told(experiment, with_peers):
    text = experiment.peers(with_peers)
    assert "**transport** was judged by other targets than the rest of the table." in text
    assert "**fliptest** was" not in text


def test_costs_say_where_they_were_measured(experiment, with_peers):
    costs = {"setting": "Synthetic-8", "columns": 79, "fitting_rows": 12_000, "scored_rows": 5_000}
    one = {"training_seconds": 12.346, "parameters": 12_345, "rows_per_second": 54_321.0}
    costs |= {"target": "64x2", "device": "cpu, one thread", "tests": {"faux": one}}
    text = experiment.costs(with_peers | {"costs": costs})
    assert text.splitlines()[2] == "| `faux` | 12.35 | 12,345 | 54,321 |"
    assert "Synthetic-8 (79 columns): fitted once on 12,000 people, then scoring 5,000 for one target of 64x2" in text


def test_what_has_not_run_yet_is_said(experiment, found):
    assert experiment.peers(found) == experiment.peer_pages.NOT_YET
    assert experiment.costs(found) == experiment.peer_pages.NO_COSTS


def test_generators_that_are_worse_than_leaving_people_alone_are_named_in_bold(experiment, with_peers):
    assert "fails its own check" not in experiment.peers(with_peers)
    details = with_peers["runs"]["fliptest"]["details"]
    details["Synthetic-5"] = details["Synthetic-5"] | {"checks": details["Synthetic-5"]["checks"] | {"ks": 0.6}}
    assert "**In 1 of 8 settings FlipTest fails its own check:" in experiment.peers(with_peers)
