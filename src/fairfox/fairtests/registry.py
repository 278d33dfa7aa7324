"""The names of the fairness tests, what each number means, and how each test is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields
from math import isfinite
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from fairfox.errors import OptionError, did_you_mean

if TYPE_CHECKING:  # the command line lists the tests without importing torch
    from fairfox.auxiliary.model import Auxiliary
    from fairfox.fairtests.protocol import MeasuringTest
    from fairfox.maps.protocol import CounterfactualMap

_Made = TypeVar("_Made")
_KEPT = ("hold_others", "legitimate")
_OWN = ("variable", "only", *_KEPT, "auxiliary", "seed", "refits", "batch_size", "progress")  # not to be set


@dataclass(frozen=True)
class About:
    """What a test's number means, in what unit, and which delta is used unless told."""

    meaning: str
    unit: str
    delta: float
    of_prediction: bool = True  # delta is a share of the prediction's range: 0.05 is 5 points of a probability
    needs_truth: bool = False  # only generated people have what it needs
    needs_gradient: bool = False  # only for models that autograd sees through
    needs_label: bool = False  # only where the true outcomes are known
    needs_input: bool = False  # only for models that take the protected column itself
    needs_graph: bool = False  # only with a graph of columns
    only_groups: bool = False  # compares classes, and takes no protected number
    compares: bool = True  # with people of another group
    holds: bool = True  # can hold the other protected variables as they are
    explains: bool = False  # can leave legitimate columns, and what they explain, as they are


_RANK = "How the prediction would change if each feature had about the value of the same rank in another group."
_MOVE = "How the prediction would change if the person were moved along what sets the groups apart."
_DIRECT = "How the prediction would change under the smallest edit of the features that changes the inferred group."
_FAUX = "How fast the prediction changes per unit of the inferred protected variable's log-odds."
_NG = "How well the prediction's gradient points along the protected variable's gradient, 0 to 1."
_IG = "How well the prediction's integrated gradients point along the protected variable's, 0 to 1."
_FLIP = "How the prediction would change if a generator trained against a critic took the person to another group."
_TRANSPORT = (
    "How the prediction would change if the person became the one of another group that transport pairs them with."
)
_GRAPH = "How the prediction would change in another group, all else following from the given graph of causes."
_SPREAD = " Moves are measured in the data's own spread (covariance)."
_SHARE = " Times the model's alignment share, to compare people across models."
EFFECT = "change of the prediction"  # the unit of effects
UNFITTED = ("fta", "unawareness")  # tests that learn nothing, so that no fit can be off
_SLOPE, _COSINE = (
    "prediction per unit of log-odds, or per standard deviation of a number",
    "cosine",
)

FAIR_TESTS: dict[str, About] = {
    "rank": About(_RANK, EFFECT, 0.05, explains=True),
    "rank/a": About(_RANK + _SHARE, EFFECT + " x alignment share", 0.01, explains=True),
    "move": About(_MOVE, EFFECT, 0.05, explains=True),
    "move/a": About(_MOVE + _SHARE, EFFECT + " x alignment share", 0.01, explains=True),
    "move-direct": About(_DIRECT, EFFECT, 0.05, explains=True),
    "move-direct/a": About(_DIRECT + _SHARE, EFFECT + " x alignment share", 0.01, explains=True),
    "faux": About(_FAUX, _SLOPE, 0.05),
    "faux/s": About(_FAUX + _SPREAD, _SLOPE, 0.05),
    "faux+ng": About(_NG, _COSINE, 0.5, of_prediction=False, holds=False),
    "faux+ng/s": About(_NG + _SPREAD, _COSINE, 0.5, of_prediction=False, holds=False),
    "faux+ig": About(_IG, _COSINE, 0.5, of_prediction=False, holds=False, needs_gradient=True),
    "faux+ig/s": About(_IG + _SPREAD, _COSINE, 0.5, of_prediction=False, holds=False, needs_gradient=True),
    "fta": About(
        "The largest change that a small move of the features in any direction can make.",
        "prediction per standard deviation",
        0.25,
        compares=False,
        holds=False,
    ),
    "fta+linear": About(
        "The largest change that a small move along a linear model of the protected variable can make.",
        "prediction per standard deviation",
        0.1,
        compares=False,
        holds=False,
    ),
    "fliptest": About(_FLIP, EFFECT, 0.05, only_groups=True, holds=False),
    "fliptest/a": About(_FLIP + _SHARE, EFFECT + " x alignment share", 0.01, only_groups=True, holds=False),
    "transport": About(_TRANSPORT, EFFECT, 0.05, only_groups=True, holds=False),
    "transport/a": About(_TRANSPORT + _SHARE, EFFECT + " x alignment share", 0.01, only_groups=True, holds=False),
    "counterfactual": About(_GRAPH, EFFECT, 0.05, needs_graph=True),
    "counterfactual/a": About(_GRAPH + _SHARE, EFFECT + " x alignment share", 0.01, needs_graph=True),
    "unfair_map": About(
        "How many times larger the person's loss becomes under an attack along the protected directions; 1 is fair.",
        "loss after the attack over loss before",
        1.25,
        of_prediction=False,
        needs_gradient=True,
        needs_label=True,
        compares=False,
        holds=False,
    ),
    "unawareness": About(
        "How the prediction changes when the protected column alone is changed.",
        EFFECT,
        0.05,
        needs_input=True,
        explains=True,
    ),
    "lic": About(
        "How fast the prediction changes as the protected variable truly changes; for generated people only.",
        "prediction per unit of the protected variable",
        0.05,
        needs_truth=True,
    ),
}


