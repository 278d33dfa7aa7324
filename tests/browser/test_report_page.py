"""report.html in a real browser: opened from disk, used with the mouse, with the keyboard, and by axe-core."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from chromium import Visit, assert_accessible, draw_all
from playwright.sync_api import Page
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import fairfox
from fairfox.benchmark.worlds import LENDING
from fairfox.report.html import render_report
from fairfox.result import AuditResult
from fairfox.statistics.verdict import Verdict
from tests.support import example_result, with_finding

pytestmark = pytest.mark.browser
SCRIPT = "<script>alert(1)</script>"
IMAGE = '"><img src=x onerror=alert(1)>'
LENGTHY = "Aa" * 150
TOO_WIDE = """width => Array.from(document.querySelectorAll("table"), each => each.getBoundingClientRect().right)
    .filter(right => right > width + 1)"""
MOST_BYTES = 3_000_000


@dataclass(frozen=True)
class Audited:
    """An audit, and the page it was written to."""

    result: AuditResult
    path: Path


def written(result: AuditResult, folder: Path, *, rows: object = None) -> Audited:
    """Return an audit whose page is in the folder."""
    result.to_html(folder / "report.html", rows=rows)
    return Audited(result, folder / "report.html")


def lending(people: int, *, rows: bool, folder: Path) -> Audited:
    """Return the audit of a biased lending model on people whom it was not trained on."""
    past, new = LENDING.sample(2000, seed=0), LENDING.sample(people, seed=1)
    columns = ["income", "tenure_years", "debt_ratio"]
    model = LogisticRegression(max_iter=2000).fit(past.table.select(columns).to_pandas(), past.y)
    given = {"protected": "sex", "label": past.label, "columns": columns, "options": {"refits": 2}}
    result = fairfox.audit(model, new.table, reference=past.table, **given)
    return written(result, folder, rows=new.table if rows else None)


@pytest.fixture(scope="session")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Audited:
    """An audit of 1,500 people with their rows on the page."""
    return lending(1500, rows=True, folder=tmp_path_factory.mktemp("lending"))


@pytest.fixture(scope="session")
def many(tmp_path_factory: pytest.TempPathFactory) -> Audited:
    """An audit of 100,000 people."""
    return lending(100_000, rows=False, folder=tmp_path_factory.mktemp("many"))


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Audited:
    """An audit whose columns, categories and ids try to run code."""
    rng = np.random.default_rng(0)
    n = 400
    group = np.where(rng.random(n) < 0.5, IMAGE, "other")
    number = rng.normal(size=n) + 2.0 * (group == IMAGE)
    kind = np.where(rng.random(n) < 0.3 + 0.4 * (group == IMAGE), IMAGE, SCRIPT)
    table = pa.table(
        {"g" + SCRIPT: group, SCRIPT: number, "kind" + IMAGE: kind, "id": [f"{IMAGE}{i}" for i in range(n)]}
    )
    frame = table.to_pandas()
    features = [SCRIPT, "kind" + IMAGE]
    encode = make_column_transformer((OneHotEncoder(), ["kind" + IMAGE]), remainder="passthrough")
    model = make_pipeline(encode, LogisticRegression()).fit(frame[features], number + (kind == IMAGE) > 1)
    result = fairfox.audit(model, frame, protected="g" + SCRIPT, columns=features, options={"id": "id", "refits": 2})
    assert result.flagged.any()
    return written(result, tmp_path_factory.mktemp("hostile"), rows=frame)


@pytest.fixture(scope="session")
def lengthy(tmp_path_factory: pytest.TempPathFactory) -> Audited:
    """An audit of three groups, one of which has a name of 300 letters."""
    rng = np.random.default_rng(0)
    n = 240
    group = rng.choice([LENGTHY, "short", "other"], n)
    number = rng.normal(size=n) + 1.5 * (group == LENGTHY)
    frame = pa.table({"group": group, "number": number}).to_pandas()
    model = LogisticRegression().fit(frame[["number"]], number > 0.7)
    result = fairfox.audit(model, frame, protected="group", columns=["number"], options={"refits": 2})
    assert result.flagged.any()
    return written(result, tmp_path_factory.mktemp("lengthy"))


@pytest.fixture(scope="session")
def fair(tmp_path_factory: pytest.TempPathFactory) -> Audited:
    """The audit of a model that hardly looks at anything: nobody is flagged."""
    people = LENDING.sample(300, seed=1)
    given = {"protected": "sex", "columns": ["income"], "delta": 0.1, "options": {"refits": 2}}
    result = fairfox.audit(lambda table: 0.5 + 1e-7 * table["income"], people.table, **given)
    assert not result.flagged.any()
    return written(result, tmp_path_factory.mktemp("fair"))


@pytest.fixture(scope="session")
def warned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of an audit with a warning."""
    verdict = Verdict("fails", "19 of 38 people (50 %) are affected.", 0.05, 38, 19, 25, 0.0, 1.0, variable="sex")
    path = tmp_path_factory.mktemp("warned") / "report.html"
    path.write_text(render_report(with_finding(example_result(), verdict=verdict)), encoding="utf-8")
    return path


