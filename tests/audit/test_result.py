import json
import math
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from sklearn.ensemble import HistGradientBoostingClassifier

import fairfox
from fairfox.benchmark.worlds import LENDING
from fairfox.choices.tests import FAIR_TESTS
from fairfox.errors import DataError
from fairfox.findings import AuditRecord, FeatureEffect
from fairfox.report.charts import Charts
from fairfox.report.files import scores_table
from fairfox.report.html import result_card
from fairfox.report.sentences import verdict_lines
from fairfox.report.view import view
from fairfox.result import AuditResult
from fairfox.statistics.verdict import Verdict
from tests.support import (
    PEOPLE,
    example_result,
    example_table,
    make_finding,
    make_result,
    many_result,
    with_finding,
    without_sign,
)


def two_variables() -> AuditRecord:
    """Four people: sex moves the first two by 0.1 and 0.2, race (3 classes) the others by 0.3 and 0.4."""
    nan = math.nan
    common = {
        "predictions": torch.full((4,), 0.5),
        "proxy": {},
        "quality": many_result().findings[0].quality,
        "alignment_share": 0.1,
    }
    sex = torch.tensor([[nan, 0.1], [nan, 0.2], [-0.01, nan], [nan, nan]])
    race = torch.tensor([[nan, 0.02, 0.01], [nan, 0.03, -0.04], [0.3, nan, 0.1], [0.1, -0.4, nan]])
    return make_result(
        make_finding("sex", ("F", "M"), ("F", "M"), sex, group=["F", "F", "M", "unknown"], **common),
        make_finding("race", ("A", "B", "C"), ("A", "B", "C"), race, group=["A", "A", "B", "C"], **common),
        reasons=(None,) * 4,
        predictions=common["predictions"],
        counterfactual=None,
        features=replace(example_result().features, effect=None),
        warnings=(),
    )


def test_shares_count_judged_people_only():
    flags = torch.zeros(PEOPLE, dtype=torch.bool)
    flags[:19] = True  # 19 of the 38 who are not abstained
    result = example_result(flagged=flags, confident=flags & (torch.arange(PEOPLE) < 2))
    assert result.judged == 38
    assert result.share_flagged == 0.5
    assert result.share_confident == pytest.approx(2 / 38)
    assert result.share_abstained == pytest.approx(2 / 40)


def test_share_of_nobody_is_zero():
    nobody = torch.zeros(PEOPLE, dtype=torch.bool)
    result = example_result(abstained=~nobody, flagged=nobody, confident=nobody, reasons=("dead row",) * PEOPLE)
    assert (result.share_flagged, result.share_confident) == (0.0, 0.0)
    assert "Nobody could be judged." in AuditResult(result).summary()


def test_reasons_are_counted_most_frequent_first():
    away = torch.arange(PEOPLE) < 4
    reasons = ("a", "b", "b", None) + ("not abstained",) * (PEOPLE - 4)
    assert example_result(abstained=away, reasons=reasons).abstained_by_reason == {"b": 2, "a": 1, "no reason given": 1}


def test_readings_average_judged_people_per_group():
    direct = torch.full((PEOPLE,), 9.0)  # the abstained two keep 9 and must not count
    direct[:38] = torch.tensor([0.1, -0.3]).repeat(19)
    direct[0] = math.nan
    reading = with_finding(example_result(), direct=direct).findings[0].readings()["direct"]
    assert reading.groups["Female"].mean_effect == pytest.approx(0.1)
    assert reading.groups["Male"].mean_effect == pytest.approx(-0.3)
    assert reading.mean_effect == pytest.approx((18 * 0.1 - 19 * 0.3) / 37)
    assert reading.mean_absolute == pytest.approx((18 * 0.1 + 19 * 0.3) / 37)


def test_only_a_change_of_the_prediction_is_an_effect():
    assert example_result().is_effect
    assert example_result().effect_unit == "probability"
    assert not without_sign().is_effect
    assert without_sign().effect_unit == ""
    effects = {name for name, about in FAIR_TESTS.items() if example_result(unit=f"{about.unit} (logit)").is_effect}
    maps = {"rank", "move", "move-direct", "fliptest", "transport", "counterfactual"}
    assert effects == {*maps, "unawareness"}


