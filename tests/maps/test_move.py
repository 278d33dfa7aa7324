"""The move map: along the auxiliary's direction until it takes people for members of the other group."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from populations import Function, block, individuals, linear, normal, one_hot, seeded
from sklearn.linear_model import LinearRegression
from torch import Tensor, nn

from fairfox.auxiliary.linear import LinearMember
from fairfox.auxiliary.model import FixedAuxiliary
from fairfox.data.dataset import Dataset, Protected
from fairfox.errors import OptionError, ShapeError
from fairfox.maps.move import GroupLogits, MoveMap, OutputLine
from fairfox.maps.protocol import OFF_RANGE
from fairfox.models.protocol import Model


class Bent:
    """A smooth auxiliary that is not linear."""

    differentiable = True

    def __init__(self, inputs: int) -> None:
        net = seeded(lambda: nn.Sequential(nn.Linear(inputs, 8), nn.Tanh(), nn.Linear(8, 1)))
        self.net = net.requires_grad_(False)

    def __call__(self, x: Tensor) -> Tensor:
        return self.net(x)


def world(n: int = 60, columns: int = 3, *, seed: int = 0) -> Dataset:
    x = torch.randn(n, columns, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    x[1::2, 0] += 1.5  # the second group
    x[:, 1] += 0.5 * x[:, 0]
    return individuals(x)


RACE = Protected("race", "categorical", ("a", "b", "c"))
AGE = Protected("age", "continuous", ())
NAN = float("nan")
# Centred logits of three classes: x0, x1 and -x0 - x1
THREE = LinearMember(torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]]).double(), torch.zeros(3).double())


def three_groups() -> Dataset:
    x = torch.tensor([[2.0, 0.0], [4.0, 0.0], [0.0, 3.0], [0.0, 5.0], [-1.0, -1.0], [-3.0, -3.0]]).double()
    return Dataset.from_arrays(x, c=[0, 0, 1, 1, 2, 2], protected=[RACE])


def four_ages() -> Dataset:
    x = torch.tensor([[0.0, 7.0], [2.0, 5.0], [4.0, 9.0], [6.0, 8.0]]).double()
    return Dataset.from_arrays(x, c=[0.0, 0.0, 4.0, 4.0], protected=[AGE])


def many(n: int, protected: Sequence[Protected], *, columns: int = 4, seed: int = 0) -> Dataset:
    """Return people whose first columns depend on one protected variable each, a little on each other's."""
    generator = torch.Generator().manual_seed(seed)
    c = torch.stack([torch.randint(len(p.levels) or 3, (n,), generator=generator) for p in protected], dim=1)
    x = torch.randn(n, columns, generator=generator).double()
    x[:, : len(protected)] += c + 0.3 * c.flip(1)
    return Dataset.from_arrays(x, c.double(), protected=protected)


def random_member(outputs: int, columns: int = 4, *, seed: int = 0) -> LinearMember:
    weights = torch.randn(outputs, columns, generator=torch.Generator().manual_seed(seed)).double()
    return LinearMember(weights, torch.arange(outputs).double())


def moved(data: Dataset, auxiliary: Model, **options: Any) -> Tensor:
    return MoveMap(auxiliary=FixedAuxiliary([auxiliary]), **options).fit(data).map(data).rows


@pytest.mark.parametrize("metric", ["identity", "covariance", "between"])
@pytest.mark.parametrize("steps", [1, 8])
@pytest.mark.parametrize("carry", [0.0, 1.0, "adaptive"])
def test_a_linear_auxiliary_is_taken_exactly_to_its_target(metric: Any, steps: int, carry: Any):
    data, auxiliary = world(), linear(2.0, -1.0, 0.5, bias=0.3)
    logit = auxiliary(data.x)[:, 0]
    target = GroupLogits.of(logit, data.c[:, 0]).where_to(logit, data.c[:, 0].long(), carry)
    x = moved(data, auxiliary, metric=metric, steps=steps, carry=carry)
    torch.testing.assert_close(auxiliary(x)[:, 0], target, atol=1e-10, rtol=0)