def count_at(result: AuditResult, delta: float) -> int:
    """Return how many judged people have a score above delta."""
    return int(((result.record.scores > delta) & ~result.record.abstained).sum())


def set_slider(page: Page, position: int) -> float:
    """Move the slider to a position of its own range, as a hand would, and return the delta that it stands for."""
    page.locator("#delta").evaluate(
        "(node, at) => { node.value = at; node.dispatchEvent(new Event('input', {bubbles: true})); }", position
    )
    return float(page.locator("#delta").get_attribute("data-delta"))


def test_the_page_opens_from_disk_without_an_error_or_a_request(visit: Visit, audited: Audited):
    page = visit.open(audited.path)
    draw_all(page)
    assert page.locator(".chart").count() >= 4
    for figure in page.locator("figure:has(.chart)").all():
        assert figure.locator("svg, canvas").count() >= 1
        figure.locator("summary").first.click()
        assert figure.locator("table tbody tr").count() >= 1
    assert visit.errors == []
    assert [url for url in visit.requests if not url.startswith(("file://", "data:", "blob:"))] == []
    assert [url for url in visit.requests if url.startswith("file://")] == [audited.path.as_uri()]


@pytest.mark.parametrize(("width", "height"), [(1440, 900), (390, 844)])
def test_the_first_screen_has_verdict_directions_certainty_and_a_chart(
    visit: Visit, audited: Audited, width: int, height: int
):
    visit.page.set_viewport_size({"width": width, "height": height})
    page = visit.open(audited.path)
    page.wait_for_selector(".picture .chart[data-ready='true'] svg", timeout=15_000)
    shown = [
        page.locator(".verdict .headline"),
        *page.locator(".directions div").all(),
        page.locator(".sure p").first,
        page.locator(".picture .chart svg"),
    ]
    assert len(shown) == 5  # two groups
    for each in shown:
        box = each.bounding_box()
        assert box["height"] > 0
        assert box["y"] >= 0
        assert box["y"] + box["height"] <= height
    verdict = audited.result.record.verdict
    said = " ".join(page.locator(".verdict .headline").inner_text().split())
    assert said.startswith("FAIL")
    assert f"{verdict.significant:,} of 1,500 people" in said
    assert "; the limit is 5 %." in said
    assert "95 % interval" in page.locator(".sure").inner_text()
    assert "Tipping point:" in page.locator(".sure").inner_text()


def test_warnings_stand_beside_the_verdict(visit: Visit, warned: Path):
    page = visit.open(warned)
    verdict, warning = (page.locator(each).bounding_box() for each in (".verdict", ".first .warnings li"))
    assert verdict["y"] + verdict["height"] <= warning["y"] < verdict["y"] + verdict["height"] + 40
    visit.page.set_viewport_size({"width": 390, "height": 844})
    link = page.locator(".verdict .to-warnings a")
    assert link.inner_text() == "1 warning"
    link.click()
    assert page.evaluate("document.querySelector('#warnings').getBoundingClientRect().top") < 844


