import json
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

import fairfox
from fairfox.reliability import DISAGREE
from fairfox.report.view import VIEW_VERSION, view
from fairfox.result import AuditResult
from fairfox.steps import NextSteps, Step
from fairfox.verdicts.estimates import Estimate
from fairfox.verdicts.model import Verdict
from tests.support import PEOPLE, example_result, example_table, many_result, with_doubt, with_finding, without_sign

STEP = Step("income", "repaired", "as it is", 0.1, 0.04, 0.6, 0.8, 0.79, 0.03)
VERDICT = Verdict(
    "fails", "19 of 38 people are surely over delta, and no more than 5 % may be.", 0.05, 38, 19, 25, 0.0, 1.0
)


def judged(word: str = "fails") -> AuditResult:
    mean = Estimate(0.06, 0.005, 0.05, 0.07)
    return with_finding(example_result(), verdict=replace(VERDICT, word=word, mean=mean, variable="sex"))


@pytest.mark.parametrize("result", [example_result(), many_result(), without_sign()], ids=["one", "many", "fta"])
def test_a_view_is_plain_json_of_its_version(result: AuditResult):
    shown = view(result)
    assert json.loads(json.dumps(shown, allow_nan=False)) == shown
    assert (shown["kind"], shown["view_version"]) == ("audit", VIEW_VERSION)


def test_the_verdict_comes_with_its_uncertainty():
    shown = view(judged())
    assert shown["verdict"]["tone"] == "fails"
    assert shown["verdict"]["headline"].startswith("The model fails. 19 of 38 people are surely treated differently")
    assert [fact["label"] for fact in shown["facts"]] == [
        "People flagged",
        "Average change",
        "Confidently",
        "Would gain most",
    ]
    assert shown["facts"][1] == {
        "label": "Average change",
        "value": "6 points",
        "note": "95 % interval 5 points to 7 points",
        "words": False,
    }
    assert shown["facts"][3]["value"] == "sex=Female"
    assert [view(judged(word))["verdict"]["tone"] for word in ("passes", "cannot tell")] == ["passes", "open"]


def test_limits_that_cannot_be_checked_are_said_to_be_so():
    everybody = torch.ones(PEOPLE, dtype=torch.bool)
    result = example_result(abstained=everybody, flags=~everybody, settings={"max_flagged": {"": 0.1}})
    (limit,) = view(result)["verdict"]["limits"]
    assert limit["word"] == "cannot be checked"
    assert view(result)["facts"] == []


def test_no_value_of_anybody_is_in_a_view_without_rows():
    rng = np.random.default_rng(0)
    table = example_table().set_column(1, "income", pa.array(rng.normal(1e6, 1e5, PEOPLE).round(3)))
    table = table.set_column(2, "job", pa.array([f"Zyzzyva{k:02}" for k in range(PEOPLE)]))
    mapped = table.drop_columns(["sex"]).set_column(0, "income", pa.array(table["income"].to_numpy() + 0.25))
    result = replace(example_result(), counterfactual_table=mapped)
    text = json.dumps(view(result, table=table))
    values = [value for one in (table, mapped) for name in ("income", "job") for value in one[name].to_pylist()]
    assert not [value for value in values if str(value) in text or f"{value:.8}" in text]
    assert "higher" in text
    with_rows = json.dumps(view(result, table))
    flagged = table["job"].filter(pa.array(result.flags.numpy())).to_pylist()
    assert all(job in with_rows for job in flagged)
    assert sum(job in with_rows for job in table["job"].to_pylist()) == len(flagged)


def test_what_to_do_next_is_told_step_by_step():
    steps = NextSteps(0.1, (STEP,), STEP, "AUC", None, 38, 38, 100)
    shown = view(example_result(steps=steps))["next"]
    assert shown["lines"] == [steps.sentence]
    assert shown["table"]["rows"] == [["income", "repaired", "as it is", "60.0 %", "4.0", "0.790"]]
    nobody = torch.zeros(PEOPLE, dtype=torch.bool)
    assert view(example_result(steps=steps, flags=nobody))["next"]["lines"][0].startswith("Nobody is flagged")
    unlabelled = replace(steps, measure=None, steps=(replace(STEP, accuracy_before=None, accuracy_after=None),))
    assert len(view(example_result(steps=unlabelled))["next"]["table"]["columns"]) == 5
    assert view(example_result())["next"]["table"] is None


