"""The names of the fairness tests, what each number means, and how each test is made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fairfox.errors import OptionError, did_you_mean

if TYPE_CHECKING:  # the command line lists the tests without importing torch
    from fairfox.auxiliary.model import Auxiliary
    from fairfox.fairtests.protocol import MeasuringTest
    from fairfox.maps.protocol import CounterfactualMap


@dataclass(frozen=True)
class About:
    """What a test's number means, in what unit, and which delta is used unless told."""

    meaning: str
    unit: str
    delta: float
    of_prediction: bool = True  # delta is a share of the prediction's range: 0.05 is 5 points of a probability
    needs_truth: bool = False  # only generated people have what it needs


_RANK = "How the prediction would change if each feature had the value of the same rank in another group."
_MOVE = "How the prediction would change if the person were moved along what sets the groups apart."
_DIRECT = "How the prediction would change under the smallest edit of the features that changes the inferred group."
_FAUX = "How fast the prediction changes per unit of the inferred protected variable's log-odds."
_NG = "How well the prediction's gradient points along the protected variable's gradient, 0 to 1."
_IG = "How well the prediction's integrated gradients point along the protected variable's, 0 to 1."
_SPREAD = " Moves are measured in the data's own spread (covariance)."
_SHARE = " Times the model's alignment share, to compare people across models."
_PREDICTION, _SLOPE, _COSINE = (
    "change of the prediction",
    "prediction per unit of log-odds, or per standard deviation of a number",
    "cosine",
)

FAIR_TESTS: dict[str, About] = {
    "rank": About(_RANK, _PREDICTION, 0.05),
    "rank/a": About(_RANK + _SHARE, _PREDICTION + " x alignment share", 0.01),
    "move": About(_MOVE, _PREDICTION, 0.05),
    "move/a": About(_MOVE + _SHARE, _PREDICTION + " x alignment share", 0.01),
    "move-direct": About(_DIRECT, _PREDICTION, 0.05),
    "move-direct/a": About(_DIRECT + _SHARE, _PREDICTION + " x alignment share", 0.01),
    "faux": About(_FAUX, _SLOPE, 0.05),
    "faux/s": About(_FAUX + _SPREAD, _SLOPE, 0.05),
    "faux+ng": About(_NG, _COSINE, 0.5, of_prediction=False),
    "faux+ng/s": About(_NG + _SPREAD, _COSINE, 0.5, of_prediction=False),
    "faux+ig": About(_IG, _COSINE, 0.5, of_prediction=False),
    "faux+ig/s": About(_IG + _SPREAD, _COSINE, 0.5, of_prediction=False),
    "fta": About(
        "The largest change that a small move of the features in any direction can make.",
        "prediction per standard deviation",
        0.25,
    ),
    "fta+linear": About(
        "The largest change that a small move along a linear model of the protected variable can make.",
        "prediction per standard deviation",
        0.1,
    ),
    "lic": About(
        "How fast the prediction changes as the protected variable truly changes; for generated people only.",
        "prediction per unit of the protected variable",
        0.05,
        needs_truth=True,
    ),
}


def about(name: str) -> About:
    """Return what a test's number means, or say which tests there are."""
    if name not in FAIR_TESTS:
        raise OptionError(f"There is no fairness test '{name}'.{did_you_mean(name, list(FAIR_TESTS))}")
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
    if name.partition("/")[0] in ("fta", "fta+linear"):
        raise OptionError(f"{name} compares with no other group; use rank, move or faux with a reference group")


def check_holding(name: str) -> None:
    """Refuse to hold other protected variables still with a test that cannot."""
    if name.partition("/")[0] in ("faux+ng", "faux+ig", "fta", "fta+linear"):
        raise OptionError(
            f"{name} cannot hold the other protected variables as they are; use rank, move or faux for it"
        )


def make_test(
    name: str,
    *,
    auxiliary: Auxiliary | None = None,
    hold_others: bool = False,
    refits: int = 5,
    seed: int = 0,
    batch_size: int = 4096,
) -> MeasuringTest:
    """Return an unfitted fairness test by its name.

    `auxiliary` is the one to use instead of training an own `AuxiliaryModel`. With `hold_others` each protected
    variable is changed while the others stay as they are (`faux` and `lic` do so always).
    """
    about(name)
    if hold_others:
        check_holding(name)
    from fairfox.auxiliary.linear import LinearAuxiliary
    from fairfox.auxiliary.model import AuxiliaryModel
    from fairfox.fairtests.effect import Effect
    from fairfox.fairtests.faux import FAux
    from fairfox.fairtests.fta import FTA, FTALinear
    from fairfox.fairtests.lic import LIC
    from fairfox.maps.move import MoveMap
    from fairfox.maps.rank import RankMap

    aux = auxiliary if auxiliary is not None else AuxiliaryModel(refits=refits, seed=seed)
    base, _, variant = name.partition("/")
    if base == "lic":
        return LIC(batch_size=batch_size)
    if base == "fta":
        return FTA(batch_size=batch_size)
    if base == "fta+linear":
        return FTALinear(auxiliary=LinearAuxiliary(refits=refits, seed=seed), batch_size=batch_size)
    if base.startswith("faux"):
        return FAux(
            auxiliary=aux,
            normalise=base != "faux",
            integrated=base == "faux+ig",
            metric="covariance" if variant == "s" else "identity",
            batch_size=batch_size,
        )
    chosen: CounterfactualMap = RankMap(hold_others=hold_others)
    if base != "rank":
        chosen = MoveMap(
            metric="identity" if base == "move-direct" else "between",
            auxiliary=aux,
            hold_others=hold_others,
            batch_size=batch_size,
        )
    return Effect(map=chosen, refits=refits, aligned=variant == "a", auxiliary=aux, seed=seed, batch_size=batch_size)
