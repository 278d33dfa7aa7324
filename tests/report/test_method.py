import csv
import shlex
from dataclasses import replace
from typing import Any

from fairfox.report.method import method, reproduce
from tests.support import example_result, many_result

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
    assert found is not None
    return found["call"]


def test_settings_versions_and_hashes_are_told_apart():
    told = method(example_result(settings=SETTINGS))
    assert told["hashes"]["rows"] == [["rows as they were encoded, and their protected values", "ab" * 32]]
    assert told["versions"]["rows"] == [["fairfox", "0.1.0"]]
    names = [row[0] for row in told["settings"]["rows"]]
    assert "seed" in names
    assert not {"versions", "rows_sha256", "table_sha256"} & set(names)


def test_an_audit_in_python_is_called_in_python():
    names = ("test", "label", "refits", "columns", "seed", "delta")
    text = call()
    assert text.startswith("fairfox.audit(\n    model,\n    table,\n    protected=['sex'],\n")
    assert all(f"    {name}=" in text for name in names)
    assert "fdr" not in text  # as it is by itself
    compile(text, "call", "eval")
    assert "    reference=reference,\n" in call(reference=True)


def test_an_audit_by_the_command_is_done_again_by_the_command():
    words = shlex.split(
        call(model_source="my model.onnx", table="people.csv", max_flagged={"": 0.1, "sex=Female": 0.2})
    )
    assert words[:6] == ["fairfox", "audit", "my model.onnx", "people.csv", "--protected", "sex"]
    pairs = dict(zip(words[4::2], words[5::2], strict=True))
    assert (pairs["--refits"], pairs["--seed"], pairs["--delta"]) == ("2", "3", "0.05")
    assert words[-4:] == ["--max-flagged", "0.1", "--max-flagged", "sex=Female=0.2"]
    trusted = call(model_source="m.pkl", table="t.csv", trusted=True, reference=True, sample=9, intersections=True)
    assert trusted.endswith("--sample 9 --reference REFERENCE_TABLE --trust-model")
    assert "--intersections --" in trusted


def test_columns_with_commas_are_read_back():
    words = shlex.split(call(model_source="m", table="t"))
    assert next(csv.reader([words[words.index("--columns") + 1]])) == SETTINGS["columns"]


def test_deltas_of_groups_are_repeated():
    result = many_result()
    text = reproduce(replace(result, settings={**SETTINGS, "model_source": "m", "table": "t"}))
    assert text is not None
    assert "--delta race=Black=0.03" in text["call"]


def test_a_result_that_does_not_say_what_was_audited_has_no_call():
    assert reproduce(example_result()) is None


def test_the_command_itself_is_shown_where_it_is_known():
    assert call(command="fairfox audit m t -c sex") == "fairfox audit m t -c sex"
