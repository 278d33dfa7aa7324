import io
from dataclasses import replace

from rich.console import Console

from fairfox.cli.tables import print_result
from fairfox.findings import AuditRecord, Features
from fairfox.report.sentences import verdict_lines
from tests.support import RACES, example_result, many_result, without_sign


def printed(result: AuditRecord, width: int = 120) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    print_result(result, console)
    return console.file.getvalue()


def test_verdict_groups_and_features_are_printed():
    text = " ".join(printed(example_result()).split())
    for sentence in verdict_lines(example_result()):
        assert sentence in text
    rows = ("sex=Female │ 19 │ 0.42 │ +8.2 │ 84.2 % │ 78.9 %", "income │ 4.4 │ 0.9", "Strength as a proxy")
    assert all(row in text for row in rows)


def test_a_test_without_sign_prints_no_effects():
    row = next(line for line in printed(without_sign()).splitlines() if "sex=Male" in line)
    assert [part.strip() for part in row.strip("│").split("│")] == ["sex=Male", "19", "0.58", "36.8 %", "-"]


def test_names_are_text_not_markup_and_cannot_steer_the_terminal():
    result = example_result(features=Features({"[red]job[/red]\x1b[2J": 0.5}, None))
    assert "[red]job[/red]\\x1b[2J" in printed(result)
    assert "\x1b" not in printed(result)


def test_many_features_are_cut_and_counted():
    proxy = {f"f{k}": 1.0 / (k + 1) for k in range(20)}
    text = printed(replace(example_result(), features=Features(proxy, None)))
    assert "f7" in text
    assert "f8 " not in text
    assert "and 12 more" in text


def test_several_variables_have_lines_of_their_own_and_share_tables_that_fit_a_terminal():
    lines = printed(many_result(), width=80).splitlines()
    assert max(len(line) for line in lines) <= 80
    assert sum(line.startswith("━") for line in lines) == 2  # one of groups, one of features
    rows = [line for line in lines if "│" in line and "=" in line]
    assert [row.partition("=")[0] for row in rows] == ["sex"] * 2 + ["race"] * len(RACES) + ["age"] * 3
    assert [part.strip() for part in rows[3].split("│")] == [
        *("race=Black", "39", "0.381", "+6.2", "100.0 %", "100.0 %"),  # its delta and inferred members are said above
    ]
    text = " ".join(" ".join(lines).split())
    assert "with age one standard deviation (13.6) higher: age=18 to 33" in text


def test_long_names_leave_room_for_every_column_of_a_narrow_terminal():
    (finding,) = (result := example_result()).findings
    names = {"Female": "Amer-Indian-Eskimo", "Male": "Asian-Pac-Islander"}
    groups = tuple(replace(group, variable="race", level=names[group.level]) for group in finding.groups)
    lines = printed(replace(result, findings=(replace(finding, groups=groups),)), width=80).splitlines()
    assert any(line.split("┃")[-1].strip() == "Confident" for line in lines)
    row = next(line for line in lines if line.startswith("race=Amer-Indian-Eskimo │"))
    assert [part.strip() for part in row.split("│")[1:]] == ["19", "0.42", "+8.2", "84.2 %", "78.9 %"]