def test_files_hold_what_is_returned(tmp_path: Path):
    result = AuditResult(example_result())
    assert result.to_json(tmp_path / "summary.json") == (tmp_path / "summary.json").read_text(encoding="utf-8")
    assert result.to_html(tmp_path / "report.html") == (tmp_path / "report.html").read_text(encoding="utf-8")
    result.to_parquet(tmp_path / "scores.parquet")
    assert pq.read_table(tmp_path / "scores.parquet").equals(scores_table(result.record))


def test_signed_and_absolute_contributions_are_means_over_the_same_people_drawn_at_random():
    result = example_result()
    effect = result.features.effect
    drawn = torch.arange(40) < 10  # the others were explained for their high scores
    result = replace(result, features=replace(result.features, effect=replace(effect, drawn=drawn)))
    fields = json.loads(AuditResult(result).to_json())["features"]["effect"]
    income = 0.7 * result.effect[:10]
    assert fields["people"] == 10
    assert fields["mean_absolute"]["income"] == pytest.approx(float(income.abs().mean()))
    assert fields["mean_effect"]["sex=Female"]["income"] == pytest.approx(float(income[::2].mean()))
    assert fields["mean_effect"]["sex=Male"]["income"] == pytest.approx(float(income[1::2].mean()))


def test_the_worst_case_is_that_of_the_variable_that_attained_it():
    result = two_variables()
    assert result.worst.tolist() == [0, 0, 1, 1]
    assert result.towards == ("M", "M", "A", "B")
    assert result.worst_case == {"sex": 0.5, "race": 0.5}
    torch.testing.assert_close(result.total, torch.tensor([0.1, 0.2, 0.3, -0.4]))
    torch.testing.assert_close(result.direct, 0.4 * result.total)
    assert result.findings[0].tally().unknown == 1
    assert result.findings[1].tally().attained == {"A": 1, "B": 2, "C": 1}  # 0.02 and -0.4 towards B


def test_weights_count_in_shares_and_means_and_not_in_counts():
    result = two_variables()
    weights = torch.tensor([4.0, 3.0, 2.0, 1.0])
    result = replace(result, weights=weights, flagged=torch.tensor([True, False, False, True]))
    assert result.share_flagged == pytest.approx(0.5)  # (4 + 1) / 10
    assert result.share_confident == pytest.approx(1.0)  # all four intervals are beyond 0.05
    assert result.worst_case == {"sex": 0.7, "race": pytest.approx(0.3)}
    assert result.judged == 4
    reading = result.findings[0].readings(weights)["total"]  # the fourth is not judged: 4, 3 and 2 count
    assert reading.mean_effect == pytest.approx((4 * 0.1 + 3 * 0.2 - 2 * 0.01) / 9)
    assert reading.groups["F"].mean_absolute == pytest.approx((4 * 0.1 + 3 * 0.2) / 7)
    sex = result.findings[0]
    assert sex.tally(weights).mean_score == pytest.approx((4 * 0.1 + 3 * 0.2 + 2 * 0.01) / 9)
    assert sex.tally(weights).share_flagged == pytest.approx(7 / 9)
    assert sex.tally().share_flagged == pytest.approx(2 / 3)
    nobody = replace(result, weights=torch.zeros(4))
    assert nobody.share_flagged == 0.0
    assert math.isnan(nobody.findings[0].readings(nobody.weights)["total"].mean_effect)


def test_signed_contributions_belong_to_the_variable_that_attained_the_score():
    result = many_result()
    rows = [n for n in range(196) if n % 5 == 1 and int(result.worst[n]) == 1]  # race=Black, because of race
    weight = torch.tensor([1.0 + n % 4 for n in rows])
    expected = float((0.6 * result.effect[rows] * weight).sum() / weight.sum())
    assert result.effect_by_group["race=Black"]["postcode"] == pytest.approx(expected)


KINDS = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.Table}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("record", [example_result(), many_result()], ids=["one variable", "three"])
def test_tables_are_of_the_kind_that_was_audited(record: AuditRecord, kind: str):
    table = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.table}[kind]({"a": [1]})
    result = AuditResult(record, table)
    for each, rows in (
        (result.people, len(record)),
        (result.groups, len(record.groups)),
        (result.features, len(record.features.effect.names)),
    ):
        assert type(each) is KINDS[kind]
        assert len(each) == rows


