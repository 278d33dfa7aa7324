"""The built package in an empty environment, without the repository: what `make package` and its neighbours run.

The wheel is installed, `pip check` is asked, the demo and the README's examples run, and mypy checks a user's file.
With --extras, the demo is followed by a check of each extra instead: installed alone beside the core dependencies, and
removed again.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from zipfile import ZipFile

ROOT = Path(__file__).parents[1]
LARGEST = 1_000_000  # bytes of a wheel
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")} | {"OMP_NUM_THREADS": "1"}

START = """
import pandas as pd, fairfox
from sklearn.linear_model import LogisticRegression
people = pd.read_csv("demo-report/people.csv")
x, y = people[["income", "tenure_years", "debt_ratio"]], people["approved"]
model = LogisticRegression(max_iter=1000).fit(x, y)
def check(model, table=people, **options):
    model = fairfox.load_model(model) if isinstance(model, str) else model
    result = fairfox.audit(model, table, protected="sex", label="approved", **options)
    assert result.verdict.passed is False, result.summary()
    return result
"""
TYPED = """
import fairfox
from fairfox.testing import assert_individually_fair

def affected(model: object, people: str) -> int:
    result = fairfox.audit(model, people, protected="sex", label="approved", max_flagged={"": 0.1})
    reason: str = result.verdict.reason
    print(result.summary(), reason, result.person(0).flagged)
    return int(result.significant.sum())

fairfox.audit(len, "people.csv", protected=5)  # type: ignore[arg-type]
number: int = assert_individually_fair(len, "people.csv", protected="sex").summary()  # type: ignore[assignment]
"""  # mypy --strict also complains of an ignored error that is none, so the last two lines show that the types arrive
EXTRAS = {  # what a user of each extra does; every model is unfair to the demo's people
    "skops": "import skops.io; skops.io.dump(model, 'm.skops'); check('m.skops')",
    "onnx": """
import onnx, onnx.helper as h, onnx.numpy_helper as n
kernel, bias = model.coef_.T.astype("float32"), model.intercept_.astype("float32")
nodes = [h.make_node("Gemm", ["x", "w", "b"], ["z"]), h.make_node("Sigmoid", ["z"], ["p"])]
inputs, outputs = ([h.make_tensor_value_info(k, 1, [None, size])] for k, size in (("x", 3), ("p", 1)))
graph = h.make_graph(nodes, "net", inputs, outputs, [n.from_array(kernel, "w"), n.from_array(bias, "b")])
onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 18)], ir_version=9), "m.onnx")
check("m.onnx", columns=list(x))
""",
    "xgboost": "import xgboost; xgboost.XGBClassifier(n_estimators=20).fit(x, y).save_model('m.ubj'); check('m.ubj')",
    "lightgbm": """
import lightgbm
lightgbm.LGBMClassifier(n_estimators=20, verbose=-1).fit(x, y).booster_.save_model("m.txt")
check("m.txt")
""",
    "catboost": """
import catboost
catboost.CatBoostClassifier(iterations=20, verbose=0, allow_writing_files=False).fit(x, y).save_model("m.cbm")
check("m.cbm")
""",
    "keras": """
import h5py, json
layer = {"name": "d", "units": 1, "activation": "sigmoid", "use_bias": True, "batch_input_shape": [None, 3]}
layers = [{"class_name": "Dense", "config": layer}]
with h5py.File("m.h5", "w") as file:
    file.attrs["model_config"] = json.dumps({"class_name": "Sequential", "config": {"name": "net", "layers": layers}})
    group = file.create_group("model_weights/d")
    group.attrs["weight_names"] = [b"d/kernel:0", b"d/bias:0"]
    group["d/kernel:0"], group["d/bias:0"] = model.coef_.T.astype("float32"), model.intercept_.astype("float32")
check("m.h5", columns=list(x))
""",
    "mlflow": """
import mlflow
from fairfox.report.mlflow import log_audit
mlflow.set_tracking_uri("sqlite:///mlflow.db")
with mlflow.start_run():
    log_audit(check(model))
""",
    "polars": """
import polars as pl
assert isinstance(check(model, pl.read_csv("demo-report/people.csv")).people, pl.DataFrame)
""",
    "fsspec": """
import fsspec
from pathlib import Path
from fairfox.streaming.files import score_files
from fairfox.streaming.sources import ModelSource
fairfox.save_test(fairfox.fit(people, protected="sex", label="approved"), "test.fox")
people.to_parquet("people.parquet")
fsspec.filesystem("memory").pipe("/people.parquet", Path("people.parquet").read_bytes())
source = ModelSource("model.py:score")
result = score_files(Path("test.fox"), source, ["memory://people.parquet"], Path("from-memory"), workers=1)
assert len(result) == len(people)
""",
    "dask": """
