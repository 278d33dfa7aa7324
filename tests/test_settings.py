import json

import torch
from test_case import PEOPLE, by_income, case_of

from fairfox.settings import settings_of


def test_settings_are_plain_json_and_name_the_versions_and_the_rows():
    settings = settings_of(case_of(by_income, seed=7, drop=["age"]))
    assert json.loads(json.dumps(settings)) == settings
    assert settings["versions"]["torch"] == torch.__version__
    told = {name: settings[name] for name in ("seed", "rows", "columns", "protected", "reference", "model_kind")}
    assert told == {
        "seed": 7,
        "rows": 40,
        "columns": ["income"],
        "protected": ["sex"],
        "reference": False,
        "model_kind": "table",
    }


def test_rows_and_predictions_have_a_digest_each():
    one, other = (settings_of(case_of(model)) for model in (by_income, lambda table: by_income(table) / 2))
    assert one["rows_sha256"] == other["rows_sha256"]
    assert one["predictions_sha256"] != other["predictions_sha256"]
    assert settings_of(case_of(by_income, PEOPLE[::-1]))["rows_sha256"] != one["rows_sha256"]


def test_folds_are_told_only_where_people_are_learnt_from_themselves():
    assert settings_of(case_of(by_income, folds=4))["folds"] == 4
    learnt = settings_of(case_of(by_income, reference=PEOPLE[:30], folds=4))
    assert (learnt["folds"], learnt["reference"], learnt["reference_rows"]) == (None, True, 30)
