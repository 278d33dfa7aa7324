"""Every example notebook runs from its first cell to its last, in an empty folder and without the network."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

NOTEBOOKS = sorted((Path(__file__).parent.parent / "examples").glob("*.ipynb"))
CHART = "vegaEmbed"  # what Altair draws with


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)


def executed(path: Path, folder: Path) -> Any:
    """Return the notebook as it is after it ran; a cell that fails raises."""
    notebook = read(path)
    nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(folder)}}).execute()
    return notebook


def shown(notebook: Any, kind: str) -> Iterator[Any]:
    """Yield what the cells show of a kind: a type such as text/html, or stdout."""
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            if kind in output.get("data", {}):
                yield output.data[kind]
            if output.output_type == "stream" and kind == output.name:
                yield output.text


def charts(notebook: Any) -> int:
    """Return how many charts the cells show."""
    return sum(CHART in html for html in shown(notebook, "text/html"))


def only(found: Iterator[Any], words: str) -> str:
    """Return the one output that holds some words."""
    (text,) = [each for each in found if words in each]
    return text


def test_there_are_two_notebooks():
    assert [path.stem for path in NOTEBOOKS] == ["audit_a_pipeline", "benchmark_your_test"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_kept_without_outputs_and_with_prose(path: Path):
    notebook = read(path)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code)
    assert notebook.cells[0].source.startswith("# ")
    assert len(notebook.cells) - len(code) >= len(code)  # something is said before every cell


@pytest.mark.slow
def test_the_audit_of_a_pipeline_shows_a_card_charts_people_and_a_comparison(tmp_path: Path):
    done = executed(NOTEBOOKS[0], tmp_path)
    card = only(shown(done, "text/html"), "fairfox audit for sex")
    assert "500 people" in card
    assert ">FAIL</span>" in card  # past decisions favoured men
    assert charts(done) == 2
    assert "in the other group" in only(shown(done, "text/html"), "as they are")
    assert "Verdict: " in only(shown(done, "stdout"), "A is all columns, B is fewer columns")
    assert (tmp_path / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")


@pytest.mark.slow
def test_the_benchmark_of_an_own_test_shows_it_beside_others(tmp_path: Path):
    done = executed(NOTEBOOKS[1], tmp_path)
    assert "500 people" in only(shown(done, "text/plain"), "<Dataset of ")
    rows = only(shown(done, "text/plain"), "mean shift").splitlines()
    assert rows[0].split() == ["ap", "by", "chance", "rho"]
    found = {row[:10].strip(): [float(number) for number in row[10:].split()] for row in rows[1:]}
    assert set(found) == {"mean shift", "rank", "faux+ng", "lic"}
    ap, chance, _ = found["mean shift"]
    assert ap > chance + 0.1
    assert charts(done) == 1
