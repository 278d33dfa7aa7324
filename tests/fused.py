"""People whose truth is known, made by hand: two columns that depend on c beside three that depend on y."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import torch
from torch import Tensor

from fairfox.benchmark.judge import Trial, make_trial
from fairfox.data.dataset import Dataset, Truth

KEEP_C, KEEP_Y = torch.eye(5)[:, :2], torch.eye(5)[:, 2:]
SHIFT_C, SHIFT_Y = torch.tensor([1.5, -1.0]), torch.tensor([0.4, 0.3, 0.0])


def fused(people: int, *, bias: float, seed: int) -> Dataset:
    """Return people of whom c equals y for half of them at bias 0, for all at bias 1."""
    generator = torch.Generator().manual_seed(seed)
    y = (torch.rand(people, generator=generator) < 0.5).float()
    same = torch.rand(people, generator=generator) < 0.5 + 0.5 * bias
    c = torch.where(same, y, 1 - y)
    noise = torch.randn(people, 5, generator=generator)
    rest = torch.cat([torch.zeros(people, 2), y[:, None] * SHIFT_Y], dim=1) + noise
    dx_dc = torch.cat([SHIFT_C, torch.zeros(3)]).expand(people, 5)
    data = Dataset.from_arrays(rest + c[:, None] * dx_dc, c, y)
    return replace(data, truth=Truth(rest + (1 - c[:, None]) * dx_dc, dx_dc[..., None]))


class Fused:
    """The same people, drawn from a generator."""

    def sample(self, n: int, *, bias: float, fusion: str, seed: int, derivative: bool) -> Dataset:
        assert fusion == "concat"
        people = fused(n, bias=bias, seed=seed)
        return people if derivative else replace(people, truth=Truth(people.truth.counterfactual))

    def keep_y(self, fusion: str) -> Tensor:
        return KEEP_Y


@cache
def trial(bias: float = 0.3) -> Trial:
    """Return a trial with a target that learned the bias and one that cannot see c."""
    return make_trial(Fused(), bias=bias, fusion="concat", rows=(1500, 500, 1000), width=16, depth=1)
