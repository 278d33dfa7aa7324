"""Commands killed at random moments: what they give when they are run again, and what they leave behind.

`python -m tests.fuzz.kill --moments 100` kills audits, fits and scores in turn, by a seed that it prints.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from tests.streaming.world import COLUMNS, make_world

COMMAND = [sys.executable, "-c", "import sys; sys.argv[0] = 'fairfox'; from fairfox.cli.main import main; main()"]
_MODEL = ["model.py:predict", "-o", "out", "--part-rows", "200"]
KINDS = {
    "audit": ["audit", "model.py:predict", "in/a.parquet", "-c", "sex", "--columns", ",".join(COLUMNS), "--out", "out"],
    "fit": ["fit", "in/a.parquet", "-c", "sex", "--columns", ",".join(COLUMNS), "-o", "out/new.fox"],
    "score": ["score", "test.fox", *_MODEL, "in/a.parquet", "in/b.parquet", "--workers", "2"],
    "dask": ["score", "test.fox", *_MODEL, "in/a.parquet", "in/b.parquet", "--workers", "2", "--engine", "dask"],
}
_PATIENCE = 120.0  # seconds


class Killed:
    """A command in a folder of its own, what it writes undisturbed, and how long that takes."""

    def __init__(self, kind: str, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.folder, self.words, self.out = make_world(folder), KINDS[kind], folder / "out"
        started = time.monotonic()
        assert self._start().wait(_PATIENCE) in (0, 1, 3)
        self.seconds, self.files = time.monotonic() - started, self._files()
        self.expected = self._results()

    def at(self, seconds: float, *, alone: bool) -> str:
        """Return what is wrong after it was killed, alone or with its workers, and run again; "" where nothing is.

        A command that has ended by then is started anew, and killed earlier.
        """
        shutil.rmtree(self.out)
        process = self._start()
        time.sleep(seconds)
        os.kill(process.pid, signal.SIGKILL) if alone else os.killpg(process.pid, signal.SIGKILL)
        if process.wait() != -signal.SIGKILL:
            return self.at(0.8 * seconds, alone=alone)
        left = self._files() if self.out.exists() else []
        again = self._start()
        try:
            code = again.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(again.pid, signal.SIGKILL)
            return f"it hangs after {left} was left"
        if code not in (0, 1, 3):
            return f"it ends with {code} after {left} was left: {(self.folder / 'stderr').read_text()[-400:]}"
        if self._files() != self.files:
            return f"it leaves {self._files()}, and {self.files} undisturbed"
        found = self._results()
        if found.keys() != self.expected.keys():
            return "the scores have other columns"
        apart = [name for name, values in found.items() if not np.array_equal(values, self.expected[name])]
        return f"{apart} differ after {left} was left" if apart else ""

    def _start(self) -> subprocess.Popen[bytes]:
        with (self.folder / "stderr").open("wb") as stderr:
            return subprocess.Popen(
                [*COMMAND, *self.words], cwd=self.folder, stdout=stderr, stderr=stderr, start_new_session=True
            )

    def _files(self) -> list[str]:
        return sorted(str(path.relative_to(self.out)) for path in self.out.rglob("*"))

    def _results(self) -> dict[str, np.ndarray]:
        """Return what may not depend on a kill: everyone's scores in order, or the content of a fitted test."""
        if (self.out / "new.fox").exists():
            return {"test": np.frombuffer((self.out / "new.fox").read_bytes(), dtype=np.uint8)}
        table = pq.read_table(self.out / "scores.parquet")
        texts = [name for name in table.column_names if name != "file"]
        columns = {name: table[name].combine_chunks() for name in texts}
        return {name: np.array([str(v) for v in column.to_pylist()]) for name, column in columns.items()}


def kill_all(kinds: list[str], moments: int, seed: int, folder: Path) -> list[str]:
    """Return what went wrong at random moments of each of these kinds in turn."""
    rng, faults, runs = random.Random(seed), list[str](), dict[str, Killed]()
    for moment in range(moments):
        kind = kinds[moment % len(kinds)]
        runs[kind] = runs.get(kind) or Killed(kind, folder / kind)
        after, alone = rng.uniform(0.2, 1.0) * runs[kind].seconds, rng.random() < 0.5
        fault = runs[kind].at(after, alone=alone)
        if fault:
            faults.append(f"{kind} killed {'alone' if alone else 'with its workers'} after {after:.2f} s: {fault}")
            print(faults[-1], flush=True)
    return faults


def main() -> int:
    """Kill commands, print what went wrong, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--moments", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", default="audit,fit,score")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kill-", ignore_cleanup_errors=True) as folder:
        faults = kill_all(given.kinds.split(","), given.moments, given.seed, Path(folder))
    print(f"{given.moments} moments of {given.kinds} with seed {given.seed}: {len(faults)} faults")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
