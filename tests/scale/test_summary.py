import json
from pathlib import Path

import pyarrow as pa
import pytest

from fairfox.fitting import fit_test
from fairfox.scale.batches import BatchScorer
from fairfox.scale.settled import Scatter, Settled
from fairfox.scale.sketches import merge, sketch_of
from fairfox.scale.summary import as_json, in_words, numbers_of
from tests.scale.world import COLUMNS, at_once, job_of, lending

SETTLED = Settled(0.05, "change of the prediction (probability)", None, (Scatter(0.0, 0.0),), None, ((),), 4)
# three judged people with weights 1, 2 and 1, and one about whom nothing can be said
SCORES = {
    "score": [0.1, 0.02, 0.3, None],
    "signed": [0.1, -0.02, 0.3, None],
    "flag": [True, False, True, None],
    "confident": [False, False, True, None],
    "variable": ["sex", "sex", "sex", None],
    "towards": ["m", "f", "m", None],
    "prediction": [0.5, 0.5, 0.2, 0.9],
    "weight": [1.0, 2.0, 1.0, 4.0],
    "group_inferred": [False, True, False, False],
    "abstained": [False, False, False, True],
    "reason": [None, None, None, "why"],
    "group[sex]": ["f", "m", "f", None],
}


def batch(**changes: list) -> pa.RecordBatch:
    types = {
        "confident": pa.bool_(),
        "flag": pa.bool_(),
        "variable": pa.string(),
        "score": pa.float64(),
        "signed": pa.float64(),
    }
    columns = {**SCORES, **changes}
    return pa.RecordBatch.from_pydict({k: pa.array(v, types.get(k)) for k, v in columns.items()})


def test_numbers_are_those_worked_out_by_hand():
    found = numbers_of(sketch_of(batch()))
    assert found["counts"] == {
        "people": 4, "judged": 3, "flagged": 2, "confident": 1, "abstained": 1, "inferred": 1
    }  # fmt: skip
    assert found["share_flagged"] == 0.5  # weights 1 + 1 of 4
    assert found["share_confident"] == 0.25
    assert found["share_abstained"] == 0.5  # 4 of 8
    assert found["mean_score"] == pytest.approx(0.11)  # (0.1 + 2 * 0.02 + 0.3) / 4
    assert found["mean_signed"] == pytest.approx(0.09)  # (0.1 - 2 * 0.02 + 0.3) / 4
    assert found["mean_prediction"] == pytest.approx(0.6625)  # (0.5 + 1.0 + 0.2 + 3.6) / 8
    assert found["abstained_by_reason"] == {"why": 1}
    sex = found["variables"][0]
    assert sex["counts"] == {"known": 2, "inferred": 1, "unknown": 1, "judged": 3, "flagged": 2, "confident": 1}
    assert sex["worst"] == {"f": 1, "m": 2}
    women, men = sex["groups"]
    assert (women["level"], women["people"], women["share_flagged"], women["share_confident"]) == ("f", 2, 1.0, 0.5)
    assert women["towards"] == {"m": pytest.approx(0.2)}
    assert men["towards"] == {"f": pytest.approx(-0.02)}
    assert (men["mean_prediction"], men["inferred"]) == (0.5, 1)


def test_several_variables_with_weights_have_the_numbers_from_memory(tmp_path: Path):
    people = lending(400).append_column("count", pa.array([float(n % 3) for n in range(400)]))
    given = {"protected": ["sex", "tenure_years<5"], "columns": COLUMNS, "refits": 2, "weights": "count"}
    fitted = fit_test(people.slice(0, 200), intersections=True, **given)
    scorer = BatchScorer(job_of(fitted, people, tmp_path))
    found = numbers_of(merge(sketch_of(scorer.score(part)) for part in people.to_batches(max_chunksize=150)))
    expected = json.loads(at_once(fitted, people, tmp_path).to_json())
    assert found["counts"] == {k: v for k, v in expected["counts"].items() if k != "listed"}
    for name in ("share_flagged", "share_confident", "worst_case"):
        assert found[name] == pytest.approx(expected[name], abs=1e-9)
    for own, other in zip(found["variables"], expected["variables"], strict=True):
        assert own["counts"] == other["counts"]
        assert own["worst"] == other["worst"]
        levels = {group["level"]: group for group in other["groups"] if group["people"]}
        assert {group["level"] for group in own["groups"]} == set(levels)
        for group in own["groups"]:
            for name in ("mean_prediction", "mean_signed", "share_flagged", "share_confident", "towards"):
                assert group[name] == pytest.approx(levels[group["level"]][name], abs=1e-9), name


def test_without_intervals_nobody_knows_who_is_sure():
    found = numbers_of(sketch_of(batch(confident=[None] * 4)))
    assert found["counts"]["confident"] is None
    assert found["share_confident"] is None
    assert found["variables"][0]["groups"][0]["share_confident"] is None
    assert not any("confidently" in sentence for sentence in in_words(found, SETTLED))


def test_words_say_what_the_numbers_do():
    told = in_words(numbers_of(sketch_of(batch())), SETTLED)
    assert told[0] == "2 of 3 people (50.0 %) are flagged: the score (change of the prediction) is above 5 points."
    assert told[1] == "1 of them confidently: the whole interval lies beyond 5 points."
    assert told[-1] == "1 person not judged: why."
    away = batch(abstained=[True] * 4, variable=[None] * 4, score=[None] * 4, signed=[None] * 4, flag=[None] * 4)
    assert in_words(numbers_of(sketch_of(away)), SETTLED) == ["Nobody could be judged."]


def test_json_is_strict():
    assert json.loads(as_json({"a": float("nan"), "b": (1, float("inf")), "c": {"d": 0.5}})) == {
        "a": None,
        "b": [1, None],
        "c": {"d": 0.5},
    }
