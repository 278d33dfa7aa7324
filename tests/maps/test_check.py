"""What a map does to people: flips, changes, and whether its rows can be believed; worked by hand."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from populations import block, individuals, one_hot
from sklearn.linear_model import LinearRegression

from fairfox.data.contrasts import HIGHER, Contrast
from fairfox.data.dataset import Dataset, Feature, Protected
from fairfox.maps.check import MapCheck, Support, check_map, flip_sets
from fairfox.maps.gan import mean_distance, mean_regression_error
from fairfox.maps.rank import RankMap

SEX = Protected("sex", "binary", ("Female", "Male"))


def people(x, c, protected=SEX, **more):
    return replace(Dataset.from_arrays(torch.tensor(x), torch.tensor(c), protected=[protected]), **more)


def categories(rows, c, *sizes, **more):
    """Return people with categorical features only, from their level of each."""
    starts = [sum(sizes[:j]) for j in range(len(sizes))]
    features = tuple(
        Feature(f"x{j}", "categorical", a, a + n, tuple(range(n)))
        for j, (a, n) in enumerate(zip(starts, sizes, strict=True))
    )
    x = torch.cat([torch.eye(n)[torch.tensor([row[j] for row in rows])] for j, n in enumerate(sizes)], dim=1)
    return Dataset(x, torch.tensor(c)[:, None], (SEX,), features, **more)


def checked(data, rows, here, there, *, delta=0.05, contrast=Contrast(0), **more) -> tuple[MapCheck, ...]:  # noqa: B008
    support = more.pop("support", None) or Support.of(data, contrast.variable)
    return check_map(data, contrast, here, there - here, rows[None], support=support, delta=delta, **more)


@pytest.fixture
def incomes():
    """Ten women with 0.0 to 0.9 and ten men with 1.0 to 1.9; the model returns the number itself, halved."""
    return people([[k / 10] for k in range(20)], [0.0] * 10 + [1.0] * 10)


def half(x):
    return x[:, 0] / 2


def test_a_map_that_keeps_ranks_accounts_for_the_whole_gap(incomes):
    rows = RankMap().fit(incomes).map(incomes).rows
    women, men = checked(incomes, rows, half(incomes.x), half(rows))
    assert (women.group, women.towards, women.people) == ("sex=Female", "sex=Male", 10)
    assert (women.effect, women.gap, women.accounted) == pytest.approx((0.5, 0.5, 1.0))  # 1.0 higher, halved
    assert (men.effect, men.gap, men.accounted) == pytest.approx((-0.5, -0.5, 1.0))
    assert (women.outside, women.unseen, women.unseen_real) == (0.0, 0.0, 0.0)
    assert women.warnings == men.warnings == ()


def test_a_gap_is_between_people_who_are_judged(incomes):
    rows, here = RankMap().fit(incomes).map(incomes).rows, half(incomes.x)
    here[19] = torch.nan  # the man with 1.9
    women, men = checked(incomes, rows, here, half(rows))
    assert (women.gap, men.gap) == pytest.approx((0.475, -0.475))  # 1.4 and 0.45, halved


def test_a_broken_map_is_warned_about(incomes):
    rows = incomes.x.clone()
    rows[:10] += 0.1  # women hardly move, and nobody of the men has 0.1 to 0.9
    women, men = checked(incomes, rows, half(incomes.x), half(rows))
    assert women.accounted == pytest.approx(0.1)
    assert women.outside == pytest.approx(0.9)  # 0.9 + 0.1 is a man's
    assert women.warnings == (
        "For sex=Female the map accounts for 10 % of the gap between the groups (5.0 of 50.0 points); effects may be "
        "misleading.",
        "For sex=Female the map gives 90 % of people a number outside the range of sex=Male; effects may be "
        "misleading.",
    )
    assert men.accounted == pytest.approx(0.0)
    assert "accounts for 0 % of the gap" in men.warnings[0]


def test_less_than_the_gap_is_expected_where_something_is_given_or_a_graph_says_so(incomes):
    women, _ = checked(incomes, incomes.x, half(incomes.x), half(incomes.x), total=False)
    assert women.accounted == 0.0
    assert not any("gap" in warning for warning in women.warnings)


@pytest.mark.parametrize(("share", "warns"), [(0.55, True), (0.65, False), (1.35, False), (1.45, True), (-0.3, True)])
def test_sixty_to_a_hundred_and_forty_percent_are_well(incomes, share, warns):
    here = half(incomes.x)
    women, _ = checked(incomes, RankMap().fit(incomes).map(incomes).rows, here, here + share * 0.5)
    assert women.accounted == pytest.approx(share, abs=1e-5)
    assert bool(women.warnings) == warns


def test_a_gap_that_may_be_chance_or_does_not_matter_is_not_compared_with(incomes):
    here = half(incomes.x)
    # standard error: each group's variance is 0.25 * 0.0825, over ten people, of both: sqrt(2 * 0.0020625) = 0.064
    noisy = torch.where(incomes.c[:, 0] == 1, here - 0.4, here)  # the gap is 0.1
    assert checked(incomes, incomes.x, noisy, noisy)[0].accounted is None
    wide = torch.where(incomes.c[:, 0] == 1, here - 0.35, here)  # 0.15
    assert checked(incomes, incomes.x, wide, wide)[0].accounted == 0.0
    assert checked(incomes, incomes.x, wide, wide, delta=0.31)[0].accounted is None
    women, men = checked(incomes, incomes.x, wide, wide, deltas={"sex=Female": 0.31})
    assert (women.accounted, men.accounted) == (None, 0.0)
    assert checked(incomes, incomes.x, wide, wide)[0].gap == pytest.approx(0.15)


def test_weighted_people_count_by_weight():
    data = people([[0.0], [1.0], [2.0], [4.0]], [0.0, 0.0, 1.0, 1.0], weights=torch.tensor([3.0, 1.0, 1.0, 3.0]))
    rows = torch.tensor([[2.0], [9.0], [0.0], [0.0]])
    women, men = checked(data, rows, data.x[:, 0], rows[:, 0], delta=0.0)
    assert women.gap == pytest.approx(3.5 - 0.25)  # (2 + 3 * 4) / 4 and 1 / 4
    assert women.effect == pytest.approx((3 * 2 + 8) / 4)
    assert women.outside == pytest.approx(0.25)  # 9 lies beyond 4, and counts one of four
    assert men.outside == 0.0


def test_people_who_were_not_mapped_do_not_count(incomes):
    here = half(incomes.x)
    there = here + 0.5
    there[5:10] = torch.nan
    women, _ = checked(incomes, RankMap().fit(incomes).map(incomes).rows, here, there)
    assert (women.people, women.effect) == (5, pytest.approx(0.5))
    assert women.gap == pytest.approx(0.725 - 0.1)  # the five poorest women


def test_every_group_is_checked_for_each_class_it_goes_to():
    race = Protected("race", "categorical", ("a", "b", "c"))
    data = people([[0.0], [0.1], [1.0], [1.1], [2.0], [2.1]], [0.0, 0.0, 1.0, 1.0, 2.0, 2.0], race)
    here = data.x[:, 0]
    first, second = checked(data, data.x, here, here, contrast=Contrast(0, 2), points=False)
    assert (first.group, second.group, second.towards) == ("race=a", "race=b", "race=c")
    assert (first.gap, second.gap) == pytest.approx((2.0, 1.0))
    assert (
        "For race=b (to race=c) the map accounts for 0 % of the gap between the groups (0 of 1);" in second.warnings[0]
    )


def test_a_number_has_no_gap_and_the_range_of_everyone():
    data = people([[0.0], [1.0], [2.0]], [20.0, 30.0, 40.0], Protected("age", "continuous", ()))
    (found,) = checked(data, data.x + 1, data.x[:, 0], data.x[:, 0] + 1, contrast=Contrast(0, HIGHER))
    assert (found.group, found.towards, found.gap, found.accounted) == ("age", "higher", None, None)
    assert found.outside == pytest.approx(1 / 3)
    assert found.warnings[0].startswith("For age (to higher) the map gives 33 % of people a number outside the range")


def test_missing_numbers_are_not_outside():
    features = (Feature("income", "continuous", 0, 2),)
    data = people([[5.0, 0.0], [0.0, 1.0], [6.0, 0.0], [7.0, 0.0]], [0.0, 0.0, 1.0, 1.0], features=features)
    support = Support.of(data, 0)
    assert support.outside(torch.tensor([[0.0, 1.0], [0.0, 0.0], [6.5, 0.0]]), 1).tolist() == [False, True, False]


def test_a_number_that_is_rounded_is_not_outside():
    support = Support.of(people([[0.0], [0.3], [0.1], [0.3]], [0.0, 0.0, 1.0, 1.0]), 0)
    assert support.outside(torch.tensor([[0.3 + 1e-8], [0.3001]]), 1).tolist() == [False, True]


# husbands are men and wives are women; jobs are anybody's: 2 x 2 x 2 levels, no (wife, man), no (husband, woman)
COUPLES = [(0, 0, 0), (0, 0, 1), (1, 1, 0), (1, 1, 1)] * 25


def test_pairs_of_categories_that_nobody_has_are_expected_as_often_as_the_coupling_says():
    data = categories(COUPLES, [0.0, 0.0, 1.0, 1.0] * 25, 2, 2, 2)
    rows = data.x.clone()
    women = data.c[:, 0] == 0
    rows[women, :4] = torch.tensor([0.75, 0.25, 0.25, 0.75])  # wife .75, husband .25; and man with .75
    found, men = checked(data, rows, data.x[:, 0], data.x[:, 0])
    # wife and man .75 * .75, husband and woman .25 * .25
    assert found.unseen == pytest.approx(0.625, abs=0.01)
    assert (found.unseen_real, men.unseen) == (0.0, 0.0)
    assert found.warnings[-1].startswith("For sex=Female the map gives 6")
    assert "a pair of categories that nobody in the table has (by chance: 0 %)" in found.warnings[-1]


def test_two_levels_of_one_feature_and_levels_never_seen_are_no_pair():
    data = categories(COUPLES, [0.0, 0.0, 1.0, 1.0] * 25, 2, 2, 2)
    rows = data.x.clone()
    rows[:, 4:] = 0.5
    rows[:10, :2] = 0.0  # a category that the encoding does not know
    found, _ = checked(data, rows, data.x[:, 0], data.x[:, 0])
    assert found.unseen == 0.0


def test_real_people_with_a_rare_pair_are_subtracted():
    # 40 people of 40 have a level of their own in both features: nobody's pair is in the other half
    rows = [(k, k) for k in range(40)]
    data = categories(rows, [0.0, 1.0] * 20, 40, 40)
    found, _ = checked(data, data.x, data.x[:, 0], data.x[:, 0])
    assert (found.unseen, found.unseen_real, found.warnings) == (0.0, 1.0, ())


NAN = float("nan")


def test_flips_are_counted_by_group_and_direction():
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


def mixed(**fields):
    """Return two people of group 0 and one of group 1, with a number and a category of three levels."""
    x = torch.cat([torch.tensor([[1.0], [2.0], [9.0]]).double(), one_hot([0, 0, 2], 3)], dim=1)
    features = (Feature("pay", "continuous", 0, 1), block("job", "abc", start=1))
    return individuals(x, [0, 0, 1], features=features, **fields)


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
