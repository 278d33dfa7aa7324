"""A conditional variational autoencoder: features, as mode probabilities, from a latent and a label."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fairfox.auxiliary.mlp import MLP


class ConditionalVAE(nn.Module):
    """From a latent z and a label to F blocks of G probabilities: the decoder ends in one softmax per feature.

    A label of two classes enters as one number, 0 or 1. In between are relaxed labels, along which the features can be
    differentiated.

    Example:
        >>> vae = ConditionalVAE(features=3, modes=2, width=16, depth=1)
        >>> vae.decode(torch.zeros(5, 8), vae.code(torch.tensor([0, 1, 1, 0, 1]))).shape
        torch.Size([5, 6])
    """

    def __init__(
        self, *, features: int, modes: int, width: int = 128, depth: int = 2, latent: int = 8, seed: int = 0
    ) -> None:
        super().__init__()
        self.features, self.modes, self.latent = features, modes, latent
        columns = features * modes
        self.encoder = MLP(columns + 1, 2 * latent, width=width, depth=depth, seed=2 * seed)
        self.decoder = MLP(latent + 1, columns, width=width, depth=depth, seed=2 * seed + 1)
        _widen(self.encoder)
        _widen(self.decoder)

    def code(self, labels: Tensor) -> Tensor:
        """Return the networks' input (N, 1) for class numbers (N,)."""
        return labels[:, None].to(self.decoder.weights[0])

    def decode(self, z: Tensor, code: Tensor) -> Tensor:
        """Return mode probabilities (N, F * G) for latents (N, L) and codes of labels (N, 1)."""
        return self._logits(z, code).softmax(2).flatten(1)

    def encode(self, x: Tensor, code: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and log-variance (N, L) of the latents of mode probabilities x (N, F * G)."""
        mean, log_variance = self.encoder(torch.cat([x, code], dim=1))[0].chunk(2, dim=1)
        return mean, log_variance

    def loss(self, x: Tensor, code: Tensor, noise: Tensor, *, kl_weight: float) -> Tensor:
        """Return the negative ELBO of each row (N,): cross-entropy over all features and the weighted divergence."""
        mean, log_variance = self.encode(x, code)
        z = mean + (0.5 * log_variance).exp() * noise
        logs: Tensor = self._logits(z, code).log_softmax(2).flatten(1)
        return kl_weight * divergence(mean, log_variance) - (x * logs).sum(1)

    def _logits(self, z: Tensor, code: Tensor) -> Tensor:
        out: Tensor = self.decoder(torch.cat([z, code], dim=1))[0]
        return out.reshape(len(out), self.features, self.modes)


def divergence(mean: Tensor, log_variance: Tensor) -> Tensor:
    """Return the Kullback-Leibler divergence (N,) of the latents' distributions from the standard normal one."""
    return 0.5 * (mean.square() + log_variance.exp() - 1.0 - log_variance).sum(1)


@dataclass(frozen=True)
class Training:
    """How a conditional VAE is trained; early stopping looks at the ELBO of a fifth of the rows."""

    kl_weight: float = 0.1
    rate: float = 1e-3
    patience: int = 5  # epochs without progress; with more the rows of a small table give their label away
    max_steps: int = 3000
    batch_size: int = 64  # at least; larger tables have larger batches, about 60 an epoch


def train_vae(vae: ConditionalVAE, x: Tensor, labels: Tensor, training: Training, *, seed: int = 0) -> None:
    """Train in place on mode probabilities x (N, F * G) and class numbers (N,).

    The weights of the epoch with the best validation loss are kept.
    """
    generator = torch.Generator().manual_seed(seed)
    code, order = vae.code(labels), torch.randperm(len(x), generator=generator)
    held_out, fitting = order[: max(1, len(x) // 5)], order[max(1, len(x) // 5) :]
    held_out = held_out.repeat(max(1, 1000 // len(held_out)))  # few rows: several draws each, or luck decides
    held_out_noise = torch.randn(len(held_out), vae.latent, generator=generator).to(x)  # the same in every epoch
    optimizer = torch.optim.Adam(vae.parameters(), lr=training.rate, fused=True)
    batch = max(training.batch_size, len(fitting) // 60)
    best_loss, best_epoch, best = math.inf, 0, copy.deepcopy(vae.state_dict())
    for epoch in range(1, max(1, training.max_steps * batch // len(fitting)) + 1):
        for rows in fitting[torch.randperm(len(fitting), generator=generator)].split(batch):
            noise = torch.randn(len(rows), vae.latent, generator=generator).to(x)
            optimizer.zero_grad()
            vae.loss(x[rows], code[rows], noise, kl_weight=training.kl_weight).mean().backward()
            optimizer.step()
        with torch.no_grad():
            losses = vae.loss(x[held_out], code[held_out], held_out_noise, kl_weight=training.kl_weight)
        current = float(losses.mean())
        if current < best_loss:
            best_loss, best_epoch, best = current, epoch, copy.deepcopy(vae.state_dict())
        if epoch - best_epoch >= training.patience:
            break
    vae.load_state_dict(best)
    vae.requires_grad_(False)


def relative_spread(generated: Tensor, labels: Tensor, real: Tensor, real_labels: Tensor) -> float:
    """Return the spread of generated columns relative to the real ones: the mean over columns that vary.

    Variation is the standard deviation *within* the classes: a decoder that ignores its latent still separates the
    classes, but generates a single row for each.
    """
    spread, expected = _spread_within(generated, labels), _spread_within(real, real_labels)
    varies = expected > 1e-3
    return float((spread[varies] / expected[varies]).mean()) if bool(varies.any()) else 1.0


def _spread_within(x: Tensor, labels: Tensor) -> Tensor:
    x = x.double()
    squares = torch.zeros_like(x[0])
    for k in labels.unique():
        rows = x[labels == k]
        squares += (rows - rows.mean(0)).square().sum(0)
    return (squares / len(x)).sqrt()  # (D,)


def _widen(net: MLP) -> None:
    """Scale the hidden layers' initial weights so that signals keep their size through all of them (He).

    With the usual smaller ones a deep decoder hardly sees its latent, and never learns to use it.
    """
    with torch.no_grad():
        for weight, bias in list(zip(net.weights, net.biases, strict=True))[:-1]:
            weight.mul_(math.sqrt(6.0))  # from uniform(±1/√fan_in) to uniform(±√(6/fan_in))
            bias.zero_()
