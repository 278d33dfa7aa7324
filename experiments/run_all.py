"""Every experiment on the shipped defaults, then the figures and the pages: what `make results` runs.

An experiment whose results file has the hashes of the shipped defaults and code is skipped. The jobs of all others run
in one pool, experiment after experiment, so that whole results are there early and no core waits for the last job of
one; those with the longest jobs come first. What was stopped goes on where it was; what fails does not stop the rest.
With --quick everything runs in small, and no page is written. With --against nothing runs: results are compared with
earlier ones, as `reproduction.py` says.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from reproduction import compare
from runner import RESULTS, Experiment, read_json, run_together, say
from shipped import code_hash, defaults_hash

FOLDER = Path(__file__).parent


def experiments() -> dict[str, Experiment]:
    """Return all experiments by name; those that measure seconds come last."""
    names = sorted(path.stem for path in FOLDER.glob("*.py") if "\nEXPERIMENT" in path.read_text(encoding="utf-8"))
    found = {name: import_module(name).EXPERIMENT for name in names}
    return dict(sorted(found.items(), key=lambda item: item[1].alone))


def is_due(name: str, results: Path = RESULTS) -> bool:
    """Return whether an experiment has no whole results of the shipped defaults and code."""
    path = results / f"{name}.json"
    found = read_json(path) if path.is_file() else {}
    current = (found.get("defaults"), found.get("code")) == (defaults_hash(), code_hash())
    return not current or found["quick"] or bool(found["only"])


def arguments(experiment: Experiment, options: argparse.Namespace) -> list[str]:
    """Return the options that one experiment runs with."""
    file = options.results / f"{experiment.name}{'-quick' * options.quick}.json"
    out = ["--quick"] * options.quick + ["--out", str(file)]
    if options.workers or experiment.alone:
        out += ["--jobs", str(1 if experiment.alone else options.workers)]
    if options.device and experiment.has_device:
        out += ["--device", options.device]
    return out


def main(given: Sequence[str] | None = None) -> int:
    """Run what is due; return 1 where something failed."""
    known = experiments()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="EXPERIMENT", help="only these; default: all")
    parser.add_argument("--quick", action="store_true", help="a small version of everything, without pages")
    parser.add_argument("--jobs", dest="workers", type=int, help="at once; default: one for each core")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="where large networks train, if there is a choice")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where results and finished jobs are kept")
    parser.add_argument("--no-pages", dest="pages", action="store_false", help="leave figures and pages as they are")
    parser.add_argument("--against", type=Path, metavar="FOLDER", help="compare results with those there; run nothing")
    parser.add_argument("--list", action="store_true", help="say what is due, and run nothing")
    options = parser.parse_args(given)
    if unknown := set(options.names) - known.keys():
        parser.error(f"there is no experiment {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    if options.against:
        names = options.names or [name for name in known if (options.against / f"{name}.json").is_file()]
        pairs = {name: [folder / f"{name}.json" for folder in (options.results, options.against)] for name in names}
        found = {name: compare(*files, timed=known[name].alone) for name, files in pairs.items()}
        sys.stdout.writelines(f"{name}: {told}\n" for name, (told, _) in found.items())
        return int(not found or not all(same for _, same in found.values()))
    due = [name for name in options.names or known if options.quick or is_due(name, options.results)]
    for name in options.names or known:
        say(f"{name}: {'due' if name in due else 'the results are current'}")
    if options.list:
        return 0
    runs = [known[name].planned(arguments(known[name], options)) for name in due]
    failed = []
    together = [run for run in runs if not run.experiment.alone]
    for pool in [together, *([run] for run in runs if run.experiment.alone)]:
        failed += run_together(pool, workers=pool[0].options.workers) if pool else []
    if options.pages and not options.quick:
        for script in ("paper_figures", "pages"):
            failed += [script] * (subprocess.run([sys.executable, FOLDER / f"{script}.py"]).returncode != 0)
    if failed:
        say(f"Failed: {', '.join(failed)}; run it again to go on.")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
