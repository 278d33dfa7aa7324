"""The conditional VAE: what it returns, that it learns, and how a collapsed latent shows."""

import math

import pytest
import torch

from fairfox.benchmark.cvae import ConditionalVAE, Training, divergence, relative_spread, train_vae


def small(seed=0):
    return ConditionalVAE(features=2, modes=2, width=32, depth=2, latent=4, seed=seed)


def rows(n=400, seed=0):
    """Two features of two modes: the first mostly follows the label, the second is a coin."""
    generator = torch.Generator().manual_seed(seed)
    labels = (torch.rand(n, generator=generator) < 0.5).long()
    first = torch.where(torch.rand(n, generator=generator) < 0.8, labels, 1 - labels)
    second = (torch.rand(n, generator=generator) < 0.5).long()
    return torch.nn.functional.one_hot(torch.stack([first, second], 1), 2).flatten(1).float(), labels


def generated(vae, n=2000):
    generator = torch.Generator().manual_seed(9)
    labels = torch.arange(n) % 2
    return vae.decode(torch.randn(n, vae.latent, generator=generator), vae.code(labels)).detach(), labels


@pytest.fixture(scope="module")
def trained():
    vae = small()
    train_vae(vae, *rows(), Training(kl_weight=0.5, patience=10, max_steps=600))
    return vae


def test_divergence_by_hand():
    # a mean of 2 with variance 1: 0.5 * 4; variance e at mean 0: 0.5 * (e - 1 - 1)
    mean, log_variance = torch.tensor([[2.0], [0.0]]), torch.tensor([[0.0], [1.0]])
    expected = torch.tensor([2.0, 0.5 * (math.e - 2.0)])
    torch.testing.assert_close(divergence(mean, log_variance), expected)


def test_loss_is_the_cross_entropy_of_all_features_plus_the_weighted_divergence():
    vae, (x, labels) = small(), rows(5)
    code, noise = vae.code(labels), torch.randn(5, 4, generator=torch.Generator().manual_seed(1))
    mean, log_variance = vae.encode(x, code)
    z = mean + noise * log_variance.exp().sqrt()
    expected = -(x * vae.decode(z, code).log()).sum(1) + 0.7 * divergence(mean, log_variance)
    torch.testing.assert_close(vae.loss(x, code, noise, kl_weight=0.7), expected)


def test_generated_features_follow_the_label_as_the_real_ones_do(trained):
    x, labels = generated(trained)
    assert float(x[labels == 1, 1].mean()) == pytest.approx(0.8, abs=0.12)
    assert float(x[labels == 0, 1].mean()) == pytest.approx(0.2, abs=0.12)
    assert float(x[:, 3].mean()) == pytest.approx(0.5, abs=0.12)


def test_generated_features_spread_as_the_real_ones_do(trained):
    assert relative_spread(*generated(trained), *rows()) > 0.7


def test_a_large_weight_of_the_divergence_collapses_the_latent():
    vae = small()
    train_vae(vae, *rows(), Training(kl_weight=50.0, patience=10, max_steps=600))
    x, labels = generated(vae)
    assert relative_spread(x, labels, *rows()) < 0.15
    assert float(x[labels == 1, 1].mean()) > 0.7  # the classes are still told apart


def test_the_same_seed_gives_the_same_network_and_leaves_the_global_generator_alone():
    before = torch.random.get_rng_state()
    nets = [small(seed=3), small(seed=3)]
    for vae in nets:
        train_vae(vae, *rows(), Training(max_steps=50), seed=3)
    assert all(torch.equal(a, b) for a, b in zip(*(vae.parameters() for vae in nets), strict=True))
    assert torch.equal(torch.random.get_rng_state(), before)


def test_spread_is_measured_within_the_classes():
    labels = torch.tensor([0, 0, 1, 1])
    real = torch.tensor([[0.0], [0.2], [0.8], [1.0]])  # standard deviation 0.1 around each class's mean
    narrow = torch.tensor([[0.05], [0.15], [0.9], [0.9]])  # 0.05 and 0: sqrt(0.05² / 2) = 0.035 in all
    assert relative_spread(narrow, labels, real, labels) == pytest.approx(0.5 / math.sqrt(2))
    two_values = torch.tensor([[0.1], [0.1], [0.9], [0.9]])
    assert relative_spread(two_values, labels, real, labels) == 0.0
