"""Verdicts, lists, thresholds and next steps of whole audits: what is said is what is written down."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from click.testing import CliRunner, Result
from populations import by_income, earners
from scipy.stats import norm
from support import audited, ended

from fairfox.cli.main import cli
from fairfox.errors import OptionError
from fairfox.findings import AuditRecord
from fairfox.report.files import scores_table
from fairfox.report.sentences import verdict_lines
from fairfox.report.text import amount, number, percent
from fairfox.result import AuditResult

pytestmark = [pytest.mark.brief, pytest.mark.usefixtures("undrawn")]

QUICK: dict[str, Any] = {"protected": "sex", "refits": 2, "folds": 2}
MODEL = """
import numpy as np

def score(people):
    return 1 / (1 + np.exp(-(people["income"] - 3300) / 400))
"""


def table(n: int = 300, seed: int = 0) -> pd.DataFrame:
    """Return people of whom men earn more, in towns that have nothing to do with it."""
    town = np.random.default_rng(seed + 1).choice(["North", "South"], n)
    return earners(n, seed=seed).drop(columns="job").assign(town=town)


@pytest.fixture(scope="module")
def plain() -> AuditRecord:
    """The audit that several tests look at."""
    return audited(by_income, table(), **QUICK)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    table().to_csv(tmp_path / "people.csv", index=False)
    (tmp_path / "model.py").write_text(MODEL)
    return tmp_path


def run(folder: Path, *options: str) -> Result:
    files = [str(folder / "model.py:score"), str(folder / "people.csv")]
    fixed = ["-c", "sex", "--label", "paid", "--refits", "2", "--out", str(folder / "out")]
    return CliRunner().invoke(cli, ["audit", *files, *fixed, *options])


def test_a_summary_says_what_summary_json_holds(plain: AuditRecord):
    fields = json.loads(AuditResult(plain).to_json())
    assert fields["verdict"]["word"] == "fails"
    assert fields["in_words"] == verdict_lines(plain)
    assert AuditResult(plain).summary().splitlines()[1 : 1 + len(fields["in_words"])] == fields["in_words"]


def test_the_terminal_says_what_summary_json_holds(folder: Path):
    done = ended(run(folder, "--null", "2", "--fdr", "0.2"))
    fields = json.loads((folder / "out" / "summary.json").read_text())
    printed = " ".join(done.stdout.split())
    for sentence in fields["in_words"]:
        assert sentence in printed
    assert fields["settings"]["fdr"] == 0.2
    null, share = fields["null"], fields["null"]["alignment"]["sex"]
    pattern = r"With shuffled .* score is (.*), and 95 % stay below (.*); .* sex (.*) instead of (.*), p-value (.*)\."
    (shown,) = (found.groups() for each in fields["in_words"] if (found := re.fullmatch(pattern, each)))
    sizes = [amount(null[name], fields["unit"]) for name in ("mean_score", "delta")]
    shares = [percent(share["by_chance"]), percent(share["share"])]
    assert [*shown] == [*sizes, *shares, number(share["p_value"])]


def test_with_a_decision_threshold_the_words_are_of_decisions_and_the_numbers_the_same(folder: Path):
    done = ended(run(folder, "--decision-threshold", "0.6"))
    fields = json.loads((folder / "out" / "summary.json").read_text())
    assert "their decision at the threshold 0.6 would change with sex" in fields["verdict"]["reason"]
    assert "the decision would change over the whole interval" in " ".join(done.stdout.split())


def test_the_list_and_the_p_values_are_written_for_everyone(plain: AuditRecord):
    rows = scores_table(plain).to_pydict()
    assert rows["significant"] == plain.significant.tolist()
    assert 0 < sum(rows["significant"]) < len(plain)
    largest = max(p for p, on in zip(rows["p_value"], rows["significant"], strict=True) if on)
    assert largest <= 0.1 * sum(rows["significant"]) / len(plain)  # Benjamini and Hochberg
    assert all(on == (p <= largest) for p, on in zip(rows["p_value"], rows["significant"], strict=True))


@pytest.mark.parametrize("cut", [0.3, 0.5])
def test_a_decision_threshold_flags_exactly_those_whose_decision_turns(cut: float):
    people = table()
    result = audited(by_income, people, **QUICK | {"refits": 1}, label="paid", decision_threshold=cut)
    here, there = by_income(people) >= cut, by_income(result.counterfactual_table) >= cut
    assert result.flagged.tolist() == (here != there).tolist()
    assert 0 < result.share_flagged < 1
    assert result.decision_threshold == cut


def test_with_many_classes_a_decision_that_any_of_them_turns_is_flagged():
    rng = np.random.default_rng(0)
    people = table().assign(race=rng.choice(["a", "b", "c"], 300))
    people["income"] += people["race"].map({"a": 0.0, "b": -800.0, "c": 500.0})
    asked = QUICK | {"protected": "race", "refits": 1, "drop": ["sex", "paid"], "contrasts": "all"}
    result = audited(by_income, people, **asked, decision_threshold=0.5)
    here = result.predictions[:, None]
    there = here + result.findings[0].effects  # (N, 3), NaN for the own class
    turned = ((here >= 0.5) != (there >= 0.5)) & ~there.isnan()
    assert result.flagged.tolist() == turned.any(1).tolist()
    largest = result.findings[0].effects.nan_to_num().abs().argmax(1)
    assert int((turned.any(1) & ~turned[torch.arange(300), largest]).sum()) > 0  # not by the largest effect


def test_two_variables_have_a_verdict_each_and_one_together():
    result = audited(by_income, table(600), **QUICK | {"protected": ["sex", "town"], "refits": 3}, label="paid")
    sex, town = (finding.verdict for finding in result.findings)
    assert (sex.word, sex.variable, town.variable) == ("fails", "sex", "town")
    assert town.word != "fails"
    assert result.verdict == sex
    said = verdict_lines(result)
    assert said[0] == sex.headline
    assert f"For town: {town.headline}" in said
    assert any(sentence.startswith("Mean size of the effect of sex: ") for sentence in said)


def test_delta_comes_from_shuffled_values_where_asked_for():
    result = audited(by_income, table(), **QUICK, label="paid", null=2, delta_from_null=True, gate=False)
    assert result.null.scores.shape == (2, 300)
    assert result.delta == result.null.delta
    assert float((result.null.scores < result.delta).double().mean()) == pytest.approx(0.95, abs=1 / 300)
    assert result.flagged.tolist() == (result.scores > result.delta).tolist()
    assert result.settings["delta_from_null"] is True
    assert result.settings["null"] == 2
    assert result.null.p_alignment(0, result.findings[0].alignment_share) == pytest.approx(1 / 3)  # none as large


def test_shuffled_values_of_a_model_that_takes_the_protected_column_are_refused():
    def by_sex(frame: Any) -> np.ndarray:
        return np.where(np.asarray(frame["sex"]) == "Male", 0.7, 0.3)

    with pytest.raises(OptionError, match="takes the protected column; leave it out"):
        audited(by_sex, table(), **QUICK, columns=["sex", "income"], null=1)


def test_only_a_model_that_fails_is_told_what_to_do_next(plain: AuditRecord):
    passes = audited(by_income, table(), **QUICK, delta=0.9)
    assert (plain.verdict.word, passes.verdict.word) == ("fails", "passes")
    told = [[line for line in verdict_lines(each) if line.startswith("Next: ")] for each in (plain, passes)]
    assert [len(each) for each in told] == [1, 0]


# --- where ranks persist in part -----------------------------------------------------------------------------------


def by_age(frame: Any) -> np.ndarray:
    return 0.5 + np.asarray(frame["age"]) / 10_000


def test_intervals_allow_for_ranks_that_persist_in_part_and_effects_and_the_list_stay(plain: AuditRecord):
    robust, exact = plain, audited(by_income, table(), **QUICK, persistence=1)
    assert robust.settings["persistence"] == 0.9
    torch.testing.assert_close(robust.scores, exact.scores)
    torch.testing.assert_close(robust.sampling, exact.sampling)
    torch.testing.assert_close(exact.interval, exact.sampling)
    assert bool((robust.interval[:, 0] <= robust.sampling[:, 0]).all())
    assert bool((robust.interval[:, 1] >= robust.sampling[:, 1]).all())
    width = (robust.interval[:, 1] - robust.interval[:, 0]) / (robust.sampling[:, 1] - robust.sampling[:, 0])
    assert float(width.median()) > 1.05
    assert bool((robust.significant == exact.significant).all())  # the list is that of ranks that carry over exactly
    assert bool((robust.confident <= exact.confident).all())
    ends = torch.stack([-robust.predictions, 1 - robust.predictions], dim=1)  # what a probability can change by
    assert bool((robust.interval >= ends[:, :1] - 1e-6).all())
    assert bool((robust.interval <= ends[:, 1:] + 1e-6).all())


def test_how_far_the_verdict_can_be_trusted_does_not_depend_on_the_interval_that_is_shown(plain: AuditRecord):
    one = plain.verdict
    assert one.word == "fails"
    assert one == audited(by_income, table(), **QUICK, persistence=0.5).verdict
    assert [point.persistence for point in one.curve] == [0.99, 0.95, *(k / 10 for k in range(9, -1, -1))]
    assert one.tipping is not None
    assert one.tipping <= 0.95


def test_a_model_that_treats_all_alike_tips_nowhere():
    verdict = audited(by_age, table(), **QUICK).verdict
    assert (verdict.word, verdict.tipping) == ("passes", 0.0)
    assert {point.share for point in verdict.curve} == {0.0}


def test_a_test_without_ranks_has_the_sampling_interval_and_no_tipping_point():
    result = audited(by_income, table(), **QUICK, test="transport")
    assert (result.verdict.tipping, result.verdict.curve) == (None, ())
    assert torch.equal(result.interval, result.sampling)


def test_fifty_people_never_pass():
    for seed in range(3):
        assert audited(by_age, table(50, seed=seed), **QUICK).verdict.word != "passes"


@pytest.mark.parametrize("delta", [5, {"": 0.05, "Female": 5.0}])
def test_a_delta_that_no_probability_can_change_by_is_refused(delta: Any):
    with pytest.raises(OptionError, match=r"delta is 5, more than a probability can change; did you mean 0\.05\?"):
        audited(by_income, table(60), **QUICK, delta=delta)
    # of a sum of money it can be meant
    assert audited(lambda frame: np.asarray(frame["income"]), table(60), **QUICK, delta=5).delta == 5


@pytest.mark.parametrize("options", [{}, {"given": "noise"}, {"given": "letter"}, {"protected": ["sex", "letter"]}])
def test_nothing_passes_where_the_groups_differ_and_no_feature_says_why(options: dict[str, Any]):
    # each column is alike in both groups, and only together they differ: nothing moves, and nothing is explained
    rng = np.random.default_rng(0)
    male = np.arange(600) % 2 == 1
    one, two = rng.normal(size=(2, 600))
    together = np.where(male, 0.8, -0.8) * one + 0.6 * two
    people = pd.DataFrame({"sex": np.where(male, "Male", "Female"), "one": one, "two": together})
    people = people.assign(noise=rng.normal(size=600), letter=rng.choice([*"uvw"], 600))  # which explain nothing
    asked = QUICK | {"columns": ["one", "two"], "hold_others": "protected" in options} | options
    result = audited(lambda frame: 1 / (1 + np.exp(-2 * frame["one"] * frame["two"])), people, **asked)
    assert float(result.findings[0].scores.max()) == 0.0
    verdict = result.findings[0].verdict
    assert verdict.word == "cannot tell"
    gap = result.groups[1].mean_prediction - result.groups[0].mean_prediction
    shown = re.search(
        r"is ([\d.]+) points (?:higher|lower) than .* and the map accounts for 0\.0 points", verdict.reason
    )
    assert float(shown[1]) == pytest.approx(100 * abs(gap), abs=0.06 if not options else 2.0)
    names = {"given": options.get("given"), "protected": "letter"}
    assert [f"among people with the same {names[kind]}" in verdict.reason for kind in options] == [True] * len(options)


def test_a_gap_that_given_values_explain_takes_no_verdict_back():
    # older people are paid more, and more men are old: nothing is left among people of the same age
    rng = np.random.default_rng(0)
    male = rng.integers(0, 2, 3000)
    old = rng.random(3000) < 0.2 + 0.6 * male
    people = pd.DataFrame({"sex": np.where(male, "Male", "Female"), "old": np.where(old, "yes", "no")})
    people["income"] = old + rng.normal(0, 0.3, 3000)
    given, plain = (
        audited(lambda frame: 1 / (1 + np.exp(-frame["income"])), people, **QUICK, columns=["income"], given=held)
        for held in (["old"], [])
    )
    assert (given.verdict.word, plain.verdict.word) == ("passes", "fails")


def test_a_gap_at_given_values_is_known_as_well_as_these_tell_predictions_and_of_groups_who_are_there():
    # the prediction follows from the given column alone: few people are enough to see that nothing is left
    rng = np.random.default_rng(0)
    people = pd.DataFrame({"h": rng.normal(size=300), "x": rng.normal(size=300), "race": rng.choice([*"ab"], 300)})
    others = people.assign(race=rng.choice([*"abc"], 300))  # nobody of the table is a c
    for asked in ({}, {"reference": others}):
        options = QUICK | {"protected": "race", "given": "h"} | asked
        assert audited(lambda frame: 1 / (1 + np.exp(-frame["h"])), people, **options).verdict.word == "passes"


def test_a_curved_effect_of_a_protected_number_is_no_direction():
    # those at the ends get more, and so does the middle when it moves either way: no share of one direction is left
    rng = np.random.default_rng(0)
    people = pd.DataFrame({"age": rng.integers(20, 70, 400)})
    people["x"] = (people["age"] - 45) / 15 + rng.normal(0, 0.5, 400)
    asked = QUICK | {"protected": "age", "columns": ["x"]}
    curve = audited(lambda frame: 1 / (1 + np.exp(3 - frame["x"] ** 2)), people, **asked).verdict.curve
    assert max(point.net for point in curve if point.persistence <= 0.5) < 0.1


def test_few_people_of_a_biased_model_do_not_pass_although_no_feature_differs_beyond_chance():
    # incomes that are .35 apart in 120 people are so by chance in one of 20 tables; predictions are 7 points apart
    male, rank = np.arange(120) % 2 == 1, (np.arange(120) // 2 + 0.5) / 60
    people = pd.DataFrame({"sex": np.where(male, "Male", "Female"), "income": norm.ppf(rank) + 0.35 * male})
    result = audited(lambda frame: 1 / (1 + np.exp(-frame["income"])), people, **QUICK)
    assert float(result.scores.max()) == 0.0
    assert result.verdict.word == "cannot tell"


def test_a_feature_moves_for_all_folds_or_for_none():
    for people in (60, 80):  # so few that four fifths of them would not always do
        assert (audited(by_income, table(people), **QUICK | {"folds": 5}).scores > 0).all()


def test_nothing_fails_where_chance_gives_effects_as_large():
    ungated = {"gate": False, "delta": 0.02}
    alone, held = (audited(by_income, table(), **QUICK, **ungated, null=null).verdict for null in (0, 2))
    assert (alone.word, held.word, held.tipping) == ("fails", "cannot tell", None)
    assert held.reason == f"{alone.reason} But shuffled protected values give effects as large."
