"""Generated people and the targets that are tested on them."""

import json

import pytest
import torch

from fairfox.benchmark.generator import SyntheticBias
from fairfox.benchmark.truth import individual_fairness_score
from fairfox.data.datasets import load_wdbc

EXPERIMENT = "trials"


@pytest.fixture(scope="module")
def place(experiment, tmp_path_factory):
    """The folder of a generator whose two tables come with scikit-learn."""
    folder = tmp_path_factory.mktemp("generator")
    table = load_wdbc()
    how = experiment.SourceSettings(modes=2, width=32, depth=1)
    training = experiment.Training(max_steps=200)
    halves = [experiment.SourceModel.fit(table, how, seed=seed, training=training) for seed in (0, 1)]
    SyntheticBias.of(*halves).save(folder / "generator.pt")
    return folder


@pytest.fixture(scope="module")
def small(experiment):
    from settings import Rows, Target

    return Target(8, 1), Rows(600, 200, 300)


def test_people_who_are_judged_were_not_learned_from(experiment, place, small):
    fitting, people = experiment.generate(place, "concat", 1.0, small[1], 3)
    assert (len(fitting), len(people)) == (800, 300)
    same = (people.x[:, None] == fitting.x[None]).all(2)
    assert not same.any()
    again, _ = experiment.generate(place, "concat", 1.0, small[1], 3)
    assert torch.equal(again.x, fitting.x)


def test_the_threshold_is_the_variance_of_an_unbiased_target(experiment, place, small, tmp_path):
    shape, rows = small
    found = experiment.find_threshold(tmp_path, (place,), "concat", shape, rows, 5)["threshold"]
    variances = {}
    for bias in (0.0, 1.0):
        fitting, people = experiment.generate(place, "concat", bias, rows, 5)
        model = experiment.train_shape(fitting, shape, rows, 5)
        variances[bias] = float(individual_fairness_score(model, people).var())
    assert found == pytest.approx(variances[0.0], rel=0.01)
    assert variances[1.0] > 1.5 * variances[0.0]  # a biased target's would have been another number


def test_targets_are_saved_and_tried_as_they_were_trained(experiment, place, small, tmp_path):
    from settings import Setting

    shape, rows = small
    setting = Setting("one", "wdbc", "wdbc", "outer", 1.0)
    numbers = experiment.train_targets(tmp_path, (place,), setting, shape, rows, 5, 6)
    threshold = tmp_path / "threshold"
    threshold.mkdir()
    (threshold / "result.json").write_text(json.dumps({"result": {"threshold": 0.25}}))
    fitting, people = experiment.generate(place, "outer", 1.0, rows, 5)
    trial = experiment.load_trial(fitting, people, tmp_path, threshold)
    assert trial.threshold == 0.25
    for name, model in (("unfair", trial.unfair), ("fair", trial.fair)):
        ifs = individual_fairness_score(model, people)
        assert float(ifs.mean()) == pytest.approx(numbers[name]["mean_ifs"], abs=1e-6)
    assert float(individual_fairness_score(trial.fair, people).max()) < 1e-6
    assert numbers["unfair"]["mean_ifs"] > 0.01
