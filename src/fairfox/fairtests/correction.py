"""A correction of any model's predictions, so that people and their counterfactual rows get nearly the same."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fairfox.auxiliary.mlp import MLP
from fairfox.auxiliary.model import infer_groups
from fairfox.data.contrasts import destinations, moves
from fairfox.data.dataset import Dataset, Protected
from fairfox.errors import OptionError
from fairfox.fairtests.effect import Effect
from fairfox.fairtests.fitted import FittedTest, measured_name
from fairfox.models.protocol import Model, TargetModel, predict, predict_once

_log = logging.getLogger("fairfox")
_TAKEN = 0.83  # share of the mean |effect| that full strength takes away, of people the network does not learn from
_CELLS, _ROWS = 20_000_000, 12  # of counterfactual rows in all, and rows for each person and contrast
_HELD_OUT = 0.2  # of the people: they show when enough of the effect is gone
_WIDTH, _BATCH, _RATE = 32, 256, 3e-3
_DECAY = 500.0  # of weights, over the number of people: fewer people need a smoother network
_FIRST, _GROWTH, _STAGES, _STEPS = 0.5, 1.25, 20, 100  # how much the effect weighs against the change, by stage
_FIRST_STEPS = 400  # fewer would lose more accuracy than they must
_HALVINGS = 12  # of the share of a correction that lesser strengths take
_NONE = 1e-6  # a smaller mean |effect| is none, in spreads of the predictions where these are no probabilities
_EDGE = 1e-3  # predictions are taken to be so far from 0 and 1 before the log-odds


@dataclass(frozen=True, kw_only=True)
class Correction:
    """How a model is repaired: its prediction is multiplied and a network of the row is added, on the log-odds scale.

    Both are learnt together, so that a person's prediction is the mean over their counterfactual rows and changes as
    little as it can. A model that treats all groups alike stays as it is.
    """

    test: FittedTest  # has the rank maps
    kept: float = 1.0  # of the prediction's log-odds
    net: nn.Sequential | None = None  # rows, and groups where they are used, to what is added; None: nothing
    scale: tuple[float, float] | None = None  # mean and spread of predictions that are no probabilities
    use_protected: bool = False
    threshold: float | None = None  # the prediction from which on the answer is yes; None: one half of a probability
    model_sha256: str | None = None  # of the model's file

    def predict(self, model: Model, data: Dataset, here: Tensor | None = None) -> Tensor:
        """Return the corrected predictions (N,) of people; `here` are the model's own, where they are known already."""
        here = predict(model, data.x, batch_size=self.test.options.batch_size) if here is None else here
        if self.net is None:
            return here
        c = data.c if self.use_protected else None
        with torch.no_grad():
            added = self.net(_inputs(data.x, c, data.protected).to(self.net[0].weight))[:, 0]  # type: ignore[arg-type]
        return _corrected(here, self.kept, added.to(here), self.scale)


@dataclass(frozen=True)
class CorrectedModel:
    """A model on encoded rows with its repair, which does not take the protected column, as a Model."""

    model: Model
    correction: Correction
    differentiable = False

    def __call__(self, x: Tensor) -> Tensor:
        """Return (N, 1) for rows x (N, D)."""
        test = self.correction.test
        c = torch.full((len(x), len(test.known.protected)), torch.nan, dtype=x.dtype, device=x.device)
        features, withheld = test.encoding.features, test.encoding.withheld
        people = Dataset(x=x, c=c, protected=test.known.protected, features=features, withheld=withheld)
        return self.correction.predict(self.model, people)[:, None]


def _inputs(x: Tensor, c: Tensor | None, protected: tuple[Protected, ...]) -> Tensor:
    """Return what the network sees (n, D or more): rows, and groups c (n, V) one-hot where they are used."""
    groups = [] if c is None else [
        (c[:, v, None] == torch.arange(len(p.levels), device=c.device)).to(x) for v, p in enumerate(protected)
    ]  # fmt: skip
    return torch.cat([x, *groups], dim=1)


def _corrected(here: Tensor, kept: Tensor | float, added: Tensor, scale: tuple[float, float] | None) -> Tensor:
    """Return corrected predictions; those with nothing added and all kept are the model's own."""
    if scale is None:
        inside = here.clamp(_EDGE, 1 - _EDGE)
        return (here + (kept * inside.logit() + added).sigmoid() - inside).clamp(0, 1)
    mean, spread = scale
    return here + (kept - 1) * (here - mean) + spread * added


