"""Several fairness tests on one model and the same people: which apply, what they cost, how far they agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fairfox.costs import Cost
from fairfox.crossfit import Readings
from fairfox.data.dataset import Protected
from fairfox.errors import OptionError, did_you_mean
from fairfox.evaluation import spearman
from fairfox.fairtests.registry import FAIR_TESTS, About, check_options

ALL = "all"  # the name of every test that applies
_FEWEST = 3  # people whom two tests must both judge to be compared


@dataclass(frozen=True)
class Comparison:
    """What each test said about everyone, what it cost, and which tests were left out and why."""

    tests: tuple[str, ...]
    scores: Tensor  # (N, T); NaN where a test cannot say
    agreement: Tensor  # (T, T) rank correlations over the people whom both judge; NaN where there is none
    costs: dict[str, Cost]  # of fitting and measuring, without the auxiliaries
    training: Cost  # of the auxiliaries, which `move` and `faux` share with the audit itself
    checks: dict[str, dict[str, float]]  # what tests say about their fits and about the model
    skipped: dict[str, str]  # why

    @classmethod
    def of(cls, readings: Readings, skipped: Mapping[str, str]) -> Comparison:
        """Return the comparison of what tests measured on the same people."""
        columns = [torch.where(m.abstained, torch.nan, m.score.cpu().double()) for m in readings.others.values()]
        scores = torch.stack(columns, dim=1)
        left_out = {**skipped, **readings.failures}
        names = tuple(readings.others)
        return cls(names, scores, agreement(scores), readings.costs, readings.training, readings.checks, left_out)


def agreement(scores: Tensor) -> Tensor:
    """Return the rank correlations (T, T) of scores (N, T) over the people for whom both are known."""
    values = scores.numpy(force=True)
    count = values.shape[1]
    out = np.full((count, count), np.nan)
    for a in range(count):
        for b in range(a, count):
            both = np.isfinite(values[:, a]) & np.isfinite(values[:, b])
            if both.sum() >= _FEWEST:
                out[a, b] = out[b, a] = spearman(values[both, a], values[both, b])
    return torch.from_numpy(out)


def applicable(
    protected: Sequence[Protected],
    *,
    gradient: bool,
    labelled: bool,
    takes_c: bool,
    graph: bool,
    compared: bool = False,
    held: bool = False,
    explained: bool = False,
) -> tuple[list[str], dict[str, str]]:
    """Return the tests that apply to a model and its people, and for every other why it does not.

    `/a` changes no order of people within one model and is left out.

    Args:
        protected: the protected variables.
        gradient: autograd sees through the model.
        labelled: the true outcomes are known.
        takes_c: the model takes a protected column.
        graph: a graph of causes is given.
        compared: a reference group is given, so that tests must compare groups.
        held: the other protected variables are held as they are.
        explained: legitimate columns are named, which stay with what they explain.
    """
    numbers = [p.name for p in protected if p.is_continuous]
    tests, skipped = [], {}
    for name, what in FAIR_TESTS.items():
        if name.endswith("/a"):
            continue
        why = _obstacle(what, numbers, gradient=gradient, labelled=labelled, takes_c=takes_c, graph=graph)
        if why is None and compared and not what.compares:
            why = "it compares with no other group, and a reference group is given"
        if why is None and held and not what.holds:
            why = "it cannot hold the other protected variables as they are"
        if why is None and explained and not what.explains:
            why = "it takes no legitimate columns"
        if why is None:
            tests.append(name)
        else:
            skipped[name] = why
    return tests, skipped


def _obstacle(
    what: About, numbers: Sequence[str], *, gradient: bool, labelled: bool, takes_c: bool, graph: bool
) -> str | None:
    if what.needs_truth:
        return "only generated people have the truth it needs"
    if what.needs_gradient and not gradient:
        return "autograd does not see through the model"
    if what.needs_label and not labelled:
        return "no column of true outcomes is named (label, --label)"
    if what.needs_input and not takes_c:
        return "the model does not take a protected column"
    if what.needs_graph and not graph:
        return "no graph of causes is given (options, --graph)"
    if what.only_groups and numbers:
        return f"it compares groups, and '{numbers[0]}' is a number"
    return None


def options_by_test(given: Mapping[str, object] | None) -> dict[str, dict[str, object]]:
    """Return the settings of each of several tests, given as "fliptest.steps"; the graph is counterfactual's."""
    out: dict[str, dict[str, object]] = {}
    for key, value in (given or {}).items():
        name, _, setting = ("counterfactual", "", key) if key == "graph" else key.rpartition(".")
        if name not in FAIR_TESTS or name.endswith("/a"):
            raise OptionError(
                f"The setting '{key}' belongs to no test that is compared; name the test too, as in fliptest.steps."
                f"{did_you_mean(name, [n for n in FAIR_TESTS if not n.endswith('/a')]) if name else ''}"
            )
        out.setdefault(name, {})[setting] = value
    for name, own in out.items():
        check_options(name, own)
    return out


def check_used(options: Mapping[str, object], skipped: Mapping[str, str]) -> None:
    """Refuse settings of a test that is not run."""
    for name in options:
        if name in skipped:
            raise OptionError(f"There are settings of {name}, which is not run: {skipped[name]}; leave them out")
