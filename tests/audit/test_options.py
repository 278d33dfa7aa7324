"""The options of an audit: what follows from them, and what is refused before any table is read."""

import inspect
import json
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import fairfox
from fairfox.choices.kinds import Choice, Flag
from fairfox.cli.audit import audit as audit_command
from fairfox.cli.config import config_values
from fairfox.cli.main import cli
from fairfox.cli.options import Option
from fairfox.errors import OptionError
from fairfox.fairtests.registry import settings_by_test
from fairfox.options import GROUPS, SECTIONS, AuditOptions, TableOptions, defaults_sha256, split_names

DECLARED = {field.name for field in fields(AuditOptions)}


def options(**given: Any) -> AuditOptions:
    """Return options about sex with nothing else given."""
    return AuditOptions(**{"protected": "sex"} | given)


def test_audit_has_at_most_sixteen_parameters_and_each_is_an_option_or_a_table():
    named = set(inspect.signature(fairfox.audit).parameters) - {"unknown"}
    assert len(named) <= 16
    assert named - DECLARED == {"model", "table", "reference", "options", "progress"}


def test_every_option_is_an_argument_of_audit_or_in_exactly_one_group():
    in_groups = [field.name for group in GROUPS for field in fields(group)]
    assert len(in_groups) == len(set(in_groups))
    assert set(in_groups) | set(inspect.signature(fairfox.audit).parameters) >= DECLARED


@pytest.mark.parametrize("field", fields(AuditOptions), ids=lambda field: field.name)
def test_an_option_has_one_name_in_python_on_the_command_line_and_in_a_config_file(field, tmp_path: Path):
    (param,) = (each for each in audit_command.params if each.name == field.name)
    flag = f"--{field.name.replace('_', '-')}"
    assert [opt for opt in param.opts if opt.startswith("--")] == [flag]
    kind = field.metadata["kind"]
    text = "true" if isinstance(kind, Flag) else f"'{kind.words[0]}'" if isinstance(kind, Choice) else "0.25"
    (tmp_path / "audit.toml").write_text(f"{field.name} = {text}")
    assert list(config_values(audit_command, tmp_path / "audit.toml")) == [field.name]
    with pytest.raises(OptionError, match=f"^'{field.name}_' is not an option"):
        AuditOptions.of({f"{field.name}_": 1}, protected="sex")


def test_values_by_group_and_settings_are_tables_in_a_config_file_as_they_are_dicts_in_python(tmp_path: Path):
    file = tmp_path / "audit.toml"
    file.write_text("delta = {'' = 0.1, 'sex=Female' = 0.03}\nsettings = {steps = 3}\nmax_flagged = 0.2")
    given = config_values(audit_command, file)
    assert given == {"delta": ["=0.1", "sex=Female=0.03"], "settings": ["steps=3"], "max_flagged": ["0.2"]}
    with audit_command.make_context("audit", ["m", "t", "-c", "sex", "--config", str(file)]) as ctx:
        assert ctx.params["delta"] == {"": 0.1, "sex=Female": 0.03}
        assert ctx.params["settings"] == {"steps": 3}
        assert ctx.params["max_flagged"] == {"": 0.2}


def helped(*arguments: str) -> str:
    return CliRunner().invoke(cli, arguments, terminal_width=100, prog_name="fairfox").output