class _Compared(NamedTuple):
    """People, each once for each contrast that concerns them, with their counterfactual rows."""

    own: Tensor  # (P, I) what the network sees
    there: Tensor  # (R, P, I)
    here: Tensor  # (P,) the model's predictions
    predictions: Tensor  # (R, P)
    weights: Tensor  # (P,)

    def taken(self, rows: Tensor) -> _Compared:
        return _Compared(
            self.own[rows], self.there[:, rows], self.here[rows], self.predictions[:, rows], self.weights[rows]
        )


def fit_correction(
    test: FittedTest,
    model: TargetModel,
    data: Dataset,
    *,
    strength: float = 1.0,
    use_protected: bool = False,
    only: str | None = None,
) -> Correction:
    """Return the correction of a model that takes away most of its mean |effect|, or as much of it as `strength` says.

    With `only` the effect is that of one feature. The weight of the effect grows in stages until people who are held
    out show that enough of it is gone.
    """
    check_repairable(test, strength)
    found = Correction(test=test, use_protected=use_protected)
    seed = test.options.seed
    generator = torch.Generator().manual_seed(seed)
    people = _sample(data, generator, len(moves(data.protected)))
    people, _ = infer_groups(people, test.auxiliary, test.known)
    here = predict(model, people.x, batch_size=test.options.batch_size)
    if model.unit != "probability":
        found = replace(found, scale=(float(here.mean()), float(here.std().clamp(min=1e-12))))
    compared = list(_compared(test, model, people, here, use_protected, only))
    last = torch.rand(len(people), generator=generator) < _HELD_OUT
    parts = [[each.taken(last[who] == held) for who, each in compared] for held in (False, True)]
    if not all(sum(len(each.here) for each in part) for part in parts):
        return found
    fitting, rest = (_joined(part) for part in parts)
    learner = _Learner(fitting.own.shape[1], found.scale, seed).to(fitting.own.device)
    before = learner.effect(rest)
    if strength == 0 or before <= _NONE * (1 if found.scale is None else found.scale[1]):
        return found
    adam = torch.optim.AdamW(
        [
            {"params": [*learner.net.parameters()], "weight_decay": _DECAY / len(people)},
            {"params": [learner.kept], "weight_decay": 0.0},
        ],
        lr=_RATE,
    )
    weight, goal = _FIRST, (1 - _TAKEN * strength) * before
    for stage in range(_STAGES):
        for rows in _batches(len(fitting.here), _STEPS if stage else _FIRST_STEPS, generator):
            adam.zero_grad()
            learner.loss(fitting.taken(rows), weight).backward()
            adam.step()
        if learner.effect(rest) <= goal:
            break
        weight *= _GROWTH
    else:
        _log.warning(
            f"The repair takes away {1 - learner.effect(rest) / before:.0%} of the mean effect, and not "
            f"{_TAKEN * strength:.0%} as it should; give more people to learn from."
        )
    if strength < 1:
        learner.shrink(rest, goal)
    net = learner.net.member(0).double().requires_grad_(False)
    return replace(found, kept=float(learner.kept.detach()), net=net)