def test_the_smallest_move_is_along_the_gradient():
    # logits 2 x0 of the groups: means 0 and 4, so that everyone moves 2 along x0 at carry 1
    data = individuals(torch.tensor([[-1.0, 5.0], [1.0, 6.0], [1.0, 7.0], [3.0, 8.0]]).double(), c=[0, 0, 1, 1])
    x = moved(data, linear(2.0, 0.0), metric="identity", carry=1.0)
    torch.testing.assert_close(x, torch.tensor([[1.0, 5.0], [3.0, 6.0], [-1.0, 7.0], [1.0, 8.0]]).double())


def test_the_between_metric_moves_along_the_difference_of_the_means():
    data = world()
    gap = data.x[1::2].mean(0) - data.x[::2].mean(0)
    step = (moved(data, linear(1.0, 0.0, 0.0), metric="between", carry=0.0) - data.x)[::2]
    cosine = torch.nn.functional.cosine_similarity(step, gap.expand_as(step))
    assert float(cosine.abs().min()) > 0.95


def test_a_bent_auxiliary_is_followed_in_steps():
    data, auxiliary = world(), Bent(3)
    logit = auxiliary(data.x)[:, 0]
    target = GroupLogits.of(logit, data.c[:, 0]).where_to(logit, data.c[:, 0].long(), 0.0)
    missed = [(auxiliary(moved(data, auxiliary, steps=s, carry=0.0))[:, 0] - target).abs().mean() for s in (1, 8)]
    assert missed[1] < missed[0] / 10


@pytest.mark.parametrize("auxiliary", [linear(2.0, -1.0, 0.5, bias=0.3), Bent(3)], ids=["linear", "bent"])
def test_the_covariance_move_does_not_depend_on_how_features_are_mixed(auxiliary: Model):
    data = world()
    mixing = torch.tensor([[2.0, 1.0, 0.0], [-1.0, 3.0, 0.5], [0.3, 0.0, -1.5]], dtype=torch.float64)
    mixed = individuals(data.x @ mixing)
    plain = moved(data, auxiliary, metric="covariance", shrink=0.0)
    unmixed = Function(lambda x: auxiliary(x @ torch.linalg.inv(mixing)))
    other = moved(mixed, unmixed, metric="covariance", shrink=0.0)
    torch.testing.assert_close(other, plain @ mixing, atol=1e-4, rtol=0)
    shrunk = moved(mixed, unmixed, metric="covariance", shrink=0.5)
    assert float((shrunk - plain @ mixing).abs().max()) > 1e-2


def test_people_where_the_auxiliary_is_flat_stay_and_are_abstained():
    data = world()
    kinked = Function(lambda x: torch.relu(x[:, :1]))
    out = MoveMap(auxiliary=FixedAuxiliary([kinked]), metric="identity").fit(data).map(data)
    flat = data.x[:, 0] <= 0
    assert out.abstained[flat].all()
    assert torch.equal(out.rows[out.abstained], data.x[out.abstained])
    assert not out.abstained.all()
    assert torch.isfinite(out.rows).all()


def test_one_of_many_classes_is_reached_by_hand():
    data = three_groups()
    fitted = MoveMap(auxiliary=FixedAuxiliary([THREE]), metric="identity", carry=0.0).fit(data)
    rows = fitted.map(data, torch.tensor([1.0, 1.0, NAN, NAN, 1.0, 1.0])).rows
    # From a to b: l = x1 - x0, means -3 and 4, along (-1, 1) / 2: from -2 and -4 it is 6 and 8 to 4.
    # From c to b: l = -x0 - 2 x1, means 6 and -8, along (-1, -2) / 5: from 3 and 9 it is -11 and -17 to -8.
    expected = [[-1.0, 3.0], [0.0, 4.0], [0.0, 3.0], [0.0, 5.0], [1.2, 3.4], [0.4, 3.8]]
    torch.testing.assert_close(rows, torch.tensor(expected).double())
    fitted.carry = 1.0  # spreads 1 and 1: 5 and 3 are to be reached; 3 and 2: -10 and -6
    rows = fitted.map(data, torch.tensor([1.0, 1.0, NAN, NAN, 1.0, 1.0])).rows
    expected = [[-1.5, 3.5], [0.5, 3.5], [0.0, 3.0], [0.0, 5.0], [1.6, 4.2], [0.0, 3.0]]
    torch.testing.assert_close(rows, torch.tensor(expected).double())


