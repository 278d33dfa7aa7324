"""The methods that are compared on worlds with a known truth: each a line, from its name to how it is fitted.

A method is a fairness test or a counterfactual map. A map gives two scores: its effect under its own name and, under
the name with /a, the effect times the alignment share. Methods of one batch run in one job: a new one joins a batch of
its own, so that nothing else is done again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from scoring import Scores, known_scores
from torch import Tensor
from worlds import Ground

from fairfox.data.contrasts import destinations, moves
from fairfox.data.dataset import Dataset
from fairfox.fairtests.protocol import MeasuringTest
from fairfox.fairtests.registry import make_test
from fairfox.maps.move import MoveMap
from fairfox.maps.protocol import CounterfactualMap
from fairfox.maps.rank import RankMap
from fairfox.maps.transport import TransportMap
from fairfox.models.protocol import Model, predict

Fitted = CounterfactualMap | MeasuringTest
Factory = Callable[[Ground, int], Fitted]  # of a ground and how many people of each group transport pairs


def _registered(name: str, on: Ground, paired: int) -> MeasuringTest:
    return make_test(name, auxiliary=on.auxiliary, refits=1, seed=on.seed).fit(on.fitting)


PAPER = ("faux", "faux+ng", "faux+ig")
BATCHES: dict[str, dict[str, Factory]] = {
    "gradients": {
        **{name: partial(_registered, name) for base in PAPER for name in (base, f"{base}/s")},
        "fta": partial(_registered, "fta"),
        "fta+linear": partial(_registered, "fta+linear"),
        "lic": partial(_registered, "lic"),
    },
    "maps": {
        "rank": lambda on, paired: RankMap().fit(on.fitting),
        "move": lambda on, paired: MoveMap(auxiliary=on.auxiliary).fit(on.fitting),
        "move-direct": lambda on, paired: MoveMap(auxiliary=on.auxiliary, metric="identity").fit(on.fitting),
    },
    "transport": {"transport": lambda on, paired: TransportMap(exact_up_to=paired, seed=on.seed).fit(on.fitting)},
}
METHODS: dict[str, Factory] = {name: make for batch in BATCHES.values() for name, make in batch.items()}

KNOWS_GENERATOR = ("lic",)  # only where dx/dc is known


def scores_of(names: Sequence[str], on: Ground, paired: int) -> Scores:
    """Return the scores of methods for each target (N,), NaN where one cannot say; none of those that lack the truth.

    Every map gives a second score, times the alignment share.
    """
    assert on.people.truth is not None
    found: Scores = {}
    for name in names:
        if name in KNOWS_GENERATOR and on.people.truth.dx_dc is None:
            continue
        fitted = METHODS[name](on, paired)
        if hasattr(fitted, "measure"):
            found[name] = [known_scores(fitted.measure(model, on.people)) for model in on.models]
        else:
            found[name] = worst_effects(fitted, on.models, on.people)
            found[f"{name}/a"] = [share * each for share, each in zip(on.shares, found[name], strict=True)]
    return found


def worst_effects(one: CounterfactualMap, targets: Sequence[Model], people: Dataset) -> list[Tensor]:
    """Return the largest |f(T(x)) - f(x)| over the other groups, for each target (N,): people are mapped once."""
    here = [predict(target, people.x) for target in targets]
    worst = [torch.full_like(each, torch.nan) for each in here]
    for contrast in moves(people.protected):
        to = destinations(people, contrast)
        rows = (~to.isnan()).nonzero()[:, 0]
        part = people[rows]
        mapped = one.map(part, to[rows])
        for place, target in enumerate(targets):
            effect = (predict(target, mapped.rows) - here[place][rows]).abs()
            known = torch.where(mapped.abstained, torch.nan, effect)
            worst[place][rows] = torch.fmax(worst[place][rows], known)
    return worst
