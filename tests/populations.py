"""Small populations and models that several tests share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from fairfox.auxiliary.linear import LinearMember
from fairfox.data.dataset import Dataset, Feature, Protected
from fairfox.data.encoding import Encoding, fit_encoding
from fairfox.data.table import Table, load_table
from fairfox.models.torch import TorchModel

SEX = Protected("sex", "binary", ("female", "male"), "sex")


def people(n: int = 120, *, seed: int = 0) -> pd.DataFrame:
    """Return n people: women and men in turn; men earn more, are older and seldom nurses."""
    rng = np.random.default_rng(seed)
    male = np.arange(n) % 2 == 1
    job = np.where(rng.random(n) < np.where(male, 0.2, 0.6), "nurse", rng.choice(["clerk", "smith"], n))
    return pd.DataFrame(
        {
            "sex": np.where(male, "male", "female"),
            "income": rng.normal(3000 + 300 * male, np.where(male, 500, 400)).round(2),
            "age": rng.integers(20 + 5 * male, 70, n),
            "debt": rng.exponential(1000, n),
            "job": job,
        }
    )


def earners(n: int = 300, *, seed: int = 0) -> pd.DataFrame:
    """Return people of whom men earn more; age and job have nothing to do with it, and loans are paid from income."""
    rng = np.random.default_rng(seed)
    male = rng.integers(0, 2, n).astype(bool)
    income = (3000 + 600 * male + rng.normal(0, 500, n)).round(2)
    return pd.DataFrame(
        {
            "sex": np.where(male, "Male", "Female"),
            "income": income,
            "age": rng.integers(18, 70, n),
            "job": rng.choice(["clerk", "nurse", "smith"], n),
            "paid": (income + rng.normal(0, 300, n) > 3300).astype(int),
        }
    )


def by_income(frame: Any) -> np.ndarray:
    """Return a probability that grows with income, from the rows of any kind of table."""
    return 1 / (1 + np.exp(-(np.asarray(frame["income"]) - 3300) / 400))


def table_of(**columns: Any) -> Table:
    """Return a table with these columns, and a protected column c of two values unless it is given."""
    values = next(iter(columns.values()))
    return load_table(pd.DataFrame({"c": (["a", "b"] * len(values))[: len(values)]} | columns))


def encoded(frame: Any, protected: Sequence[str] = ("sex",), **options: Any) -> tuple[Encoding, Dataset]:
    """Return the encoding of any kind of table, and its people, in float64."""
    table = load_table(frame)
    encoding = fit_encoding(table, protected=protected, dtype=torch.float64, **options)
    return encoding, encoding.encode(table)


def normal(*shape: int, seed: int = 0) -> Tensor:
    """Return standard normal numbers in float64."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def individuals(x: Any, c: Sequence[float] | Tensor | None = None, **fields: Any) -> Dataset:
    """Return individuals with continuous columns taken as they are, in two groups; in turn unless told."""
    rows = torch.as_tensor(x)
    groups = torch.arange(len(rows)) % 2 if c is None else torch.as_tensor(c)
    columns = tuple(Feature(f"x{j}", "continuous", j, j + 1) for j in range(rows.shape[1]))
    features = fields.pop("features", columns)
    return Dataset(x=rows, c=groups.to(rows.dtype)[:, None], protected=(SEX,), features=features, **fields)


def block(name: str, levels: Sequence[str], *, start: int = 0) -> Feature:
    """Return a categorical feature whose one-hot block begins at `start`."""
    return Feature(name, "categorical", start, start + len(levels), tuple(levels))


def one_hot(places: Sequence[int] | Tensor, levels: int) -> Tensor:
    """Return one-hot rows (N, levels) in float64."""
    return torch.nn.functional.one_hot(torch.as_tensor(places), levels).double()


class Function:
    """A function of encoded rows, seen as a Model; notes how many rows it was asked about each time."""

    def __init__(
        self, function: Callable[[Tensor], Tensor], *, differentiable: bool = True, blocks: Sequence[slice] = ()
    ) -> None:
        self.function, self.differentiable, self.blocks = function, differentiable, blocks
        self.calls: list[int] = []

    def __call__(self, x: Tensor) -> Tensor:
        self.calls.append(len(x))
        return self.function(x if self.differentiable else x.detach())


def linear(*weights: float, bias: float = 0.0) -> LinearMember:
    """Return the model x . weights + bias in float64."""
    return LinearMember(torch.tensor([weights], dtype=torch.float64), torch.tensor([bias], dtype=torch.float64))


def seeded(make: Callable[[], nn.Module], *, seed: int = 0) -> nn.Module:
    """Return a new network in float64, whose weights are the same whatever ran before."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return make().double().eval()


def weighing(net: nn.Module, *values: Any) -> nn.Module:
    """Return the network with these weights and biases, in the order of its parameters; a number is for all of one."""
    with torch.no_grad():
        for parameter, value in zip(net.parameters(), values, strict=True):
            parameter.copy_(torch.as_tensor(value))
    return net.eval()


def curved(columns: int = 4) -> TorchModel:
    """Return a smooth network of so many columns, as a model of probabilities."""
    net = seeded(lambda: nn.Sequential(nn.Linear(columns, 8), nn.Tanh(), nn.Linear(8, 1), nn.Sigmoid()))
    return TorchModel(net.requires_grad_(False))