def test_the_tables_of_a_file_are_pandas():
    assert type(AuditResult(example_result(), "people.csv").people) is pd.DataFrame


def test_a_person_has_a_row_with_what_was_found_about_them():
    record = replace(example_result(), significant=torch.arange(PEOPLE) < 3)
    people = AuditResult(record).people
    first, last = people.iloc[2], people.iloc[-1]
    effect = float(record.effect[2])
    assert (first["row_id"], first["group"], first["prediction"]) == (2, "sex=Female", pytest.approx(0.42))
    assert (first["effect"], first["score"]) == (pytest.approx(effect), pytest.approx(abs(effect)))
    assert [first["lower"], first["upper"]] == pytest.approx(record.interval[2].tolist())
    income, job = (f"{100 * share * effect:+.1f}" for share in (0.7, 0.3))
    assert first["reasons"] == f"income {income} points, job {job} points"
    assert first[["flagged", "confident", "significant", "abstained"]].tolist() == [True, True, True, False]
    assert pd.isna(first["abstained_because"])
    assert (last["abstained"], last["abstained_because"]) == (True, "no evidence about sex")
    assert last[["effect", "lower", "upper", "score", "reasons"]].isna().all()
    assert people["reasons"].isna().sum() == 10  # who were not explained
    assert people[people["flagged"]]["row_id"].tolist() == [n for n in range(38) if abs(float(record.effect[n])) > 0.05]


def test_the_group_of_a_person_names_every_protected_variable_once():
    record = two_variables()
    crossed = replace(record.findings[1], name="sex x race", parts=("sex", "race"))
    people = AuditResult(replace(record, findings=(*record.findings, crossed))).people
    assert people["group"].tolist()[1:3] == ["sex=F, race=A", "sex=M, race=B"]


def test_arrays_are_numpy_and_say_nothing_of_people_who_were_not_judged():
    result = AuditResult(example_result())
    assert (result.effect.shape, result.interval.shape, result.flagged.dtype) == ((40,), (40, 2), bool)
    assert np.isnan(result.effect[38:]).all()
    assert np.isnan(result.interval[38:]).all()
    assert not result.flagged[38:].any()
    np.testing.assert_allclose(result.effect[:38], result.record.effect[:38].numpy())
    assert not result.significant.any()  # there is no list
    unsigned = AuditResult(without_sign())
    assert np.isnan(unsigned.effect).all()
    assert np.isnan(unsigned.interval).all()
    assert unsigned.people["score"].notna().sum() == 38


def test_a_result_has_few_names_and_none_gives_a_tensor():
    result = AuditResult(many_result(), pd.DataFrame({"a": [1]}))
    names = [name for name in dir(result) if not name.startswith("_")]
    assert len(names) <= 25
    plain = (*KINDS.values(), np.ndarray, str, float, dict, tuple, Verdict, Charts, type(None))
    for name in set(names) - {"record"}:
        value = getattr(result, name)
        assert callable(value) or isinstance(value, plain), name


def test_the_verdict_says_whether_the_model_passed_and_why():
    words = {"passes": True, "fails": False, "cannot tell": None}
    for word, passed in words.items():
        own = Verdict(word, "So it is.", 0.05, 38, 3, 5, 0.01, 0.9, variable="sex")
        result = AuditResult(with_finding(example_result(), verdict=own))
        assert (result.verdict.passed, result.verdict.reason) == (passed, "So it is.")
        assert result.verdicts == {"sex": own}


def test_without_intervals_the_verdict_cannot_tell_and_says_what_to_do():
    result = AuditResult(without_sign())
    assert (result.verdict.passed, result.verdict.judged, result.verdicts) == (None, 38, {})
    assert result.verdict.reason == "The test fta gives no intervals here; use the test rank, or at least 2 refits."
    assert repr(result).startswith(f"Cannot tell. {result.verdict.reason}\n")


