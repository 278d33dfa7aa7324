"""The peers' tests on the people of Table 1: Unfair Map, FlipTest and optimal transport, each a command of its own.

The two maps also times the alignment share that each of the table's plain auxiliaries sees (`/a`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean
from time import perf_counter
from typing import Any, Literal, cast

import torch
from runner import Experiment, Folders, Found, Job, installed, named
from safetensors.torch import load_file, save_file
from scoring import effects, known_scores, resampled
from settings import Rows, Setting, Shape, Target
from table1_bars import ground, keep_rest
from table1_plan import FULL, QUICK, Device, Table1, load_setup, made_before, moved, summaries, thresholds_of, trained
from table1_report import table1_text
from torch import Tensor
from trials import seed_of

from fairfox.auxiliary.linear import LinearAuxiliary
from fairfox.data.dataset import Dataset
from fairfox.fairtests.effect import model_alignment
from fairfox.fairtests.unfair_map import UnfairMap
from fairfox.gradients.alignment import covariance_metric
from fairfox.maps.gan import GanMap
from fairfox.maps.protocol import CounterfactualMap
from fairfox.maps.transport import TransportMap
from fairfox.maps.wgan import GanSettings
from fairfox.models.torch import TorchModel

TESTS = ("fliptest", "transport", "unfair_map")  # the longest first
MAPS = ("fliptest", "transport")  # these also times the alignment share

_REFERENCE_COLUMNS = 8  # of Black et al. 2020: the predictors of Chicago's list

Solver = Literal["pot", "scipy"]


@dataclass(frozen=True)
class Peers:
    """Which of the peers' tests are run, on which table, and how they are set; the values are the references'."""

    table: Table1 = FULL
    parts: tuple[str, ...] = TESTS
    gan: GanSettings = GanSettings()  # noqa: RUF009
    attack_steps: int = 200
    device: Device = Device()  # noqa: RUF009

    @property
    def tests(self) -> tuple[str, ...]:
        """The tests among the parts."""
        return tuple(test for test in TESTS if test in self.parts)


def jobs(plan: Peers, seed: int) -> list[Job]:
    """Return the jobs of each test."""
    table = plan.table
    scoring = [job for t in plan.tests for s in table.longest_first for job in _scoring(plan, t, s, seed)]
    aligned = [job for t in plan.tests if t in MAPS for s in table.longest_first for job in _aligned(plan, t, s, seed)]
    return [*scoring, *aligned]


def _scoring(plan: Peers, test: str, setting: Setting, seed: int) -> list[Job]:
    """Return the jobs of one test in one setting: FlipTest's re-trainings are one batched network, others apart."""
    table = plan.table
    shared = (setting, table.targets, table.rows, seed_of(seed, setting.name))
    job = partial(Job, after=made_before(table, setting, seed))
    name = f"scores-{setting.name}-{test}"
    if test == "fliptest":
        arguments = (*shared, plan.gan, len(table.auxiliaries), seed_of(seed, setting.name, test), plan.device)
        return [job(name, score_fliptest, arguments)]
    if test == "transport":
        return [
            job(f"{name}-{index}", score_transport, (*shared, solver(), seed_of(seed, index), plan.device))
            for index in table.retrainings
        ]
    return [
        job(f"{name}-{index}", score_unfair_map, (*shared, plan.attack_steps, seed + 10 * (index + 1), plan.device))
        for index in table.retrainings
    ]


def _aligned(plan: Peers, test: str, setting: Setting, seed: int) -> list[Job]:
    """Return a job for each re-training that multiplies its scores by the shares that one auxiliary sees."""
    table, scoring = plan.table, _scoring(plan, test, setting, seed)
    out = []
    for index, shape in enumerate(table.auxiliaries):
        place = (scoring[0], index) if len(scoring) == 1 else (scoring[index], 0)
        arguments = (setting, table.targets, table.rows, seed_of(seed, setting.name), shape, test, place[1])
        after = (*made_before(table, setting, seed), place[0])
        name = f"aligned-{setting.name}-{test}-{index}"
        out.append(Job(name, score_aligned, (*arguments, seed_of(seed, index)), after=after))
    return out


