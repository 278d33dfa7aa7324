"""Unawareness, on a rule whose shares can be worked out by hand."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from populations import encoded

import fairfox
from fairfox.data.dataset import Dataset
from fairfox.errors import OptionError
from fairfox.fairtests.unawareness import Unawareness
from fairfox.maps.rank import LACKING
from fairfox.models.adapters import BlackBoxModel
from fairfox.models.protocol import Model

COLOURS = ("blue", "green", "red")


def cars(n: int = 1200) -> pd.DataFrame:
    """Return drivers: a quarter are men, one in six has a red car, in all combinations alike."""
    place = np.arange(n)
    colour = np.array(["red", "blue", "blue", "green", "green", "green"])[(place // 4) % 6]
    return pd.DataFrame({"sex": np.where(place % 4 == 0, "male", "female"), "colour": colour, "income": place * 1.0})


def asked(
    frame: pd.DataFrame, rule: Callable[[pd.DataFrame], np.ndarray], protected: list[str], **options
) -> tuple[Model, Dataset]:
    encoding, data = encoded(frame, protected, contrasts="all", **({"columns": list(frame.columns)} | options))
    return BlackBoxModel(rule, decoder=encoding, kind="table"), data


def male_and_red(table: pd.DataFrame) -> np.ndarray:
    return ((table["sex"] == "male") & (table["colour"] == "red")).to_numpy().astype(float)


def test_one_iff_male_and_red_flags_both_columns_with_exact_shares():
    model, data = asked(cars(), male_and_red, ["sex", "colour"])
    test = Unawareness().fit(data)
    measured = test.measure(model, data)
    frame = cars()
    # another sex changes the output of everyone with a red car: one in six
    red, male = (frame["colour"] == "red").to_numpy(), (frame["sex"] == "male").to_numpy()
    by_sex = measured.of_variable(0, data)
    assert by_sex.score.tolist() == red.astype(float).tolist()
    assert by_sex.effect.tolist() == np.where(red, np.where(male, -1.0, 1.0), 0.0).tolist()
    # another colour changes that of every man: from red to any other, or to red; a quarter
    by_colour = measured.of_variable(1, data)
    assert by_colour.score.tolist() == male.astype(float).tolist()
    assert set(by_colour.klass[torch.tensor((male & ~red).tolist())].tolist()) == {COLOURS.index("red")}
    verdict = test.verdict(measured, data)
    assert verdict["changed by sex"] == pytest.approx(1 / 6)
    assert verdict["changed by colour"] == pytest.approx(1 / 4)


def test_a_tolerance_that_is_no_number_is_refused():
    with pytest.raises(OptionError, match="tolerance is inf; expected a number of at least 0"):
        Unawareness(tolerance=float("inf"))


def test_only_changes_above_the_tolerance_count():
    model, data = asked(cars(240), lambda t: 0.1 * (t["sex"] == "male").to_numpy(), ["sex"])
    for tolerance, share in ((0.09, 1.0), (0.11, 0.0)):
        test = Unawareness(tolerance=tolerance).fit(data)
        assert test.verdict(test.measure(model, data), data) == {"changed by sex": share}


def test_a_variable_that_the_target_does_not_take_changes_nothing():
    model, data = asked(cars(240), male_and_red, ["sex", "income"], columns=["sex", "colour"])
    test = Unawareness().fit(data)
    measured = test.measure(model, data)
    assert not measured.of_variable(1, data).score.any()
    assert list(test.verdict(measured, data)) == ["changed by sex"]


def test_weighted_people_count_as_many_as_they_are():
    model, data = asked(cars(24), male_and_red, ["sex"])
    red = torch.tensor((cars(24)["colour"] == "red").tolist())
    weighted = replace(data, weights=torch.where(red, 5.0, 1.0))  # 4 of 24 have a red car
    test = Unawareness().fit(data)
    assert test.verdict(test.measure(model, data), weighted)["changed by sex"] == pytest.approx(0.5)


def test_people_whose_sex_is_missing_are_not_judged_and_count_in_no_share():
    frame = cars(240)
    frame["income"] = np.where(frame["sex"] == "male", 5.0, 0.0) + np.arange(240) / 100  # tells the sex
    frame.loc[:29, "sex"] = None
    result = fairfox.audit(
        lambda t: 0.2 * (t["sex"] == "male"), frame, protected="sex", columns=list(frame.columns), test="unawareness"
    ).record
    assert result.inferred[:30].all()
    assert result.abstained.nonzero()[:, 0].tolist() == list(range(30))
    assert set(result.reasons[:30]) == {LACKING}
    assert result.checks == {"changed by sex": 1.0}
    assert result.scores[30:].tolist() == pytest.approx([0.2] * 210)
