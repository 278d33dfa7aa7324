"""The README and the docs say what the code says, and their links lead somewhere; tests/docs runs their examples."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import fairfox
from fairfox.choices.tests import FAIR_TESTS

ROOT = Path(__file__).parent.parent
FIRST = "docs/get_started/first_audit.md"


def example(name: str, *, page: str = "README.md", mark: str = "example") -> str:
    """Return the code block that follows a marker on a page."""
    found = re.search(rf"<!-- {mark}: {re.escape(name)} -->\n```\w+\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    assert found, f"{page} has no {mark} '{name}'"
    return found[1]


def test_the_readme_is_short_and_its_python_example_has_six_lines():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120
    assert len([line for line in example("python").splitlines() if line]) == 6


def test_the_readme_and_the_first_audit_use_the_same_model_and_command():
    assert example("model.py") == example("model.py", page=FIRST)
    assert example("shell").strip() in (ROOT / FIRST).read_text()


@pytest.mark.parametrize("page", sorted((ROOT / "docs/how_to").glob("*.md")), ids=lambda page: page.stem)
def test_a_how_to_is_one_task_of_at_most_80_lines(page: Path):
    assert len(page.read_text().splitlines()) <= 80


def test_the_glossary_has_at_most_twenty_words():
    words = re.findall(r"^\| \*\*(.+?)\*\* \|", (ROOT / "docs/glossary.md").read_text(), re.MULTILINE)
    assert 10 <= len(words) <= 20
    assert len(set(words)) == len(words)


def test_every_page_is_on_a_shelf():
    index = (ROOT / "docs/index.md").read_text() + (ROOT / "docs/reference/tests.md").read_text()
    listed = re.findall(r"^([\w/]+)$", index, re.MULTILINE)
    pages = {str(page.relative_to(ROOT / "docs").with_suffix("")) for page in ROOT.glob("docs/**/*.md")} - {"index"}
    assert {name if (ROOT / f"docs/{name}.md").exists() else f"reference/{name}" for name in listed} == pages


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
    page = "".join((ROOT / f"docs/reference/{name}.md").read_text() for name in ("api", "result"))
    assert set(re.findall(r":: fairfox\.(\w+)$", page, re.MULTILINE)) >= set(fairfox.__all__)


HEADINGS = [
    "What .* asks?",
    "The maths",
    "What .* assumes?",
    "What .* costs?",
    "Example",
    "When to use .*, and when not",
]


def test_every_test_has_a_page_with_its_maths_an_example_and_when_not_to_use_it():
    linked = re.findall(r"^tests/(\w+)$", (ROOT / "docs/reference/tests.md").read_text(), re.MULTILINE)
    pages = {name: (ROOT / f"docs/reference/tests/{name}.md").read_text() for name in linked}
    assert {page.stem for page in ROOT.glob("docs/reference/tests/*.md")} == set(linked)
    for name, text in pages.items():
        headings = re.findall(r"^## (.*)$", text, re.MULTILINE)
        assert len(headings) == len(HEADINGS), f"docs/reference/tests/{name}.md has the headings {headings}"
        assert all(map(re.fullmatch, HEADINGS, headings)), f"docs/reference/tests/{name}.md has the headings {headings}"
        maths, example = (section(text, heading) for heading in (headings[1], headings[4]))
        assert maths.count("$$\n") >= 2, f"docs/reference/tests/{name}.md has no formula"
        assert "```python\n" in example, f"docs/reference/tests/{name}.md has no example"
    named = " ".join(text.splitlines()[0] for text in pages.values()).replace(",", "").split()
    bases = {name.partition("/")[0] for name in FAIR_TESTS}
    assert bases <= set(named)


def section(text: str, heading: str) -> str:
    """Return what stands below a heading of the second level."""
    return text.split(f"\n## {heading}\n")[1].split("\n## ")[0]