def solver() -> Solver:
    """Return what solves exact transport on this machine."""
    return "pot" if find_spec("ot") is not None else "scipy"


def score_unfair_map(
    folder: Path,
    needed: Folders,
    setting: Setting,
    targets: Sequence[Target],
    rows: Rows,
    people_seed: int,
    steps: int,
    seed: int,
    device: Device,
) -> dict[str, Any]:
    """Return how good Unfair Map is with a metric of resampled rows, and what it says of the targets as models."""
    here = load_setup(needed, setting, targets, rows, people_seed)
    test = UnfairMap(auxiliary=LinearAuxiliary(), steps=steps).fit(resampled(here.fitting, seed))
    people = here.people.to(device.name)
    measured = [test.measure(moved(model, device), people) for model in here.models]
    verdicts = [test.verdict(one, here.people) for one in measured]
    numbers = {
        f"{name} {target}": fmean(one[name] for one in verdicts[place::2])
        for name in ("bound", "p_value", "non_finite")
        for place, target in enumerate(("unfair", "fair"))
    }
    return here.judged({"unfair_map": [known_scores(one).cpu() for one in measured]}) | {"checks": numbers}


def score_fliptest(
    folder: Path,
    needed: Folders,
    setting: Setting,
    targets: Sequence[Target],
    rows: Rows,
    people_seed: int,
    gan: GanSettings,
    refits: int,
    seed: int,
    device: Device,
) -> dict[str, Any]:
    """Return how good FlipTest is after each re-training: all of them, both ways, train together.

    What it pays for distance grows with the square of the columns; `weight` is scaled so that a column costs as much as
    in the reference, or people would not move at all where there are many.
    """
    here = load_setup(needed, setting, targets, rows, people_seed)
    weight = gan.weight * (_REFERENCE_COLUMNS / here.fitting.x.shape[1]) ** 2
    began = perf_counter()
    (maps,) = GanMap(**asdict(gan) | {"weight": weight}).fit_many(here.fitting.to(device.name), refits, seed=seed)
    seconds = perf_counter() - began
    scores = [_effects(one, here.models, here.people, device) for one in maps]
    _save(folder, scores)
    checks = [cast(GanMap, one).checks() for one in maps]
    return {
        "retrainings": [here.judged({"fliptest": each}) for each in scores],
        "checks": {name: fmean(one[name] for one in checks) for name in checks[0]},
        "training": {
            "seconds": seconds,
            "weight": weight,
            "device": device.name,
            "refits": refits,
            "columns": here.fitting.x.shape[1],
        },
    }


def score_transport(
    folder: Path,
    needed: Folders,
    setting: Setting,
    targets: Sequence[Target],
    rows: Rows,
    people_seed: int,
    solved_by: Solver,
    seed: int,
    device: Device,
) -> dict[str, Any]:
    """Return how good optimal transport is with a map of resampled rows."""
    here = load_setup(needed, setting, targets, rows, people_seed)
    one = TransportMap(solver=solved_by, seed=seed).fit(resampled(here.fitting, seed).to(device.name))
    scores = _effects(one, here.models, here.people, device)
    _save(folder, [scores])
    return here.judged({"transport": scores}) | {"checks": one.checks(), "solver": solved_by}


def score_aligned(
    folder: Path,
    needed: Folders,
    setting: Setting,
    targets: Sequence[Target],
    rows: Rows,
    people_seed: int,
    shape: Shape,
    test: str,
    place: int,
    seed: int,
) -> dict[str, Any]:
    """Return how good the scores of one re-training of a map are, times the share that a new plain auxiliary sees."""
    here = load_setup(needed, setting, targets, rows, people_seed)
    auxiliary, metric = (
        trained("plain", shape, needed[0], setting, here.fitting, seed),
        covariance_metric(here.fitting.x),
    )
    effect = load_file(needed[-1] / "scores.safetensors")["scores"][place]  # (models, N)
    shares = [model_alignment(model, here.people, auxiliary, metric)[0].value for model in here.models]
    return here.judged({f"{test}/a": [share * each for share, each in zip(shares, effect, strict=True)]})


