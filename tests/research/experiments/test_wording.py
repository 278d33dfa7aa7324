"""Results in words."""

EXPERIMENT = "wording"


def test_a_pipe_in_a_cell_does_not_open_another(experiment):
    text = experiment.markdown_table(["what", "value"], [["mean |effect|", "1"], ["share", "2"]])
    assert text.splitlines() == [
        "| what | value |",
        "| --- | --- |",
        r"| mean \|effect\| | 1 |",
        "| share | 2 |",
    ]


def test_values_are_told_with_their_names_and_the_papers_behind_ours(experiment):
    assert experiment.in_words(0.123456) == "0.1235"
    assert experiment.in_words(1.0) == "1"
    assert experiment.in_words(7) == "7"
    assert experiment.in_words([0.5, 2, "none"]) == "0.5, 2, none"
    assert experiment.in_words({"a": 0.25, "b": {"c": [1, 2]}}) == "a 0.25; b c 1, 2"
    assert experiment.in_words({"ours": 0.75, "paper": [0.7, 0.05]}) == "0.75 (the paper 0.7, 0.05)"
