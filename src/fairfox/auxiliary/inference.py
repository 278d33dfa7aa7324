"""Protected values that are unknown: what the auxiliary makes of these people."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from fairfox.auxiliary.model import Auxiliary, centre_and_spread, probabilities
from fairfox.data.dataset import Dataset, Protected
from fairfox.models.protocol import Model, row_blocks

_ROWS = 4096  # at a time


def infer_groups(data: Dataset, auxiliary: Auxiliary, fitting: Dataset) -> tuple[Dataset, Tensor]:
    """Return the people with unknown protected values filled in, and which were (N, V) bool.

    A class is the most probable one of the members' mean probabilities, a number their mean prediction in its own
    units, which are those of the `fitting` rows. A crossing follows its parts; where no fitting rows are alike in them
    it stays unknown.
    People who know all their values are returned as they are.
    """
    unknown = data.c.isnan()
    rows = unknown.any(1).nonzero()[:, 0]
    if len(rows) == 0:
        return data, unknown
    x = data.x[rows]
    means = torch.stack([_chances(member, x, data.protected) for member in auxiliary.members]).mean(0)  # (n, K)
    heads = means.split([p.outputs for p in data.protected], dim=1)
    told = torch.stack([_told(head, v, fitting) for v, head in enumerate(heads)], dim=1).to(data.c)
    filled = torch.where(unknown[rows], told, data.c[rows])  # (n, V)
    for v, p in enumerate(data.protected):
        if p.parts:
            filled[:, v] = torch.where(unknown[rows, v], _crossed(filled, v, fitting), filled[:, v])
    c = data.c.index_copy(0, rows, filled)
    return replace(data, c=c), unknown & ~c.isnan()


def _told(head: Tensor, variable: int, fitting: Dataset) -> Tensor:
    """Return the class or number (n,) that a head's mean outputs (n, K) tell."""
    p = fitting.protected[variable]
    if p.is_continuous:
        mean, spread = centre_and_spread(fitting.c[:, variable], fitting.weights)
        return mean.to(head) + spread.to(head) * head[:, 0]
    return head.argmax(1).to(head) if p.kind == "categorical" else (head[:, 0] > 0.5).to(head)


def _crossed(c: Tensor, variable: int, fitting: Dataset) -> Tensor:
    """Return the class (n,) of a crossing that fitting rows with the same parts have; NaN where there are none."""
    names = [p.name for p in fitting.protected]
    parts = [names.index(name) for name in fitting.protected[variable].parts if name in names]
    if len(parts) < len(fitting.protected[variable].parts):
        return torch.full_like(c[:, variable], torch.nan)
    seen = fitting.c[:, [*parts, variable]].to(c)
    seen = seen[~seen.isnan().any(1)].unique(dim=0)  # (U, P + 1)
    out = torch.full_like(c[:, variable], torch.nan)
    for row in seen:
        out[(c[:, parts] == row[:-1]).all(1)] = row[-1]
    return out


def _chances(member: Model, x: Tensor, protected: tuple[Protected, ...]) -> Tensor:
    """Return a member's outputs (n, K) with probabilities in place of logits."""
    with torch.no_grad():
        outputs = torch.cat([member(x[rows]) for rows in row_blocks(len(x), _ROWS)])
    if getattr(member, "output", "logit") == "probability":
        return outputs
    heads = outputs.split([p.outputs for p in protected], dim=1)
    return torch.cat([probabilities(head, p) for head, p in zip(heads, protected, strict=True)], dim=1)
