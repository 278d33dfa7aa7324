"""Fairness tests by name, and which of them apply to a model and its people."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, fields
from math import isfinite
from numbers import Integral, Real
from typing import Any, cast

from fairfox.auxiliary.linear import LinearAuxiliary
from fairfox.auxiliary.model import Auxiliary, AuxiliaryModel
from fairfox.choices.tests import FAIR_TESTS, TestInfo, lookup_test
from fairfox.data.dataset import Dataset
from fairfox.errors import OptionError, did_you_mean
from fairfox.fairtests.effect import Effect
from fairfox.fairtests.faux import LIC, FAux
from fairfox.fairtests.fta import FTA, FTALinear
from fairfox.fairtests.protocol import MeasuringTest
from fairfox.fairtests.unawareness import Unawareness
from fairfox.fairtests.unfair_map import UnfairMap
from fairfox.maps.gan import GanMap
from fairfox.maps.graph import GraphMap, read_graph
from fairfox.maps.move import MoveMap
from fairfox.maps.rank import RankMap
from fairfox.maps.transport import TransportMap
from fairfox.options import AuditOptions, check_given, check_holds

_OWN = ("variable", "only", "refits")  # set by the audit, not by a setting of the test


def make_test(
    name: str,
    *,
    auxiliary: Auxiliary | None = None,
    hold_others: bool = False,
    given: Sequence[str] = (),
    gate: bool | Dataset = True,
    refits: int = 5,
    seed: int = 0,
    batch_size: int = 4096,
    settings: Mapping[str, object] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> MeasuringTest:
    """Return an unfitted fairness test by its name.

    Args:
        name: one of `FAIR_TESTS`.
        auxiliary: the one to use; by default an `AuxiliaryModel` is trained.
        hold_others: change each protected variable while the others stay as they are (`faux`, `lic`,
            `counterfactual` and `unawareness` always do so).
        given: valid business reasons, columns of the model or covariates (`rank`; `unawareness` changes none).
        gate: move a feature only where the groups differ in it beyond chance (`rank`), among these people if given.
        refits: how many times auxiliaries and maps are fitted.
        seed: same seed, same machine, same numbers.
        batch_size: rows per block.
        settings: of this test, under the names of the fields of its class or its map:
            {"epsilon": 0.5} for fta, {"graph": {"income": ["sex"]}} for counterfactual.
        progress: called with how many steps of a long training are done, and of how many.
    """
    info, own = lookup_test(name), dict(settings or {})
    if hold_others:
        check_holds(name)
    if given:
        check_given(name)
    if info.needs_graph and "graph" not in own:
        raise OptionError(
            f"{name} needs the causal graph; give it as settings={{'graph': {{...}}}} or with --graph FILE"
        )
    aux = auxiliary if auxiliary is not None else AuxiliaryModel(refits=refits, seed=seed)
    linear, metric = LinearAuxiliary(refits=refits, seed=seed), "covariance" if info.by_covariance else "identity"
    blocks, moved = {"batch_size": batch_size}, {"auxiliary": aux, "hold_others": hold_others, "batch_size": batch_size}
    aligned = {"auxiliary": aux, "metric": metric, **blocks}
    kinds: dict[str, tuple[type[Any], dict[str, Any]]] = {
        "rank": (RankMap, {"hold_others": hold_others, "given": tuple(given), "gate": gate}),
        "move": (MoveMap, {"metric": "between", **moved}),
        "move-direct": (MoveMap, {"metric": "identity", **moved}),
        "transport": (TransportMap, {"seed": seed}),
        "counterfactual": (GraphMap, {"seed": seed}),
        "fliptest": (GanMap, {"seed": seed, "progress": progress}),
        "faux": (FAux, {"normalise": False, "integrated": False, **aligned}),
        "faux+ng": (FAux, {"normalise": True, "integrated": False, **aligned}),
        "faux+ig": (FAux, {"normalise": True, "integrated": True, **aligned}),
        "fta": (FTA, {"seed": seed, **blocks}),
        "fta+linear": (FTALinear, {"auxiliary": linear, **blocks}),
        "unfair_map": (UnfairMap, {"auxiliary": linear, **blocks}),
        "unawareness": (Unawareness, {"seed": seed, **blocks}),
        "lic": (LIC, blocks),
    }
    kind, fixed = kinds[info.base]
    settable = {f.name: f for f in fields(kind) if f.init and f.name not in (*_OWN, *fixed)}
    for setting, value in own.items():
        if setting not in settable:
            raise OptionError(f"{name} has no setting '{setting}'.{did_you_mean(setting, list(settable))}")
        _check_value(name, settable[setting], value)
    made = kind(**fixed, **own)
    if not hasattr(kind, "map"):
        return cast(MeasuringTest, made)
    return Effect(map=made, refits=refits, aligned=info.aligned, auxiliary=aux, seed=seed, batch_size=batch_size)


def _check_value(name: str, setting: Field[Any], value: object) -> None:
    """Refuse a value of another type than the default."""
    default = None if setting.default is MISSING else setting.default
    kinds: tuple[tuple[type, type, str], ...] = (
        (bool, bool, "true or false"),
        (int, Integral, "a whole number"),
        (float, Real, "a number"),
    )
    for kind, wanted, words in kinds:
        if type(default) is kind:
            if not isinstance(value, wanted) or (isinstance(value, bool) and kind is not bool):
                raise OptionError(f"{setting.name} of {name} is {value!r}; expected {words}")
            if kind is float and setting.name != "order" and not isfinite(float(value)):  # type: ignore[arg-type]
                raise OptionError(f"{setting.name} of {name} is {value!r}; expected a finite number")
            return


def settings_by_test(options: AuditOptions) -> dict[str, dict[str, object]]:
    """Return the settings of each test that has any; raise where a test does not have the setting.

    With several tests they are named "fliptest.steps"; the graph is counterfactual's.
    """
    if not options.runs_all:
        found = {options.info.base + ("/s" if options.info.by_covariance else ""): dict(options.settings)}
    else:
        found = {}
        for key, value in options.settings.items():
            name, _, setting = ("counterfactual", "", key) if key == "graph" else key.rpartition(".")
            if name not in FAIR_TESTS or FAIR_TESTS[name].aligned:
                known = [n for n, info in FAIR_TESTS.items() if not info.aligned]
                raise OptionError(
                    f"The setting '{key}' belongs to no test that is run; name the test too, as in "
                    f"fliptest.steps.{did_you_mean(name, known) if name else ''}"
                )
            found.setdefault(name, {})[setting] = value
    for name, settings in found.items():
        if (graph := settings.get("graph")) is not None:
            if not lookup_test(name).needs_graph:
                raise OptionError(
                    f"Only counterfactual takes a causal graph, but the test is {name}; leave it out (--graph)"
                )
            read_graph(graph)  # refuses what is none
        make_test(name, settings=settings)  # refuses settings that the test does not have
    return found


def applicable(options: AuditOptions, data: Dataset, *, gradient: bool) -> tuple[list[str], dict[str, str]]:
    """Return the tests that apply to a model and its people, and why each other test does not.

    `gradient` says whether the model is differentiable. `/a` does not change the order of people within one model and
    is left out.
    """
    tests, skipped, named = [], {}, settings_by_test(options)
    for name, info in FAIR_TESTS.items():
        if info.aligned:
            continue
        why = _obstacle(info, options, data, gradient=gradient)
        if why is None and info.slow and name not in named:
            why = f"it takes minutes; run it by its name (--test {name})"
        if why is None:
            tests.append(name)
        else:
            skipped[name] = why
    for name in named:
        if name in skipped:
            raise OptionError(f"{name} has settings but is not run: {skipped[name]}; leave them out")
    return tests, skipped


def _obstacle(info: TestInfo, options: AuditOptions, data: Dataset, *, gradient: bool) -> str | None:
    """Return why a test cannot be run; None where it can."""
    numbers = [p.name for p in data.protected if p.is_continuous]
    checks = (
        (info.needs_truth, "it needs the truth, which only generated people have"),
        (info.needs_gradient and not gradient, "the model is not differentiable"),
        (info.needs_label and data.y is None, "no column of true outcomes is named (label, --label)"),
        (info.needs_input and not bool(data.withheld.any()), "the model does not take a protected column"),
        (info.needs_graph and "graph" not in options.settings, "no causal graph is given (--graph)"),
        (info.only_groups and bool(numbers), f"it compares groups, but '{(numbers or [''])[0]}' is a number"),
        (
            not info.compares and bool(options.reference_group),
            "it does not compare with other groups, but a reference group is given",
        ),
        (not info.holds and options.hold_others, "it cannot hold the other protected variables equal"),
        (not info.gives and bool(options.given), "it takes no given columns"),
    )
    return next((why for applies, why in checks if applies), None)
