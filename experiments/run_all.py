"""Every experiment on the shipped defaults, then the figures and the pages: what `make results` runs.

An experiment whose results file has the hashes of the shipped defaults and code is skipped; one that was stopped goes
on where it was. One that fails does not stop the others. With --quick everything runs in small, and no page is written.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import click
from runner import RESULTS, read_json
from shipped import code_hash, defaults_hash

FOLDER = Path(__file__).parent
FIRST = "table1"  # others go on with its generated tables
ALONE = ("resources",)  # measures seconds, and wants one worker


def experiments() -> list[str]:
    """Return the names of all experiments, in the order in which they run."""
    found = [path.stem for path in FOLDER.glob("*.py") if "\nEXPERIMENT" in path.read_text(encoding="utf-8")]
    return sorted(found, key=lambda name: (name != FIRST, name in ALONE, name))


def is_due(name: str, results: Path = RESULTS) -> bool:
    """Return whether an experiment has no whole results of the shipped defaults and code."""
    path = results / f"{name}.json"
    found = read_json(path) if path.is_file() else {}
    current = (found.get("defaults"), found.get("code")) == (defaults_hash(), code_hash())
    return not current or found["quick"] or bool(found["only"])


def arguments(name: str, options: argparse.Namespace) -> list[str]:
    """Return the options that one experiment runs with."""
    out = ["--quick"] * options.quick
    if options.workers or name in ALONE:
        out += ["--jobs", str(1 if name in ALONE else options.workers)]
    if options.device and import_module(name).EXPERIMENT.on is not None:
        out += ["--device", options.device]
    return out


def main(given: Sequence[str] | None = None) -> int:
    """Run what is due; return 1 where something failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="EXPERIMENT", help="only these; default: all")
    parser.add_argument("--quick", action="store_true", help="a small version of everything, without pages")
    parser.add_argument("--jobs", dest="workers", type=int, help="at once; default: one for each core")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="where large networks train, if there is a choice")
    parser.add_argument("--list", action="store_true", help="say what is due, and run nothing")
    options = parser.parse_args(given)
    if unknown := set(options.names) - set(experiments()):
        parser.error(f"there is no experiment {', '.join(sorted(unknown))}; there are {', '.join(experiments())}")
    failed = []
    for name in options.names or experiments():
        due = options.quick or is_due(name)
        click.echo(f"{name}: {'due' if due else 'the results are current'}", err=True)
        if due and not options.list:
            done = subprocess.run([sys.executable, FOLDER / f"{name}.py", *arguments(name, options)])
            failed += [name] * (done.returncode != 0)
    if not options.quick and not options.list:
        for script in ("paper_figures", "pages"):
            failed += [script] * (subprocess.run([sys.executable, FOLDER / f"{script}.py"]).returncode != 0)
    if failed:
        click.echo(f"Failed: {', '.join(failed)}; run it again to go on.", err=True)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