@pytest.mark.parametrize("record", [example_result(), many_result(), without_sign()], ids=["one", "three", "no sign"])
def test_a_result_is_printed_in_at_most_ten_lines_with_its_verdict_first(record: AuditRecord):
    fails = Verdict("fails", "Too many are.", 0.05, 38, 30, 35, 0.01, 0.9, variable=record.findings[0].name)
    result = AuditResult(with_finding(record, verdict=fails))
    lines = repr(result).splitlines()
    assert len(lines) <= 10
    assert lines[0] == verdict_lines(result.record)[0]
    assert f"{record.tally.flagged} flagged" in lines[1]
    assert lines[2].startswith("  sex=Female: ")


def test_one_person_is_found_by_id_with_features_and_counterfactual_values():
    record = example_result(ids=np.array([f"p{n}" for n in range(PEOPLE)]), counterfactual_table=example_table())
    result = AuditResult(record)
    person = result.person("p2")
    effect = float(record.effect[2])
    assert (person.id, person.group, person.towards) == ("p2", "sex=Female", "Male")
    assert person.effect == pytest.approx(effect)
    assert person.features == pytest.approx({"income": 0.7 * effect, "job": 0.3 * effect})
    assert person.counterfactual == example_table().slice(2, 1).to_pylist()[0]
    assert list(person.comparators) == ["p1", "p3", "p5"]  # men, whose rows are nearest to the zeros of the other row
    assert list(person.comparators.values()) == pytest.approx([0.58] * 3)
    assert repr(person).splitlines()[0] == "Person p2 (sex=Female): flagged, confident"
    assert repr(person).splitlines()[2] == f"  mostly through income {0.7 * effect:+.3g}, job {0.3 * effect:+.3g}"
    assert repr(person).splitlines()[3].startswith("  most alike there: p1 (prediction 0.58), p3 ")
    assert repr(result.person("p39")) == "Person p39 (sex=Male), not judged: no evidence about sex"
    assert (result.person("p39").effect, result.person("p39").counterfactual) == (None, {})
    assert result.person("p39").comparators == {}
    with pytest.raises(DataError, match="No person has the id 'p40'"):
        result.person("p40")
    with pytest.raises(DataError, match="No person has the row number -1"):
        AuditResult(example_result()).person(-1)
    twice = AuditResult(example_result(ids=np.array(["a", *["b"] * 39])))
    with pytest.raises(DataError, match="39 people have the id 'b'"):
        twice.person("b")


@pytest.mark.parametrize("gradients", [False, True])
def test_everyone_s_reasons_add_up_to_their_effect_and_comparators_are_the_nearest_of_the_other_group(gradients: bool):
    people = LENDING.sample(500, seed=1).table.to_pandas()
    columns = ["income", "tenure_years", "debt_ratio"]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = torch.nn.Sequential(torch.nn.BatchNorm1d(3, affine=False), torch.nn.Linear(3, 1), torch.nn.Sigmoid())
    network(torch.tensor(people[columns].to_numpy(), dtype=torch.float32))
    forest = HistGradientBoostingClassifier(max_iter=20).fit(people[columns], people["approved"])
    model = network.eval() if gradients else forest
    result = fairfox.audit(model, people, protected=["sex", "leave_months"], columns=columns, options={"refits": 2})
    known = ~result.record.features.effect.per_person.isnan().any(1)
    assert gradients or not known.all()  # of others the reasons are worked out when they are asked for
    record, checked = result.record, 0
    for n in [*known.nonzero()[:40, 0].tolist(), *(~known).nonzero()[:40, 0].tolist()]:
        person = result.person(n)
        if person.abstained_because is not None:
            assert person.features == {}
            continue
        assert sum(person.features.values()) == pytest.approx(person.effect, abs=1e-9)
        assert set(person.features) <= set(person.counterfactual) == set(columns)
        if record.findings[int(record.worst[n])].name != "sex":
            assert person.comparators == {}  # nobody is of another group
            continue
        others = np.flatnonzero(people["sex"] == person.towards)
        gaps = (record.encoded[others] - record.counterfactual[n]).norm(dim=1).numpy()
        assert list(person.comparators) == others[np.argsort(gaps)[:3]].tolist()
        assert list(person.comparators.values()) == pytest.approx(result.predictions[list(person.comparators)].tolist())
        checked += 1
    assert checked > 10


def test_without_anybody_of_the_other_group_there_are_no_comparators():
    record = example_result()
    alone = with_finding(record, group=("Female",) * PEOPLE)
    assert AuditResult(alone).person(2).comparators == {}
    assert view(alone)["people"]["rows"]  # the page is made too


