"""The auxiliary: what it sees, what it learns from, what its outputs are."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fairfox.alignment import Head
from fairfox.auxiliary import model as module
from fairfox.auxiliary.model import AuxiliaryMember, AuxiliaryModel, FixedAuxiliary, heads_of, usable_columns
from fairfox.data.dataset import Dataset, Protected
from fairfox.errors import DataError
from fairfox.gradients.autograd import autograd_jacobian
from fairfox.nets.mlp import MLP

RACE = Protected("race", "categorical", ("a", "b", "c"))
AGE = Protected("age", "continuous", ())
SEX = Protected("sex")


def people(count=300, features=4, *, seed=0):
    """Return rows whose first column tells sex, second race, third age."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, features, generator=generator)
    noise = 0.3 * torch.randn(count, 3, generator=generator)
    sex = (x[:, 0] + noise[:, 0] > 0).float()
    race = torch.bucketize(x[:, 1] + noise[:, 1], torch.tensor([-0.5, 0.5])).float()
    age = 40 + 10 * (x[:, 2] + noise[:, 2])
    return x, sex, race, age


def women_and_men(count=300, **options):
    x, sex, _, _ = people(count, **options)
    return Dataset.from_arrays(x, sex, protected=[SEX])


def all_three(count=300):
    x, *c = people(count)
    return Dataset.from_arrays(x, torch.stack(c, dim=1), protected=[SEX, RACE, AGE])


def quick(**options):
    return AuxiliaryModel(**{"refits": 2, "width": 8, "max_epochs": 3, **options})


def share_right(logit, c):
    return float(((logit > 0) == (c == 1)).float().mean())


# What it sees


def test_withheld_columns_have_exactly_zero_derivatives():
    data = women_and_men()
    data = replace(data, withheld=torch.tensor([True, False, False, False]))  # the column that tells sex
    for member in quick().fit(data).members:
        jac = autograd_jacobian(member, data.x)
        assert not jac[:, :, 0].any()
        assert jac[:, :, 1:].any()


def test_columns_that_never_vary_have_exactly_zero_derivatives():
    data = women_and_men()
    data.x[:, 2] = 7.0
    elsewhere = data.x.clone()
    elsewhere[:, 2] = torch.linspace(-5, 5, len(data))
    for member in quick().fit(data).members:
        assert not autograd_jacobian(member, elsewhere)[:, :, 2].any()
        torch.testing.assert_close(member(elsewhere), member(data.x))


def test_columns_that_vary_among_held_out_rows_only_are_not_used():
    data = women_and_men()
    held_out = quick().fit(data).held_out
    constant = data.x.clone()
    rare = torch.isin(constant[:, 0], held_out.x[:, 0])
    constant[:, 3] = rare.float()
    fitted = quick().fit(replace(data, x=constant))
    assert torch.equal(fitted.held_out.x[:, 0], held_out.x[:, 0])
    assert not autograd_jacobian(fitted.members[0], constant)[:, :, 3].any()


def test_usable_columns_vary_and_are_not_withheld():
    data = Dataset.from_arrays([[1.0, 2.0, 3.0], [1.0, 5.0, 6.0]], c=[0, 1])
    data = replace(data, withheld=torch.tensor([False, False, True]))
    assert usable_columns(data).tolist() == [False, True, False]


def test_the_split_of_the_first_layer_is_the_member_itself():
    net = MLP(4, 4, width=8, depth=2).member(0)
    member = AuxiliaryMember(net, torch.tensor([True, False, True, True]), [SEX, RACE])
    x = people(20)[0]
    weight, bias, rest = member.first_affine
    torch.testing.assert_close(rest(x @ weight.T + bias), member(x))


def test_labels_are_never_read():
    data = women_and_men()
    labelled = replace(data, y=torch.full((len(data),), torch.nan))
    torch.testing.assert_close(quick().fit(labelled).members[1](data.x), quick().fit(data).members[1](data.x))


# What it learns from


def test_held_out_rows_are_not_trained_on(monkeypatch):
    seen = []

    def watching(net, x, *args, **options):
        seen.append(x.clone())
        return train(net, x, *args, **options)

    train = module.train
    monkeypatch.setattr(module, "train", watching)
    data = women_and_men()
    data.x[:, 3] = torch.arange(len(data)) / 100  # names every row
    held_out = quick(max_epochs=1).fit(data).held_out
    trained, kept = set(seen[0][:, 3].tolist()), set(held_out.x[:, 3].tolist())
    assert not trained & kept
    assert trained | kept == set(data.x[:, 3].tolist())
    assert len(kept) == pytest.approx(len(data) / 5, abs=1)
    assert float(held_out.c.mean()) == pytest.approx(float(data.c.mean()), abs=0.02)  # both groups in proportion