class _Learner(nn.Module):
    """What a correction is while it learns: at first it changes nothing."""

    def __init__(self, inputs: int, scale: tuple[float, float] | None, seed: int) -> None:
        super().__init__()
        self.scale = scale
        self.net = MLP(inputs, width=_WIDTH, depth=1, seed=seed)
        self.kept = nn.Parameter(torch.ones(1))
        with torch.no_grad():
            self.net.weights[-1].zero_()
            self.net.biases[-1].zero_()

    def both(self, people: _Compared) -> tuple[Tensor, Tensor]:
        """Return the corrected predictions (P,) of people, and the mean of those of their counterfactual rows."""
        seen = torch.cat([people.own[None], people.there])  # (1 + R, P, I)
        added = self.net(seen.flatten(0, 1))[0, :, 0].view(seen.shape[:2])
        out = _corrected(torch.cat([people.here[None], people.predictions]), self.kept, added, self.scale)
        return out[0], out[1:].mean(0)

    def loss(self, people: _Compared, weight: float) -> Tensor:
        """Return how far predictions are from the model's own, and the mean |effect| with its weight."""
        own, there = self.both(people)
        apart = (there - own).abs()
        if self.scale is None:
            change = F.binary_cross_entropy(own, people.here, reduction="none")
        else:
            change, apart = ((own - people.here) / self.scale[1]).square() / 2, apart / self.scale[1]
        return (people.weights * (change + weight * apart)).mean()

    @torch.no_grad()
    def effect(self, people: _Compared) -> float:
        """Return the mean |effect|."""
        own, there = self.both(people)
        return float((people.weights * (there - own).abs()).mean())

    @torch.no_grad()
    def shrink(self, people: _Compared, goal: float) -> None:
        """Take back what takes away more of the effect than the goal."""
        parts = [
            (part, part.clone(), start)
            for part, start in ((self.net.weights[-1], 0), (self.net.biases[-1], 0), (self.kept, 1))
        ]
        low, high = 0.0, 1.0  # shares of the correction: too little, enough
        for _ in range(_HALVINGS):
            share = (low + high) / 2
            self._set(parts, share)
            low, high = (low, share) if self.effect(people) <= goal else (share, high)
        self._set(parts, high)

    @staticmethod
    def _set(parts: list[tuple[Tensor, Tensor, int]], share: float) -> None:
        for part, whole, start in parts:
            part.copy_(start + share * (whole - start))


def check_repairable(test: FittedTest, strength: float) -> None:
    """Raise where a test has no groups or no ranks, or the strength cannot be."""
    if not 0 <= strength <= 1:
        raise OptionError(f"strength is {strength!r}; expected a number from 0 to 1")
    for p in test.known.protected:
        if p.is_continuous:
            raise OptionError(
                f"'{p.name}' is a number, but a repair compares groups; make groups with a cut such as '{p.name}<25'"
            )
    effect = test.tests[measured_name(test.options)]
    if not isinstance(effect, Effect) or not effect.persists:
        raise OptionError(f"A repair needs the test rank; '{test.options.main}' has no ranks")


def _sample(data: Dataset, generator: torch.Generator, contrasts: int) -> Dataset:
    """Return the people, or as many of them as there is room for, in random order."""
    most = max(100, _CELLS // (_ROWS * contrasts * data.x.shape[1]))
    return data[torch.randperm(len(data), generator=generator)[:most].to(data.x.device)]


def _compared(
    test: FittedTest, model: Model, people: Dataset, here: Tensor, use_protected: bool, only: str | None
) -> Iterator[tuple[Tensor, _Compared]]:
    """Yield whom each contrast concerns (P,), and these people compared."""
    effect = test.tests[measured_name(test.options)]
    assert isinstance(effect, Effect)
    changed = torch.zeros(people.x.shape[1], dtype=torch.bool, device=people.x.device)
    for f in people.features:
        changed[f.columns] = only in (None, f.name)
    for q, contrast in enumerate(moves(people.protected)):
        to = destinations(people, contrast)
        who = (~to.isnan()).nonzero()[:, 0]
        own = people[who]
        rows = effect.rows_of_draws(own, torch.full((len(own),), q))
        rows = rows[torch.linspace(0, len(rows) - 1, min(_ROWS, len(rows))).long()]
        rows = torch.where(changed, rows, own.x)
        there = own.c.clone()
        there[:, contrast.variable] = to[who]
        out = predict_once(model, rows.flatten(0, 1), test.options.batch_size).view(len(rows), -1)
        seen = [
            _inputs(x, c if use_protected else None, people.protected).float()
            for x, c in ((own.x, own.c), *((row, there) for row in rows))
        ]
        weights = torch.ones(len(own)) if own.weights is None else own.weights.cpu() / own.weights.mean().cpu()
        yield who.cpu(), _Compared(seen[0], torch.stack(seen[1:]), here[who].float(), out.float(), weights.to(seen[0]))


def _joined(parts: list[_Compared]) -> _Compared:
    return _Compared(*(torch.cat(each, dim=1 if k in (1, 3) else 0) for k, each in enumerate(zip(*parts, strict=True))))


def _batches(count: int, steps: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Yield the rows of one stage's minibatches."""
    order = torch.empty(0, dtype=torch.long)
    for _ in range(steps):
        if len(order) < min(_BATCH, count):
            order = torch.randperm(count, generator=generator)
        yield order[:_BATCH]
        order = order[_BATCH:]
