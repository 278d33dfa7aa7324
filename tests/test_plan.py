from dataclasses import replace
from pathlib import Path

import pytest

from fairfox.comparison import plan
from fairfox.errors import OptionError
from fairfox.result import AuditResult
from fairfox.statistics.paired import people_needed
from tests.test_compare_audits import SETTINGS, audited, write


def test_a_pilot_says_how_many_people_it_takes_from_its_folder_or_its_result(tmp_path: Path):
    write(audited(), tmp_path / "pilot")
    by_folder, by_result = plan(tmp_path / "pilot", limit=0.03), plan(audited(), limit=0.03)
    assert by_folder == by_result
    assert by_folder.size == pytest.approx(float(audited().record.scores[:-2].mean()))
    assert by_folder.people == people_needed(by_folder.size, 0.03, by_folder.spread)
    assert by_folder.power(by_folder.people) >= 0.8
    assert " people detects that a mean |effect| of 0.0" in by_folder.sentence


def test_the_limit_is_the_pilots_delta_unless_told():
    assert plan(audited(), effect=0.2).limit == audited().delta


def test_a_share_can_be_planned():
    found = plan(audited(), share=0.9, max_flagged=0.5)
    assert found.measure == "share over delta"
    assert (found.size, found.limit) == (0.9, 0.5)
    assert plan(audited(), max_flagged=0.1).size == pytest.approx(float(audited().record.flagged[:-2].double().mean()))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"effect": 0.1, "limit": 0.05}, "Give either a pilot"),
        ({"effect": 0.1, "spread": 0.3}, "Without a pilot, both effect"),
        ({"share": 0.1, "spread": 0.3}, "to plan a share, or effect and limit"),
        ({"effect": 0.1, "max_flagged": 0.1, "spread": 0.3}, "to plan a share, or effect and limit"),
        ({"effect": 0.01, "limit": 0.05, "spread": 0.3}, "no number of people can show that"),
    ],
)
def test_what_lacks_or_does_not_fit_together_is_refused(options, message):
    with pytest.raises(OptionError, match=message):
        plan(**options)


def test_an_effect_of_more_than_all_points_of_a_probability_is_refused():
    with pytest.raises(OptionError, match="A probability cannot change by 20; give an effect"):
        plan(audited(), effect=20.0)


def test_a_pilot_with_weights_is_refused():
    with pytest.raises(OptionError, match="have weights, which audits do not write"):
        plan(audited(weights=audited().record.scores + 1), effect=0.2)


def test_a_pilot_with_one_refit_is_refused_unless_its_test_learns_nothing():
    once = {"settings": {**SETTINGS, "refits": 1}, "interval": None}
    with pytest.raises(OptionError, match=r"One refit in the result does not show .* refits=5"):
        plan(audited(**once), effect=0.2)
    assert plan(audited(**once, test="fta"), effect=0.2).people >= 50


@pytest.mark.parametrize(
    "change", [{"settings": {**SETTINGS, "decision_threshold": 0.5}}, {"deltas": {"sex=Female": 0.03}}]
)
def test_a_share_is_planned_for_one_delta_only(change):
    with pytest.raises(OptionError, match="shares are planned for one delta"):
        plan(audited(**change), max_flagged=0.1)
    assert plan(audited(**change), effect=0.2).measure == "mean |effect|"


def test_a_pilot_of_one_person_is_refused():
    result = audited()
    alone = result.record.abstained.clone()
    alone[1:] = True
    with pytest.raises(OptionError, match="only one person"):
        plan(AuditResult(replace(result.record, abstained=alone)), effect=0.2)
