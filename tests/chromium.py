"""A real browser for tests and screenshots: the Chromium that is installed, driven by playwright."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def find_chromium() -> str | None:
    """Return the path of an installed Chromium; None where there is none."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


@contextmanager
def browser() -> Iterator[Browser]:
    """Give a headless browser that knows no network."""
    with sync_playwright() as playwright:
        # --no-sandbox: build servers run as root, where Chromium's own sandbox does not start
        started = playwright.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox"])
        try:
            yield started
        finally:
            started.close()


def open_page(page: Page, path: Path) -> None:
    """Open a report from disk and wait until it can be used."""
    page.goto(path.as_uri())
    page.wait_for_selector('html[data-ready="true"]', timeout=15_000)


def assert_accessible(page: Page, axe: str, width: int) -> None:
    """Fail where axe-core finds a serious violation, or the page is wider than its window."""
    page.evaluate(axe)
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    serious = [v for v in found["violations"] if v["impact"] in ("serious", "critical")]
    assert [(v["id"], [n["html"] for n in v["nodes"]][:3]) for v in serious] == []
    assert len(found["passes"]) > 10  # it did look
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def draw_all(page: Page) -> None:
    """Scroll through the page until every chart is drawn."""
    for chart in page.locator(".chart").all():
        chart.scroll_into_view_if_needed()
        page.wait_for_function("node => node.dataset.ready === 'true'", arg=chart.element_handle(), timeout=15_000)
    page.evaluate("window.scrollTo(0, 0)")


@dataclass
class Visit:
    """A page that was opened from disk, and what it did."""

    page: Page
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    dialogs: list[str] = field(default_factory=list)

    def open(self, path: Path) -> Page:
        """Open a report and return the page, ready to use."""
        open_page(self.page, path)
        return self.page
