"""What generated people make known: how differently a model truly treats each, and who is treated unfairly."""

from __future__ import annotations

from torch import Tensor

from fairfox.data.dataset import Dataset
from fairfox.errors import DataError, OptionError
from fairfox.models.protocol import Model, predict


def individual_fairness_score(model: Model, data: Dataset) -> Tensor:
    """Return |f(x) - f(x')| for everyone (N,), the IFS: x' is the same person as a member of the other group.

    With more than two groups x' is the one that the truth holds (`SyntheticBias.sample`: the next class). Fairness
    tests then give the worst over all other groups, which is another quantity.
    """
    if data.truth is None:
        raise DataError(
            "The counterfactuals of these people are not known, and the true score needs them; "
            "give generated people, such as those of SyntheticBias.sample"
        )
    return (predict(model, data.x) - predict(model, data.truth.counterfactual)).abs()


def unbiased_spread(model: Model, data: Dataset) -> float:
    """Return the standard deviation of the true score: from a model trained at bias 0, the threshold of the labels.

    Such a model had no reason to use the protected variable; what it does differently all the same is noise.
    """
    return float(individual_fairness_score(model, data).double().std(correction=0))


def biased_labels(ifs: Tensor, threshold: float) -> Tensor:
    """Return who is treated unfairly (N,) bool: everyone whose true score is above the threshold."""
    if not threshold >= 0:
        raise OptionError(f"The threshold is {threshold}; expected a number from 0 upwards")
    return ifs > threshold
