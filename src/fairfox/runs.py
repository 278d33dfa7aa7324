"""The runs of an audit: its tests on everyone of a case, and again where the protected values are shuffled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from fairfox.case import Case
from fairfox.comparison import applicable, check_used
from fairfox.crossfit import Progress, Readings, cross_fit
from fairfox.errors import OptionError
from fairfox.verdicts.nulls import Null, shuffled


def other_tests(case: Case) -> tuple[list[str], dict[str, str]]:
    """Return the tests to run beside the main one, and why each of the rest is not."""
    q, data = case.question, case.data
    if not q.several:
        return [], {}
    others, skipped = applicable(
        data.protected,
        gradient=case.target.differentiable,
        labelled=data.y is not None,
        takes_c=bool(data.withheld.any()),
        graph="graph" in (q.options or {}),
        compared=bool(q.reference_group),
        held=q.hold_others,
        explained=bool(q.legitimate),
    )
    check_used(q.options_by_test, skipped)
    return others, skipped


def run_tests(case: Case, others: Sequence[str], progress: Progress) -> Readings:
    """Return what the main test and others read off everyone, cross-fitted or learnt from the reference."""
    q = case.question
    return cross_fit(
        case.target,
        case.data,
        case.known,
        case.predictions,
        q.main,
        others=others,
        options=q.options_by_test,
        hold_others=q.hold_others,
        legitimate=q.legitimate_names,
        refits=q.refits,
        folds=q.folds,
        seed=q.seed,
        batch_size=q.batch_size,
        progress=progress,
    )


def run_shuffled(case: Case, progress: Progress) -> Null | None:
    """Return what is found where the protected values are shuffled, as often as asked for; None where nobody asked."""
    q = case.question
    if not q.null:
        return None
    if bool(case.data.withheld.any()):
        raise OptionError(
            "Shuffled protected values say nothing about a model that takes the protected column itself; leave null "
            "(--null) out"
        )
    scores, shares = [], []
    for number in range(q.null):
        seed = q.seed + 1000 + number
        known = None if case.known is None else replace(case.known, c=shuffled(case.known.c, seed))
        other = replace(case, data=replace(case.data, c=shuffled(case.data.c, seed)), known=known)
        found = run_tests(other, [], lambda text, done: progress(f"shuffled: {text}", 0.9))
        scores.append(torch.where(found.main.abstained, torch.nan, found.main.score))
        shares.append(torch.tensor([share.value for share in found.alignment], dtype=torch.float64))
    return Null(torch.stack(scores), torch.stack(shares))
