"""What generated people make known: how differently a model truly treats each, and who is treated unfairly."""

from __future__ import annotations

import torch
from torch import Tensor

from fairfox.data.dataset import Dataset
from fairfox.errors import DataError, OptionError
from fairfox.models.protocol import Model, predict


def individual_fairness_score(model: Model, data: Dataset) -> Tensor:
    """Return |f(x) - f(x')| for everyone (N,), the IFS: x' is the same person as a member of the other group.

    With more than two groups it is the largest over those that the truth holds. Where that is each other group
    (`fairfox.synthetic.graded.draw`) it is what fairness tests measure, the worst over all; where it is one of them
    (`SyntheticBias.sample`: the next class) it is another quantity.
    """
    if data.truth is None:
        raise DataError(
            "The counterfactuals of these people are not known, and the true score needs them; "
            "give generated people, such as those of SyntheticBias.sample"
        )
    here, others = predict(model, data.x), data.truth.counterfactual
    if others.ndim == 2:
        return (here - predict(model, others)).abs()
    return torch.stack([(here - predict(model, one)).abs() for one in others.unbind(1)]).amax(0)


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