@pytest.mark.parametrize("metric", ["identity", "covariance", "between"])
@pytest.mark.parametrize("carry", [1.0, "adaptive"])
def test_every_pair_of_classes_is_a_world_of_its_own(metric: Any, carry: Any):
    data, auxiliary = many(90, [RACE]), random_member(3)
    fitted = MoveMap(auxiliary=FixedAuxiliary([auxiliary]), metric=metric, carry=carry).fit(data)
    out, c = auxiliary(data.x), data.c[:, 0]
    for own, other in [(0, 1), (2, 0), (1, 2)]:
        pair = (c == own) | (c == other)
        logit = (out[:, other] - out[:, own])[pair]
        own_class = (c[pair] == other).long()
        target = GroupLogits.of(logit, own_class).where_to(logit, own_class, carry)
        rows = fitted.map(data, torch.where(c == own, float(other), NAN)).rows
        after = (auxiliary(rows)[:, other] - auxiliary(rows)[:, own])[pair]
        torch.testing.assert_close(after[own_class == 0], target[own_class == 0], atol=1e-9, rtol=0)
        assert torch.equal(rows[c != own], data.x[c != own])


def test_the_outputs_of_the_own_head_are_moved():
    data = many(80, [RACE, Protected("sex"), AGE])
    auxiliary = random_member(5)
    alone = Dataset.from_arrays(data.x, data.c[:, 1], protected=[Protected("sex")])
    own = LinearMember(auxiliary.weights[3:4], auxiliary.bias[3:4])
    rows = MoveMap(auxiliary=FixedAuxiliary([auxiliary]), variable=1).fit(data).map(data).rows
    torch.testing.assert_close(rows, moved(alone, own))


@pytest.mark.parametrize(("carry", "rest"), [(0.0, 0.0), (1.0, 1.0), ("adaptive", 0.04)])
def test_a_number_is_moved_by_its_standard_deviation_by_hand(carry: Any, rest: float):
    data = four_ages()  # the standard deviation is 2, the output x0 has the line 1 + c
    fitted = MoveMap(auxiliary=FixedAuxiliary([linear(1.0, 0.0)]), metric="identity", carry=carry).fit(data)
    out = fitted.map(data, torch.tensor([1.0, 1.0, -1.0, -1.0]))
    assert not out.abstained.any()
    # nobody is near c = 2: those at 0 go on to 4 and those at 4 to 0, where the line is at 5 and at 1
    expected = [[5 - rest, 7.0], [5 + rest, 5.0], [1 - rest, 9.0], [1 + rest, 8.0]]
    torch.testing.assert_close(out.rows, torch.tensor(expected).double())


def test_numbers_beyond_all_others_are_not_mapped():
    data = four_ages()
    out = MoveMap(auxiliary=FixedAuxiliary([linear(1.0, 0.0)])).fit(data).map(data, torch.ones(4).double())
    assert out.abstained.tolist() == [False, False, True, True]
    assert out.reason == OFF_RANGE
    assert torch.equal(out.rows[2:], data.x[2:])
    down = MoveMap(auxiliary=FixedAuxiliary([linear(1.0, 0.0)])).fit(data).map(data, -torch.ones(4).double())
    assert down.abstained.tolist() == [True, True, False, False]


