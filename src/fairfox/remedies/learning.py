"""How a correction is learnt: the effect on counterfactual rows and the gap between real people fall together."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fairfox.auxiliary.mlp import MLP
from fairfox.auxiliary.model import infer_groups
from fairfox.auxiliary.training import one_thread
from fairfox.data.contrasts import destinations, moves
from fairfox.data.dataset import Dataset
from fairfox.errors import OptionError
from fairfox.fairtests.correction import Correction, corrected, network_inputs
from fairfox.fairtests.effect import Effect
from fairfox.fairtests.fitted import FittedTest, measured_name
from fairfox.models.protocol import Model, TargetModel, predict, predict_once

_log = logging.getLogger("fairfox")
_TAKEN = 0.83  # share of the mean |effect|, and of the gap, that full strength takes away
_SHORT = 0.05  # of that share, less of which is gone: worth a warning
_CELLS, _ROWS = 20_000_000, 12  # of counterfactual rows in all, and rows for each person and contrast
_REAL = 2_000  # people, at most, whose gap is looked at
_HELD_OUT = 0.2  # of the people: they show how much of the effect is gone
_WIDTH, _BATCH, _RATE, _STEPS = 32, 256, 5e-3, 800
_DECAY = 500.0  # of weights, over the number of people: fewer people need a smoother network
_EVERY, _PUSH, _MOST = 10, 0.1, 100.0  # how often effect and gap get other weights, by how much, and the largest one
_SHUFFLES = 5  # of the groups, for the gap of groups that mean nothing
_NONE = 1e-6  # a smaller mean |effect| is none, in spreads of the predictions where these are no probabilities


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

    Predictions change as little as they can while the effect and the gap fall by the same share. The effect is the mean
    |effect| of people who are held out. The gap is the Wasserstein distance between the predictions of the groups' real
    people: with several groups, of each from all others. It need not fall below what chance explains. Without the gap
    the network learns to please counterfactual rows that nobody has. With given columns groups may differ, and with
    `only` the effect is that of one feature; then the effect counts alone.
    """
    check_repairable(test)
    found = Correction(test=test, use_protected=use_protected)
    seed = test.options.seed
    generator = torch.Generator().manual_seed(seed)
    most = max(100, _CELLS // (_ROWS * len(moves(data.protected)) * data.x.shape[1]))  # for whom there is room
    drawn = data[torch.randperm(len(data), generator=generator)[:most].to(data.x.device)]
    people, _ = infer_groups(drawn, test.auxiliary, test.known)
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
    rows = (~last).nonzero()[:_REAL, 0].to(people.x.device)
    real = _Real.of(people[rows], here[rows], use_protected)
    both = only is None and not test.options.given
    if strength == 0 or not _train(
        learner, fitting, rest, real, strength=strength, both=both, decay=_DECAY / len(people), generator=generator
    ):
        return found
    net = learner.net.member(0).double().requires_grad_(False)
    return replace(found, kept=float(learner.kept.detach()), net=net)


@one_thread()
def _train(
    learner: _Learner,
    fitting: _Compared,
    rest: _Compared,
    real: _Real,
    *,
    strength: float,
    both: bool,
    decay: float,
    generator: torch.Generator,
) -> bool:
    """Return whether there was an effect for the learner to take away; `both` says whether the gap counts too."""
    with torch.no_grad():
        before = torch.cat([learner.change_and_effect(rest)[1][None], learner.gaps(real)])
    if before[0] <= _NONE:
        return False
    goals = (1 - _TAKEN * strength) * before
    goals[1:] = torch.maximum(goals[1:], real.by_chance(generator) / learner.spread)
    width = torch.minimum(goals, before - goals).clamp(min=_NONE)
    weights = torch.full_like(goals, strength * both / (len(goals) - 1))
    weights[0] = strength
    net = {"params": [*learner.net.parameters()], "weight_decay": decay}
    adam = torch.optim.AdamW([net, {"params": [learner.kept], "weight_decay": 0.0}], lr=_RATE)
    slower = torch.optim.lr_scheduler.CosineAnnealingLR(adam, _STEPS)
    # not the loop of auxiliary/training: here weights follow goals, and a row is compared with others
    for step in range(1, _STEPS + 1):
        batch = fitting.taken(torch.randint(len(fitting.here), (_BATCH,), generator=generator))
        change, effect = learner.change_and_effect(batch)
        gaps = learner.gaps(real) if both else torch.zeros_like(goals[1:])
        adam.zero_grad()
        (change + weights[0] * effect + (weights[1:] * gaps).sum()).backward()
        adam.step()
        slower.step()
        if step % _EVERY == 0:
            with torch.no_grad():
                now = torch.cat([learner.change_and_effect(rest)[1][None], gaps])
                weights = (weights * (_PUSH * ((now - goals) / width).clamp(-1, 1)).exp()).clamp(max=_MOST)
    taken = float(1 - now[0] / before[0])
    if taken < _TAKEN * strength - _SHORT:
        _log.warning(
            f"The repair takes away {100 * taken:.0f} % of the effect, not {100 * _TAKEN * strength:.0f} %; "
            "give it more people."
        )
    return True


class _Real(NamedTuple):
    """Real people, and which side of each comparison of groups they are on."""

    own: Tensor  # (N, I) what the network sees
    here: Tensor  # (N,) the model's predictions
    sides: Tensor  # (N, G) weights: the members of a group sum to 1, all others to -1

    @classmethod
    def of(cls, people: Dataset, here: Tensor, use_protected: bool) -> _Real:
        counts = torch.ones(len(people)) if people.weights is None else people.weights.float()
        sides = []
        for v, p in enumerate(people.protected):
            for k in range(1 if len(p.levels) == 2 else len(p.levels)):
                member = people.c[:, v] == k
                inside, outside = (torch.where(each, counts.to(here.device), 0.0) for each in (member, ~member))
                if inside.any() and outside.any():  # a group with nobody has no gap
                    sides.append(inside / inside.sum() - outside / outside.sum())
        own = network_inputs(people.x, people.c if use_protected else None, people.protected)
        return cls(own.float(), here.float(), torch.stack(sides or [torch.zeros_like(here.float())], dim=1))

    def by_chance(self, generator: torch.Generator) -> Tensor:
        """Return how far the predictions of shuffled groups are apart (G,)."""
        orders = [torch.randperm(len(self.here), generator=generator) for _ in range(_SHUFFLES)]
        return torch.stack([_distances(self.here, self.sides[order]) for order in orders]).mean(0)


def _distances(out: Tensor, sides: Tensor) -> Tensor:
    """Return the Wasserstein-1 distance between the predictions (N,) of both sides of each comparison (G,).

    It is the area between the two distribution functions.
    """
    ordered, order = out.sort()
    return (sides[order].cumsum(0)[:-1].abs() * ordered.diff()[:, None]).sum(0)


class _Learner(nn.Module):
    """What a correction is while it learns: at first it changes nothing. Effects and gaps are in units of `spread`."""

    def __init__(self, inputs: int, scale: tuple[float, float] | None, seed: int) -> None:
        super().__init__()
        self.scale, self.spread = scale, 1.0 if scale is None else scale[1]
        self.net = MLP(inputs, width=_WIDTH, depth=1, seed=seed)
        self.kept = nn.Parameter(torch.ones(1))
        with torch.no_grad():
            self.net.weights[-1].zero_()
            self.net.biases[-1].zero_()

    def forward(self, seen: Tensor, here: Tensor) -> Tensor:
        """Return corrected predictions (...) of what the network sees (..., I) and the model's own."""
        added = self.net(seen.flatten(0, -2))[0, :, 0].view(here.shape)
        return corrected(here, self.kept, added, self.scale)

    def change_and_effect(self, people: _Compared) -> tuple[Tensor, Tensor]:
        """Return how far predictions are from the model's own, and the mean |effect|."""
        out = self(torch.cat([people.own[None], people.there]), torch.cat([people.here[None], people.predictions]))
        own, apart = out[0], (out[1:].mean(0) - out[0]).abs() / self.spread
        if self.scale is None:
            change = F.binary_cross_entropy(own, people.here, reduction="none")
        else:
            change = ((own - people.here) / self.spread).square() / 2
        return (people.weights * change).mean(), (people.weights * apart).mean()

    def gaps(self, real: _Real) -> Tensor:
        """Return how far the groups' predictions are apart (G,)."""
        return _distances(self(real.own, real.here), real.sides) / self.spread


def check_repairable(test: FittedTest) -> None:
    """Raise where a test has no groups or no ranks."""
    for p in test.known.protected:
        if p.is_continuous:
            raise OptionError(
                f"'{p.name}' is a number, but a repair compares groups; make groups with a cut such as '{p.name}<25'"
            )
    effect = test.tests[measured_name(test.options)]
    if not isinstance(effect, Effect) or not effect.persists:
        raise OptionError(f"A repair needs the test rank; '{test.options.main}' has no ranks")


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
            network_inputs(x, c if use_protected else None, people.protected).float()
            for x, c in ((own.x, own.c), *((row, there) for row in rows))
        ]
        weights = torch.ones(len(own)) if own.weights is None else own.weights.cpu() / own.weights.mean().cpu()
        yield who.cpu(), _Compared(seen[0], torch.stack(seen[1:]), here[who].float(), out.float(), weights.to(seen[0]))


def _joined(parts: list[_Compared]) -> _Compared:
    return _Compared(*(torch.cat(each, dim=1 if k in (1, 3) else 0) for k, each in enumerate(zip(*parts, strict=True))))
