"""Charts and tables of the pages on experiments, from the results files alone: python experiments/pages.py makes them.

What stands between `<!-- results: NAME -->` and `<!-- /results -->` on a page belongs to this script.
"""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

from runner import RESULTS, part_of, read_json
from wording import about

DOCS = Path(__file__).parents[1] / "docs"
SECTION = re.compile(r"(<!-- results: ([\w-]+) -->\n).*?(<!-- /results -->)", re.DOTALL)
PAGES = tuple(page for page in sorted((DOCS / "research").glob("*.md")) if SECTION.search(page.read_text("utf-8")))
COUNTED = ("bars-code",)  # what is counted when the page is written
NOT_YET = "There is no full run of this experiment yet."


def page(text: str, results: Path = RESULTS, *, kept: tuple[str, ...] = ()) -> str:
    """Return the page with every section as the results files give it, but for those that are kept as they are."""
    return SECTION.sub(lambda m: m[0] if m[2] in kept else f"{m[1]}\n{section(m[2], results)}\n\n{m[3]}", text)


def section(name: str, results: Path = RESULTS) -> str:
    """Return what the page shows of one experiment; neither a quick run nor one of some parts counts."""
    experiment, _, part = name.partition("-")
    if part in (of_all := getattr(import_module(experiment), "OF_ALL", {})):
        return str(of_all[part](results))
    path = results / f"{experiment}.json"
    if not path.is_file():
        return NOT_YET
    found = read_json(path)
    script = import_module(experiment)
    if found["quick"] or found["only"]:
        return NOT_YET
    if part == "about":
        return about(found)
    if part in getattr(script, "PARTS", {}):
        return str(script.PARTS[part].show(part_of(found, part)))
    if part:
        return str(script.SECTIONS[part](found))
    picture = path.with_suffix(".svg")
    figure = [f"![{path.stem}](../../experiments/results/{picture.name})"] if picture.is_file() else []
    return "\n\n".join([*figure, script.EXPERIMENT.show(found), about(found)])  # its results file in words


def draw_charts(results: Path = RESULTS) -> None:
    """Draw the charts of results files that are newer than theirs: a machine that runs experiments may lack altair."""
    for path in sorted(results.glob("*.json")):
        found, picture = read_json(path), path.with_suffix(".svg")
        drawn = picture.is_file() and picture.stat().st_mtime >= path.stat().st_mtime
        if not (found["quick"] or found["only"] or drawn):
            import_module(path.stem).EXPERIMENT.draw_charts(found, path)


if __name__ == "__main__":
    draw_charts()
    for path in PAGES:
        path.write_text(page(path.read_text(encoding="utf-8")), encoding="utf-8")
