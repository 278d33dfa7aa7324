import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from populations import block, individuals, one_hot
from scipy.stats import ks_2samp
from sklearn.linear_model import LinearRegression

from fairfox.data.dataset import Feature
from fairfox.errors import ShapeError
from fairfox.flips import flip_sets, mean_distance, mean_regression_error, transparency, two_sample_ks

NAN = float("nan")
GRID = st.integers(-3, 3).map(float)  # few values, many ties


def test_flips_are_told_by_group_and_direction():
    c = torch.tensor([0.0, 0.0, 0.0, 0.0, 1.0, 1.0, NAN, 0.0])
    here = torch.tensor([0.2, 0.5, 0.9, 0.1, 0.7, 0.4, 0.2, 0.1])
    there = torch.tensor([0.5, 0.4, 0.6, 0.3, 0.3, 0.1, 0.9, NAN])
    flips = flip_sets(here, there, c, 0.5)
    assert sorted(flips) == [0, 1]
    assert flips[0].negative.tolist() == [0]  # reaches the cut as the other group
    assert flips[0].positive.tolist() == [1]  # is at the cut only as themselves
    assert flips[0].people == 4
    assert flips[0].share == 0.5
    assert (flips[1].negative.tolist(), flips[1].positive.tolist(), flips[1].people) == ([], [4], 2)


@given(st.lists(st.tuples(GRID, GRID, st.sampled_from([0.0, 1.0, 2.0])), min_size=1, max_size=20))
def test_going_back_turns_every_flip_around(people: list[tuple[float, float, float]]):
    here, there, c = (torch.tensor(each) for each in zip(*people, strict=True))
    there_and_back = flip_sets(here, there, c, 0.5), flip_sets(there, here, c, 0.5)
    for group, flips in there_and_back[0].items():
        assert torch.equal(flips.negative, there_and_back[1][group].positive)
        assert torch.equal(flips.positive, there_and_back[1][group].negative)


def test_predictions_that_do_not_fit_together_are_refused():
    with pytest.raises(ShapeError, match=r"shapes \(2,\), \(3,\), \(2,\); give one number per person"):
        flip_sets(torch.zeros(2), torch.zeros(3), torch.zeros(2), 0.5)


def mixed(**fields):
    """Return two people of group 0 and one of group 1, with a number and a category of three levels."""
    x = torch.cat([torch.tensor([[1.0], [2.0], [9.0]]).double(), one_hot([0, 0, 2], 3)], dim=1)
    features = (Feature("pay", "continuous", 0, 1), block("job", "abc", start=1))
    return individuals(x, [0, 0, 1], features=features, **fields)


def test_transparency_is_the_mean_displacement_summed_over_levels():
    data = mixed()
    rows = data.x + torch.tensor([[1.0, -0.5, 0.25, 0.25], [3.0, 0.0, 0.0, 0.0], [50.0, 0.0, 0.0, 0.0]])
    found = transparency(data, rows)  # of the first two
    torch.testing.assert_close(found.signed, torch.tensor([2.0, -0.25, 0.125, 0.125]).double())
    torch.testing.assert_close(found.strength, torch.tensor([2.0, 0.5]).double())


def test_people_count_as_often_as_their_weights_say_and_others_can_be_asked_for():
    data = mixed(weights=torch.tensor([3.0, 1.0, 7.0]))
    rows = data.x.clone()
    rows[:, 0] += torch.tensor([1.0, 5.0, -4.0])
    assert float(transparency(data, rows).signed[0]) == 2.0  # (3 · 1 + 1 · 5) / 4
    assert float(transparency(data, rows, among=data.c[:, 0] == 1).signed[0]) == -4.0


def test_rows_of_another_shape_are_refused():
    with pytest.raises(ShapeError, match=r"shape \(3, 2\); expected \(3, 4\)"):
        transparency(mixed(), torch.zeros(3, 2))


@given(st.lists(GRID, min_size=1, max_size=20), st.lists(GRID, min_size=1, max_size=20))
def test_ks_is_the_largest_gap_between_shares_below_a_value(here: list[float], there: list[float]):
    gaps = [abs(np.mean(np.array(here) <= value) - np.mean(np.array(there) <= value)) for value in [*here, *there]]
    assert float(two_sample_ks(torch.tensor(here), torch.tensor(there))) == pytest.approx(max(gaps), abs=1e-12)


def test_ks_is_scipy_s():
    rng = np.random.default_rng(0)
    here, there = rng.normal(0, 1, 300), rng.normal(0.3, 1.2, 500)
    found = two_sample_ks(torch.from_numpy(here), torch.from_numpy(there))
    assert float(found) == pytest.approx(ks_2samp(here, there).statistic, abs=1e-12)


def test_distances_are_of_values_that_are_there_and_of_shares_of_levels():
    features = (Feature("pay", "continuous", 0, 2), block("job", "ab", start=2))
    mapped = torch.tensor([[1.0, 0.0, 0.5, 0.5], [2.0, 0.0, 0.7, 0.3], [9.0, 1.0, 0.6, 0.4]])
    real = torch.tensor([[1.0, 0.0, 1.0, 0.0], [5.0, 0.0, 0.0, 1.0], [5.0, 0.0, 1.0, 0.0], [5.0, 0.0, 1.0, 0.0]])
    # pay: at 2 all of the mapped, a quarter of the real; job: 0.6 against 0.75
    assert mean_distance(mapped, real, features) == pytest.approx((0.75 + 0.15) / 2)


def test_the_regressions_are_scikit_learn_s():
    rng = np.random.default_rng(0)
    pay, job = rng.normal(3.0, 2.0, (400, 2)), rng.integers(0, 3, 400)
    pay[:, 1] += pay[:, 0] + 2.0 * job
    train = np.column_stack([pay[:, 0], np.eye(3)[job], pay[:, 1]])
    rows = train[:100] + rng.normal(0, 0.5, (100, 5))
    features = (Feature("a", "continuous", 0, 1), block("job", "xyz", start=1), Feature("b", "continuous", 4, 5))
    scale = np.array([train[:, 0].std(), 1.0, 1.0, 1.0, train[:, 4].std()])
    errors = []
    for f in features:
        others = [j for j in range(5) if j not in range(f.start, f.stop)]
        fitted = LinearRegression().fit(train[:, others], train[:, f.columns] / scale[f.columns])
        errors += list(((fitted.predict(rows[:, others]) - rows[:, f.columns] / scale[f.columns]) ** 2).mean(0))
    found = mean_regression_error(torch.from_numpy(train), torch.from_numpy(rows), features)
    # rows that leave the simplex are not those a ridge agrees about
    assert found == pytest.approx(np.mean(errors), rel=1e-3)
