"""The auxiliary: what it sees, what it learns from, what its outputs are."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fairfox.auxiliary import model as module
from fairfox.auxiliary.mlp import MLP
from fairfox.auxiliary.model import AuxiliaryMember, AuxiliaryModel, heads_of
from fairfox.auxiliary.training import centre_and_spread, protected_loss
from fairfox.data.dataset import Dataset, Protected
from fairfox.errors import DataError
from fairfox.gradients.alignment import Head
from fairfox.gradients.jacobian import autograd_jacobian

RACE = Protected("race", "categorical", ("a", "b", "c"))
AGE = Protected("age", "continuous", ())
SEX = Protected("sex")
TWO = Protected("sex", "categorical", ("w", "m"))


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


def test_withheld_columns_and_columns_that_never_vary_have_exactly_zero_derivatives():
    data = women_and_men()
    data.x[:, 2] = 7.0
    data = replace(data, withheld=torch.tensor([True, False, False, False]))  # the column that tells sex
    elsewhere = data.x.clone()
    elsewhere[:, 2] = torch.linspace(-5, 5, len(data))
    for member in quick().fit(data).members:
        jac = autograd_jacobian(member, elsewhere)
        assert jac.abs().amax((0, 1)).bool().tolist() == [False, True, False, True]
        torch.testing.assert_close(member(elsewhere), member(data.x))


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_the_jacobian_by_layers_is_that_of_the_member_itself(depth):
    protected = [SEX, RACE, AGE, TWO]
    net = MLP(4, 6, width=8, depth=depth).member(0)
    member = AuxiliaryMember.of(net, torch.tensor([True, False, True, True]), protected)
    x = people(20)[0]
    oracle = torch.func.vmap(torch.func.jacrev(lambda row: member(row[None])[0]))(x)
    assert oracle.shape == (20, 7, 4)
    torch.testing.assert_close(autograd_jacobian(member, x), oracle, atol=1e-6, rtol=1e-5)


# What it learns from


def watched(monkeypatch, data):
    """Return the rows, targets and validation targets that a network is trained on, and the held-out people."""
    seen = []

    def watching(net, x, targets, **options):
        seen.append((x.clone(), targets, options["valid_targets"]))
        return train(net, x, targets, **options)

    train = module.train
    monkeypatch.setattr(module, "train", watching)
    held_out = quick(max_epochs=1).fit(data).held_out
    return *seen[0], held_out


def test_held_out_rows_are_not_trained_on(monkeypatch):
    data = women_and_men()
    data.x[:, 3] = torch.arange(len(data)) / 100  # names every row
    x, _, _, held_out = watched(monkeypatch, data)
    trained, kept = set(x[:, 3].tolist()), set(held_out.x[:, 3].tolist())
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
    told = "Group '1' of 'sex' has too few people to learn from: 1 found, at least 10 are needed; merge rare classes"
    with pytest.raises(DataError, match=told):
        quick().fit(data)


def test_a_variable_nobody_knows_is_refused():
    data = all_three()
    data.c[:, 2] = torch.nan
    with pytest.raises(DataError, match="Nobody's 'age' is known in the fitting rows"):
        quick().fit(data)


# How much people count


@pytest.mark.parametrize("weighted", [False, True])
def test_numbers_are_standardised_by_all_known_rows(monkeypatch, weighted):
    data = all_three()
    data.c[:50, 2] = torch.nan
    weights = torch.rand(300, generator=torch.Generator().manual_seed(1)) if weighted else None
    _, targets, valid_targets, _ = watched(monkeypatch, replace(data, weights=weights))
    both = torch.cat([targets, valid_targets])
    count = both[:, 3] if weighted else torch.ones(300)
    known = ~both[:, 2].isnan()
    assert both.shape[1] == (4 if weighted else 3)
    assert float(np.average(both[known, 2], weights=count[known])) == pytest.approx(0, abs=1e-5)
    assert float(np.average(both[known, 2] ** 2, weights=count[known])) == pytest.approx(1, abs=1e-5)
    assert float(count.mean()) == pytest.approx(1, abs=1e-5)


def test_centre_and_spread_by_hand():
    c = torch.tensor([10.0, 20.0, torch.nan, 40.0])
    assert [float(part) for part in centre_and_spread(c[:2])] == [15.0, 5.0]
    # 10, 10, 20, 40: mean 20, mean square of (10, 10, 0, 20) is 150
    mean, spread = centre_and_spread(c, torch.tensor([2.0, 1.0, 5.0, 1.0]))
    assert (float(mean), float(spread)) == pytest.approx((20.0, 150**0.5))


@pytest.mark.parametrize("protected", [[SEX], [RACE], [AGE], [TWO], [SEX, RACE, AGE]])
def test_a_row_of_weight_two_is_the_row_twice(protected):
    loss = protected_loss(protected)
    generator = torch.Generator().manual_seed(0)
    width = sum(1 if p is TWO else p.outputs for p in protected)
    out = torch.randn(2, 5, width, generator=generator)
    c = torch.randint(2, (2, 5, len(protected)), generator=generator).float()
    weights = torch.tensor([2.0, 1.0, 1.0, 1.0, 1.0])
    weighted = torch.cat([c, (weights / weights.mean()).expand(2, 5)[..., None]], dim=2)
    twice = [torch.cat([part, part[:, :1]], dim=1) for part in (out, c)]
    torch.testing.assert_close(loss(out, weighted), loss(*twice))


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


def test_two_classes_are_learned_as_a_binary_variable_is():
    data = all_three()
    both = replace(data, protected=(TWO, RACE, AGE))
    binary = quick(max_epochs=8).fit(data).members
    pairs = quick(max_epochs=8).fit(both).members
    for one, other in zip(binary, pairs, strict=True):
        single, pair = one(data.x).detach(), other(data.x).detach()
        z = single[:, :1]
        expected = torch.cat([-z / 2, z / 2], dim=1)
        torch.testing.assert_close(pair[:, :2], expected, atol=1e-6, rtol=1e-6)
        torch.testing.assert_close(pair[:, 2:], single[:, 1:], atol=1e-6, rtol=1e-6)
    assert heads_of(data.protected) == (Head(1), Head(3, centred=True), Head(1))
    assert heads_of(both.protected) == (Head(2, centred=True), Head(3, centred=True), Head(1))


def test_outputs_follow_the_precision_of_the_rows():
    data = women_and_men()
    member = quick(refits=1).fit(data.to(torch.float64)).members[0]
    assert member(data.x.double()).dtype == torch.float64
    assert member(data.x).dtype == torch.float32
    torch.testing.assert_close(member(data.x.double()).float(), member(data.x))
