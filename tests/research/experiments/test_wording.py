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


def test_a_bar_that_fails_stands_out(experiment):
    found = {"bars": [{"bar": "low", "value": 0.25, "holds": True}, {"bar": "|high|", "value": [], "holds": False}]}
    assert experiment.bars(found).splitlines() == [
        "| what has to be shown | measured | holds |",
        "| --- | --- | --- |",
        "| low | 0.25 | yes |",
        r"| \|high\| |  | **no** |",
    ]
    assert experiment.bars({"bars": []}) == ""


def test_a_number_has_three_decimals_and_a_missing_one_is_a_dash(experiment):
    assert [experiment.number(v) for v in (0.12345, -2.0, 0.0, None)] == ["0.123", "-2.000", "0.000", "-"]
