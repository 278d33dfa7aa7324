"""The demo: a biased and a fair lending model, audited where everyone's true counterfactual is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fairfox.auditing import audit
from fairfox.crossfit import Progress
from fairfox.data.encode import Encoding, fit_encoding
from fairfox.data.table import load_table
from fairfox.evaluation import spearman
from fairfox.models.protocol import predict
from fairfox.models.torch_model import TorchModel
from fairfox.nets.mlp import MLP
from fairfox.nets.training import binary_loss, train
from fairfox.result import AuditResult
from fairfox.synthetic.scm import Population
from fairfox.synthetic.two_groups import LENDING


@dataclass(frozen=True)
class DemoAudit:
    """One audited model beside the truth."""

    name: str  # "biased" or "fair"
    columns: tuple[str, ...]
    result: AuditResult
    truth: Tensor  # (N,) |f(x) - f(x as a member of the other group)|, known because the people are generated

    @property
    def mean_truth(self) -> float:
        """Mean true individual fairness score."""
        return float(self.truth.mean())

    @property
    def mean_effect(self) -> float:
        """Mean |effect| that the audit found."""
        return float(self.result.scores.mean())

    @property
    def rho(self) -> float:
        """Spearman correlation of the audit's scores with the truth; NaN where the truth is the same for all."""
        return spearman(self.result.scores, self.truth)

    @property
    def precision(self) -> float:
        """Share of flagged people whose true score is above delta; NaN when nobody is flagged."""
        hits, flagged = self._hits, int(self.result.flags.sum())
        return hits / flagged if flagged else float("nan")

    @property
    def recall(self) -> float:
        """Share of people with a true score above delta who are flagged; NaN when there are none."""
        affected = int((self.truth > self.result.delta).sum())
        return self._hits / affected if affected else float("nan")

    @property
    def _hits(self) -> int:
        return int((self.result.flags & (self.truth > self.result.delta)).sum())


@dataclass(frozen=True)
class Demo:
    """The two audits, and the applicants they were made on."""

    biased: DemoAudit
    fair: DemoAudit
    applicants: Population


def run_demo(*, people: int = 10_000, seed: int = 0, progress: Progress | None = None) -> Demo:
    """Return the audits of a biased and of a fair model of the same lending population.

    Both learn from past applicants, whose approvals were biased, and are audited on new ones. The biased model
    takes every column but sex; the fair one only those that sex does not act on.
    """
    say = progress or (lambda text, fraction: None)
    past, new = LENDING.sample(people, seed=seed), LENDING.sample(people, seed=seed + 1)

    def half(start: float) -> Progress:
        return lambda text, fraction: say(text, start + fraction / 2)

    biased = _audited("biased", past, new, past.features, seed=seed, progress=half(0.0))
    fair = _audited("fair", past, new, past.legitimate, seed=seed, progress=half(0.5))
    return Demo(biased, fair, new)


def _audited(
    name: str, past: Population, new: Population, columns: Sequence[str], *, seed: int, progress: Progress
) -> DemoAudit:
    progress(f"training the {name} model", 0.0)
    net, encoding = lending_model(past, new, columns, seed=seed)
    result = audit_lending(
        net,
        new,
        new.table,
        past.table,
        columns,
        seed=seed,
        progress=lambda text, fraction: progress(f"{name} model: {text}", fraction),
    )
    target = TorchModel(net)
    here, there = (predict(target, encoding.encode(load_table(t)).x) for t in (new.table, new.counterfactual))
    return DemoAudit(name, tuple(columns), result, (here - there).abs())


def lending_model(
    past: Population, new: Population, columns: Sequence[str], *, seed: int
) -> tuple[nn.Sequential, Encoding]:
    """Return a network from some columns of past applicants to the probability of approval, and its encoding."""
    encoding = fit_encoding(
        load_table(past.table),
        protected=past.protected,
        label=past.label,
        columns=columns,
        also=load_table(new.table),
    )
    x = encoding.encode(load_table(past.table)).x
    return nn.Sequential(_trained(x, torch.as_tensor(past.y), seed), nn.Sigmoid()), encoding


def audit_lending(
    net: nn.Module, population: Population, table: object, reference: object, columns: Sequence[str], **options: Any
) -> AuditResult:
    """Return the audit of a lending model on a table of applicants, learnt from those of another one."""
    return audit(
        net,
        table,
        protected=population.protected,
        label=population.label,
        reference=reference,
        drop=[column for column in population.features if column not in columns],
        kind="encoded",
        **options,
    )


def _trained(x: Tensor, y: Tensor, seed: int) -> nn.Sequential:
    """Return a network trained on labels y (N,), a fifth of the rows held out for early stopping."""
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    held_out, kept = order[: len(x) // 5], order[len(x) // 5 :]
    net = MLP(x.shape[1], seed=seed)
    train(
        net,
        x[kept],
        y[kept].float(),
        loss=binary_loss,
        valid_x=x[held_out],
        valid_targets=y[held_out].float(),
        seed=seed,
    )
    return net.member(0)
