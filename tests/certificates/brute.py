"""Brute force along paths: the model is asked at thousands of points. A network worked by hand: a tent."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fairfox.models.protocol import Model, predict

GRID = torch.linspace(0, 1, 10_000, dtype=torch.float64)


def tent() -> nn.Sequential:
    """Return relu(x) - 2 relu(x - 1): x up to 1, and from there 2 - x."""
    net = nn.Sequential(nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 1))
    rows = {"0.weight": [[1.0], [1.0]], "0.bias": [0.0, -1.0], "2.weight": [[1.0, -2.0]], "2.bias": [0.0]}
    net.load_state_dict({name: torch.tensor(row) for name, row in rows.items()})
    return net


def at_points(model: Model, here: Tensor, there: Tensor, t: Tensor = GRID) -> Tensor:
    """Return the largest |f(x + t (x' - x)) - f(x)| over the given t, per person."""
    out = []
    for x, other in zip(here, there, strict=True):
        f = predict(model, torch.cat([x[None], x + t[:, None] * (other - x)]))
        out.append((f - f[0]).abs().max())
    return torch.stack(out)


def close_to(centre: Tensor, *, width: float = 1e-4) -> Tensor:
    """Return points that are dense around some t's."""
    around = torch.linspace(-1, 1, 2001, dtype=torch.float64) ** 3 * width
    return (centre[:, None] + around).clamp(0, 1).reshape(-1)


def beside(t: Tensor, *, steps: int = 3) -> Tensor:
    """Return t's and the floating-point numbers immediately left and right of them, within 0 and 1."""
    out, left, right = [t], t, t
    for _ in range(steps):
        left = torch.nextafter(left, torch.tensor(-1.0, dtype=torch.float64))
        right = torch.nextafter(right, torch.tensor(2.0, dtype=torch.float64))
        out += [left, right]
    return torch.cat(out).clamp(0, 1)
