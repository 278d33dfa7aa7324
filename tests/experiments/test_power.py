"""A quick run of planned and measured power, and its audits beside fairfox's own."""

import json

import pytest
import torch

import fairfox
from fairfox.models.torch_model import TorchModel
from fairfox.synthetic.graded import draw
from fairfox.synthetic.targets import train_target
from fairfox.synthetic.two_groups import ADDITIVE

EXPERIMENT = "power"


@pytest.fixture(scope="module")
def quick(experiment, tmp_path_factory):
    out = tmp_path_factory.mktemp("power") / "power.json"
    before = torch.random.get_rng_state()
    assert experiment.EXPERIMENT.run(["--quick", "--workers", "1", "--out", str(out)]) == 0
    assert torch.equal(torch.random.get_rng_state(), before)
    return json.loads(out.read_text(encoding="utf-8"))


def test_an_audit_of_the_experiment_has_the_scores_and_intervals_of_fairfox_audit(experiment):
    people = draw(ADDITIVE, 200, 80, seed=1).people
    model = train_target(people, width=4, depth=1, seed=0)
    assert isinstance(model, TorchModel)
    names = [feature.name for feature in people.features]
    table = {name: people.x[:, j].tolist() for j, name in enumerate(names)} | {"sex": people.c[:, 0].tolist()}
    import pandas as pd

    def predict(rows):
        x = torch.tensor(rows[names].to_numpy(), dtype=torch.float32)
        return model(x)[:, 0].detach().numpy()

    ours = experiment.audited(model, people, refits=3, folds=4, seed=5)
    whole = fairfox.audit(predict, pd.DataFrame(table), protected="sex", refits=3, folds=4, seed=5)
    assert ours.scores == pytest.approx(whole.scores.numpy(), abs=1e-4)
    half = ((whole.interval[:, 1] - whole.interval[:, 0]) / 2).numpy()
    assert ours.errors * 2.132 == pytest.approx(half, abs=2e-4)  # t of 4 degrees of freedom


def test_a_quick_run_has_every_size_with_planned_and_measured_power(experiment, quick):
    assert [(one["world"], one["people"]) for one in quick["results"]] == [("additive", 100), ("additive", 200)]
    for one in quick["results"]:
        assert 0 <= one["planned_least"] <= one["planned"] <= one["planned_most"] <= 1
        assert one["limit"] == pytest.approx(one["truth"] * 2 / 3)
        assert one["mean"] == pytest.approx(one["truth"], rel=0.5)
    assert quick["bars"] == []
    assert "| additive | 100 |" in experiment.show(quick)


def test_bars_fail_where_the_plan_is_off_or_too_much_is_found(experiment):
    good = {"world": "w", "people": 100, "planned": 0.55, "found": 0.5, "found_at_limit": 0.05}
    off = good | {"people": 200, "found": 0.3}
    bold = good | {"people": 400, "found_at_limit": 0.2}
    assert [one["holds"] for one in experiment.bars([good])] == [True, True]
    assert [one["holds"] for one in experiment.bars([good, off])] == [False, True]
    assert [one["holds"] for one in experiment.bars([good, bold])] == [True, False]


def test_worlds_are_chosen_by_name(experiment):
    assert experiment.narrow(experiment.FULL, ["lending"]).worlds == ("lending",)
    with pytest.raises(SystemExit, match="no world moon"):
        experiment.narrow(experiment.FULL, ["moon"])