def test_a_person_whose_number_goes_down_has_the_effect_of_that():
    ages = np.arange(20.0, 80.0)  # the oldest can only be compared with younger people
    table = pd.DataFrame({"age": np.tile(ages, 5), "x": np.tile(ages, 5) / 100})
    options = {"protected": "age", "columns": ["x"], "options": {"refits": 2, "folds": 2}}
    result = fairfox.audit(lambda rows: rows["x"], table, **options)
    oldest = result.person(len(table) - 1)
    assert oldest.towards.startswith("age - ")
    assert oldest.effect == pytest.approx(oldest.counterfactual["x"] - 0.79, abs=0.01)
    assert oldest.lower < oldest.effect < oldest.upper < 0
    assert oldest.features["x"] == pytest.approx(oldest.effect)


def test_a_result_can_be_copied_and_its_copy_asks_no_model():
    record = example_result()
    effect = replace(record.features.effect, explain=lambda place, row: torch.ones(3))
    result = AuditResult(replace(record, features=replace(record.features, effect=effect)))
    assert result.person(31).features == {"income": 1.0, "job": 1.0, "age": 1.0}
    assert pickle.loads(pickle.dumps(result)).person(31).features == {}


def test_groups_and_features_are_tables():
    record = many_result()
    result = AuditResult(record)
    assert result.groups["group"].tolist()[:3] == ["sex=Female", "sex=Male", "race=Asian"]
    assert result.groups["mean_effect"].tolist() == [group.mean_effect for group in record.groups]
    features = AuditResult(example_result()).features.set_index("feature")
    total = example_result().features.effect.total
    assert features["mean_absolute"].to_dict() == pytest.approx(total)
    assert features["proxy"].to_dict() == {"income": 0.9, "job": 0.35, "age": 0.02}
    assert AuditResult(without_sign()).features["mean_absolute"].isna().all()


def test_a_notebook_shows_the_card_of_a_result():
    assert AuditResult(example_result())._repr_html_() == result_card(example_result())


def test_groups_are_named_in_words():
    group = example_result().groups[0]
    assert group.name == "sex=Female"
    assert replace(group, variable="age<25", level="age<25").name == "age<25"
    assert replace(group, variable="age<25", level="not age<25").name == "not age<25"


def test_totals_come_with_the_standard_error_of_the_people_they_were_averaged_over():
    effect = example_result().features.effect
    explained = effect.per_person[:30].abs()  # the last ten people were not explained
    assert effect.people == 30
    assert effect.error["income"] == pytest.approx(float(explained[:, 0].std() / 30**0.5))
    drawn = replace(effect, drawn=torch.arange(40) < 10)
    assert drawn.people == 10
    assert drawn.total["income"] == pytest.approx(float(explained[:10, 0].mean()))


def test_a_class_may_be_called_unknown():
    finding = replace(many_result().findings[0], group=("Female", "unknown", "Male", "unknown"))
    assert finding.tally().unknown == 2
    assert replace(finding, levels=("Female", "Male", "unknown")).tally().unknown == 0


def test_people_count_in_the_totals_of_features_as_often_as_their_weights_say():
    each, weights = torch.tensor([[0.1], [-0.3]]), torch.tensor([1.0, 3.0])
    effect = FeatureEffect(("income",), each, "any", weights=weights)
    assert effect.total == {"income": pytest.approx((0.1 + 3 * 0.3) / 4)}
    assert effect.error == {"income": pytest.approx((((1 * 0.15) ** 2 + (3 * 0.05) ** 2) / 4**2 * 2) ** 0.5)}


def test_the_totals_of_nobody_are_nan_and_those_of_one_person_have_no_error():
    effect = FeatureEffect(("income", "job"), torch.tensor([[0.1, -0.3], [math.nan, math.nan]]), "integrated gradients")
    assert effect.people == 1
    assert effect.total == {"job": pytest.approx(0.3), "income": pytest.approx(0.1)}  # the largest first
    assert all(math.isnan(error) for error in effect.error.values())
    nobody = replace(effect, drawn=torch.tensor([False, True]))
    assert nobody.people == 0
    assert all(math.isnan(size) for size in nobody.total.values())
