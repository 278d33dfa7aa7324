"""What the README and the docs show runs, and says what the code says."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pyarrow.csv
import pytest

from fairfox.fairtests.registry import FAIR_TESTS
from fairfox.synthetic.two_groups import LENDING

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


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "demo-report").mkdir()  # where `make demo` writes them
    pyarrow.csv.write_csv(LENDING.sample(1000, seed=0).table, tmp_path / "demo-report" / "people.csv")
    (tmp_path / "model.py").write_text(example("model.py"))
    return tmp_path


def test_the_python_example_has_five_lines_and_runs(folder: Path):
    code = example("python")
    assert len([line for line in code.splitlines() if line]) == 5
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "of 1,000 people" in done.stdout


def test_the_command_line_example_runs_and_is_over_its_limit(folder: Path):
    _, command, *arguments = shlex.split(example("shell"))
    assert command == "fairfox"
    done = subprocess.run(
        [sys.executable, "-m", "fairfox.cli.main", *arguments], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stderr
    summary = json.loads((folder / "report" / "summary.json").read_text())
    assert summary["share_flagged"] > 0.10
    assert (folder / "report" / "report.html").stat().st_size > 10_000


def test_the_audit_of_the_page_on_build_servers_runs_from_its_file_and_its_summary_has_the_schema(folder: Path):
    (folder / "audit.toml").write_text(example("audit.toml", page="docs/ci.md"))
    _, _, *arguments = shlex.split(example("audit.toml", page="docs/ci.md", mark="shell"))
    command = [sys.executable, "-m", "fairfox.cli.main", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert done.stderr.count("Over the limit: ") == 2
    code = [sys.executable, "-c", example("schema", page="docs/schema.md")]
    done = subprocess.run(code, cwd=folder, capture_output=True, text=True, check=False)
    assert done.stdout == "2 1000 fails\n", done.stderr


def test_the_demo_writes_where_the_readme_says():
    assert "fairfox demo --out demo-report" in (ROOT / "Makefile").read_text()


@pytest.mark.parametrize(
    ("name", "needs"),
    [("sklearn", "sklearn"), ("boosting", "lightgbm"), ("torch", "torch"), ("onnx", "skl2onnx"), ("rule.py", "pandas")],
)
def test_every_example_of_bring_your_model_runs(folder: Path, name: str, needs: str):
    pytest.importorskip(needs)
    (folder / "demo-report" / "people.csv").rename(folder / "people.csv")
    page = "docs/models.md"
    if name.endswith(".py"):
        (folder / name).write_text(example(name, page=page))
    else:
        code = [sys.executable, "-c", example(name, page=page)]
        done = subprocess.run(code, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    if f"<!-- shell: {name} -->" in (ROOT / page).read_text():
        _, _, *arguments = shlex.split(example(name, page=page, mark="shell"))
        command = [sys.executable, "-m", "fairfox.cli.main", *arguments]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert (folder / arguments[-1] / "report.html").exists()


@pytest.mark.parametrize(("name", "printed"), [("way", "tensor(["), ("audit", "proved, not sampled.")])
def test_every_example_of_certificates_runs(folder: Path, name: str, printed: str):
    code = [sys.executable, "-c", example(name, page="docs/certificates.md")]
    done = subprocess.run(code, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert printed in done.stdout


def test_the_example_of_abstention_runs(folder: Path):
    code = [sys.executable, "-c", example("audit", page="docs/abstention.md")]
    done = subprocess.run(code, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "100 of 1,000 people (10.0 %) are left out: the re-fits disagree about them most" in done.stdout
    assert "{'the re-fits disagree': 100}" in done.stdout


def test_the_example_of_verdicts_runs(folder: Path):
    code = [sys.executable, "-c", example("audit", page="docs/verdicts.md")]
    done = subprocess.run(code, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "The model fails. " in done.stdout
    assert "are on the list of people for whom that is so; of such a list, which allows" in done.stdout
    assert re.search(r"^fails \S+ Estimate\(value=0\.\d+", done.stdout, re.MULTILINE)


def test_a_test_of_ones_own_is_benchmarked_in_three_lines(tmp_path: Path):
    parts = [example(name, page="docs/benchmark.md") for name in ("trial", "own test", "judge")]
    assert len([line for line in parts[-1].splitlines() if line]) == 3
    code = [sys.executable, "-c", "\n".join(parts)]
    done = subprocess.run(code, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = re.fullmatch(r"AP (0\.\d\d|1\.00) \(by chance (0\.\d\d)\), rho (-?\d\.\d\d)\n", done.stdout)
    assert found, done.stdout
    ap, chance, _ = map(float, found.groups())
    assert 0.2 < chance <= 0.5
    assert ap > chance + 0.1


def test_the_example_of_own_tables_fuses_them(tmp_path: Path):
    code = example("own tables", page="docs/benchmark.md") + "\nprint(len(trial.people), trial.threshold > 0)"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout == "1000 True\n", done.stderr
    assert (tmp_path / "fused").is_dir()


PAGES = ["README.md", "CONTRIBUTING.md", *sorted(str(page.relative_to(ROOT)) for page in ROOT.glob("docs/**/*.md"))]


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str):
    for target in re.findall(r"\]\(([^)#]+)\)", (ROOT / page).read_text()):
        if "://" not in target:
            assert (ROOT / page).parent.joinpath(target).exists(), f"{page} links to {target}"


def test_the_page_of_tests_lists_every_test_as_the_registry_has_it():
    found = REGISTRY.search((ROOT / "docs/tests.md").read_text())
    assert found
    assert found[0] == found[1] + registry_table() + found[2], "run: python tests/test_docs.py --write"


def test_every_test_has_a_page_that_says_what_it_asks_assumes_and_costs_and_when_to_use_it():
    linked = re.findall(r"\]\(tests/(\w+)\.md\)", (ROOT / "docs/tests.md").read_text())
    pages = {name: (ROOT / f"docs/tests/{name}.md").read_text() for name in linked}
    assert {page.stem for page in ROOT.glob("docs/tests/*.md")} == set(linked)
    for name, text in pages.items():
        for wanted in ("ask", "assume", "cost", "When to use"):
            assert re.search(rf"\*\*[^*]*{wanted}", text), f"docs/tests/{name}.md does not say in bold: {wanted}"
    named = " ".join(text.splitlines()[0] for text in pages.values()).replace(",", "").split()
    bases = {name.partition("/")[0] for name in FAIR_TESTS}
    assert bases <= set(named)


if __name__ == "__main__" and sys.argv[1:] == ["--write"]:
    page = ROOT / "docs/tests.md"
    page.write_text(REGISTRY.sub(lambda m: m[1] + registry_table() + m[2], page.read_text()))
