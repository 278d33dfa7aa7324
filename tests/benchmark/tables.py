"""Small tables that a generator learns from in a moment."""

import torch

from fairfox.benchmark.cvae import Training
from fairfox.benchmark.source import SourceModel, SourceSettings
from fairfox.data.dataset import Dataset

SMALL = SourceSettings(modes=2, width=32, depth=1, latent=4, kl_weight=0.5)
SHORT = Training(max_steps=400, patience=10)


def table(rows=400, *, columns=3, shift=2.0, seed=0):
    """Columns of two humps; the label moves the first of them by `shift`."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(2, (rows,), generator=generator)
    x = torch.randn(rows, columns, generator=generator)
    x = x + 4.0 * (torch.rand(rows, columns, generator=generator) < 0.4)
    x[:, 0] += shift * y
    return Dataset.from_arrays(x, None, y, names=[f"f{j}" for j in range(columns)])


def model(settings=SMALL, *, seed=0, **about):
    return SourceModel.fit(table(**about), settings, seed=seed, training=SHORT)
