import pytest

from fairfox.report.readings import compensation, compensation_lines, readings_table
from tests.support import example_result, with_finding


@pytest.mark.parametrize(
    ("direct", "total", "how"),
    [
        (0.08, -0.02, "reverse"),
        (0.08, -0.001, "less"),  # next to nothing points nowhere
        (-0.08, -0.02, "less"),
        (0.02, 0.08, "more"),
        (0.08, 0.07, "same"),
        (0.0, 0.0, "same"),
    ],
)
def test_other_differences_add_or_make_up(direct: float, total: float, how: str):
    assert compensation(direct, total) == how


def test_compensation_is_told_group_by_group():
    finding = example_result().findings[0]
    assert compensation_lines(example_result(), finding) == []  # the total reading is the larger one
    turned = with_finding(example_result(), total=-0.5 * finding.direct, direct=3 * finding.direct)
    lines = compensation_lines(turned, turned.findings[0])
    assert [line.partition(" (")[0] for line in lines] == ["sex, Female"]  # men's effects stay below delta
    assert "the two readings point in opposite directions" in lines[0]
    less = with_finding(example_result(), total=0.3 * finding.direct, direct=3 * finding.direct)
    assert "make up for part of the direct effect" in compensation_lines(less, less.findings[0])[0]


def test_the_table_says_what_other_differences_do():
    both = example_result().findings[0].readings()
    table = readings_table(both, "probability", ["Direct", "size", "Total", "size"])
    assert [row[0] for row in table["rows"]] == ["all judged", "Female", "Male"]
    assert [row[-1] for row in table["rows"]] == ["-", "add to it", "add to it"]
    assert table["rows"][1][1] == f"{100 * both['direct'].groups['Female'].mean_signed:+.1f}"
