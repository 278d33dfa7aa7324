"""A terminal recording of a first audit, as one animated SVG: `make screenshots` renews docs/images/terminal.svg.

The commands run for real in an empty folder. Lines appear one by one; readers who prefer no motion see them at once.
"""

from __future__ import annotations

import re
from contextlib import chdir
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

from click.testing import CliRunner
from rich.console import Console
from rich.text import Text

from fairfox.cli.main import cli

IMAGE = Path(__file__).parent / "images" / "terminal.svg"
PAGE = Path(__file__).parent / "get_started" / "first_audit.md"
WIDTH = 110
COMMANDS = {  # with how many lines of their output are shown
    "fairfox demo --people 500 --out demo-report": 7,
    "fairfox audit model.py:score demo-report/people.csv --protected sex --label approved --out report": 8,
}
PAUSE, STEP = 2.0, 0.4  # seconds before the output, and between its lines
STYLE = """
    .later { opacity: 0; animation: appear 0.01s linear forwards; }
    @keyframes appear { to { opacity: 1; } }
    @media (prefers-reduced-motion: reduce) { .later { animation-delay: 0s !important; } }
"""


def record() -> str:
    """Return the recording as SVG."""
    console = Console(record=True, width=WIDTH, file=StringIO())
    times, now = [], 0.5
    (model,) = re.findall(r"<!-- example: model.py -->\n```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    with TemporaryDirectory() as folder, chdir(folder):
        Path("model.py").write_text(model, encoding="utf-8")
        for command, most in COMMANDS.items():
            printed = CliRunner(env={"COLUMNS": "400"}).invoke(cli, command.split()[1:]).stdout.splitlines()
            lines = [Text(f"$ {command}", style="bold"), *map(Text, printed[:most]), Text("...")]
            for number, line in enumerate(lines):
                wrapped = line.wrap(console, WIDTH)
                console.print(line)
                times += [now + PAUSE * (number > 0) + STEP * number] * len(wrapped)
            now = times[-1] + PAUSE
    svg = console.export_svg(title="fairfox", unique_id="recording")
    return animated(svg, times)


def animated(svg: str, times: list[float]) -> str:
    """Return the SVG with each line of text hidden until its time, and without fonts from the network."""

    def later(found: re.Match[str]) -> str:
        when = times[min(int(found["line"]), len(times) - 1)]
        return f'{found[0]} style="animation-delay: {when:.2f}s"'.replace('class="', 'class="later ', 1)

    drawn = re.sub(r'<text class="[^"]*"[^>]*clip-path="url\(#recording-line-(?P<line>\d+)\)"', later, svg)
    drawn = re.sub(r"@font-face \{.*?\n    \}\n", "", drawn, flags=re.DOTALL)
    return drawn.replace("<style>", f"<style>{STYLE}", 1)


if __name__ == "__main__":
    IMAGE.write_text(record(), encoding="utf-8")
