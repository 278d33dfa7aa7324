"""Odd tables and options, made from a seed, and what must hold whatever they are.

One case is one table with several command lines. `python -m tests.fuzz.cases --minutes 10` runs case after case from a
seed that it prints; `--seed N --cases 1` repeats one.
"""

from __future__ import annotations

import argparse
import csv
import faulthandler
import json
import re
import shlex
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import chdir, suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from click.testing import CliRunner

from fairfox.cli.main import cli
from tests.schemas import assert_valid_summary

SECONDS = 60  # that a command line may take
SAME = 1e-6  # how far scores of two doors may differ, of their scale
MODELS = """
import zlib
import numpy as np

def total(table):
    '''Return a number of every row that depends on all of its cells, and on nothing else.'''
    def part(value, place):
        if isinstance(value, (bool, np.bool_)):
            return 0.3 * value
        if isinstance(value, (int, float, np.number)):
            return np.tanh(float(value) / 50) / (1 + place) if value == value else 0.1
        return zlib.crc32(str(value).encode()) % 7 / 10
    return np.sum([[part(value, j) for value in table[name]] for j, name in enumerate(table.columns)], axis=0)

def matrix(x: np.ndarray):
    return 1 / (1 + np.exp(-np.tanh(np.nan_to_num(np.asarray(x, dtype=float)) / 50).sum(1)))

def broken(table):
    raise RuntimeError("line one\\nline two")

def chance(table): return 1 / (1 + np.exp(-total(table)))
def amount(table): return 3000.0 * total(table)
def huge(table): return 1e140 * total(table)
def constant(table): return np.full(len(table), 0.5)
def hole(table): return np.where(total(table) > 0.9, np.nan, 0.5)
"""
NAMES = (
    "", " ", "a\nb", "\x1b[31mred\x1b[0m", "it's", '"q"', "ünï ☂", "x" * 3000, "=1+1", "a,b", "a<5", "-c", "\u202ee",
    "--out", "\r", "sex ", "__index_level_0__", "score", "group[sex]", "row_id", "<b>bold</b>", "%s{0}", "a\\b", "a=b",
)  # fmt: skip
TEXTS = (
    "", " ", "nan", "None", "0", "1.0", "\x1b]0;x\x07", "a\nb", "it's", '"', "ß☂", "y" * 2000, "<script>", "=cmd()",
    "\r",
)  # fmt: skip
EXTREMES = (0.0, -0.0, 1e15, -1e15, 1e38, 1e149, 1e151, 1e308, -1e308, 5e-324, 1e-300, np.inf, -np.inf, np.nan, 2.0**53)


# --- tables --------------------------------------------------------------------------------------------------------