@pytest.mark.parametrize("weighted", [False, True])
def test_the_between_metric_of_a_number_follows_the_slopes_of_the_features(weighted: bool):
    data = many(200, [AGE])
    weights = torch.arange(200).double() if weighted else None
    data = replace(data, weights=weights)
    fitted = MoveMap(auxiliary=FixedAuxiliary([random_member(1)])).fit(data)
    c = data.c.numpy()
    oracle = LinearRegression().fit(c, data.x.numpy(), sample_weight=None if weights is None else weights.numpy())
    torch.testing.assert_close(fitted.geometry.gaps[0], torch.as_tensor(oracle.coef_[:, 0]))


@pytest.mark.parametrize("variable", [0, 1, 2])
def test_what_sets_groups_apart_is_read_off_people_who_are_alike_in_the_others(variable: int):
    data = many(120, [Protected("sex"), RACE, AGE], columns=6)
    auxiliary = FixedAuxiliary([random_member(5, columns=6)])
    fitted = MoveMap(auxiliary=auxiliary, variable=variable, hold_others=True).fit(data)
    sex, race, age = data.c.T.numpy()
    columns = np.column_stack([sex, race == 1, race == 2, age])
    oracle = LinearRegression().fit(columns, data.x.numpy()).coef_.T
    gaps = fitted.geometry.gaps
    found = {0: gaps[1:] - gaps[0], 1: gaps[1:] - gaps[0], 2: gaps}[variable]
    torch.testing.assert_close(found, torch.as_tensor(oracle[{0: [0], 1: [1, 2], 2: [3]}[variable]]))


@pytest.mark.parametrize("metric", ["identity", "covariance", "between"])
def test_a_variable_that_only_goes_with_another_one_does_not_move_people_when_that_is_held(metric: Any):
    # race b is mostly migrant; x and the auxiliary's output for `migrant` follow race alone
    rng = torch.Generator().manual_seed(0)
    race = (torch.rand(4000, generator=rng, dtype=torch.float64) < 0.5).double()
    migrant = (torch.rand(4000, generator=rng, dtype=torch.float64) < 0.2 + 0.6 * race).double()
    x = torch.randn(4000, 3, generator=rng, dtype=torch.float64) + race[:, None] * torch.tensor([1.0, 0.5, 0.0])
    data = Dataset.from_arrays(x, torch.stack([race, migrant], dim=1))
    weights = torch.tensor([[2.0, 1.0, 0.0], [1.0, 0.5, 0.1]], dtype=torch.float64)
    auxiliary = FixedAuxiliary([LinearMember(weights, torch.zeros(2).double())])
    alone, held = (
        (MoveMap(auxiliary=auxiliary, metric=metric, variable=1, hold_others=hold).fit(data).map(data).rows - x).norm(
            dim=1
        )
        for hold in (False, True)
    )
    assert float(alone.mean()) > 0.3
    assert float(held.mean()) < float(alone.mean()) / 5


def test_crossings_are_neither_held_nor_hold():
    crossing = Protected("sex x own", "categorical", ("a", "b", "c"), parts=("sex", "own"))
    data = many(60, [Protected("sex"), AGE, crossing])
    auxiliary = FixedAuxiliary([random_member(5)])
    to = torch.where(data.c[:, 2] == 0, 1.0, NAN)
    plain, held = (
        MoveMap(auxiliary=auxiliary, variable=2, hold_others=hold).fit(data).map(data, to).rows
        for hold in (False, True)
    )
    assert torch.equal(plain, held)
    both = Dataset.from_arrays(data.x, data.c[:, :2], protected=data.protected[:2])
    two = FixedAuxiliary([LinearMember(random_member(5).weights[:2], random_member(5).bias[:2])])
    without = MoveMap(auxiliary=two, hold_others=True).fit(both).map(both).rows
    torch.testing.assert_close(MoveMap(auxiliary=auxiliary, hold_others=True).fit(data).map(data).rows, without)


