"""A quick run of verdicts where the answer is known."""

from fairfox.benchmark.worlds import LENDING

EXPERIMENT = "known_verdicts"
PART = ("known_truth", "verdicts")


def test_a_quick_run_has_a_word_for_every_case_and_seed(experiment, quick):
    assert set(quick["words"]) == set(experiment.CASES)
    for said in quick["words"].values():
        assert sum(said.values()) == quick["seeds"] == experiment.QUICK.seeds
        assert set(said) <= set(experiment.WORDS)
    assert quick["words"]["biased"] == {"fails": quick["seeds"]}
    for case in ("few, biased", "few, fair"):
        assert "passes" not in quick["words"][case]
    assert quick["bars"] == []


def test_more_bias_never_makes_a_verdict_milder(experiment, quick):
    assert [step[0] for step in quick["tipping"][0]] == [0.0, *experiment.BIASES]
    steps = [[0.2, "passes", 0.5], [0.3, "cannot tell", None], [0.4, "fails", 0.8], [1.0, "fails", 0.0]]
    assert experiment._rises(steps)
    assert not experiment._rises([*steps, [2.0, "fails", 0.3]])
    assert not experiment._rises(steps[::-1])


def test_fewer_are_surely_than_perhaps_over_delta(quick):
    for shares in quick["shares"].values():
        assert 0 <= shares["surely"] <= shares["perhaps"] <= 1
    assert quick["shares"]["biased"]["surely"] > 0.5


def test_shuffled_groups_are_the_same_people_with_somebody_s_sex(experiment):
    people = LENDING.sample(200, seed=0)
    table = experiment.shuffled(people, 1)
    (name,) = people.protected
    assert table.column_names == people.table.column_names
    assert table.drop_columns([name]).equals(people.table.drop_columns([name]))
    assert not table[name].equals(people.table[name])
    assert sorted(table[name].to_pylist()) == sorted(people.table[name].to_pylist())
    assert table.equals(experiment.shuffled(people, 1))
