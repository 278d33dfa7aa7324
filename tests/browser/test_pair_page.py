"""The page of two audits in a real browser: opened from disk, drawn, and looked at by axe-core."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from chromium import Visit, assert_accessible, draw_all

from fairfox.report.files import scores_table
from fairfox.report.pair import changed_people, pair_view, render_pair
from fairfox.result import AuditResult
from fairfox.statistics.intervals import Estimate
from fairfox.statistics.paired import Pair, Side
from tests.support import many_result

pytestmark = pytest.mark.browser
HOSTILE = '<script>alert(1)</script>"><img src=x onerror=alert(1)>'


@pytest.fixture(scope="session")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two audits with every part that a page can have; names, warnings and settings try to run code."""
    results = [
        replace(many_result(), warnings=(HOSTILE,), settings={"model": HOSTILE, "seed": seed, HOSTILE: HOSTILE})
        for seed in (0, 1)
    ]
    scores = results[0].scores.double().numpy()
    one, two = (
        Side(HOSTILE, json.loads(AuditResult(result).to_json()), times * scores)
        for result, times in zip(results, (1, 0.5), strict=True)
    )
    pair = Pair((len(scores),) * 2, (0.2, 0.1), (0.4, 0.2), Estimate(-0.1, 0.01, -0.12, -0.08), None, 0.8, 0.2)
    table = scores_table(results[0]).select(["row_id", "score", "flagged"])
    table = table.rename_columns(["row_id", "score_a", "flagged_a"])
    for name, like in (("score_b", "score_a"), ("flagged_b", "flagged_a"), ("difference", "score_a")):
        table = table.append_column(name, table[like])
    shown = pair_view(pair, (one, two), people=changed_people(table, results[0].unit))
    path = tmp_path_factory.mktemp("pair") / "report.html"
    path.write_text(render_pair(shown), encoding="utf-8")
    return path


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 390])
def test_the_page_is_drawn_asks_for_nothing_and_axe_finds_no_serious_violation(
    visit: Visit, page_file: Path, axe: str, scheme: str, width: int
):
    visit.page.set_viewport_size({"width": width, "height": 900})
    visit.page.emulate_media(color_scheme=scheme)
    page = visit.open(page_file)
    draw_all(page)
    assert page.locator(".chart svg").count() == 1
    page.locator("#how summary").click()
    assert_accessible(page, axe, width)
    assert visit.errors == []
    assert visit.dialogs == []
    assert visit.requests == [page_file.as_uri()]


def test_what_tries_to_run_is_shown_as_text(visit: Visit, page_file: Path):
    page = visit.open(page_file)
    assert HOSTILE in page.locator("#warnings").inner_text()
    assert page.locator("img").count() == 0