def test_the_slider_counts_as_python_does_at_every_tenth_of_its_range(visit: Visit, audited: Audited):
    page = visit.open(audited.path)
    slider, count = page.locator("#delta"), page.locator("#flagged-count")
    assert int(count.get_attribute("data-count")) == int(audited.result.flagged.sum())
    last = int(slider.get_attribute("max"))
    seen = set()
    for position in range(0, last + 1, max(last // 10, 1)):
        delta = set_slider(page, position)
        found = int(count.get_attribute("data-count"))
        assert found == count_at(audited.result, delta)
        assert f"{found:,}" in count.inner_text()
        seen.add(found)
    assert len(seen) >= 5  # it did move


def test_people_are_sorted_and_opened_with_the_keyboard_alone(visit: Visit, audited: Audited):
    page = visit.open(audited.path)

    def tab_to(selector: str) -> None:
        for _ in range(400):
            page.keyboard.press("Tab")
            if page.evaluate("s => document.activeElement.matches(s)", selector):
                return
        raise AssertionError(f"Tab never reaches {selector}")

    tab_to('table#people thead th button[data-sort="score"]')
    scores = "Array.from(document.querySelectorAll('table#people tbody tr.person')).map(r => Number(r.dataset.score))"
    orders = []
    for _ in range(2):
        page.keyboard.press("Enter")
        heading = page.locator("table#people thead th", has=page.locator('button[data-sort="score"]'))
        orders.append((heading.get_attribute("aria-sort"), page.evaluate(scores)))
    for direction, values in orders:
        assert values == sorted(values, reverse=direction == "descending")
    assert {direction for direction, _ in orders} == {"ascending", "descending"}
    tab_to("table#people tbody tr.person button[aria-expanded]")
    assert page.evaluate("document.activeElement.getAttribute('aria-expanded')") == "false"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.getAttribute('aria-expanded')") == "true"
    detail = page.locator("table#people tbody tr.detail:visible")
    assert detail.count() == 1
    assert "income" in detail.inner_text()
    page.keyboard.press("Enter")
    assert page.locator("table#people tbody tr.detail:visible").count() == 0


def test_a_person_is_shown_beside_the_same_person_in_the_other_group(visit: Visit, audited: Audited):
    page = visit.open(audited.path)
    row = page.locator("table#people tbody tr.person").first
    row.locator("button[aria-expanded]").click()
    said = page.locator("table#people tbody tr.detail:visible").inner_text()
    top = int(audited.result.record.scores.argmax())
    own, other = (
        t.column("income")[top].as_py() for t in (LENDING.sample(1500, seed=1).table, audited.result.counterfactual)
    )
    digits = said.replace(",", "")
    assert str(int(own)) in digits
    assert str(int(other)) in digits


def test_the_filter_leaves_the_people_it_names(visit: Visit, audited: Audited):
    page = visit.open(audited.path)
    everyone = page.locator("table#people tbody tr.person:visible").count()
    wanted = page.locator("table#people tbody tr.person").nth(3).get_attribute("data-id")
    page.locator("#people-filter").fill(wanted)
    left = page.locator("table#people tbody tr.person:visible")
    assert 1 <= left.count() < everyone
    assert str(left.count()) in page.locator("#people-shown").inner_text()
    page.locator("#people-filter").fill("")
    assert page.locator("table#people tbody tr.person:visible").count() == everyone


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 390])
def test_axe_finds_no_serious_violation(visit: Visit, audited: Audited, axe: str, scheme: str, width: int):
    visit.page.set_viewport_size({"width": width, "height": 900})
    visit.page.emulate_media(color_scheme=scheme)
    page = visit.open(audited.path)
    draw_all(page)
    page.locator("table#people tbody tr.person button[aria-expanded]").first.click()
    assert_accessible(page, axe, width)


def test_names_that_try_to_run_code_are_shown_as_text(visit: Visit, hostile: Audited):
    page = visit.open(hostile.path)
    draw_all(page)
    for button in page.locator("table#people tbody tr.person button[aria-expanded]").all()[:3]:
        button.click()
    text = page.locator("body").inner_text()
    assert SCRIPT in text
    assert IMAGE in text
    assert visit.dialogs == []
    assert visit.errors == []
    assert page.locator("img[src='x']").count() == 0
    assert page.evaluate("Array.from(document.scripts).filter(s => s.textContent.trim() === 'alert(1)').length") == 0
    assert [url for url in visit.requests if not url.startswith(("data:", "blob:"))] == [hostile.path.as_uri()]


