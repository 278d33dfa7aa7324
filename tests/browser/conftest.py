"""Pages in a real browser: each is rendered once, and every console message and request is written down."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from chromium import Visit, find_chromium
from chromium import browser as chromium
from playwright.sync_api import Browser


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One browser for all tests."""
    if find_chromium() is None:
        pytest.fail("No Chromium is installed; `make test-browser` installs Debian's package, or install one yourself")
    with chromium() as started:
        yield started


@pytest.fixture
def visit(browser: Browser) -> Iterator[Visit]:
    """A fresh window that records errors, requests and dialogs."""
    context = browser.new_context(viewport={"width": 1440, "height": 1000})
    seen = Visit(context.new_page())
    seen.page.on("console", lambda said: seen.errors.append(said.text) if said.type in ("error", "warning") else None)
    seen.page.on("pageerror", lambda error: seen.errors.append(str(error)))
    seen.page.on("request", lambda request: seen.requests.append(request.url))

    def dismiss(dialog: object) -> None:
        seen.dialogs.append(dialog.message)
        dialog.dismiss()

    seen.page.on("dialog", dismiss)
    yield seen
    context.close()


@pytest.fixture(scope="session")
def axe() -> str:
    """The source of axe-core, which `make test-browser` gets from npm."""
    path = os.environ.get("AXE_CORE")
    if not path or not Path(path).is_file():
        pytest.fail("AXE_CORE does not name axe.min.js; run `make test-browser`, which gets axe-core from npm")
    return Path(path).read_text()