# what makes n values of a kind from a generator, numbers (n,) and whole numbers (n,) that differ between groups
KINDS: dict[str, Callable[[np.random.Generator, int, np.ndarray, np.ndarray], Any]] = {
    "floats": lambda rng, n, x, i: x,
    "whole": lambda rng, n, x, i: i,
    "single": lambda rng, n, x, i: x.astype(np.float32),
    "text": lambda rng, n, x, i: np.array(["clerk", "smith", "nurse"])[x.round().clip(0, 2).astype(int)],
    "booleans": lambda rng, n, x, i: x > 0.2,
    "dictionary": lambda rng, n, x, i: pa.array(rng.choice([*"uvw"], n).tolist(), pa.string()).dictionary_encode(),
    "two": lambda rng, n, x, i: np.where(x > 0.2, 3.5, 7.0),
    "tiny": lambda rng, n, x, i: i.clip(-128, 127).astype(np.int8),
    "decimals": lambda rng, n, x, i: pa.array([Decimal(int(v)) / 4 for v in i], pa.decimal128(30, 4)),
    "extremes": lambda rng, n, x, i: np.where(rng.random(n) < 0.02, rng.choice(EXTREMES), x),
    "around 1e15": lambda rng, n, x, i: 1e15 + np.round(4 * x) * rng.choice([1, 0.125, 1000]),
    "half": lambda rng, n, x, i: x.astype(np.float16),
    "large": lambda rng, n, x, i: (1 << 60) + i * int(rng.choice([1, 1 << 40])),
    "unsigned": lambda rng, n, x, i: np.uint64(2**64 - 1) - np.abs(i).astype(np.uint64),
    "wide decimals": lambda rng, n, x, i: pa.array([Decimal(int(v)) ** 9 for v in i], pa.decimal256(70, 2)),
    "constant": lambda rng, n, x, i: np.full(n, 4.0),
    "odd text": lambda rng, n, x, i: pa.array(rng.choice(TEXTS, n).tolist(), pa.string()),
    "large text": lambda rng, n, x, i: pa.array(rng.choice(["a", "b"], n).tolist(), pa.large_string()),
    "views": lambda rng, n, x, i: pa.array(rng.choice(["a", "b"], n).tolist(), pa.string_view()),
    "numbers as text": lambda rng, n, x, i: pa.array([str(v) for v in i], pa.string()),
    "all different": lambda rng, n, x, i: pa.array([f"p{v}" for v in rng.permutation(n)], pa.string()),
    "coded numbers": lambda rng, n, x, i: pa.array(i // 8).dictionary_encode(),
    "dates": lambda rng, n, x, i: pa.array(i.astype(np.int32), pa.date32()),
    "moments": lambda rng, n, x, i: pa.array(i * 10**9, pa.timestamp("us")),
    "times": lambda rng, n, x, i: pa.array(np.abs(i).astype(np.int32), pa.time32("s")),
    "durations": lambda rng, n, x, i: pa.array(i, pa.duration("s")),
    "bytes": lambda rng, n, x, i: pa.array([b"\xff\x00"] * n, pa.binary()),
    "nothing": lambda rng, n, x, i: pa.nulls(n),
    "lists": lambda rng, n, x, i: pa.array([[1, 2]] * n, pa.list_(pa.int64())),
    "records": lambda rng, n, x, i: pa.array([{"a": 1}] * n, pa.struct([("a", pa.int64())])),
}
USUAL = [*KINDS][:9]


def column(rng: np.random.Generator, kind: str, n: int, group: np.ndarray) -> pa.Array:
    """Return n values of a kind, with gaps in some columns; most kinds differ between groups."""
    base = rng.normal(size=n) * rng.choice([1e-6, 1.0, 1.0, 20.0]) + group * rng.choice([0.0, 0.5, 3.0])
    made = KINDS[kind](rng, n, base, np.round(20 + 5 * base).astype(np.int64))
    array = made if isinstance(made, pa.Array) else pa.array(made)
    gaps = rng.choice([0.0, 0.0, 0.0, 0.0, 0.1, 0.9])
    if not gaps or not n or kind == "nothing":
        return array
    keep = rng.random(n) >= gaps
    if rng.random() < 0.4:  # in one half of the file only
        keep[: n // 2] = True
    values = [value if kept else None for value, kept in zip(array.to_pylist(), keep, strict=True)]
    if pa.types.is_dictionary(array.type):
        return pa.array(values, array.type.value_type).dictionary_encode()
    return pa.array(values, array.type)


PROTECTED: dict[str, Callable[[np.random.Generator, np.ndarray], list[Any]]] = {
    "two": lambda rng, codes: ["fmm"[code] for code in codes],
    "three": lambda rng, codes: ["fmx"[code] for code in codes],
    "gaps": lambda rng, codes: ["fmm"[code] if rng.random() < 0.8 else None for code in codes],
    "booleans": lambda rng, codes: [None if code == 2 and rng.random() < 0.5 else bool(code) for code in codes],
    "number": lambda rng, codes: (40 + 10 * rng.normal(size=len(codes)) + 5 * codes).round(1).tolist(),
    "codes": lambda rng, codes: codes.clip(0, 1).tolist(),
    "many": lambda rng, codes: [f"g{v}" for v in rng.integers(0, 10_000, len(codes))],
    "one": lambda rng, codes: ["f" for _ in codes],
    "rare": lambda rng, codes: ["f" if row < 3 else "m" for row in range(len(codes))],
    "odd": lambda rng, codes: [TEXTS[v] for v in rng.choice([3, 6, 7, 11], len(codes))],
}


def make_tables(rng: np.random.Generator) -> tuple[pa.Table, pa.Table, str]:
    """Return people to learn from, people of nearly the same columns to be scored, and the protected column."""
    n = int(rng.choice([0, 1, 7, 30, *[60, 90, 120, 150] * 3, 300]))
    kind = str(rng.choice([*PROTECTED, "any"], p=[0.38, *[0.1] * 5, 0.03, 0.02, 0.02, 0.02, 0.03]))
    count = int(rng.choice([1, 2, 3, 4]))
    kinds = [str(rng.choice(USUAL if rng.random() < 0.85 else [*KINDS])) for _ in range(count)]
    names = [str(rng.choice(NAMES)) if rng.random() < 0.06 else f"f{k}" for k in range(count)]
    own = str(rng.choice(NAMES)) if rng.random() < 0.04 else "sex"
    first = _table(rng, n, own, kind, names, kinds)
    if rng.random() < 0.3:
        return first, first, own
    drifted = [str(rng.choice([*KINDS])) if rng.random() < 0.08 else each for each in kinds]
    if rng.random() < 0.05:
        names = names[1:] or names
    rows = int(rng.choice([1, 2, 40, 80, 120])) if rng.random() < 0.9 else 0
    return first, _table(rng, rows, own, kind, names, drifted[: len(names)]), own


def _table(rng: np.random.Generator, n: int, own: str, kind: str, names: list[str], kinds: list[str]) -> pa.Table:
    codes = rng.integers(0, 3, n)
    group = (codes > 0).astype(float)
    any_kind = kind == "any"
    values = column(rng, str(rng.choice([*KINDS])), n, group) if any_kind else pa.array(PROTECTED[kind](rng, codes))
    columns = [values, *(column(rng, each, n, group) for each in kinds), pa.array(rng.integers(0, 2, n) + group)]
    weight = rng.choice([0.0, 0.5, 1.0, 2.0], n) if rng.random() < 0.8 else KINDS["extremes"](rng, n, group, codes)
    columns += [pa.array(weight), pa.array(np.arange(n))]
    return pa.table(columns, names=[own, *names, "paid", "weight", "name"])


def write(table: pa.Table, path: Path, rng: np.random.Generator) -> None:
    """Write a table as its ending says; Parquet in small row groups, CSV as Python writes values."""
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=int(rng.choice([16, 40, 1000])))
    elif path.suffix == ".arrow":
        with pa.ipc.new_file(path, table.schema) as file:
            file.write_table(table)
    else:
        with path.open("w", newline="", encoding="utf-8", errors="surrogateescape") as text:
            rows = csv.writer(text, delimiter=str(rng.choice([",", ";", "\t"])))
            rows.writerow(table.column_names)
            rows.writerows(zip(*(each.to_pylist() for each in table.columns), strict=True))


# --- command lines -------------------------------------------------------------------------------------------------


def _pool(text: str) -> dict[str, list[str]]:
    """Return the values of each option; options without values are flags."""
    return {words[0]: words[1:] for words in map(shlex.split, text.split(";"))}


OF_FIT = _pool("""
--test rank rank/a move move-direct faux faux+ng faux+ng/s fta transport all rnk; --label paid name sex nowhere;
--given f0 paid f0,f1 sex; --columns f0 f0,f1 f1,f0,sex sex f0,f0 nowhere '';
--weights weight weight name sex f0; --id name f0 nowhere; --categorical f0 f0,f1 name; --continuous f0 f1 sex;
--drop f0 sex weight,name nowhere; --merge-rare 0.1 0.4999 0 1; --contrasts all largest some;
--reference-group m sex=m nobody ''; --seed 0 4294967295 -1 1.5; --settings epsilon=0.5 steps=3 epsilon=nan = x=y;
--intersections; --hold-others; -c f0 f1 'f0<5' age sex=m ''
""")
OF_SCORE = _pool("""
--delta 0 0.05 1e308 nan inf -1 20 1e-320; --max-flagged 0 0.1 1 5 -1 nan 1e-300 0.05 sex=m=0.2 f0=1=0.3;
--output logit probability; --returns probability logit value; --kind table matrix encoded; --positive 1 yes
""")
OF_COMPARE = {**OF_FIT, **OF_SCORE} | _pool("""
--decision-threshold 0.5 1e300 -1 nan; --persistence 0 1 2; --fdr 0.1 0.999 0 1; --sample 1 20 1000000 0;
--margin 0 1; --columns-b f0 f1 ''; --no-gate; --direct; --balance
""")
OF_AUDIT = OF_COMPARE | _pool("""
--batch-size 1 7 0 1e3; --cannot-tell pass fail maybe; --null 1 -1; --include-rows;
--certify; --delta-from-null; --refitz 1
""")
OF_PLAN = _pool("""
--effect 0.1 1e-300 1e300 0 nan; --limit 0 0.05 1e300; --share 0 0.5 1 2; --max-flagged 0 0.05 1;
--spread 0 1 1e300 1e-300; --power 0.8 0.999999999 1e-12 1; --people 1 1000000000000 0
""")


def options(rng: np.random.Generator, known: dict[str, list[str]], *, most: int = 3) -> list[str]:
    """Return some options with right and wrong values."""
    out = list[str]()
    for name in rng.choice([*known], max(0, int(rng.integers(-1, most + 1))), replace=False).tolist():
        out += [name, str(rng.choice(known[name]))] if known[name] else [name]
    return out


class Fault(AssertionError):
    """Something that must hold and does not."""


class Case:
    """One table with several command lines, all from a seed, in a folder of its own."""

    def __init__(self, seed: int) -> None:
        self.rng, self.seed = np.random.default_rng(seed), seed
        self.counts, self.faults, self.said = Counter[str](), list[str](), ""

    def run(self) -> Case:
        """Run all command lines."""
        rng = self.rng
        Path("models.py").write_text(MODELS)
        learnt, people, own = make_tables(rng)
        path = "learnt" + str(rng.choice([".parquet", ".csv", ".arrow"]))
        with suppress(pa.ArrowException, csv.Error):  # the format has no such type
            write(learnt, Path(path), rng)
            write(people, Path("people.parquet"), rng)
            names = ["chance", "chance", "amount", "constant", "matrix", "huge", "hole", "broken"]
            model = "models.py:" + str(rng.choice(names, p=[0.3, 0.26, 0.2, 0.06, 0.06, 0.06, 0.03, 0.03]))
            self._commands(model, path, len(learnt), len(people), ["--refits", str(rng.choice([1, 2, 2])), "-c", own])
        return self

    def _commands(self, model: str, learnt: str, n: int, people: int, few: list[str]) -> None:
        rng = self.rng
        if rng.random() < 0.6:
            given = [*few, "--folds", "2", *options(rng, OF_AUDIT)]
            audited = self.call(["audit", model, learnt, *given, "--out", "audit"], n)
            if rng.random() < (0.1 if audited == 2 else 0.5):
                self.call(["plan", "audit", *options(rng, OF_PLAN)], 0, kind="", out="nothing")
                self.call(["report", "audit", "-o", "page.html"], 0, kind="page", out="page.html")
                self.call(["compare", "audit", "audit" if rng.random() < 0.8 else "nowhere"], 0, kind="", out="nothing")
        if rng.random() < 0.15:
            two = ["models.py:chance", *few, *options(rng, OF_COMPARE, most=2), "--out", "pair"]
            self.call(["compare", model, *two[:1], learnt, *two[1:]], n, kind="compare", out="pair")
        if rng.random() < 0.1:
            self.call(["plan", *options(rng, OF_PLAN, most=6)], 0, kind="", out="nothing")
        fit = ["fit", learnt, *few, *options(rng, OF_FIT, most=1), "-o", "test.fox"]
        if self.call(fit, 0, kind="file", out="test.fox"):
            return
        scored = ["score", "test.fox", model, "people.parquet", *options(rng, OF_SCORE, most=1)]
        parts = ["--workers", "1", "--part-rows", str(rng.choice([1, 40, 500]))]
        memory = self.call([*scored, "--engine", "memory", "-o", "memory"], people, out="memory")
        refusal = self.said
        files = self.call([*scored, "--engine", "files", *parts, "-o", "files"], people, out="files")
        self.agree(memory, files, refusal, shlex.join([*scored, *parts]))

    def call(self, words: list[str], people: int, *, kind: str = "audit", out: str = "audit") -> int:
        """Return the exit code of a command, having checked what it did."""
        started, line = time.perf_counter(), shlex.join(["fairfox", *words])
        self.counts[words[0]] += 1
        done = CliRunner().invoke(cli, words)
        seconds, self.said = time.perf_counter() - started, ""
        try:
            if done.exception is not None and not isinstance(done.exception, SystemExit):
                raise Fault("traceback: " + "".join(traceback.format_exception(done.exception))[-2500:])
            if seconds > SECONDS:
                raise Fault(f"hang: {seconds:.0f} s")
            if done.exit_code == 2:
                self.said = self.refused(done.stderr, out)
            elif done.exit_code not in (0, 1, 3):
                raise Fault(f"exit: code {done.exit_code}")
            elif kind in ("audit", "compare"):
                self.whole(Path(out), kind, people)
            elif kind and not Path(out).is_file():
                raise Fault(f"half-written: no {out}")
        except (Fault, AssertionError) as fault:
            self.fault(line, str(fault) if isinstance(fault, Fault) else f"invalid: {fault}")
            return -1
        self.counts[f"exit {done.exit_code}"] += 1
        return done.exit_code

    def fault(self, line: str, what: str) -> None:
        self.faults.append(f"seed {self.seed}: {line}\n  {what}")
        self.counts[what.partition(":")[0]] += 1

    def refused(self, stderr: str, out: str) -> str:
        """Return the one sentence of a refusal that left nothing; only parts of a stream may stay, to be resumed."""
        lines = [line for line in stderr.splitlines() if line.strip() and not line.startswith("Warning")]
        if len(lines) != 1 or not lines[0].startswith("Error: "):
            raise Fault(f"sentence: {stderr[-600:]}")
        if any(ord(letter) < 32 or ord(letter) == 0x202E for letter in lines[0]):
            raise Fault(f"escape codes: {lines[0]!r}")
        resumable = out == "files" and "the same command" in lines[0]
        if Path(out).exists() and not resumable:
            raise Fault(f"half-written: {sorted(map(str, Path(out).rglob('*')))} after {lines[0]}")
        return lines[0]

    def whole(self, out: Path, kind: str, people: int) -> None:
        """Check that everything is there: a valid summary, a page, a row of scores for everyone."""
        fields = assert_valid_summary((out / "summary.json").read_text("utf-8"), kind)
        if not (out / "report.html").is_file():
            raise Fault("half-written: no report.html")
        if left := [path.name for path in out.rglob("*.tmp")]:
            raise Fault(f"half-written: {left}")
        table = pq.read_table(out / ("scores.parquet" if kind == "audit" else "people.parquet"))
        expected = min(people, fields.get("settings", {}).get("sample") or people)
        if len(table) != expected:
            raise Fault(f"invalid: {len(table)} rows of scores for {expected} people")

    def agree(self, memory: int, files: int, refusal: str, line: str) -> None:
        """Check that two doors end alike, with the same scores and the same verdict, or the same sentence."""
        if -1 in (memory, files):
            return
        if memory != files:
            self.fault(line, f"disagreement: memory ends with {memory}, files with {files}: {refusal or self.said}")
        elif memory == 2:
            said, other = (_without_place(sentence) for sentence in (refusal, self.said))
            about = [re.findall(r"[Cc]olumn '.*?'|The model|weights '.*?'", sentence)[:1] for sentence in (said, other)]
            if said not in other and about[0] == about[1] != ["The model"]:  # of two faults either may be named
                self.fault(line, f"disagreement: memory says {refusal}\n  files {self.said}")
        else:
            self.counts["both scored"] += 1
            one, two = (pq.read_table(f"{name}/scores.parquet") for name in ("memory", "files"))
            for name in ("score", "effect"):
                a, b = (np.array(t[name].to_pylist(), dtype=float) for t in (one, two))
                scale = np.nanmax(np.abs([*two["prediction"].to_pylist(), *np.nan_to_num([*a, *b])]), initial=1e-300)
                apart = np.nanmax(np.abs(a - b), initial=0.0) / scale
                if (np.isnan(a) != np.isnan(b)).any() or apart > SAME:
                    return self.fault(line, f"disagreement: {name} differs by {apart:.3g} of {scale:.3g}")
            texts = [Path(f"{name}/summary.json").read_text("utf-8") for name in ("memory", "files")]
            words = [(json.loads(text)["verdict"] or {}).get("word") for text in texts]
            if words[0] != words[1]:
                self.fault(line, f"disagreement: memory {words[0]}, files {words[1]}")
        return None


def _without_place(sentence: str) -> str:
    """Return a sentence without what differs between parts: rows, counts and the name of the table."""
    sentence = re.sub(r"(in row )\d+|\d+ (?=missing value)|, and \d+ more like it", r"\1", sentence)
    return re.sub(r"Error: |\.$|'[^']*people.parquet' has|The tables? (has|have)", "", sentence)


def run_case(seed: int) -> Case:
    """Return the case of a seed, after it has run in a new folder."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder, chdir(folder), warnings.catch_warnings():
        warnings.simplefilter("error")  # as in the suite
        return Case(seed).run()


def main() -> int:
    """Run cases until the time is over, print the faults, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=int(time.time()) % 1_000_000 * 1000, help="of the first case")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--cases", type=int, default=10**9)
    given = parser.parse_args()
    counts, seed, ended = Counter[str](), given.seed, time.monotonic() + 60 * given.minutes
    print(f"the first seed is {seed}", flush=True)
    while seed < given.seed + given.cases and time.monotonic() < ended:
        faulthandler.dump_traceback_later(10 * SECONDS, exit=True)
        case = run_case(seed)
        counts.update(case.counts + Counter(cases=1, faults=len(case.faults)))
        for fault in case.faults:
            print(f"{fault}\n  again: python -m tests.fuzz.cases --cases 1 --seed {seed}", flush=True)
        seed += 1
    lines = sum(counts[name] for name in ("audit", "fit", "score", "compare", "plan", "report"))
    print(f"{lines} command lines of the seeds {given.seed} to {seed - 1}: {dict(sorted(counts.items()))}")
    return int(counts["faults"] > 0)


if __name__ == "__main__":
    sys.exit(main())