def test_help_has_the_common_options_by_section_and_help_all_every_one():
    short, everything = helped("audit", "--help"), helped("audit", "--help-all")
    assert len(short.splitlines()) <= 50
    assert max(map(len, short.splitlines())) <= 100
    headings = [line for line in short.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert headings == ["Data:", "Protected groups:", "Decision rule:", "Output:"]
    assert [line.strip(":") for line in everything.splitlines() if line.strip(":") in SECTIONS] == list(SECTIONS)
    for param in audit_command.params:
        if isinstance(param, Option):
            flag = next(opt for opt in param.opts if opt.startswith("--"))
            assert (f"{flag} " in short or f"{flag}\n" in short) == param.common, flag
            assert " ".join(param.help.split()) in " ".join(everything.split())
    assert "--help-all" in short


@pytest.mark.parametrize("command", ["fit", "score", "compare", "plan", "report", "demo"])
def test_no_help_is_longer_than_a_screen(command: str):
    assert len(helped(command, "--help").splitlines()) <= 50


def test_further_options_come_by_name_or_in_groups():
    by_name = AuditOptions.of({"refits": 3, "drop": ["zip"]}, protected="sex")
    in_groups = AuditOptions.of([TableOptions(drop=("zip",)), {"refits": 3}], protected="sex")
    assert by_name == in_groups == options(refits=3, drop="zip")


def test_one_name_is_a_tuple_of_one_and_each_counts_once():
    assert options(given="hours").given == ("hours",)
    assert options(given=["hours", "education", "hours"]).given == ("hours", "education")
    assert options(protected=["sex", "race"]).protected == ("sex", "race")


def test_names_in_a_text_are_split_at_commas_unless_quoted():
    assert split_names("income, age") == ["income", "age"]
    assert split_names('"debt, total",age') == ["debt, total", "age"]


def test_numbers_may_be_given_by_group():
    found = options(delta={"": 0.1, "sex=Female": 0.03}, max_flagged=0.2)
    assert (found.delta_for_all, found.delta_by_group) == (0.1, {"sex=Female": 0.03})
    assert found.limits == {"": 0.2}
    assert options(delta=0.1).delta_by_group == {}


def test_one_test_is_the_main_one_and_has_the_settings():
    found = options(test="fta", settings={"epsilon": 0.5})
    assert (found.main, found.runs_all) == ("fta", False)
    assert settings_by_test(found) == {"fta": {"epsilon": 0.5}}
    assert settings_by_test(options(test="rank/a")) == {"rank": {}}


def test_of_all_tests_rank_is_the_main_one_and_settings_name_theirs():
    found = options(test="all", settings={"fliptest.steps": 50, "fta.epsilon": 0.5, "graph": {"pay": ["sex"]}})
    assert (found.main, found.runs_all) == ("rank", True)
    assert settings_by_test(found) == {
        "fliptest": {"steps": 50},
        "fta": {"epsilon": 0.5},
        "counterfactual": {"graph": {"pay": ["sex"]}},
    }
    assert found.info == options().info


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"test": "rank", "settings": {"epsilon": 0.5}}, "rank has no setting 'epsilon'"),
        ({"test": "rank", "settings": {"shared": 0}}, "rank has no setting 'shared'"),
        ({"test": "all", "settings": {"epsilon": 0.5}}, "belongs to no test that is run"),
        ({"test": "all", "settings": {"flptest.steps": 5}}, "Did you mean 'fliptest'"),
        ({"test": "all", "settings": {"rank/a.foo": 5}}, "belongs to no test that is run"),
        ({"test": "all", "settings": {"fliptest.stps": 5}}, "Did you mean 'steps'"),
        ({"test": "counterfactual", "settings": {"graph": {"x": ["y"], "y": ["x"]}}}, "x"),
        ({"test": "rank", "settings": {"graph": {"x": ["y"]}}}, "Only counterfactual takes a causal graph"),
    ],
)
def test_settings_that_belong_nowhere_are_refused_before_any_work(given: dict[str, Any], message: str):
    with pytest.raises(OptionError, match=message):
        settings_by_test(options(**given))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"test": "rnak"}, "Did you mean 'rank'"),
        ({"test": "lic"}, "lic needs true counterfactuals"),
        ({"protected": ()}, "No protected variable is given"),
        ({"protected": ["sex", 3]}, r"protected is \['sex', 3\]; expected a column name, a cut such as 'age<25'"),
        ({"max_flagged": {"": 1.5}}, "max_flagged of 'everyone' is 1.5; expected a number from 0 to 1"),
        ({"max_flagged": {3: 0.1}}, "expected numbers by group"),
        ({"max_flagged": [0.1]}, "expected a number from 0 to 1"),
        ({"delta": -1}, "delta is -1; expected a number of at least 0"),
        ({"merge_rare": 0}, "merge_rare is 0; expected a number above 0 and below 0.5"),
        ({"batch_size": 0}, "batch_size is 0; expected a whole number of at least 1"),
        ({"returns": "odds"}, "returns is 'odds'; expected 'probability' or 'logit' or 'value'"),
        ({"contrasts": "some"}, "contrasts is 'some'; expected 'largest' or 'all'"),
        ({"weights": 3}, "weights is of type int; expected text"),
        ({"settings": 3}, "settings is 3; expected settings by name"),
        ({"intersections": 1}, "intersections is 1; expected True or False"),
        ({"given": 3}, "given is 3; expected a column name, or a list of them"),
        ({"given": ["hours", ""]}, r"given is \['hours', ''\], which has an empty name"),
        ({"balance": True}, "balance needs the label"),
        ({"given": "hours", "test": "faux"}, "faux takes no given columns; use rank with given"),
        ({"given": "hours", "test": "counterfactual"}, "counterfactual takes no given columns, since the graph says"),
        ({"reference_group": "White", "test": "fta"}, "fta does not compare groups"),
        ({"hold_others": True}, "needs at least two protected variables"),
        ({"hold_others": True, "protected": ["a", "b"], "test": "fta"}, "fta cannot hold the other"),
        ({"on": "id"}, "Protected values from another table need both"),
        ({"fdr": 1}, "fdr is 1; expected a number above 0 and below 1"),
        ({"decision_threshold": float("nan")}, "decision_threshold is nan; expected a finite number"),
        ({"decision_threshold": 0.5, "delta": 0.1}, "give only one of them"),
        ({"decision_threshold": 0.5, "test": "faux"}, "needs effects on the prediction"),
        ({"decision_threshold": 0.5, "delta": {"Male": 0.1}}, "give only one of them"),
        ({"delta_from_null": True}, "add null=5"),
        ({"delta_from_null": True, "null": 2, "delta": 0.1}, "omit delta"),
        ({"null": -1}, "null is -1; expected a whole number of at least 0"),
    ],
)
def test_options_that_cannot_be_are_refused_before_any_table_is_read(given: dict[str, Any], message: str):
    with pytest.raises(OptionError, match=message):
        options(**given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"refits": 10}, r"refits is not an argument; give it in options, as in options=\{'refits': 10\}"),
        ({"protectd": "sex"}, "'protectd' is not an option. Did you mean 'protected'"),
        ({"options": {"epsilon": 1}}, r"settings=\{'epsilon': ...\}"),
        ({"options": {"seed": 1}}, "'seed' is an argument of its own"),
        ({"options": 3}, "options is 3; expected options by name"),
    ],
)
def test_unknown_names_are_refused_with_what_to_write(given: dict[str, Any], message: str):
    with pytest.raises(OptionError, match=message):
        fairfox.audit(None, None, protected="sex", **given)


