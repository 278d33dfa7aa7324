"""The plain table of fairness tests: what each measures, in what unit, what it needs, and its default delta.

`fairfox.fairtests.registry` maps the names to classes. Nothing heavy is imported.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from fairfox.errors import OptionError, did_you_mean

ALL = "all"  # the name of every test that applies
TOTAL, DIRECT = "rank", "move-direct"  # readings beside the test: every audit has the first
SAMPLED = 2_000  # people whose effect at the same outcome is measured, which is told as a mean
EFFECT = "change of the prediction"  # the unit of effects
UNFITTED = ("fta", "unawareness")  # tests that learn nothing, so that no fit can be off


@dataclass(frozen=True)
class TestInfo:
    """What a fairness test measures, in what unit, what it needs, and the delta that is used unless one is given."""

    __test__ = False  # pytest would take the name for a test's

    meaning: str
    unit: str
    delta: float
    base: str = ""  # the name without a variant
    aligned: bool = False  # the variant /a: times the model's alignment share
    by_covariance: bool = False  # the variant /s: moves are measured in the data's own spread
    of_prediction: bool = True  # delta is a share of the prediction's range: 0.05 is 5 points of a probability
    trained: bool = False  # networks are trained, whose refits may disagree
    slow: bool = False  # takes minutes, so that it is run where it is named
    needs_truth: bool = False  # only generated people have what it needs
    needs_gradient: bool = False  # only for models that autograd sees through
    needs_label: bool = False  # only where the true outcomes are known
    needs_input: bool = False  # only for models that take the protected column itself
    needs_graph: bool = False  # only with a graph of columns
    only_groups: bool = False  # compares classes, and takes no protected number
    compares: bool = True  # with people of another group
    holds: bool = True  # can hold the other protected variables equal
    gives: bool = False  # can hold given columns equal, and what they explain


_SLOPE = "prediction per unit of log-odds, or per standard deviation of a number"
_TESTS = {
    "rank": TestInfo(
        "How the prediction would change if each feature had the value of the same rank in another group.",
        EFFECT, 0.05, gives=True,
    ),
    "move": TestInfo(
        "How the prediction would change if the person moved along the direction that separates the groups.",
        EFFECT, 0.05, trained=True,
    ),
    "move-direct": TestInfo(
        "How the prediction would change under the smallest edit of the features that changes the inferred group.",
        EFFECT, 0.05, trained=True,
    ),
    "faux": TestInfo(
        "How fast the prediction changes per unit of the inferred protected variable's log-odds.",
        _SLOPE, 0.05, trained=True,
    ),
    "faux+ng": TestInfo(
        "How well the prediction's gradient points along the protected variable's gradient, 0 to 1.",
        "cosine", 0.5, of_prediction=False, holds=False, trained=True,
    ),
    "faux+ig": TestInfo(
        "How well the prediction's integrated gradients point along the protected variable's, 0 to 1.",
        "cosine", 0.5, of_prediction=False, holds=False, needs_gradient=True, trained=True,
    ),
    "fta": TestInfo(
        "The largest change of the prediction from a small step of the features in any direction.",
        "prediction per standard deviation", 0.25, compares=False, holds=False,
    ),
    "fta+linear": TestInfo(
        "The largest change of the prediction from a small step along a linear model of the protected variable.",
        "prediction per standard deviation", 0.1, compares=False, holds=False,
    ),
    "fliptest": TestInfo(
        "How the prediction would change if a GAN mapped the person to another group.",
        EFFECT, 0.05, only_groups=True, holds=False, trained=True, slow=True,
    ),
    "transport": TestInfo(
        "How the prediction would change for the person in another group that optimal transport pairs them with.",
        EFFECT, 0.05, only_groups=True, holds=False,
    ),
    "counterfactual": TestInfo(
        "How the prediction would change in another group, with all effects that follow from the causal graph.",
        EFFECT, 0.05, needs_graph=True,
    ),
    "unfair_map": TestInfo(
        "How many times larger the loss becomes under an attack along the protected directions; 1 is fair.",
        "loss after the attack over loss before", 1.25,
        of_prediction=False, needs_gradient=True, needs_label=True, compares=False, holds=False,
    ),
    "unawareness": TestInfo(
        "How the prediction changes when the protected column alone is changed.",
        EFFECT, 0.05, needs_input=True, gives=True,
    ),
    "lic": TestInfo(
        "How fast the prediction changes as the protected variable truly changes; for generated people only.",
        "prediction per unit of the protected variable", 0.05, needs_truth=True,
    ),
}  # fmt: skip
_MAPS = ("rank", "move", "move-direct", "fliptest", "transport", "counterfactual")  # have a variant /a
_GRADIENTS = ("faux", "faux+ng", "faux+ig")  # have a variant /s
_FTA_SEARCHED = TestInfo(
    "The largest change of the prediction found while the features change by at most epsilon.",
    "largest change of the prediction found", 0.05, base="fta", compares=False, holds=False, needs_gradient=True,
)  # fmt: skip


def _with_variants() -> dict[str, TestInfo]:
    out = {}
    for name, info in _TESTS.items():
        out[name] = replace(info, base=name)
        if name in _MAPS:
            meaning = f"{info.meaning} Times the model's alignment share, to compare people across models."
            unit = f"{info.unit} x alignment share"
            out[f"{name}/a"] = replace(info, base=name, aligned=True, meaning=meaning, unit=unit, delta=0.01)
        if name in _GRADIENTS:
            meaning = f"{info.meaning} Moves are measured in the data's own spread (covariance)."
            out[f"{name}/s"] = replace(info, base=name, by_covariance=True, meaning=meaning)
    return out


FAIR_TESTS: dict[str, TestInfo] = _with_variants()


def lookup_test(name: str, settings: Mapping[str, object] | None = None) -> TestInfo:
    """Return what a test measures with these settings, or say which tests there are."""
    if name not in FAIR_TESTS:
        raise OptionError(f"There is no fairness test '{name}'.{did_you_mean(name, list(FAIR_TESTS))}")
    if name == "fta" and isinstance(settings, Mapping) and settings.get("epsilon") is not None:
        return _FTA_SEARCHED
    return FAIR_TESTS[name]
