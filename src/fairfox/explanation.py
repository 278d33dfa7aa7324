"""The explanation of an audit: through which features an effect goes, which move, and which give c away."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fairfox.case import Case
from fairfox.crossfit import Readings
from fairfox.data.contrasts import LOWER
from fairfox.data.dataset import Protected
from fairfox.explain import effect_by_feature
from fairfox.fairtests.protocol import Measurement
from fairfox.flips import transparency
from fairfox.result import FeatureEffect

_EXPLAINED = 100  # people whom a black box is asked about feature by feature, drawn at random
_WORST = 20  # and the people with the highest scores


def effect_through_features(case: Case, runs: Readings) -> FeatureEffect | None:
    """Return contributions of features to the map's effect: of everyone, or of a sample for a black box."""
    q, target, data, main = case.question, case.target, case.data, runs.main
    own = main.counterfactuals is not None
    mapped = main.counterfactuals if own else runs.total.counterfactuals
    if mapped is None:
        return None
    drawn, asked = _sample(case, main)
    judged = ~(main if own else runs.total).abstained.cpu()
    rows = (asked & judged).nonzero()[:, 0]
    each = effect_by_feature(target, data.x[rows], mapped[:, rows], data.features, seed=q.seed, batch_size=q.batch_size)
    per_person = each.new_full((len(data), len(data.features)), torch.nan)
    if q.main.endswith("/a"):
        each = each * torch.tensor([share.value for share in runs.alignment]).to(each)[main.variable[rows], None]
    per_person[rows] = each * _directions(main if own else runs.total, data.protected)[rows, None].to(each)
    method = "integrated gradients" if target.differentiable else "sampled Shapley values"
    return FeatureEffect(tuple(f.name for f in data.features), per_person, method, drawn)


def _sample(case: Case, main: Measurement) -> tuple[Tensor, Tensor]:
    """Return who is drawn to speak for everyone (N,), and who is explained: they and the people with high scores.

    Everyone, where the model has gradients or the people are few.
    """
    count = len(case.data)
    everyone = torch.ones(count, dtype=torch.bool)
    if case.target.differentiable or count <= _EXPLAINED:
        return everyone, everyone
    order = torch.randperm(count, generator=torch.Generator().manual_seed(case.question.seed))
    drawn = torch.zeros(count, dtype=torch.bool)
    drawn[order[:_EXPLAINED]] = True
    asked = drawn.clone()
    asked[main.score.cpu().argsort(descending=True)[:_WORST]] = True
    return drawn, asked


def _directions(measured: Measurement, protected: Sequence[Protected]) -> Tensor:
    """Return -1 for people whose number went down (N,), since signed values always point up, else +1."""
    down = [protected[c.variable].is_continuous and c.towards == LOWER for c in measured.contrasts]
    return torch.where(torch.tensor(down), -1.0, 1.0)[measured.worst.cpu()]


def displacement(runs: Readings, mapped: Tensor | None) -> dict[str, float]:
    """Return how far each feature of the first class's people moves on average when they are mapped, largest first.

    Of the first protected variable, where it is a class: who is judged, and mapped because of it.
    """
    people, measured = runs.people, runs.total if runs.main.counterfactuals is None else runs.main
    among = (people.c[:, 0].cpu() == 0) & ~measured.abstained.cpu() & (measured.variable.cpu() == 0)
    if mapped is None or people.protected[0].is_continuous or not bool(among.any()):
        return {}
    strength = transparency(people, mapped.to(people.x), among=among.to(people.x.device)).strength.tolist()
    named = zip([f.name for f in people.features], strength, strict=True)
    return dict(sorted(named, key=lambda pair: -pair[1]))


def strongest_proxies(proxies: Sequence[dict[str, float]]) -> dict[str, float]:
    """Return how strongly each feature gives any of the protected variables away, largest first."""
    strongest = {name: max(proxy[name] for proxy in proxies) for name in proxies[0]}
    return dict(sorted(strongest.items(), key=lambda pair: -pair[1]))