def test_options_are_recorded_as_plain_values():
    found = options(drop=("zip",), settings={"epsilon": 0.5}, test="fta", positive=1).recorded()
    assert set(found) == DECLARED
    assert json.loads(json.dumps(found)) == found
    assert (found["drop"], found["settings"], found["positive"]) == (["zip"], {"epsilon": "0.5"}, "1")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"max_flagged": 2}, "max_flagged is 2; expected a number from 0 to 1; did you mean 0.02?"),
        ({"fdr": 10}, "fdr is 10; expected a number above 0 and below 1; did you mean 0.1?"),
        ({"persistence": 2}, "persistence is 2; expected a number from 0 to 1"),
    ],
)
def test_a_percentage_is_guessed_for_a_share_of_people_and_not_for_a_correlation(given: dict[str, Any], message: str):
    with pytest.raises(OptionError) as caught:
        options(**given)
    assert str(caught.value) == message
    name, value = next(iter(given.items()))
    done = CliRunner().invoke(cli, ["audit", "m", "t", "-c", "sex", f"--{name.replace('_', '-')}", str(value)])
    assert ("did you mean" in done.stderr) == ("did you mean" in message)


def test_the_hash_of_the_defaults_is_the_same_in_every_process():
    command = [sys.executable, "-c", "from fairfox.options import defaults_sha256; print(defaults_sha256())"]
    assert subprocess.run(command, capture_output=True, text=True).stdout.strip() == defaults_sha256()