def _effects(one: CounterfactualMap, models: Sequence[TorchModel], people: Dataset, device: Device) -> list[Tensor]:
    found = effects(one, [moved(model, device) for model in models], people.to(device.name))
    return [each.cpu() for each in found]


def _save(folder: Path, scores: Sequence[Sequence[Tensor]]) -> None:
    """Keep the scores of each re-training (R, models, N) for the job that multiplies them."""
    save_file({"scores": torch.stack([torch.stack(list(each)) for each in scores])}, folder / "scores.safetensors")


def gather(plan: Peers, found: Found, about: dict[str, Any]) -> dict[str, Any]:
    """Return the sections that go into the results file of the table."""
    results = []
    for setting in plan.table.settings:
        for test in plan.tests:
            results += summaries(setting, "none", _parts(plan, found, setting, test))
            if test in MAPS:
                aligned = [found[f"aligned-{setting.name}-{test}-{i}"] for i in plan.table.retrainings]
                results += summaries(setting, "plain", aligned)
    numbers = ("seed", "settings", "versions", "machine", "seconds", "core_seconds")
    own = {name: about[name] for name in numbers} | {"together": list(plan.parts)}
    thresholds = {setting.name: thresholds_of(plan.table, setting, found) for setting in plan.table.settings}
    runs = {t: own | {"thresholds": thresholds, "details": _details(plan, found, t)} for t in plan.tests}
    return {"results": results, "runs": runs, "bars": []}


def _parts(plan: Peers, found: Found, setting: Setting, test: str) -> list[dict[str, Any]]:
    """Return what each re-training of a test found in a setting."""
    name = f"scores-{setting.name}-{test}"
    if test == "fliptest":
        parts: list[dict[str, Any]] = found[name]["retrainings"]
        return parts
    return [found[f"{name}-{index}"] for index in plan.table.retrainings]


def _details(plan: Peers, found: Found, test: str) -> dict[str, Any]:
    """Return what a test says about itself in each setting, the mean over its re-trainings."""
    out: dict[str, Any] = {}
    for setting in plan.table.settings:
        if test == "fliptest":
            own = found[f"scores-{setting.name}-{test}"]
            out[setting.name] = {"checks": own["checks"], "training": own["training"]}
            continue
        parts = _parts(plan, found, setting, test)
        checks: list[Mapping[str, float]] = [part["checks"] for part in parts]
        out[setting.name] = {"checks": {name: fmean(one[name] for one in checks) for name in checks[0]}}
        if test == "transport":
            out[setting.name]["solver"] = installed("POT" if parts[0]["solver"] == "pot" else "scipy")
    return out


def narrow(plan: Peers, names: Sequence[str]) -> Peers:
    """Return the plan for some of the tests; in all settings, so that no test is half replaced."""
    return replace(plan, parts=named("test with a command of its own", {test: test for test in TESTS}, names))


def on(plan: Peers, device: str) -> Peers:
    """Return the plan on a device."""
    return replace(plan, device=Device(device))


PEERS_QUICK = Peers(
    QUICK,
    gan=GanSettings(steps=60, rate=1e-3),
    attack_steps=30,
)

PEERS: Experiment[Peers] = Experiment(
    name="table1",
    description="The peers' tests, into the results file of Table 1.",
    full=Peers(),
    quick=PEERS_QUICK,
    jobs=jobs,
    gather=gather,
    show=table1_text,
    narrow=narrow,
    on=on,
    ground=ground,
    merge=keep_rest,
    parts_of_a_whole=True,
)
