"""The README and the docs say what the code says, and their links lead somewhere; tests/docs runs their examples."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

import fairfox
from fairfox.options import FAIR_TESTS

ROOT = Path(__file__).parent.parent
REGISTRY = re.compile(r"(<!-- registry: .*? -->\n).*?(<!-- /registry -->)", re.DOTALL)


def example(name: str, *, page: str = "README.md", mark: str = "example") -> str:
    """Return the code block that follows a marker on a page."""
    found = re.search(rf"<!-- {mark}: {re.escape(name)} -->\n```\w+\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    assert found, f"{page} has no {mark} '{name}'"
    return found[1]


def registry_table() -> str:
    """Return the table of tests for docs/tests.md."""
    rows = [f"| `{name}` | {a.meaning} | {a.unit} | {a.delta} |" for name, a in FAIR_TESTS.items()]
    return "\n".join(["", "| test | what the number means | unit | delta |", "|---|---|---|---|", *rows, "", ""])


def test_the_python_example_has_five_lines():
    assert len([line for line in example("python").splitlines() if line]) == 5


def test_the_readme_and_the_quickstart_audit_the_same_model_in_the_same_way():
    quickstart = (ROOT / "docs/quickstart.md").read_text()
    assert example("model.py") == example("model.py", page="docs/quickstart.md")
    assert example("shell").strip() in quickstart


def test_the_demo_writes_where_the_readme_says():
    assert "fairfox demo --out demo-report" in (ROOT / "Makefile").read_text()


PAGES = ["README.md", "CONTRIBUTING.md", *sorted(str(page.relative_to(ROOT)) for page in ROOT.glob("docs/**/*.md"))]


def anchors(page: Path) -> set[str]:
    """Return what a link to a page may name after #: its headings, in lower case with hyphens."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    included = re.search(r"^```\{include\} (.*)$", page.read_text(), re.MULTILINE)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    own = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return own | (anchors(page.parent / included[1]) if included else set())


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str):
    text = re.sub(r"^```.*?^```$", "", (ROOT / page).read_text(), flags=re.MULTILINE | re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in link:
            continue
        target, _, anchor = link.partition("#")
        found = (ROOT / page).parent / target if target else ROOT / page
        assert found.exists(), f"{page} links to {link}"
        assert not anchor or anchor in anchors(found), f"{page} links to {link}; {found.name} has no such heading"


def test_the_api_reference_has_every_public_name():
    page = (ROOT / "docs/api.md").read_text()
    assert set(re.findall(r":: fairfox\.(\w+)$", page, re.MULTILINE)) >= set(fairfox.__all__)


def test_the_page_of_tests_lists_every_test_as_the_registry_has_it():
    found = REGISTRY.search((ROOT / "docs/tests.md").read_text())
    assert found
    assert found[0] == found[1] + registry_table() + found[2], "run: python tests/test_docs.py --write"


HEADINGS = [
    "What .* asks?",
    "The maths",
    "What .* assumes?",
    "What .* costs?",
    "Example",
    "When to use .*, and when not",
]


def test_every_test_has_a_page_with_its_maths_an_example_and_when_not_to_use_it():
    linked = re.findall(r"\]\(tests/(\w+)\.md\)", (ROOT / "docs/tests.md").read_text())
    pages = {name: (ROOT / f"docs/tests/{name}.md").read_text() for name in linked}
    assert {page.stem for page in ROOT.glob("docs/tests/*.md")} == set(linked)
    for name, text in pages.items():
        headings = re.findall(r"^## (.*)$", text, re.MULTILINE)
        assert len(headings) == len(HEADINGS), f"docs/tests/{name}.md has the headings {headings}"
        assert all(map(re.fullmatch, HEADINGS, headings)), f"docs/tests/{name}.md has the headings {headings}"
        maths, example = (section(text, heading) for heading in (headings[1], headings[4]))
        assert maths.count("$$\n") >= 2, f"docs/tests/{name}.md has no formula"
        assert "```python\n" in example, f"docs/tests/{name}.md has no example"
    named = " ".join(text.splitlines()[0] for text in pages.values()).replace(",", "").split()
    bases = {name.partition("/")[0] for name in FAIR_TESTS}
    assert bases <= set(named)


def section(text: str, heading: str) -> str:
    """Return what stands below a heading of the second level."""
    return text.split(f"\n## {heading}\n")[1].split("\n## ")[0]


if __name__ == "__main__" and sys.argv[1:] == ["--write"]:
    page = ROOT / "docs/tests.md"
    page.write_text(REGISTRY.sub(lambda m: m[1] + registry_table() + m[2], page.read_text()))