def test_a_hundred_thousand_people_fit_in_three_megabytes_and_three_seconds(visit: Visit, many: Audited):
    assert len(many.result) == 100_000
    assert many.path.stat().st_size < MOST_BYTES
    start = time.perf_counter()
    page = visit.open(many.path)
    delta = set_slider(page, int(page.locator("#delta").get_attribute("max")) // 2)
    found = int(page.locator("#flagged-count").get_attribute("data-count"))
    assert time.perf_counter() - start < 3
    assert found == count_at(many.result, delta)


def test_larger_deltas_take_people_from_the_list_and_smaller_ones_add_nobody(visit: Visit, audited: Audited):
    page = visit.open(audited.path)
    rows = page.locator("table#people tbody tr.person")
    listed = min(int(audited.result.flagged.sum()), 500)
    assert rows.count() == page.locator("table#people tbody tr.person:visible").count() == listed
    set_slider(page, 0)
    assert int(page.locator("#flagged-count").get_attribute("data-count")) > int(audited.result.flagged.sum())
    assert page.locator("table#people tbody tr.person:visible").count() == listed
    others = "People who would be flagged at a smaller delta are not on this page."
    assert others in page.locator("#people-shown").inner_text()
    last = int(page.locator("#delta").get_attribute("max"))
    for position in (last // 2, last):
        delta = set_slider(page, position)
        left = min(count_at(audited.result, delta), 500)
        assert page.locator("table#people tbody tr.person:visible").count() == left
        assert others not in page.locator("#people-shown").inner_text()


def test_where_nobody_is_flagged_there_is_a_sentence_and_no_table(visit: Visit, fair: Audited):
    page = visit.open(fair.path)
    section = page.locator("#people-section")
    assert section.locator("p").all_inner_texts() == [
        "Nobody is flagged. People who would be flagged at a smaller delta are not on this page."
    ]
    assert section.locator("table, input, button").count() == 0
    set_slider(page, 0)
    assert visit.errors == []


@pytest.mark.parametrize("width", [1440, 390])
def test_a_name_of_three_hundred_letters_pushes_nothing_out_of_sight(visit: Visit, lengthy: Audited, width: int):
    visit.page.set_viewport_size({"width": width, "height": 900})
    page = visit.open(lengthy.path)
    draw_all(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    box = page.locator(".slider .scroll").first.bounding_box()
    for cell in page.locator(".slider td.share").all():
        place = cell.bounding_box()
        assert box["x"] <= place["x"]
        assert place["x"] + place["width"] <= box["x"] + box["width"] + 1
        assert place["height"] < 60
    drawing = page.locator("#chart-scores-0 svg").bounding_box()
    assert drawing["width"] <= width
    plot = page.locator("#chart-scores-0 svg .mark-group.role-scope path.background").first.bounding_box()
    assert plot["width"] > 0.55 * drawing["width"]  # the title does not take the room of the bars
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 680, "height": 900})
    assert page.evaluate(TOO_WIDE, 680) == []


def test_regions_have_names_of_their_own(visit: Visit, audited: Audited, axe: str):
    page = visit.open(audited.path)
    page.evaluate(axe)
    found = page.evaluate("axe.run(document, {runOnly: ['landmark-unique', 'region', 'landmark-one-main']})")
    assert [(v["id"], [n["html"] for n in v["nodes"]][:3]) for v in found["violations"]] == []
    assert "landmark-unique" in [rule["id"] for rule in found["passes"]]


def test_paper_has_twenty_people_five_pages_one_to_sign_and_nothing_that_is_cut_off(visit: Visit, audited: Audited):
    visit.page.set_viewport_size({"width": 720, "height": 1000})
    visit.page.emulate_media(color_scheme="dark")
    page = visit.open(audited.path)
    draw_all(page)
    listed = page.locator("table#people tbody tr.person").count()
    assert listed > 60
    page.locator("table#people thead button[data-sort=person]").click()
    page.evaluate("delete document.querySelector('.chart').dataset.ready")  # as if it were not drawn yet
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    assert page.locator("figure details:visible").count() == 1  # the numbers of that chart
    assert page.locator("table#people tbody tr.person:visible").count() == 20
    assert page.locator("table#people tbody tr.person").nth(19).is_visible()
    assert page.locator("#people-unprinted").inner_text() == f"And {listed - 20} more on the page itself."
    assert page.evaluate("document.documentElement.scrollWidth") <= 720
    assert page.evaluate(TOO_WIDE, 720) == []
    grid = "getComputedStyle(document.querySelector('.chart svg .role-axis-grid line')).stroke"
    assert page.evaluate(grid) == "rgb(221, 221, 221)"
    assert page.locator("details.method[open] table").count() >= 2  # settings and versions
    heads = page.evaluate("Array.from(document.querySelectorAll('thead'), each => getComputedStyle(each).display)")
    assert set(heads) == {"table-header-group"}  # repeated on every page
    sheets = []
    for display in ("block", "none"):
        page.locator("#sign-off-section").evaluate(f"section => section.style.display = '{display}'")
        paper = page.pdf(format="A4", margin=dict.fromkeys(("top", "bottom", "left", "right"), "15mm"))
        sheets.append(len(re.findall(rb"/Type\s*/Page\b", paper)))
    page.locator("#sign-off-section").evaluate("section => section.style.display = ''")
    assert 3 <= sheets[1] <= 5
    assert sheets[0] == sheets[1] + 1
    page.emulate_media(media="screen")
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert page.locator("details[open]").count() == 0
    page.locator("details.method summary").click()
    page.evaluate("window.dispatchEvent(new Event('beforeprint')); window.dispatchEvent(new Event('afterprint'))")
    assert page.locator("details[open]").count() == 1  # what the reader opened stays open
