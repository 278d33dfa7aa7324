"""A quick run of verdicts where the answer is known."""

from __future__ import annotations

import json

import pytest
import torch

from fairfox.synthetic.two_groups import LENDING

EXPERIMENT = "verdicts"


@pytest.fixture(scope="module")
def quick(experiment, tmp_path_factory):
    out = tmp_path_factory.mktemp("verdicts") / "verdicts.json"
    before = torch.random.get_rng_state()
    assert experiment.EXPERIMENT.run(["--quick", "--workers", "1", "--out", str(out)]) == 0
    assert torch.equal(torch.random.get_rng_state(), before)
    return json.loads(out.read_text(encoding="utf-8"))


def test_a_quick_run_has_a_word_for_every_case_and_seed(experiment, quick):
    assert set(quick["words"]) == set(experiment.CASES)
    for said in quick["words"].values():
        assert sum(said.values()) == quick["seeds"] == experiment.QUICK.seeds
        assert set(said) <= set(experiment.WORDS)
    assert quick["words"]["biased"] == {"fails": quick["seeds"]}
    for case in ("few, biased", "few, fair"):
        assert "passes" not in quick["words"][case]
    assert quick["bars"] == []


def test_fewer_are_surely_than_perhaps_over_delta(quick):
    for shares in quick["shares"].values():
        assert 0 <= shares["surely"] <= shares["perhaps"] <= 1
    assert quick["shares"]["biased"]["surely"] > 0.5


def test_the_words_are_shown_as_a_table(experiment, quick):
    rows = experiment.show(quick).splitlines()
    assert rows[0].startswith(f"| of {quick['seeds']} audits | passes | fails | cannot tell |")
    assert f"| the biased model | 0 | {quick['seeds']} | 0 |" in rows[2]
    assert len(rows) == 2 + len(experiment.CASES)


def test_shuffled_groups_are_the_same_people_with_somebody_s_sex(experiment):
    people = LENDING.sample(200, seed=0)
    table = experiment.shuffled(people, 1)
    (name,) = people.protected
    assert table.column_names == people.table.column_names
    assert table.drop_columns([name]).equals(people.table.drop_columns([name]))
    assert not table[name].equals(people.table[name])
    assert sorted(table[name].to_pylist()) == sorted(people.table[name].to_pylist())
    assert table.equals(experiment.shuffled(people, 1))


def test_bars_say_which_word_was_needed_and_how_often_it_was_said(experiment):
    plan = experiment.FULL
    good = {
        "biased": {"fails": 100},
        "fair": {"passes": 60, "cannot tell": 40},
        "shuffled, biased": {"passes": 95, "fails": 5},
        "shuffled, fair": {"passes": 100},
        "few, biased": {"fails": 20, "cannot tell": 80},
        "few, fair": {"cannot tell": 100},
    }

    def held(**changes):
        words = good | {name.replace("__", ", "): said for name, said in changes.items()}
        return {one["bar"]: one["holds"] for one in experiment.shown(plan, words)}

    assert list(held().values()) == [True] * 5
    assert [bar for bar, holds in held(biased={"fails": 99, "cannot tell": 1}).items() if not holds] == [
        "the biased model: fails for every seed"
    ]
    assert [bar for bar, holds in held(shuffled__biased={"passes": 94}).items() if not holds] == [
        "the biased model, shuffled groups: passes for at least 95 of 100 seeds"
    ]
    assert [bar for bar, holds in held(few__fair={"passes": 1, "cannot tell": 99}).items() if not holds] == [
        "the fair model, few people (50): never passes"
    ]


def test_cases_are_chosen_by_name(experiment):
    plan = experiment.narrow(experiment.FULL, ["few, biased"])
    assert plan.cases == ("few, biased",)
    assert [one["bar"] for one in experiment.shown(plan, {"few, biased": {}})] == [
        "the biased model, few people (50): never passes"
    ]
    with pytest.raises(SystemExit, match="no case moon"):
        experiment.narrow(experiment.FULL, ["moon"])
