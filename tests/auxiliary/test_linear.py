"""The linear auxiliary, against scikit-learn."""

from dataclasses import replace

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression, Ridge

from fairfox.auxiliary.linear import LinearAuxiliary
from fairfox.data.dataset import Dataset, Protected

RACE = Protected("race", "categorical", ("a", "b", "c"))
AGE = Protected("age", "continuous", ())
SEX = Protected("sex")


def people(count=200):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(count, 4, dtype=torch.float64, generator=generator)
    noise = torch.randn(count, dtype=torch.float64, generator=generator)
    return x, x @ torch.tensor([1.0, -1.0, 0.5, 0.0], dtype=torch.float64) + noise


def test_coefficients_of_a_binary_variable_are_scikit_learn_s():
    x, score = people()
    sex = (score > 0).double()
    member = LinearAuxiliary(strength=0.5).fit(Dataset.from_arrays(x, sex)).members[0]
    oracle = LogisticRegression(C=0.5, max_iter=1000).fit(x.numpy(), sex.numpy())
    np.testing.assert_allclose(member.weights, oracle.coef_)
    np.testing.assert_allclose(member(x)[:, 0], oracle.decision_function(x.numpy()))


def test_coefficients_of_a_categorical_variable_are_scikit_learn_s_centred():
    x, score = people()
    race = torch.bucketize(score, torch.tensor([-1.0, 1.0], dtype=torch.float64)).double()
    member = LinearAuxiliary().fit(Dataset.from_arrays(x, race, protected=[RACE])).members[0]
    oracle = LogisticRegression(max_iter=1000).fit(x.numpy(), race.numpy())
    np.testing.assert_allclose(member.weights, oracle.coef_ - oracle.coef_.mean(0), atol=1e-12)
    np.testing.assert_allclose(member(x).softmax(1), oracle.predict_proba(x.numpy()), atol=1e-12)


def test_a_continuous_variable_is_regressed_on_its_standardised_values():
    x, score = people()
    age = 40 + 10 * score
    member = LinearAuxiliary().fit(Dataset.from_arrays(x, age, protected=[AGE])).members[0]
    oracle = Ridge().fit(x.numpy(), ((age - age.mean()) / age.std(correction=0)).numpy())
    np.testing.assert_allclose(member(x)[:, 0], oracle.predict(x.numpy()))


def test_withheld_and_constant_columns_have_exactly_zero_weight():
    x, score = people()
    x[:, 1] = 3.0
    data = Dataset.from_arrays(x, (score > 0).double())
    data = replace(data, withheld=torch.tensor([True, False, False, False]))
    weights = LinearAuxiliary().fit(data).members[0].weights
    assert weights[0, :2].tolist() == [0.0, 0.0]
    assert (weights[0, 2:] != 0).all()


def test_each_variable_is_fitted_on_the_rows_that_know_it():
    x, score = people()
    sex = (score > 0).double()
    c = torch.stack([sex, score], dim=1)
    c[:80, 0] = torch.nan
    c[150:, 1] = torch.nan
    member = LinearAuxiliary().fit(Dataset.from_arrays(x, c, protected=[SEX, AGE])).members[0]
    first = LinearAuxiliary().fit(Dataset.from_arrays(x[80:], sex[80:], protected=[SEX])).members[0]
    second = LinearAuxiliary().fit(Dataset.from_arrays(x[:150], score[:150], protected=[AGE])).members[0]
    torch.testing.assert_close(member.weights, torch.cat([first.weights, second.weights]))
    torch.testing.assert_close(member.bias, torch.cat([first.bias, second.bias]))


def test_weights_are_scikit_learn_s_sample_weights_of_mean_one():
    x, score = people()
    weights = 1000 * torch.rand(200, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    c = torch.stack([(score > 0).double(), score], dim=1)
    data = replace(Dataset.from_arrays(x, c, protected=[SEX, AGE]), weights=weights)
    found = LinearAuxiliary().fit(data).members[0]
    of_mean_one = (weights / weights.mean()).numpy()
    sex = LogisticRegression(max_iter=1000).fit(x.numpy(), c[:, 0].numpy(), sample_weight=of_mean_one)
    centre = np.average(score, weights=weights)
    standard = (score.numpy() - centre) / np.average((score.numpy() - centre) ** 2, weights=weights) ** 0.5
    age = Ridge().fit(x.numpy(), standard, sample_weight=of_mean_one)
    np.testing.assert_allclose(found.weights, np.vstack([sex.coef_, age.coef_]))


def test_refits_differ_by_their_rows_and_repeat_with_their_seed():
    x, score = people()
    data = Dataset.from_arrays(x, (score > 0).double())
    first, second, other = (LinearAuxiliary(refits=3, seed=seed).fit(data).members for seed in (1, 1, 2))
    assert len(first) == 3
    assert all(torch.equal(a.weights, b.weights) for a, b in zip(first, second, strict=True))
    assert not torch.equal(first[0].weights, first[1].weights)
    assert not torch.equal(first[0].weights, other[0].weights)
