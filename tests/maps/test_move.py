from typing import Any

import pytest
import torch
from populations import block, individuals, linear, one_hot, people
from torch import Tensor, nn

from fairfox.auxiliary.linear import LinearMember
from fairfox.auxiliary.model import AuxiliaryModel, FixedAuxiliary
from fairfox.data.dataset import Dataset, Protected
from fairfox.data.encode import fit_encoding
from fairfox.data.table import load_table
from fairfox.errors import NotFittedError, OptionError
from fairfox.maps.move import GroupLogits, MoveMap
from fairfox.models.protocol import Model


class Composed:
    """An auxiliary on other coordinates: the same model of x @ matrix."""

    differentiable = True

    def __init__(self, model: Model, matrix: Tensor) -> None:
        self.model, self.matrix = model, matrix

    def __call__(self, x: Tensor) -> Tensor:
        return self.model(x @ self.matrix)


class Bent:
    """A smooth auxiliary that is not linear."""

    differentiable = True

    def __init__(self, inputs: int) -> None:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.net = nn.Sequential(nn.Linear(inputs, 8), nn.Tanh(), nn.Linear(8, 1)).double().requires_grad_(False)

    def __call__(self, x: Tensor) -> Tensor:
        return self.net(x)


def world(n: int = 60, columns: int = 3, *, seed: int = 0) -> Dataset:
    x = torch.randn(n, columns, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    x[1::2, 0] += 1.5  # the second group
    x[:, 1] += 0.5 * x[:, 0]
    return individuals(x)


def moved(data: Dataset, auxiliary: Model, **options: Any) -> Tensor:
    return MoveMap(auxiliary=FixedAuxiliary([auxiliary]), **options).fit(data).map(data).rows


# --- where people go -----------------------------------------------------------------------------------------------


def test_group_statistics_are_worked_by_hand():
    logits = GroupLogits.of(torch.tensor([1.0, 3.0, 7.0, 7.0, 13.0, 99.0]), torch.tensor([0, 0, 1, 1, 1, float("nan")]))
    assert logits.mean.tolist() == [2.0, 9.0]
    torch.testing.assert_close(logits.spread, torch.tensor([1.0, 8.0**0.5]))
    # shares 2/5 and 3/5, mean 6.2: between (2/5) 4.2² + (3/5) 2.8² = 11.76, within (2/5) 1 + (3/5) 8 = 5.2
    assert logits.between == pytest.approx(11.76 / 16.96)


def test_persistence_decides_how_much_of_a_persons_typicality_carries_over():
    logits = GroupLogits(mean=torch.tensor([0.0, 10.0]), spread=torch.tensor([1.0, 3.0]), between=0.5)
    here, own = torch.tensor([2.0, 13.0]), torch.tensor([0, 1])
    assert logits.where_to(here, own, 0.0).tolist() == [10.0, 0.0]  # everyone to the other group's mean
    assert logits.where_to(here, own, 1.0).tolist() == [16.0, 1.0]  # as many spreads from it: 2, 1
    assert logits.where_to(here, own, 0.5).tolist() == [13.0, 0.5]
    assert logits.where_to(here, own, "adaptive").tolist() == [11.5, 0.25]  # (1 - 0.5)² = 1/4


def test_a_group_of_one_has_no_spread_to_compare_with():
    logits = GroupLogits.of(torch.tensor([1.0, 4.0, 6.0]), torch.tensor([0.0, 1.0, 1.0]))
    assert logits.where_to(torch.tensor([2.0]), torch.tensor([0]), 1.0).tolist() == [6.0]  # 5 + (2 - 1)


@pytest.mark.parametrize("metric", ["identity", "covariance", "between"])
@pytest.mark.parametrize("steps", [1, 8])
@pytest.mark.parametrize("persistence", [0.0, 1.0, "adaptive"])
def test_a_linear_auxiliary_is_taken_exactly_to_its_target(metric: Any, steps: int, persistence: Any):
    data, auxiliary = world(), linear(2.0, -1.0, 0.5, bias=0.3)
    logit = auxiliary(data.x)[:, 0]
    target = GroupLogits.of(logit, data.c[:, 0]).where_to(logit, data.c[:, 0].long(), persistence)
    x = moved(data, auxiliary, metric=metric, steps=steps, persistence=persistence)
    torch.testing.assert_close(auxiliary(x)[:, 0], target, atol=1e-10, rtol=0)


def test_the_smallest_move_is_along_the_gradient():
    # logits 2 x0 of the groups: means 0 and 4, so that everyone moves 2 along x0 at persistence 1
    data = individuals(torch.tensor([[-1.0, 5.0], [1.0, 6.0], [1.0, 7.0], [3.0, 8.0]]).double(), c=[0, 0, 1, 1])
    x = moved(data, linear(2.0, 0.0), metric="identity", persistence=1.0)
    torch.testing.assert_close(x, torch.tensor([[1.0, 5.0], [3.0, 6.0], [-1.0, 7.0], [1.0, 8.0]]).double())


def test_the_identity_metric_moves_only_what_the_auxiliary_reads():
    data = world()
    x = moved(data, linear(1.0, 0.0, -1.0), metric="identity")
    assert torch.equal(x[:, 1], data.x[:, 1])
    assert (x[:, 0] != data.x[:, 0]).all()


def test_the_other_metrics_move_along_what_belongs_together():
    data = world()
    for metric in ("covariance", "between"):
        x = moved(data, linear(1.0, 0.0, 0.0), metric=metric)
        assert ((x - data.x)[::2, 1] > 0).all()  # x1 follows x0 upwards


def test_the_between_metric_moves_along_the_difference_of_the_means():
    data = world()
    gap = data.x[1::2].mean(0) - data.x[::2].mean(0)
    step = (moved(data, linear(1.0, 0.0, 0.0), metric="between", persistence=0.0) - data.x)[::2]
    cosine = torch.nn.functional.cosine_similarity(step, gap.expand_as(step))
    assert float(cosine.abs().min()) > 0.95


def test_a_bent_auxiliary_is_followed_in_steps():
    data, auxiliary = world(), Bent(3)
    logit = auxiliary(data.x)[:, 0]
    target = GroupLogits.of(logit, data.c[:, 0]).where_to(logit, data.c[:, 0].long(), 0.0)
    missed = [(auxiliary(moved(data, auxiliary, steps=s, persistence=0.0))[:, 0] - target).abs().mean() for s in (1, 8)]
    assert missed[1] < missed[0] / 10


@pytest.mark.parametrize("auxiliary", [linear(2.0, -1.0, 0.5, bias=0.3), Bent(3)], ids=["linear", "bent"])
def test_the_covariance_move_does_not_depend_on_how_features_are_mixed(auxiliary: Model):
    data = world()
    mixing = torch.tensor([[2.0, 1.0, 0.0], [-1.0, 3.0, 0.5], [0.3, 0.0, -1.5]], dtype=torch.float64)
    mixed = individuals(data.x @ mixing)
    plain = moved(data, auxiliary, metric="covariance", shrink=0.0)
    other = moved(mixed, Composed(auxiliary, torch.linalg.inv(mixing)), metric="covariance", shrink=0.0)
    torch.testing.assert_close(other, plain @ mixing, atol=1e-4, rtol=0)
    shrunk = moved(mixed, Composed(auxiliary, torch.linalg.inv(mixing)), metric="covariance", shrink=0.5)
    assert float((shrunk - plain @ mixing).abs().max()) > 1e-2


def test_neither_order_nor_batches_matter():
    data, auxiliary = world(), Bent(3)
    fitted = MoveMap(auxiliary=FixedAuxiliary([auxiliary])).fit(data)
    rows = fitted.map(data).rows
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(fitted.map(data[order]).rows, rows[order], atol=1e-12, rtol=0)
    small = MoveMap(auxiliary=FixedAuxiliary([auxiliary]), batch_size=7).fit(data)
    torch.testing.assert_close(small.map(data).rows, rows, atol=1e-12, rtol=0)


# --- who stays -----------------------------------------------------------------------------------------------------


def test_a_dead_auxiliary_abstains_for_everyone():
    data = world()
    out = MoveMap(auxiliary=FixedAuxiliary([linear(0.0, 0.0, 0.0)])).fit(data).map(data)
    assert out.abstained.all()
    assert torch.equal(out.rows, data.x)
    assert "the auxiliary is flat here" in out.reason


class Kinked:
    """An auxiliary that is flat below zero."""

    differentiable = True

    def __call__(self, x: Tensor) -> Tensor:
        return torch.relu(x[:, :1])


def test_people_where_the_auxiliary_is_flat_stay_and_are_abstained():
    data = world()
    out = MoveMap(auxiliary=FixedAuxiliary([Kinked()]), metric="identity").fit(data).map(data)
    flat = data.x[:, 0] <= 0
    assert out.abstained[flat].all()
    assert torch.equal(out.rows[out.abstained], data.x[out.abstained])
    assert not out.abstained.all()
    assert torch.isfinite(out.rows).all()


def test_people_whose_group_is_unknown_stay_and_are_abstained():
    data = world()
    data.c[4] = float("nan")
    out = MoveMap(auxiliary=FixedAuxiliary([linear(1.0, 0.0, 0.0)])).fit(data).map(data)
    assert out.abstained.nonzero()[:, 0].tolist() == [4]
    assert torch.equal(out.rows[4], data.x[4])


# --- blocks and withheld columns -----------------------------------------------------------------------------------


def test_blocks_are_put_back_into_shares_and_the_overshoot_is_told():
    x = one_hot([0, 0, 1, 0, 1, 1], 2)
    data = individuals(x, c=[0, 0, 0, 1, 1, 1], features=(block("job", "ab"),))
    out = MoveMap(auxiliary=FixedAuxiliary([linear(-3.0, 3.0)]), metric="identity", persistence=1.0).fit(data).map(data)
    assert float(out.rows.min()) >= 0
    torch.testing.assert_close(out.rows.sum(1), torch.ones(6).double())
    # logits -3 and 3, means -1 and 1: everyone moves 2 logits, 1/3 in each column; the 3rd is in b already
    assert out.overshoot is not None
    torch.testing.assert_close(out.overshoot, torch.tensor([0, 0, 1 / 3, 1 / 3, 0, 0]).double())


def test_numbers_have_no_overshoot():
    data = world()
    out = MoveMap(auxiliary=FixedAuxiliary([linear(1.0, 0.0, 0.0)])).fit(data).map(data)
    assert out.overshoot is not None
    assert torch.equal(out.overshoot, torch.zeros(60).double())


@pytest.mark.parametrize("metric", ["identity", "covariance", "between"])
def test_withheld_columns_do_not_move_along_and_are_swapped(metric: Any):
    table = load_table(people(200))
    encoding = fit_encoding(table, protected=["sex"], columns=["sex", "income", "age"], dtype=torch.float64)
    data = encoding.encode(table)
    fitted = MoveMap(auxiliary=FixedAuxiliary([linear(0.0, 0.0, 1.0, 0.5)]), metric=metric).fit(data)
    if metric != "identity":
        assert fitted.matrix is not None
        assert not fitted.matrix[data.withheld].any()
        assert not fitted.matrix[:, data.withheld].any()
    out = fitted.map(data).rows
    assert torch.equal(out[:, :2], data.x[:, :2].flip(1))  # the other sex, whole
    without = fit_encoding(table, protected=["sex"], columns=["income", "age"], dtype=torch.float64).encode(table)
    alone = MoveMap(auxiliary=FixedAuxiliary([linear(1.0, 0.5)]), metric="identity").fit(without).map(without).rows
    if metric == "identity":
        torch.testing.assert_close(out[:, 2:], alone)


# --- fitting -------------------------------------------------------------------------------------------------------


def test_statistics_come_from_rows_the_auxiliary_has_not_seen():
    data, held_out = world(), world(40, seed=1)
    auxiliary = FixedAuxiliary([linear(1.0, 0.0, 0.0)], held_out)
    fitted = MoveMap(auxiliary=auxiliary).fit(data)
    expected = GroupLogits.of(held_out.x[:, 0], held_out.c[:, 0])
    assert fitted.logits is not None
    assert torch.equal(fitted.logits.mean, expected.mean)


def test_rows_with_one_group_only_give_no_statistics():
    data = world()
    auxiliary = FixedAuxiliary([linear(1.0, 0.0, 0.0)], data[torch.arange(0, 60, 2)])
    fitted = MoveMap(auxiliary=auxiliary).fit(data)
    assert fitted.logits is not None
    assert torch.isfinite(fitted.logits.mean).all()


def test_one_map_for_each_trained_network():
    data = world(100)
    prototype = MoveMap(auxiliary=AuxiliaryModel(width=8, depth=1, max_epochs=3))
    maps = prototype.fit_many(data, 3, seed=0)
    rows = [one.map(data).rows for one in maps]
    assert len(maps) == 3
    assert not torch.equal(rows[0], rows[1])
    assert prototype.model is None


def test_a_map_that_is_not_fitted_says_so():
    with pytest.raises(NotFittedError, match="This MoveMap is not fitted; call fit first"):
        MoveMap().map(world())


def test_options_that_are_not_allowed_are_refused():
    with pytest.raises(OptionError, match="The metric is 'manhattan'; expected 'identity', 'covariance' or 'between'"):
        moved(world(), linear(1.0, 0.0, 0.0), metric="manhattan")
    race = Protected("race", "categorical", ("a", "b", "c"))
    data = Dataset.from_arrays(torch.zeros(3, 1), c=[0, 1, 2], protected=[race])
    with pytest.raises(
        OptionError, match="The move map compares two groups; give a protected variable with two values"
    ):
        MoveMap(auxiliary=FixedAuxiliary([LinearMember(torch.ones(1, 1), torch.zeros(1))])).fit(data)