def test_people_whose_protected_value_is_unknown_are_ignored():
    data = women_and_men()
    x = torch.cat([data.x, 1e6 * torch.ones(40, 4)])
    c = torch.cat([data.c, torch.full((40, 1), torch.nan)])
    fitted = quick().fit(Dataset.from_arrays(x, c, protected=[SEX]))
    torch.testing.assert_close(fitted.members[0](data.x), quick().fit(data).members[0](data.x))
    assert not fitted.held_out.c.isnan().any()


def test_a_person_with_one_unknown_value_still_teaches_the_other():
    data = all_three(600)
    c = data.c.clone()
    c[::2, 0] = torch.nan  # nobody has both
    c[1::2, 1] = torch.nan
    member = quick(refits=1, max_epochs=40, rate=1e-2).fit(replace(data, c=c)).members[0]
    with torch.no_grad():
        out = member(data.x)
    assert share_right(out[:, 0], data.c[:, 0]) > 0.85
    assert float((out[:, 1:4].argmax(1) == data.c[:, 1]).float().mean()) > 0.75


def test_a_group_too_small_to_learn_from_is_refused():
    data = women_and_men()
    data.c[:] = 0.0
    data.c[5] = 1.0
    with pytest.raises(DataError, match="Group '1' of 'sex' has too few people to learn from"):
        quick().fit(data)


# What its outputs are


def test_a_binary_variable_has_one_logit():
    data = women_and_men(800)
    fitted = AuxiliaryModel(refits=2, width=16, max_epochs=15).fit(data)
    with torch.no_grad():
        logits = [member(data.x) for member in fitted.members]
    assert all(logit.shape == (800, 1) for logit in logits)
    assert all(share_right(logit[:, 0], data.c[:, 0]) > 0.85 for logit in logits)
    assert not torch.equal(*logits)  # trained independently


def test_outputs_of_a_categorical_variable_are_centred():
    x, _, race, _ = people(600)
    data = Dataset.from_arrays(x, race, protected=[RACE])
    member = quick(refits=1, max_epochs=40).fit(data).members[0]
    out = member(x).detach()
    assert out.shape == (600, 3)
    torch.testing.assert_close(out.sum(1), torch.zeros(600), atol=1e-5, rtol=0)
    torch.testing.assert_close(autograd_jacobian(member, x).sum(1), torch.zeros(600, 4), atol=1e-5, rtol=0)
    assert float((out.argmax(1) == race).float().mean()) > 0.75


def test_output_of_a_continuous_variable_is_its_standardised_value():
    x, _, _, age = people(600)
    data = Dataset.from_arrays(x, age, protected=[AGE])
    member = quick(refits=1, width=16, max_epochs=60, rate=3e-3).fit(data).members[0]
    with torch.no_grad():
        out = member(x)[:, 0]
    standardised = (age - age.mean()) / age.std()
    assert float((out - standardised).square().mean()) < 0.2  # noise alone is 0.09 / 1.09


def test_heads_stand_one_after_the_other():
    data = all_three()
    member = quick(refits=1).fit(data).members[0]
    out = member(data.x).detach()
    assert out.shape == (300, 5)
    torch.testing.assert_close(out[:, 1:4].sum(1), torch.zeros(300), atol=1e-5, rtol=0)
    assert heads_of(data.protected) == (Head(1), Head(3, centred=True), Head(1))


def test_probabilities_are_offered_instead_of_logits():
    data = all_three()
    logit = quick(refits=1).fit(data).members[0](data.x).detach()
    probability = quick(refits=1, output="probability").fit(data).members[0](data.x).detach()
    torch.testing.assert_close(probability[:, 0], logit[:, 0].sigmoid())
    torch.testing.assert_close(probability[:, 1:4], logit[:, 1:4].softmax(1))
    torch.testing.assert_close(probability[:, 4], logit[:, 4])


def test_outputs_follow_the_precision_of_the_rows():
    data = women_and_men()
    member = quick(refits=1).fit(data.to(torch.float64)).members[0]
    assert member(data.x.double()).dtype == torch.float64
    assert member(data.x).dtype == torch.float32
    torch.testing.assert_close(member(data.x.double()).float(), member(data.x))


# Seeds


def test_the_same_seed_gives_the_same_auxiliary_and_another_seed_another_one():
    data = women_and_men()
    first, second, other = (quick(seed=seed).fit(data).members[0](data.x) for seed in (1, 1, 2))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)


def test_the_global_generators_are_left_alone():
    before, numpy_before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    quick(max_epochs=1).fit(all_three())
    assert torch.equal(torch.get_rng_state(), before)
    assert np.array_equal(np.random.get_state()[1], numpy_before)  # noqa: NPY002


def test_a_fixed_auxiliary_is_left_as_it_is():
    data = women_and_men(30)
    fixed = FixedAuxiliary([lambda x: x], data)
    assert fixed.fit(data) is fixed
    assert fixed.held_out is data