_FTA_SEARCHED = About(
    "The largest change of the prediction that was found while the features move by at most epsilon.",
    "largest change of the prediction found",
    0.05,
    compares=False,
    holds=False,
    needs_gradient=True,
)


def about(name: str, options: Mapping[str, object] | None = None) -> About:
    """Return what a test's number means, with these settings, or say which tests there are."""
    if name not in FAIR_TESTS:
        raise OptionError(f"There is no fairness test '{name}'.{did_you_mean(name, list(FAIR_TESTS))}")
    if name == "fta" and isinstance(options, Mapping) and options.get("epsilon") is not None:
        return _FTA_SEARCHED
    return FAIR_TESTS[name]


def check_auditable(name: str) -> None:
    """Refuse to audit a table of people with a test that needs their truth."""
    if about(name).needs_truth:
        raise OptionError(
            f"{name} needs each person's true counterfactual, which only generated data has; "
            "use rank to audit a table of people"
        )


def check_direction(name: str) -> None:
    """Refuse a reference group with a test that compares with no group."""
    if not about(name).compares:
        raise OptionError(f"{name} compares with no other group; use rank, move or faux with a reference group")


def check_holding(name: str) -> None:
    """Refuse to hold other protected variables still with a test that cannot."""
    if not about(name).holds:
        raise OptionError(
            f"{name} cannot hold the other protected variables as they are; use rank, move or faux for it"
        )


def check_legitimate(name: str) -> None:
    """Refuse legitimate columns with a test that cannot leave what they explain as it is."""
    if about(name).needs_graph:
        raise OptionError(
            f"{name} takes no legitimate columns: the graph says what acts on what; leave out the arrows into them, or "
            "use rank or move"
        )
    if not about(name).explains:
        raise OptionError(f"{name} takes no legitimate columns; use rank, move or move-direct for them (--legitimate)")


def check_options(name: str, options: Mapping[str, object] | None) -> None:
    """Refuse settings that a test does not have, before any work is done."""
    if options is not None and not isinstance(options, Mapping):
        raise OptionError(f"options is {options!r}; expected settings by name, such as {{'steps': 100}}")
    graph = (options or {}).get("graph")
    if graph is not None and not about(name).needs_graph:
        raise OptionError(f"A graph of causes is for counterfactual, and the test is {name}; leave it out (--graph)")
    if graph is not None:
        from fairfox.maps.arrows import Graph, read_graph

        if not isinstance(graph, Graph | Mapping | str | Path):
            raise OptionError(
                f"The graph is {graph!r}; expected the parents of each column, or a TOML file (--graph FILE)"
            )
        read_graph(graph)
    make_test(name, options=options)