@pytest.mark.parametrize("variable", [0, 1])
def test_a_person_who_counts_twice_is_there_twice(variable: int):
    data, auxiliary = many(60, [RACE, AGE]), FixedAuxiliary([random_member(4)])
    twice = data[torch.cat([torch.arange(60), torch.arange(20)])]
    weighted = replace(data, weights=torch.tensor([2.0] * 20 + [1.0] * 40).double())
    to = torch.where(data.c[:, variable] == 0, 1.0, NAN)
    rows = [MoveMap(auxiliary=auxiliary, variable=variable).fit(one).map(data, to).rows for one in (weighted, twice)]
    torch.testing.assert_close(*rows, atol=1e-9, rtol=0)
    plain = MoveMap(auxiliary=auxiliary, variable=variable).fit(data).map(data, to).rows
    assert float((rows[0] - plain).abs().max()) > 1e-3


def test_blocks_are_put_back_into_shares_and_the_overshoot_is_reported():
    x = one_hot([0, 0, 1, 0, 1, 1], 2)
    data = individuals(x, c=[0, 0, 0, 1, 1, 1], features=(block("job", "ab"),))
    out = MoveMap(auxiliary=FixedAuxiliary([linear(-3.0, 3.0)]), metric="identity", carry=1.0).fit(data).map(data)
    assert float(out.rows.min()) >= 0
    torch.testing.assert_close(out.rows.sum(1), torch.ones(6).double())
    # logits -3 and 3, means -1 and 1: everyone moves 2 logits, 1/3 in each column; the 3rd is in b already
    assert out.overshoot is not None
    torch.testing.assert_close(out.overshoot, torch.tensor([0, 0, 1 / 3, 1 / 3, 0, 0]).double())


@pytest.mark.parametrize("hold_others", [False, True])
def test_withheld_columns_are_set_to_the_class_or_rank_of_the_destination(hold_others: bool):
    data = many(900, [RACE, AGE])
    one = replace(data, x=torch.cat([one_hot(data.c[:, 0].long(), 3), data.c[:, 1:], data.x], dim=1))
    features = (block("race", "abc"), *(replace(f, start=f.start + 4, stop=f.stop + 4) for f in data.features))
    age = replace(data.features[0], name="age", start=3, stop=4)
    withheld = torch.tensor([True] * 4 + [False] * 4)
    one = replace(one, features=(features[0], age, *features[1:]), withheld=withheld)
    seen = random_member(4)
    blind = LinearMember(torch.cat([torch.zeros(4, 4).double(), seen.weights], dim=1), seen.bias)
    to = torch.where(data.c[:, 0] == 0, 2.0, NAN)
    fitted = MoveMap(auxiliary=FixedAuxiliary([blind]), hold_others=hold_others, metric="identity").fit(one)
    out = fitted.map(one, to)
    assert out.abstained.tolist() == to.isnan().tolist()
    went = ~to.isnan()
    assert torch.equal(out.rows[went, :3], one_hot([2] * int(went.sum()), 3))
    if hold_others:
        assert torch.equal(out.rows[:, 3], one.x[:, 3])
    plain = MoveMap(auxiliary=FixedAuxiliary([seen]), hold_others=hold_others, metric="identity").fit(data)
    torch.testing.assert_close(out.rows[:, 4:], plain.map(data, to).rows)


def test_classes_that_unseen_rows_lack_are_judged_by_the_others():
    data, held_out = many(90, [RACE]), many(30, [RACE], seed=1)
    held_out = held_out[held_out.c[:, 0] < 2]
    fitted = MoveMap(auxiliary=FixedAuxiliary([random_member(3)], held_out)).fit(data)
    for pair, rows in (((0, 1), held_out), ((0, 2), data), ((1, 2), data)):
        out = random_member(3)(rows.x)
        means = [(out[:, pair[1]] - out[:, pair[0]])[rows.c[:, 0] == k].mean() for k in pair]
        torch.testing.assert_close(fitted.logits[pair].mean, torch.stack(means))