import dask.dataframe as dd
from fairfox.streaming.dask import score_dask
test = fairfox.fit(people, protected="sex", label="approved", columns=list(x))
scores = score_dask(dd.from_pandas(people, npartitions=2), test, model)
assert len(scores.compute()) == len(people)
""",
}


def run(*command: str | Path, cwd: Path, expect: int = 0) -> str:
    """Return what a command prints; stop with all of it where it ends otherwise than expected."""
    done = subprocess.run([*map(str, command)], cwd=cwd, env=CLEAN, text=True, capture_output=True)
    if done.returncode != expect:
        shown = " ".join(map(str, command))[-200:]
        raise SystemExit(f"{shown}\n{done.stdout}{done.stderr}\nended with {done.returncode}; expected {expect}")
    return done.stdout


def readme(name: str) -> str:
    """Return one of the README's examples."""
    found = re.search(rf"<!-- example: {re.escape(name)} -->\n```\w+\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    assert found, f"the README has no example {name}"
    return found[1]


def demo(env: Path, folder: Path) -> None:
    """Run the demo, and write the README's model, which audits of the demo's people use."""
    began = perf_counter()
    run(env / "fairfox", "demo", "--people", "500", "--out", "demo-report", cwd=folder)
    print(f"  fairfox demo: {perf_counter() - began:.1f} s", flush=True)
    (folder / "model.py").write_text(readme("model.py"))


def examples(env: Path, folder: Path) -> None:
    """Run the README's examples, and a test that is fitted once and used on a file."""
    began = perf_counter()
    (folder / "example.py").write_text(readme("python"))
    said = run(env / "python", "example.py", cwd=folder).splitlines()[1]
    assert said.startswith("FAIL: "), said
    same = said in (ROOT / "README.md").read_text()
    print("  README, in Python: the verdict that it shows" if same else f"  README, in Python: {said}")
    command = readme("shell").removeprefix("$ fairfox ").split()
    run(env / "fairfox", *command, cwd=folder, expect=1)
    assert (folder / "report" / "report.html").is_file()
    fit = ["fit", "demo-report/people.csv", "--protected", "sex", "--label", "approved", "-o", "test.fox"]
    run(env / "fairfox", *fit, cwd=folder)
    run(env / "fairfox", "score", "test.fox", "model.py:score", "demo-report/people.csv", "--out", "scored", cwd=folder)
    print(f"  README in Python and on the command line, fit and score: {perf_counter() - began:.1f} s", flush=True)


def typed(env: Path, folder: Path) -> None:
    """Check a user's file, which imports the installed package, with mypy --strict."""
    (folder / "typed.py").write_text(TYPED)
    checker = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--python-executable", env / "python"]
    print(f"  mypy --strict of a user's file: {run(*checker, 'typed.py', cwd=folder).strip()}", flush=True)


def extra(name: str, wheel: Path, env: Path, folder: Path, constraints: Path) -> None:
    """Install an extra beside the core dependencies, check it, and remove what it brought."""
    before = set(run(env / "python", "-m", "pip", "freeze", cwd=folder).splitlines())
    run(env / "python", "-m", "pip", "install", "-q", "-c", constraints, f"{wheel}[{name}]", cwd=folder)
    run(env / "python", "-m", "pip", "check", cwd=folder)
    began = perf_counter()
    run(env / "python", "-c", START + EXTRAS[name], cwd=folder)
    print(f"  [{name}]: works alone, {perf_counter() - began:.1f} s", flush=True)
    added = set(run(env / "python", "-m", "pip", "freeze", cwd=folder).splitlines()) - before
    names = [re.split(r"==| @ ", line)[0] for line in added]
    if names:
        run(env / "python", "-m", "pip", "uninstall", "-q", "-y", *names, cwd=folder)


def smoke(python: str, wheel: Path, constraints: Path, extras: list[str]) -> None:
    """Try the wheel in an empty environment of one Python."""
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        began = perf_counter()
        run(python, "-m", "venv", folder / "env", cwd=folder)
        env = folder / "env" / "bin"
        run(env / "python", "-m", "pip", "install", "-q", "-c", constraints, wheel, cwd=folder)
        run(env / "python", "-m", "pip", "check", cwd=folder)
        took = perf_counter() - began
        size = sum(file.lstat().st_size for file in (folder / "env").rglob("*"))
        print(f"  installed in {took:.0f} s, {size / 1e9:.1f} GB; pip check is clean", flush=True)
        names = "|".join(re.findall(r"^\w[\w-]*(?===)", (ROOT / "constraints-lowest.txt").read_text(), re.M))
        versions = run(env / "python", "-m", "pip", "freeze", cwd=folder)
        print("  " + ", ".join(re.findall(rf"^(?:{names})==\S+", versions, re.M | re.I)), flush=True)
        demo(env, folder)
        if not extras:
            examples(env, folder)
            typed(env, folder)
        for name in extras:
            extra(name, wheel, env, folder, constraints)


def main() -> None:
    """Try the wheel in every Python that is named and there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--python", nargs="+", default=[sys.executable])
    parser.add_argument("--constraints", type=Path, default=ROOT / "constraints.txt")
    parser.add_argument("--extras", nargs="*", default=[], choices=list(EXTRAS), metavar="NAME")
    options = parser.parse_args()
    wheel = options.wheel.resolve()
    size = wheel.stat().st_size
    assert size < LARGEST, f"the wheel has {size} bytes; at most {LARGEST}"
    assert "fairfox/py.typed" in ZipFile(wheel).namelist()
    print(f"{wheel.name}: {size / 1000:.0f} kB")
    for python in options.python:
        found = shutil.which(python)
        works = found and subprocess.run([found, "-c", ""], capture_output=True).returncode == 0
        print(python if works else f"{python}: skipped, it is not installed", flush=True)
        if works:
            smoke(str(found), wheel, options.constraints.resolve(), options.extras)


if __name__ == "__main__":
    main()
