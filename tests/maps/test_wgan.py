"""GANs trained together equal GANs trained alone, and a plain autograd loop."""

import pytest
import torch

from fairfox.auxiliary.mlp import MLP
from fairfox.maps.gan import GanSettings, Passage, _minibatches, train_generators

SMALL = GanSettings(steps=60, width=8, depth=2, n_critic=3, batch=16, rate=1e-3, clip=0.05)


def rows(*, dtype=torch.float64, columns=3):
    x = torch.randn(90, columns, generator=torch.Generator().manual_seed(0)).to(dtype)
    x[40:] += 1.0
    return x


def passages():
    low, high = torch.arange(40), torch.arange(40, 90)
    return [Passage(low, high, 5), Passage(high, low, 11), Passage(low[:7], high[::2], 23)]


def train_by_autograd(x, passage, settings):
    """Return a generator as a plain loop with torch's own derivatives and optimiser trains it."""
    nets = [
        MLP(x.shape[1], outputs, width=settings.width, depth=settings.depth, seed=seed).member(0).to(x)
        for outputs, seed in ((x.shape[1], passage.seed), (1, passage.seed + 1))
    ]
    generator, critic = nets
    optimisers = [torch.optim.RMSprop(net.parameters(), lr=settings.rate, alpha=0.9, eps=1e-7) for net in nets]

    def descend(place, loss):
        optimisers[place].zero_grad()
        loss.backward()
        optimisers[place].step()

    for (batches,) in _minibatches([passage], settings, x.device):
        sources, targets = batches.split([settings.n_critic + 1, settings.n_critic])
        for source, target in zip(sources, targets, strict=False):
            descend(1, -critic(x[target]).mean())
            descend(1, critic(generator(x[source]).detach()).mean())
            with torch.no_grad():
                for parameter in critic.parameters():
                    parameter.clamp_(-settings.clip, settings.clip)
        here = x[sources[-1]]
        there = generator(here)
        distance = (there - here).abs().sum(1).square().mean()
        descend(0, -critic(there).mean() + settings.weight * distance)
    return generator


@pytest.mark.parametrize(("depth", "weight"), [(1, 0.5), (3, 1e-4)])
def test_training_by_hand_equals_autograd(depth, weight):
    settings = GanSettings(**{**vars(SMALL), "depth": depth, "weight": weight})
    x, passage = rows(), passages()[0]
    found = train_generators(x, [passage], settings).member(0)
    torch.testing.assert_close(found(x), train_by_autograd(x, passage, settings)(x), atol=1e-7, rtol=1e-6)


def test_members_trained_together_equal_members_trained_alone():
    x = rows()
    together = train_generators(x, passages(), SMALL)(x)
    for member, passage in enumerate(passages()):
        alone = train_generators(x, [passage], SMALL)(x)[0]
        torch.testing.assert_close(together[member], alone, atol=1e-9, rtol=0)
    assert not torch.allclose(together[0], together[2], atol=1e-3)


def test_minibatches_come_from_the_own_rows_only():
    seen = torch.stack(list(_minibatches(passages(), SMALL, torch.device("cpu"))))  # (steps, M, 2 n_critic + 1, B)
    assert seen.shape == (60, 3, 7, 16)
    for member, passage in enumerate(passages()):
        assert set(seen[:, member, :4].flatten().tolist()) == set(passage.source.tolist())
        assert set(seen[:, member, 4:].flatten().tolist()) == set(passage.target.tolist())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no accelerator here")
def test_steps_on_a_gpu_equal_steps_on_the_cpu():
    x = rows()
    found = train_generators(x.cuda(), passages(), SMALL)(x.cuda())
    torch.testing.assert_close(found.cpu(), train_generators(x, passages(), SMALL)(x), atol=1e-7, rtol=0)
