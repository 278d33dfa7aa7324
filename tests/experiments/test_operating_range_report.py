"""What is made of the cells of the operating range."""

import numpy as np
import pytest

EXPERIMENT = "operating_range_report"

ALL = ("faux", "faux+ng", "faux+ig", "rank", "rank/a", "move", "fta", "lic")


def cell(bias, ap, *, accuracy=0.8, world=("a", "b", "concat"), tests=ALL):
    """One cell in which all tests are equally good."""
    return {
        **dict(zip(("c", "y", "fusion"), world, strict=True)),
        "bias": bias,
        "prevalence": 0.4,
        "auxiliary_balanced_accuracy": accuracy,
        "mean_gradient_norm": 1.0,
        "ap": dict.fromkeys(tests, ap),
        "rho": dict.fromkeys(tests, 0.5),
        "precisions": dict.fromkeys(tests, [ap] * 50),
    }


def test_thirds_have_as_many_values_each(experiment):
    edges, places = experiment.thirds([6.0, 1.0, 2.0, 3.0, 4.0, 5.0])
    assert (edges[0], edges[3]) == (1.0, 6.0)
    assert places.tolist() == [2, 0, 0, 1, 1, 2]


def test_the_line_is_that_of_least_squares(experiment):
    x = np.array([0.0, 1.0, 2.0])
    assert experiment.line(x, 3 * x + 1) == pytest.approx((3.0, 0.0))
    slope, error = experiment.line(x, np.array([0.0, 3.0, 0.0]))  # residuals -1, 2, -1
    assert (slope, error) == pytest.approx((0.0, np.sqrt(6 / 1 / 2)))


@pytest.mark.parametrize(("sign", "verdict"), [(1, "confirmed"), (-1, "refuted"), (0, "undecided")])
def test_the_papers_word_on_integrated_gradients_is_judged_by_the_slope(experiment, sign, verdict):
    cells = []
    for place in range(12):
        one = cell(1.0, 0.5, accuracy=0.5 + place / 30)
        one["ap"]["faux+ng"] += sign * place / 50 + 0.001 * (-1) ** (place // 2)
        cells.append(one)
    found = experiment.ng_minus_ig(cells)
    assert found["paper"] == verdict
    assert found["slope"] == pytest.approx(sign * 30 / 50, abs=0.01)
    assert [part["n"] for part in found["thirds"]] == [4, 4, 4]


def test_biases_are_compared_over_the_worlds_that_have_both(experiment):
    other = ("b", "a", "outer")
    cells = [cell(0.25, 0.6), cell(1.0, 0.8), cell(1.0, 0.1, world=other), cell(0.25, None, world=other)]
    assert experiment.low_and_high(cells, "rank") == {"low": 0.6, "high": 0.8, "n": 1}
    grows, time = experiment.bars(cells, 10.0)
    assert grows["holds"]
    assert time["holds"]
    cells[1]["ap"]["move"] = 0.5
    assert not experiment.bars(cells, 10.0)[0]["holds"]
    assert experiment.bars(cells[:1], 10.0) == []


def test_cells_without_bias_count_by_bias_only(experiment):
    cells = [cell(0.0, 0.1, accuracy=0.5), *(cell(1.0, 0.9, accuracy=0.7 + place / 10) for place in range(3))]
    found = experiment.summary(cells, 1.0)
    assert found["by_bias"]["faux"]["0"]["ap"] == pytest.approx(0.1)
    assert found["by_auxiliary_accuracy"]["edges"][0] == pytest.approx(0.7)
    assert [part["n"] for part in found["by_auxiliary_accuracy"]["tests"]["faux"]] == [1, 1, 1]
    assert all("precisions" not in one for one in found["cells"])


def test_a_test_that_is_left_out_of_wide_cells_has_the_mean_of_the_others(experiment):
    without = tuple(test for test in ALL if test != "move")
    found = experiment.summary([cell(1.0, 0.9), cell(1.0, 0.5, tests=without)], 1.0)
    assert (found["by_bias"]["move"]["1"]["ap"], found["by_bias"]["move"]["1"]["n"]) == (0.9, 1)
    assert found["by_bias"]["rank"]["1"]["ap"] == pytest.approx(0.7)


def test_curves_are_drawn_by_bias_and_by_thirds_of_accuracy_and_norm(experiment):
    cells = [cell(1.0, place / 10, accuracy=0.5 + place / 10) for place in (1, 2, 3)]
    found = experiment.summary(cells, 1.0)["curves"]
    assert found["precision"]["rank"]["1"] == pytest.approx([0.2] * 50)
    by_accuracy = found["by_auxiliary_accuracy"]["rank"]
    assert [curve[0] for curve in by_accuracy.values()] == pytest.approx([0.1, 0.2, 0.3])
    assert list(by_accuracy) == ["lowest third", "middle third", "highest third"]
    assert set(found["by_gradient_norm"]["rank"]) == set(by_accuracy)