def test_a_slider_that_cannot_be_is_explained():
    shown = view(many_result())
    assert shown["slider"] is None
    assert shown["no_slider"] == "Some groups have a delta of their own, so that there is no single delta to move."
    assert view(example_result())["no_slider"] is None


def test_where_decisions_turn_no_fact_speaks_of_delta():
    result = judged()
    turned = replace(result, settings={**result.settings, "decision_threshold": 0.5})
    notes = [fact["note"] for fact in view(turned)["facts"]]
    assert "their whole interval lies beyond what turns the decision" in notes
    assert not [note for note in notes if "delta" in note]


def test_people_left_out_are_said_to_be_counted_by_the_verdict_alone():
    result = with_doubt(judged())
    told = view(result)["verdict"]
    assert told["abstained"] == (
        "3 people are not among those judged: the re-fits disagree about 1 of them, whom only the verdict on the model "
        "counts."
    )
    assert told["counts_left_out"]
    assert result.reasons.count(DISAGREE) == 1
    plain = view(judged())["verdict"]
    assert plain["abstained"] == "2 people could not be judged and are not counted above."
    assert not plain["counts_left_out"]


def owners() -> pa.Table:
    """Return people one in two of whom owns a house, one in three has ever gained, and each has their own income."""
    rng = np.random.default_rng(2)
    n = 160
    male = rng.random(n) < 0.5
    return pa.table(
        {
            "sex": np.where(male, "Male", "Female"),
            "race": rng.choice(["Black", "White"], n),
            "age": rng.permutation(np.linspace(20, 70, n)),
            "owner": (rng.random(n) < 0.25 + 0.5 * male).astype(int),
            "gain": np.where(rng.random(n) < 1 / 3, rng.normal(2000, 300, n).round(1), 0.0),
            "income": (3000 + 400 * male + rng.normal(0, 300, n)).round(2),
        }
    )


def by_owner(table: Any) -> np.ndarray:
    return 1 / (1 + np.exp((3200 - table["income"] - 900 * table["owner"] - table["gain"] / 9) / 400))


def real(**options: Any) -> AuditResult:
    columns = ["owner", "gain", "income"]
    return fairfox.audit(by_owner, owners(), columns=columns, refits=2, next_steps=False, **options)


def test_no_column_of_few_values_can_be_read_off_a_page_without_rows():
    result = real(protected="sex", delta=0.001)
    shown = view(result, table=owners())
    told = {(row[1], row[2]) for person in shown["people"]["rows"] for row in person["features"]["rows"]}
    assert len(shown["people"]["rows"]) > 100
    assert {how for name, how in told if name in ("owner", "gain")} <= {"changes", "the same"}
    assert {how for name, how in told if name == "income"} >= {"higher", "lower"}
    ends = [f(owners()["income"].to_numpy()) for f in (np.argmin, np.argmax)]
    words = {
        int(person["id"]): row[2]
        for person in shown["people"]["rows"]
        for row in person["features"]["rows"]
        if row[1] == "income"
    }
    assert {words[int(end)] for end in ends if int(end) in words} <= {"changes"}


def test_nobody_who_is_not_flagged_is_in_a_view():
    result = real(protected="sex", delta=0.05)
    assert 0 < int(result.flags.sum()) < result.judged
    shown = view(result, table=owners())
    assert {int(person["id"]) for person in shown["people"]["rows"]} == set(result.flags.nonzero()[:, 0].tolist())
    assert shown["slider"]["flagged"][0] > len(shown["people"]["rows"])  # only counts tell of smaller deltas
    fair = view(real(protected="sex", delta=10.0), table=owners())
    assert fair["people"]["rows"] == []
    assert fair["slider"]["flagged"][0] > 0


@pytest.mark.parametrize("protected", ["sex", ["sex", "race"], ["sex", "race", "age"]], ids=str)
def test_of_two_groups_nobody_s_own_is_named_without_rows(protected: str | list[str]):
    result = real(protected=protected, delta=0.001)
    people = view(result, table=owners())["people"]
    assert len(people["rows"]) > 100
    text = json.dumps(people)
    assert not [group for group in ("Male", "Female", "Black", "White") if group in text]
    with_rows = json.dumps(view(result, owners())["people"])
    assert all(f"as {group}" in with_rows for group in ("Male", "Female"))
