"""Pictures of the demo's report for the README and the docs: `make screenshots`.

Three widths, each light and dark, of the page that `fairfox demo` writes for its biased model.
"""

from __future__ import annotations

import sys
from pathlib import Path

from chromium import browser, draw_all, open_page

IMAGES = Path(__file__).parent / "images"
SIZES = {1440: 900, 900: 1200, 390: 844}  # width: height of the picture, about the first screen


def main(report: Path) -> None:
    """Write docs/images/report-WIDTH-SCHEME.png."""
    with browser() as started:
        for width, height in SIZES.items():
            for scheme in ("light", "dark"):
                page = started.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
                open_page(page, report)
                draw_all(page)
                page.screenshot(path=IMAGES / f"report-{width}-{scheme}.png")
                page.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
