"""The paper's two use cases, policing and credit, as the examples tell them: what they find, in words and numbers."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from real_data import NOT_RUN
from real_data import lacking as lacking_tables
from runner import Experiment, Folders, Found, Job, pick
from wording import markdown_table, number

EXAMPLES = Path(__file__).parents[1] / "examples"


@dataclass(frozen=True)
class Case:
    """An example, the rows of its table that take part, and how many times maps are fitted."""

    name: str
    rows: int
    refits: int


@dataclass(frozen=True)
class UseCases:
    """Which examples are run."""

    cases: tuple[Case, ...]


FULL = UseCases((Case("policing", 4_500, 5), Case("credit", 1_000, 3)))
QUICK = UseCases((Case("policing", 200, 2), Case("credit", 180, 2)))


def jobs(plan: UseCases, seed: int) -> list[Job]:
    """Return one job per example; none where its table is not to be had."""
    missing = lacking(plan)
    return [Job(case.name, run_case, (case, seed), seconds=60) for case in plan.cases if case.name not in missing]


def lacking(plan: UseCases) -> dict[str, str]:
    """Return the examples whose table is not to be had, each with the words for it."""
    names = [case.name for case in plan.cases]
    return lacking_tables(names, {name: load_example(name).people for name in names})


def load_example(name: str) -> ModuleType:
    """Return an example as a module."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_case(folder: Path, needed: Folders, case: Case, seed: int) -> dict[str, Any]:
    """Return what an example finds (`found`) and what it prints (`text`)."""
    example = load_example(case.name)
    found = example.investigate(rows=case.rows, refits=case.refits, seed=seed)
    return {"found": found, "text": example.tell(found)}


def gather(plan: UseCases, found: Found, about: dict[str, Any]) -> dict[str, Any]:
    """Return what each example found, and which was not run."""
    return {
        "cases": {case.name: found[case.name] for case in plan.cases if case.name in found},
        "not_run": lacking(plan),
    }


def show(found: dict[str, Any]) -> str:
    """Return what the examples print."""
    told = [f"# {name}\n\n{case['text']}" for name, case in found["cases"].items()]
    return "\n\n".join([*told, *(f"{name}: {why}" for name, why in found["not_run"].items())])


def policing(found: dict[str, Any]) -> str:
    """Return the section about policing: whom it affects most, and the models side by side."""
    if "policing" not in found["cases"]:
        return NOT_RUN
    case = found["cases"]["policing"]["found"]
    worst = [
        f"person {one['row_id']} {_points(one['effect'])} ({_points(one['lower'])} to {_points(one['upper'])})"
        for one in case["most_affected"]
    ]
    parts = [
        f"Table: {case['table']}. Asked whether the output changes when race alone is changed, fairfox answers:",
        f"> {case['unawareness']}",
        f"The largest effects: {'; '.join(worst)}.",
        _beside(case["models"]),
    ]
    return "\n\n".join(parts)


def credit(found: dict[str, Any]) -> str:
    """Return the section about credit: what carries the effect, awareness, and the models."""
    if "credit" not in found["cases"]:
        return NOT_RUN
    case = found["cases"]["credit"]["found"]
    rows = [
        [group, ", ".join(f"{name} {_points(v)}" for name, v in own.items())] for group, own in case["through"].items()
    ]
    agreement = [f"{rho:.2f} with the effect of {c}" for c, rho in case["agreement"].items()]
    parts = [
        "Through which features the effect goes, among those who are affected most by that variable:",
        markdown_table(["group", "largest mean effects"], rows),
        f"`fta` flags {case['flagged']['fta']:.1%} of the people at its own delta, `rank` "
        f"{case['flagged']['rank']:.1%}. Rank correlation of `fta`: {', '.join(agreement)} (1: same order, 0: none).",
        _beside(case["models"]),
    ]
    return "\n\n".join(parts)


SECTIONS = {"policing": policing, "credit": credit}  # of the page on use cases


def _points(value: float) -> str:
    return f"{100 * value:+.1f} points"


def _beside(models: Mapping[str, Mapping[str, float]]) -> str:
    """Return the numbers of all models side by side."""
    names = list(models)
    rows = [[what, *(number(models[name][what]) for name in names)] for what in models[names[0]]]
    return markdown_table(["", *names], rows)


narrow = pick("cases", "use case")
EXPERIMENT = Experiment.of(sys.modules[__name__])


if __name__ == "__main__":
    sys.exit(EXPERIMENT.run())