def make_test(
    name: str,
    *,
    auxiliary: Auxiliary | None = None,
    hold_others: bool = False,
    legitimate: Sequence[str] = (),
    refits: int = 5,
    seed: int = 0,
    batch_size: int = 4096,
    options: Mapping[str, object] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> MeasuringTest:
    """Return an unfitted fairness test by its name.

    Args:
        name: one of `FAIR_TESTS`.
        auxiliary: the one to use instead of training an own `AuxiliaryModel`.
        hold_others: change each protected variable while the others stay as they are (`faux`, `lic`,
            `counterfactual` and `unawareness` do so always).
        legitimate: features that stay as they are, and with them what they explain of the others (`rank` and `move`;
            `unawareness` leaves all features anyway).
        refits: how many times auxiliaries and maps are fitted.
        seed: same seed, same machine, same numbers.
        batch_size: rows per block.
        options: settings of this test, under the names that its class or its map has them:
            {"epsilon": 0.5} for fta, {"graph": {"income": ["sex"]}} for counterfactual.
        progress: called with how much of a long training is done, and of how much.
    """
    about(name)
    if hold_others:
        check_holding(name)
    if legitimate:
        check_legitimate(name)
    if about(name).needs_graph and "graph" not in (options or {}):
        raise OptionError(
            f"{name} needs the graph of what causes what; give it as options={{'graph': {{...}}}} or with --graph FILE"
        )
    from fairfox.auxiliary.linear import LinearAuxiliary
    from fairfox.auxiliary.model import AuxiliaryModel
    from fairfox.fairtests.effect import Effect
    from fairfox.fairtests.faux import FAux
    from fairfox.fairtests.fta import FTA, FTALinear
    from fairfox.fairtests.lic import LIC
    from fairfox.fairtests.unawareness import Unawareness
    from fairfox.fairtests.unfair_map import UnfairMap
    from fairfox.maps.gan import GanMap

    given = options or {}
    aux = auxiliary if auxiliary is not None else AuxiliaryModel(refits=refits, seed=seed)
    linear = LinearAuxiliary(refits=refits, seed=seed)
    base, _, variant = name.partition("/")
    if base == "lic":
        return _made(LIC, name, given, batch_size=batch_size)
    if base == "fta":
        return _made(FTA, name, given, seed=seed, batch_size=batch_size)
    if base == "fta+linear":
        return _made(FTALinear, name, given, auxiliary=linear, batch_size=batch_size)
    if base == "unfair_map":
        return _made(UnfairMap, name, given, auxiliary=linear, batch_size=batch_size)
    if base == "unawareness":
        return _made(Unawareness, name, given, seed=seed, batch_size=batch_size)
    if base.startswith("faux"):
        own = {"normalise": base != "faux", "integrated": base == "faux+ig"}
        metric = "covariance" if variant == "s" else "identity"
        return _made(FAux, name, given, auxiliary=aux, metric=metric, batch_size=batch_size, **own)
    if base == "fliptest":
        chosen: CounterfactualMap = _made(GanMap, base, given, seed=seed, progress=progress)
    else:
        kept = {"hold_others": hold_others, "legitimate": tuple(legitimate)}
        chosen = _made_map(base, given, aux, kept, seed=seed, batch_size=batch_size)
    return Effect(map=chosen, refits=refits, aligned=variant == "a", auxiliary=aux, seed=seed, batch_size=batch_size)


def _made_map(
    base: str,
    given: Mapping[str, object],
    auxiliary: Auxiliary,
    kept: Mapping[str, Any],
    *,
    seed: int,
    batch_size: int,
) -> CounterfactualMap:
    from fairfox.maps.graph import GraphMap
    from fairfox.maps.move import MoveMap
    from fairfox.maps.rank import RankMap
    from fairfox.maps.transport import TransportMap

    if base == "rank":
        return _made(RankMap, base, given, **kept)
    if base == "transport":
        return _made(TransportMap, base, given, seed=seed)
    if base == "counterfactual":
        return _made(GraphMap, base, given, seed=seed)
    metric = "identity" if base == "move-direct" else "between"
    return _made(MoveMap, base, given, auxiliary=auxiliary, metric=metric, batch_size=batch_size, **kept)


def _made(kind: type[_Made], name: str, given: Mapping[str, object], **own: Any) -> _Made:
    """Return a test or map with its own settings and the given ones, after a look at these."""
    settable = {f.name: f for f in fields(kind) if f.init and f.name not in (*_OWN, *own)}  # type: ignore[arg-type]
    for option, value in given.items():
        if option not in settable:
            has = f"has the settings {', '.join(settable)}" if settable else "has no settings"
            raise OptionError(f"{name} {has}, and not '{option}'.{did_you_mean(option, list(settable))}")
        _check_kind(name, settable[option], value)
    return kind(**own, **given)


def _check_kind(name: str, setting: Field[Any], value: object) -> None:
    """Refuse a value of another kind than the default."""
    usual = None if setting.default is MISSING else setting.default
    kinds: tuple[tuple[type, type, str], ...] = (
        (bool, bool, "true or false"),
        (int, Integral, "a whole number"),
        (float, Real, "a number"),
    )
    for kind, wanted, words in kinds:
        if type(usual) is kind:
            if not isinstance(value, wanted) or (isinstance(value, bool) and kind is not bool):
                raise OptionError(f"{setting.name} of {name} is {value!r}; expected {words}")
            if kind is float and setting.name != "order" and not isfinite(float(value)):  # type: ignore[arg-type]
                raise OptionError(f"{setting.name} of {name} is {value!r}; expected a finite number")
            return
