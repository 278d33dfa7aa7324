from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from populations import earners

import fairfox
from fairfox.report.view import method, reproduce
from tests.support import audited, example_result

pytestmark = pytest.mark.brief

SETTINGS: dict[str, Any] = {
    "seed": 3,
    "test": "rank",
    "protected": ["sex"],
    "label": "approved",
    "columns": ["income", "job, all"],
    "refits": 2,
    "fdr": 0.1,
    "output": "probability",
    "versions": {"fairfox": "0.1.0"},
    "rows_sha256": "ab" * 32,
    "table_sha256": None,
}


def call(**more: Any) -> str:
    found = reproduce(example_result(settings={**SETTINGS, **more}))
    return found["call"]


def test_settings_versions_and_hashes_are_told_apart():
    described = method(example_result(settings=SETTINGS))
    assert described["hashes"]["rows"] == [["rows as they were encoded, and their protected values", "ab" * 32]]
    assert described["versions"]["rows"] == [["fairfox", "0.1.0"]]
    names = [row[0] for row in described["settings"]["rows"]]
    assert "seed" in names
    assert not {"versions", "rows_sha256", "table_sha256"} & set(names)


def test_an_audit_in_python_is_called_in_python():
    text = call()
    assert text.startswith("fairfox.audit(\n    model,\n    table,\n    protected=['sex'],\n    label='approved',\n")
    assert text.endswith("    seed=3,\n    options={'refits': 2},\n)")  # all others have their defaults
    compile(text, "call", "eval")
    assert "    reference=reference,\n" in call(reference=True, folds=None)
    assert "options={'protected_from': protected_from, 'on': 'id', 'refits': 2}" in call(protected_from=True, on="id")
    assert "settings={'epsilon': 0.5, 'norm': 'l2'}" in call(settings={"epsilon": "0.5", "norm": "l2"})


def test_a_result_that_does_not_say_what_was_audited_has_no_call():
    assert reproduce(example_result()) is None


def test_the_command_itself_is_shown_where_it_is_known():
    assert call(command="fairfox audit m t -c sex") == "fairfox audit m t -c sex"


def steep(table: pd.DataFrame) -> np.ndarray:
    """A model that likes income, and clerks less."""
    return 1 / (1 + np.exp((3200 - table["income"] + 400 * (table["job"] == "clerk")) / 300))


@cache
def people(seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    race, rooms = rng.choice(["Asian", "Black", "White"], 140), rng.integers(1, 5, 140)
    return earners(140, seed=seed).drop(columns=["age", "paid"]).assign(race=race, rooms=rooms, note="none")


ASKED: dict[str, dict[str, Any]] = {
    "a decision threshold": {"protected": "sex", "drop": ["note"], "decision_threshold": 0.5},
    "roles of columns": {
        "protected": ["sex", "race"],
        "columns": ["income", "job", "rooms"],
        "categorical": ["rooms"],
        "reference_group": ["race=White"],
        "max_flagged": {"": 0.1},
        "delta": {"": 0.03, "race=Black": 0.02},
    },
    "crossings": {"protected": ["sex", "race"], "drop": ["note"], "intersections": True, "contrasts": "all"},
    "settings of a test": {"protected": "sex", "drop": ["note"], "test": "fta", "settings": {"order": 1.0}, "folds": 3},
    "delta from chance": {"protected": "sex", "drop": ["note"], "null": 1, "delta_from_null": True},
    "a seed": {"protected": "sex", "drop": ["note"], "continuous": ["rooms"], "seed": 4},
}


@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED)
def test_the_call_in_python_gives_the_same_scores(asked: dict[str, Any]):
    reference = None if "folds" in asked else people(1)
    first = audited(steep, people(0), reference=reference, refits=2, **asked)
    found = reproduce(first)
    names = {"fairfox": fairfox, "model": steep, "table": people(0), "reference": reference}
    again = eval(found["call"], names).record  # our own words
    assert torch.equal(again.scores, first.scores)
    assert torch.equal(again.flagged, first.flagged)
    assert again.variables == first.variables
    assert ("    delta=" in found["call"]) == ("delta" in asked)
    assert again.delta == first.delta
