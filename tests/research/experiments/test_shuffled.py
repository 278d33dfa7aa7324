"""Shuffled protected columns of raw tables: nobody is to be flagged."""

EXPERIMENT = "shuffled"


def test_people_are_audited_for_groups_that_mean_nothing(experiment, quick_run, need):
    need("german")
    found = quick_run(experiment.EXPERIMENT)
    assert [one["shuffle"] for one in found["results"]] == [0, 1]
    for one in found["results"]:
        assert one["people"] == 80
        assert one["confident"] <= one["flagged"]
    assert "| German credit | logistic regression | 2 |" in experiment.show(found)


def test_large_tables_must_pass_and_none_may_fail(experiment):
    one = {"table": "adult", "confident": 0, "verdict": "passes"}
    small = one | {"table": "german", "verdict": "cannot tell"}
    assert [bar["holds"] for bar in experiment.bars([one, small])] == [True, True, True]
    assert [bar["holds"] for bar in experiment.bars([one | {"confident": 3, "verdict": "fails"}])] == [False] * 3
