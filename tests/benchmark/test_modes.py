"""Features as mode probabilities."""

import numpy as np
import pytest
import torch
from sklearn.mixture import GaussianMixture

from fairfox.benchmark.source import ModeEncoding
from fairfox.errors import DataError, OptionError


def two_humps(rows=300, seed=0):
    generator = np.random.default_rng(seed)
    return torch.from_numpy(generator.normal(size=(rows, 1)) + 6.0 * (generator.random((rows, 1)) < 0.3))


def test_probabilities_are_those_of_the_fitted_mixture():
    x = two_humps()
    standard = ((x - x.mean(0)) / x.std(0, correction=0)).numpy()
    oracle = GaussianMixture(3, random_state=5, max_iter=500, n_init=3).fit(standard)
    encoded = ModeEncoding.fit(x, modes=3, seed=5).encode(x)
    np.testing.assert_allclose(encoded.numpy(), oracle.predict_proba(standard), atol=1e-9)


def test_every_block_sums_to_one_and_follows_the_order_of_features():
    x = torch.cat([two_humps(seed=1), two_humps(seed=2), torch.rand(300, 1).double()], dim=1)
    encoding = ModeEncoding.fit(x, modes=4)
    encoded = encoding.encode(x)
    assert encoded.shape == (300, 12)
    torch.testing.assert_close(encoded.reshape(300, 3, 4).sum(2), torch.ones(300, 3).double())
    alone = ModeEncoding.fit(x[:, [1]], modes=4).encode(x[:, [1]])
    torch.testing.assert_close(encoded[:, 4:8], alone)


def test_a_constant_feature_is_always_in_its_one_mode():
    x = torch.cat([torch.full((50, 1), 7.3), torch.arange(50.0)[:, None]], dim=1)
    encoded = ModeEncoding.fit(x, modes=3).encode(x)
    assert encoded[:, :3].tolist() == [[1.0, 0.0, 0.0]] * 50


def test_fewer_values_than_modes_give_one_mode_each():
    x = torch.tensor([1.0, 2.0, 4.0]).repeat(20)[:, None]
    encoded = ModeEncoding.fit(x, modes=5).encode(x[:3])
    assert sorted(encoded.round().int().argmax(1).tolist()) == [0, 1, 2]
    assert float(encoded.max(1).values.min()) > 0.999
    assert float(encoded[:, 3:].abs().max()) == 0.0


def test_values_that_are_not_finite_are_refused():
    with pytest.raises(DataError, match="not finite"):
        ModeEncoding.fit(torch.tensor([[0.0], [float("nan")]]), modes=2)


def test_no_modes_are_refused():
    with pytest.raises(OptionError, match="at least 1"):
        ModeEncoding.fit(two_humps(), modes=0)
