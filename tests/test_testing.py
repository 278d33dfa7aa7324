"""assert_individually_fair: what passes, what fails, and what the failure says."""

from __future__ import annotations

import logging
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from populations import by_income, earners
from sklearn.linear_model import LogisticRegression
from support import PEOPLE, audited, example_result, sorted_options

import fairfox
from fairfox import pipeline
from fairfox.errors import DataError, OptionError
from fairfox.report.sentences import verdict_lines
from fairfox.testing import assert_individually_fair

pytestmark = [pytest.mark.brief, pytest.mark.usefixtures("undrawn")]

QUICK: dict[str, Any] = {"protected": "sex", "refits": 2, "folds": 2}


def nearly_the_same_for_all(frame: Any) -> np.ndarray:
    """Return between 0.5 and 0.52, so that nobody can be treated differently by 5 points."""
    return 0.5 + (np.asarray(frame["age"]) - 18) / 2600


def fair(model: object, people: pd.DataFrame, **options: Any) -> fairfox.AuditResult:
    return assert_individually_fair(model, people, **sorted_arguments(options))


def sorted_arguments(options: dict[str, Any]) -> dict[str, Any]:
    own = {name: options[name] for name in ("strict", "out") if name in options}
    return {**sorted_options({name: value for name, value in options.items() if name not in own}), **own}


def message_about(model: object, people: pd.DataFrame, **options: Any) -> list[str]:
    """Return the lines of the failure."""
    with pytest.raises(AssertionError) as caught:
        assert_individually_fair(model, people, **sorted_arguments({**QUICK, **options}))
    return str(caught.value).splitlines()


def test_an_unfair_model_fails_with_how_many_how_much_how_sure_through_what_and_what_to_do():
    people = earners()
    model = LogisticRegression(max_iter=1000).fit(people[["income", "age"]], people["paid"])
    lines = message_about(model, people, label="paid")
    result = audited(model, people, label="paid", **QUICK)
    assert lines == verdict_lines(result)  # the words of the report, all of them
    assert lines[0].startswith(f"FAIL: {result.verdict.significant} of 300 people (")
    assert any(line.startswith("Mean size of the effect: ") and " points" in line for line in lines)
    assert any(line.startswith("Mostly through income") for line in lines)
    assert lines[-1].startswith("Next: unless a feature is a valid reason (--given), fairfox repair")


def test_a_fair_model_passes_and_its_audit_comes_back():
    result = fair(nearly_the_same_for_all, earners(), strict=True, **QUICK)
    assert isinstance(result, fairfox.AuditResult)
    assert (result.verdict.word, len(result)) == ("passes", 300)


def test_where_one_cannot_tell_only_strict_fails(caplog: pytest.LogCaptureFixture):
    few = earners(50)  # 0.95 to the power of 50 is 7.7 %: too few to show that no more than 5 % are concerned
    with caplog.at_level(logging.WARNING, "fairfox"):
        result = fair(nearly_the_same_for_all, few, **QUICK)
    assert result.verdict.word == "cannot tell"
    first = "CANNOT TELL: 50 people are too few. At least 59 people are needed to pass."
    assert any(record.message.startswith(first) for record in caplog.records)
    assert message_about(nearly_the_same_for_all, few, strict=True)[0].startswith(first)


def test_max_flagged_is_the_share_that_may_be_over_delta():
    everyone = fair(by_income, earners(), max_flagged=1.0, **QUICK)
    assert everyone.flagged.mean() > 0.5
    assert (everyone.verdict.word, everyone.verdict.allowed) == ("passes", 1.0)
    line = message_about(by_income, earners(), max_flagged=0.1)[0]
    assert line.startswith("FAIL: ")
    assert line.endswith("; the limit is 10 %.")


def test_a_limit_of_one_group_is_enough_to_fail_and_is_named_first():
    line = message_about(by_income, earners(), max_flagged={"": 1.0, "Female": 0.01})[0]
    assert re.match(r"FAIL: \d+ of \d+ people in the group sex=Female \(", line)
    assert line.endswith("; the limit is 1 %.")


def test_without_intervals_there_is_nothing_to_assert():
    for more in ({}, {"strict": True}, {"max_flagged": 1.0}):
        with pytest.raises(OptionError, match="refits=1 gives no intervals and so no verdict; use more refits"):
            fair(by_income, earners(), **{**QUICK, "refits": 1}, **more)


def test_a_model_of_whom_nobody_could_be_judged_does_not_pass(monkeypatch: pytest.MonkeyPatch):
    nobody = example_result(abstained=torch.ones(PEOPLE, dtype=torch.bool), reasons=("too few alike",) * PEOPLE)
    settings = {**nobody.settings, "max_flagged": None, "refits": 5}
    monkeypatch.setattr(pipeline, "audit", lambda *_, **__: fairfox.AuditResult(replace(nobody, settings=settings)))
    with pytest.raises(DataError, match=r"Nobody could be judged, so .*: too few alike"):
        assert_individually_fair(by_income, earners(), protected="sex")


def test_the_report_of_a_model_that_fails_is_written_and_of_no_other(tmp_path: Path):
    fair(nearly_the_same_for_all, earners(), out=tmp_path / "fair", **QUICK)
    lines = message_about(by_income, earners(), out=tmp_path / "unfair")
    assert not (tmp_path / "fair").exists()
    assert lines[-1].startswith(f"Written: {tmp_path / 'unfair'}")
    assert (tmp_path / "unfair" / "report.html").stat().st_size > 10_000


def test_a_folder_that_cannot_be_written_does_not_hide_what_was_found(tmp_path: Path):
    (tmp_path / "file").write_text("in the way")
    lines = message_about(by_income, earners(), out=tmp_path / "file" / "report")
    assert lines[0].startswith("FAIL: ")
    assert lines[-1].endswith("choose another folder")
