import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from fairfox.fairtests.registry import FAIR_TESTS
from fairfox.result import SCHEMA_VERSION
from tests.support import PEOPLE, example_result, without_sign


def parsed(text: str) -> dict:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(text, parse_constant=refuse)


def test_shares_count_judged_people_only():
    flags = torch.zeros(PEOPLE, dtype=torch.bool)
    flags[:19] = True  # 19 of the 38 who are not abstained
    result = example_result(flags=flags, confident_flags=flags & (torch.arange(PEOPLE) < 2))
    assert result.judged == 38
    assert result.share_flagged == 0.5
    assert result.share_confident == pytest.approx(2 / 38)
    assert result.share_abstained == pytest.approx(2 / 40)


def test_share_of_nobody_is_zero():
    nobody = torch.zeros(PEOPLE, dtype=torch.bool)
    result = example_result(abstained=~nobody, flags=nobody, confident_flags=nobody, reasons=("dead row",) * PEOPLE)
    assert (result.share_flagged, result.share_confident) == (0.0, 0.0)
    assert "Nobody could be judged." in result.summary()
    assert parsed(result.to_json())["readings"]["total"] == {"mean_signed": None, "mean_absolute": None, "groups": {}}


def test_reasons_are_counted_most_frequent_first():
    away = torch.arange(PEOPLE) < 4
    reasons = ("a", "b", "b", None) + ("not abstained",) * (PEOPLE - 4)
    assert example_result(abstained=away, reasons=reasons).abstained_by_reason == {"b": 2, "a": 1, "no reason given": 1}


def test_readings_average_judged_people_per_group():
    direct = torch.full((PEOPLE,), 9.0)  # the abstained two keep 9 and must not count
    direct[:38] = torch.tensor([0.1, -0.3]).repeat(19)
    direct[0] = math.nan
    reading = example_result(direct=direct).readings["direct"]
    assert reading.groups["Female"].mean_signed == pytest.approx(0.1)
    assert reading.groups["Male"].mean_signed == pytest.approx(-0.3)
    assert reading.mean_signed == pytest.approx((18 * 0.1 - 19 * 0.3) / 37)
    assert reading.mean_absolute == pytest.approx((18 * 0.1 + 19 * 0.3) / 37)


def test_only_a_change_of_the_prediction_is_an_effect():
    assert example_result().is_effect
    assert example_result().effect_unit == "probability"
    assert not without_sign().is_effect
    assert without_sign().effect_unit == ""
    effects = {name for name, about in FAIR_TESTS.items() if example_result(unit=f"{about.unit} (logit)").is_effect}
    assert effects == {"rank", "move", "move-direct"}


def test_summary_tells_the_story_in_about_a_dozen_lines():
    text = example_result().summary()
    assert 10 <= len(text.splitlines()) <= 15
    for part in ("40 people", "'rank'", "sex=Female", "income", "AUC 0.84", "Direct reading", "Warning: The group"):
        assert part in text


def test_json_holds_every_promised_field():
    fields = parsed(example_result().to_json())
    assert fields["schema_version"] == SCHEMA_VERSION
    assert set(fields) == {
        *("schema_version", "test", "meaning", "unit", "delta", "counts", "share_flagged", "share_confident"),
        *(
            "share_abstained",
            "abstained_by_reason",
            "alignment_share",
            "alignment_error",
            "readings",
            "features",
            "groups",
        ),
        *("auxiliary", "warnings", "settings"),
    }
    assert fields["counts"] == {"people": 40, "judged": 38, "flagged": 23, "confident": 19, "abstained": 2}
    assert fields["abstained_by_reason"] == {"no evidence about sex": 2}
    assert fields["features"]["effect"]["people"] == 30
    assert list(fields["features"]["proxy"]) == ["income", "job", "age"]
    assert [group["level"] for group in fields["groups"]] == ["Female", "Male"]


def test_json_is_strict_whatever_the_numbers_and_settings_are():
    odd = {"nan": math.nan, "inf": np.float32("inf"), "path": Path("a.csv"), 3: (np.int64(1), torch.tensor([0.5]))}
    settings = parsed(example_result(settings=odd, alignment_share={"sex": math.nan}).to_json())
    assert settings["settings"] == {"nan": None, "inf": None, "path": "a.csv", "3": [1, [0.5]]}
    assert settings["alignment_share"] == {"sex": None}


def test_json_of_a_test_without_sign_has_nulls():
    fields = parsed(without_sign().to_json())
    assert fields["share_confident"] is None
    assert fields["counts"]["confident"] is None
    assert fields["features"]["effect"] is None


def test_json_file_is_what_was_returned(tmp_path: Path):
    text = example_result().to_json(tmp_path / "summary.json")
    assert (tmp_path / "summary.json").read_text(encoding="utf-8") == text


def test_abstained_people_have_no_numbers_and_no_flags_in_the_table():
    table = example_result().scores_table()
    assert table.column_names == [
        *("row_id", "score", "signed", "direct", "lower", "upper", "flag", "confident", "abstained", "reason")
    ]
    for name in ("score", "signed", "direct", "lower", "upper", "flag", "confident"):
        assert table[name].null_count == 2
        assert table[name][38].as_py() is None
    assert table["abstained"].to_pylist() == [False] * 38 + [True] * 2
    assert table["reason"][39].as_py() == "no evidence about sex"
    assert table["row_id"].to_pylist() == list(range(PEOPLE))


def test_columns_keep_their_types_when_a_test_has_no_sign():
    with_sign, without = example_result().scores_table(), without_sign().scores_table()
    assert with_sign.schema == without.schema
    assert without["signed"].null_count == without["confident"].null_count == PEOPLE


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        (np.array([f"p{k}" for k in range(PEOPLE)]), "p1"),
        (np.array([f"p{k}" for k in range(PEOPLE)], dtype=object), "p1"),
        (np.arange(PEOPLE) + 100, 101),
        (np.array([None, 1] + ["x"] * (PEOPLE - 2), dtype=object), "1"),  # several types: as text
    ],
)
def test_ids_name_people(ids: np.ndarray, expected: object):
    assert example_result(ids=ids).scores_table()["row_id"][1].as_py() == expected


def test_a_missing_id_is_null():
    ids = np.arange(PEOPLE, dtype=float)
    ids[3] = math.nan
    assert example_result(ids=ids).scores_table()["row_id"][3].as_py() is None


def test_numbers_that_are_not_finite_are_null_in_the_table():
    result = example_result()
    direct = result.direct.clone()
    direct[0] = math.inf
    assert replace(result, direct=direct).scores_table()["direct"][0].as_py() is None


def test_parquet_file_holds_the_table(tmp_path: Path):
    result = example_result()
    result.to_parquet(tmp_path / "scores.parquet")
    assert pq.read_table(tmp_path / "scores.parquet").equals(result.scores_table())


def test_html_file_is_what_was_returned(tmp_path: Path):
    page = example_result().to_html(tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == page
    assert page.startswith("<!doctype html>")


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


def test_signed_contributions_are_averaged_within_groups():
    result = example_result()
    women = torch.arange(40)[:30] % 2 == 0
    means = result.effect_by_group
    assert means["Female"]["income"] == pytest.approx(float(0.7 * result.signed[:30][women].mean()))
    assert means["Male"]["income"] == pytest.approx(float(0.7 * result.signed[:30][~women].mean()))