def test_people_who_know_one_value_only_count_for_that_variable():
    data = many(90, [RACE, AGE])
    data.c[:30, 0] = NAN
    data.c[60:, 1] = NAN
    auxiliary = FixedAuxiliary([random_member(4)])
    both = MoveMap(auxiliary=auxiliary).fit_many(data, 1, seed=0)
    some = data[30:]
    race = MoveMap(auxiliary=auxiliary).fit(some)
    to = torch.where(some.c[:, 0] == 0, 1.0, NAN)
    torch.testing.assert_close(both[0][0].map(some, to).rows, race.map(some, to).rows)
    up = both[1][0].map(data, torch.ones(90).double())
    assert up.abstained[60:].all()


def test_options_that_are_not_allowed_are_refused():
    with pytest.raises(OptionError, match="The metric is 'manhattan'; expected 'identity', 'covariance' or 'between'"):
        MoveMap(metric="manhattan")
    for carry in ("abc", True, None, float("nan"), -0.1, 1.5):
        with pytest.raises(OptionError, match=f"carry is {carry!r}; expected 'adaptive' or a number from 0"):
            MoveMap(carry=carry)
    with pytest.raises(OptionError, match="steps is 0; expected a whole number of at least 1"):
        MoveMap(steps=0)
    with pytest.raises(OptionError, match="shrink is nan; expected a number from 0 to 1"):
        MoveMap(shrink=float("nan"))
    with pytest.raises(ShapeError, match="The auxiliary has 1 outputs; expected 3: "):
        MoveMap(auxiliary=FixedAuxiliary([linear(1.0, 0.0)])).fit(three_groups())


def test_group_statistics_are_worked_by_hand():
    logits = GroupLogits.of(torch.tensor([1.0, 3.0, 7.0, 7.0, 13.0, 99.0]), torch.tensor([0, 0, 1, 1, 1, float("nan")]))
    assert logits.mean.tolist() == [2.0, 9.0]
    torch.testing.assert_close(logits.spread, torch.tensor([1.0, 8.0**0.5]))
    # shares 2/5 and 3/5, mean 6.2: between (2/5) 4.2² + (3/5) 2.8² = 11.76, within (2/5) 1 + (3/5) 8 = 5.2
    assert logits.between == pytest.approx(11.76 / 16.96)


def test_carry_decides_how_much_of_a_persons_typicality_carries_over():
    logits = GroupLogits(mean=torch.tensor([0.0, 10.0]), spread=torch.tensor([1.0, 3.0]), between=0.5)
    here, own = torch.tensor([2.0, 13.0]), torch.tensor([0, 1])
    assert logits.where_to(here, own, 0.0).tolist() == [10.0, 0.0]  # everyone to the other group's mean
    assert logits.where_to(here, own, 1.0).tolist() == [16.0, 1.0]  # as many spreads from it: 2, 1
    assert logits.where_to(here, own, 0.5).tolist() == [13.0, 0.5]
    assert logits.where_to(here, own, "adaptive").tolist() == [11.5, 0.25]  # (1 - 0.5)² = 1/4


def test_a_group_of_one_has_no_spread_to_compare_with():
    logits = GroupLogits.of(torch.tensor([1.0, 4.0, 6.0]), torch.tensor([0.0, 1.0, 1.0]))
    assert logits.where_to(torch.tensor([2.0]), torch.tensor([0]), 1.0).tolist() == [6.0]  # 5 + (2 - 1)


def test_the_line_is_scikit_learn_s_weighted_regression():
    c, noise, weights = normal(3, 50)
    c, output, weights = 40 + 10 * c, c + noise, weights.square()
    oracle = LinearRegression().fit(c[:, None].numpy(), output.numpy(), sample_weight=weights.numpy())
    line = OutputLine.of(output, c, weights)
    assert (float(line.slope), float(line.level)) == pytest.approx((oracle.coef_[0], oracle.intercept_))
    explained = oracle.score(c[:, None].numpy(), output.numpy(), sample_weight=weights.numpy())
    assert line.explained == pytest.approx(explained)
