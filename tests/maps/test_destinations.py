import pytest
import torch
from sklearn.linear_model import LinearRegression

from fairfox.maps.destinations import GroupLogits, OutputLine


def test_group_statistics_are_worked_by_hand():
    logits = GroupLogits.of(torch.tensor([1.0, 3.0, 7.0, 7.0, 13.0, 99.0]), torch.tensor([0, 0, 1, 1, 1, float("nan")]))
    assert logits.mean.tolist() == [2.0, 9.0]
    torch.testing.assert_close(logits.spread, torch.tensor([1.0, 8.0**0.5]))
    # shares 2/5 and 3/5, mean 6.2: between (2/5) 4.2² + (3/5) 2.8² = 11.76, within (2/5) 1 + (3/5) 8 = 5.2
    assert logits.between == pytest.approx(11.76 / 16.96)


def test_weighted_group_statistics_are_those_of_repeated_rows():
    logit, c = torch.tensor([1.0, 3.0, 7.0, 13.0]), torch.tensor([0.0, 0.0, 1.0, 1.0])
    weighted = GroupLogits.of(logit, c, torch.tensor([1.0, 1.0, 2.0, 1.0]))
    repeated = GroupLogits.of(torch.cat([logit, logit[2:3]]), torch.cat([c, c[2:3]]))
    torch.testing.assert_close(weighted.mean, repeated.mean)
    torch.testing.assert_close(weighted.spread, repeated.spread)
    assert weighted.between == pytest.approx(repeated.between)


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


def test_the_line_of_an_output_on_a_number_is_worked_by_hand():
    line = OutputLine.of(torch.tensor([0.0, 2.0, 4.0, 6.0]), torch.tensor([0.0, 0.0, 4.0, 4.0]))
    # centred c -2, -2, 2, 2 and output -3, -1, 1, 3: covariance 4, variances 4 and 5
    assert (float(line.slope), float(line.level), line.explained) == pytest.approx((1.0, 1.0, 0.8))
    reach = line.where_to(torch.tensor([0.0, 4.0]), torch.tensor([0.0, 4.0]), torch.tensor([2.0, 2.0]), 0.5)
    assert reach.tolist() == [2.5, 2.5]  # the line is at 3; both are 1 below it where they are
    adaptive = line.where_to(torch.tensor([0.0]), torch.tensor([0.0]), torch.tensor([2.0]), "adaptive")
    assert adaptive.tolist() == pytest.approx([2.96])  # 3 - (1 - 0.8)²


def test_the_line_is_scikit_learn_s_weighted_regression():
    generator = torch.Generator().manual_seed(0)
    c, noise, weights = torch.randn(3, 50, generator=generator, dtype=torch.float64)
    c, output, weights = 40 + 10 * c, c + noise, weights.square()
    oracle = LinearRegression().fit(c[:, None].numpy(), output.numpy(), sample_weight=weights.numpy())
    line = OutputLine.of(output, c, weights)
    assert (float(line.slope), float(line.level)) == pytest.approx((oracle.coef_[0], oracle.intercept_))
    explained = oracle.score(c[:, None].numpy(), output.numpy(), sample_weight=weights.numpy())
    assert line.explained == pytest.approx(explained)
