"""The paper's two pictures, with numbers that are checked by hand."""

import json
import re
from math import sqrt

import pytest

EXPERIMENT = "paper_figures"


def flat(entries, name):
    return [number for one in entries for number in one[name]]


@pytest.fixture(scope="module")
def drawn(experiment, tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    experiment.main(["--out", str(folder)])
    return folder


def test_the_four_points_have_the_gradients_that_the_paper_speaks_of(experiment):
    found = experiment.four_points()
    assert flat(found, "target") == pytest.approx([1, 0, 1, 0, 0.04, 0, 1, 0])
    assert flat(found, "auxiliary") == pytest.approx([0, 2, 2, 0, 2, -2, 0.2, 0])
    assert [one["inner"] for one in found] == pytest.approx([0, 2, 0.08, 0.2])


def test_faux_divides_by_the_squared_length_and_ng_by_both_lengths(experiment):
    found = experiment.four_points()
    assert [one["faux"] for one in found] == pytest.approx([0, 2 / 4, 0.08 / 8, 0.2 / 0.04])
    assert [one["faux+ng"] for one in found] == pytest.approx([0, 1, 1 / sqrt(2), 1])


def test_every_step_changes_the_output_by_one_and_the_pseudo_inverse_is_the_smallest(experiment):
    found = experiment.pseudo_inverse()
    assert found["slope"] == pytest.approx(2.0)  # of 1.2 and 1.6
    assert found["step_on_line"] == pytest.approx(0.5)
    assert flat(found["steps"], "step") == pytest.approx([0.7, 0.1, 0.3, 0.4, -0.1, 0.7])
    assert [one["change"] for one in found["steps"]] == pytest.approx([1, 1, 1])
    assert [one["length"] for one in found["steps"]] == pytest.approx([sqrt(0.5), 0.5, sqrt(0.5)])


def test_both_pictures_and_their_numbers_are_written(experiment, drawn):
    for name in ("four_points", "pseudo_inverse"):
        assert (drawn / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    words = re.findall(r">([^<>]+)</text>", (drawn / "four_points.svg").read_text(encoding="utf-8"))
    assert {"0.50", "0.01", "5.00", "0.71", "faux+ng", "point 4"} <= set(words)
    words = re.findall(r">([^<>]+)</text>", (drawn / "pseudo_inverse.svg").read_text(encoding="utf-8"))
    assert {"step 0.5", "length 0.50", "length 0.71"} <= set(words)
    kept = json.loads((drawn / "paper_figures.json").read_text(encoding="utf-8"))
    assert kept == {"four_points": experiment.four_points(), "pseudo_inverse": experiment.pseudo_inverse()}
