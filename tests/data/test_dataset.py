from hashlib import sha256

import numpy as np
import pytest
import torch
from populations import SEX, block, individuals, one_hot

from fairfox.data.dataset import Dataset, Feature, Protected, Truth, assign_folds, project_blocks, resample, rows_sha256
from fairfox.errors import DataError, ShapeError


def test_plain_lists_follow_torch_and_arrays_keep_their_dtype():
    assert Dataset.from_arrays([[0.5], [1.0]], c=[0, 1]).x.dtype == torch.float32
    assert Dataset.from_arrays([[1], [2]], c=[0, 1]).x.dtype == torch.float32
    assert Dataset.from_arrays(np.zeros((2, 1)), c=[0, 1]).x.dtype == torch.float64
    data = Dataset.from_arrays(torch.zeros(2, 1, dtype=torch.float64), c=np.array([0, 1]), y=[1, 0])
    assert data.c.dtype == data.x.dtype == torch.float64
    assert data.y.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("c", "kind", "levels"),
    [
        ([0, 1, 1, 0], "binary", ("0", "1")),
        ([0, 1, 2, float("nan")], "categorical", ("0", "1", "2")),
        ([0.5, 1.5, 2.5, 9.0], "continuous", ()),
        ([1, 2, 1, 2], "continuous", ()),  # codes begin at 0
    ],
)
def test_kind_of_the_protected_variable_is_read_off_its_values(c: list[float], kind: str, levels: tuple[str, ...]):
    variable = Dataset.from_arrays(np.zeros((4, 1)), c=c).protected[0]
    assert (variable.name, variable.kind, variable.levels) == ("c", kind, levels)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"x": np.zeros(3), "c": [0, 1, 0]}, "x has 1 dimensions; give a 2-D array"),
        ({"x": np.zeros((3, 1)), "c": [0, 1]}, "2 protected values for 3 individuals; give one each"),
        ({"x": np.zeros((3, 1)), "c": 1}, "0 protected values for 3 individuals"),
        ({"x": np.zeros((2, 1)), "c": [0, 1], "y": [1]}, "1 labels for 2 individuals; give one label each"),
        ({"x": np.zeros((2, 2)), "c": [0, 1], "names": ["a"]}, "1 names for 2 columns; give one name per column"),
    ],
)
def test_arrays_that_do_not_fit_together_are_refused(arguments: dict[str, object], message: str):
    with pytest.raises(ShapeError, match=message):
        Dataset.from_arrays(**arguments)  # type: ignore[arg-type]


def test_a_protected_variable_with_one_value_is_refused():
    with pytest.raises(DataError, match="'c' has 1 value\\(s\\); at least two groups are needed"):
        Dataset.from_arrays(np.zeros((2, 1)), c=[1, 1])


def test_sizes_are_checked_when_a_dataset_is_made():
    with pytest.raises(ShapeError, match="x has 1 dimensions; give one row per individual"):
        Dataset(x=torch.zeros(3), c=torch.zeros(3, 1), protected=(SEX,), features=())
    with pytest.raises(ShapeError, match=r"c has shape \(3,\); expected \(3, 1\)"):
        Dataset(x=torch.zeros(3, 1), c=torch.zeros(3), protected=(SEX,), features=())
    with pytest.raises(ShapeError, match=r"weights have shape \(2,\); expected \(3,\), one each"):
        individuals(torch.zeros(3, 1), weights=torch.ones(2))


def test_columns_of_x_are_named_after_features_and_categories():
    age = Feature("age", "continuous", 0, 2)
    job = Feature("job", "categorical", 2, 4, ("clerk", None))
    data = individuals(torch.zeros(2, 4), features=(age, job))
    assert data.names == ("age", "age is missing", "job=clerk", "job=missing")
    assert age.has_missing
    assert not job.has_missing
    assert job.columns == slice(2, 4)


def full_dataset(n: int = 6) -> Dataset:
    x = torch.arange(2.0 * n).reshape(n, 2)
    truth = Truth(counterfactual=x + 1, dx_dc=x[:, :, None])
    ids = np.array([f"p{i}" for i in range(n)], dtype=object)
    return individuals(x, y=torch.arange(n), ids=ids, truth=truth, weights=torch.arange(float(n)))


@pytest.mark.parametrize(
    "chosen",
    [slice(2, 4), torch.tensor([2, 3]), np.array([2, 3]), torch.tensor([False, False, True, True, False, False])],
    ids=["slice", "tensor", "array", "mask"],
)
def test_chosen_individuals_keep_all_that_is_theirs(chosen: object):
    part = full_dataset()[chosen]  # type: ignore[index]
    assert len(part) == 2
    assert part.x[:, 0].tolist() == [4.0, 6.0]
    assert part.c[:, 0].tolist() == [0.0, 1.0]
    assert part.y.tolist() == [2, 3]
    assert part.weights.tolist() == [2.0, 3.0]
    assert part.ids.tolist() == ["p2", "p3"]
    assert part.truth.counterfactual[:, 0].tolist() == [5.0, 7.0]
    assert part.truth.dx_dc[:, 0, 0].tolist() == [4.0, 6.0]


def test_to_changes_the_dtype_of_numbers_and_not_of_labels():
    data = full_dataset().to(torch.float64)
    assert {data.x.dtype, data.c.dtype, data.weights.dtype, data.truth.counterfactual.dtype} == {torch.float64}
    assert (data.y.dtype, data.withheld.dtype) == (torch.int64, torch.bool)


def test_split_takes_its_share_of_each_group_and_loses_nobody():
    c = torch.tensor([0.0] * 70 + [1.0] * 20 + [float("nan")] * 10)
    data = individuals(torch.arange(100.0)[:, None], c=c)
    first, second = data.split(0.8, seed=3)
    assert [int((first.c[:, 0] == g).sum()) for g in (0, 1)] == [56, 16]
    assert int(first.c.isnan().sum()) == 8
    assert sorted([*first.x[:, 0].tolist(), *second.x[:, 0].tolist()]) == list(range(100))


def test_folds_spread_every_class_of_one_variable_and_the_range_of_a_number():
    generator = torch.Generator().manual_seed(0)
    race = torch.cat([torch.full((n,), float(k)) for k, n in enumerate((50, 30, 20))])
    age = torch.rand(100, generator=generator)
    fold = assign_folds(torch.stack([age, race], dim=1), 5, seed=0)
    for k in range(3):
        counts = torch.bincount(fold[race == k], minlength=5)
        assert int(counts.max() - counts.min()) <= 1
        young = (race == k) & (age < age[race == k].median())  # neighbours in age go to different folds
        counts = torch.bincount(fold[young], minlength=5)
        assert int(counts.max() - counts.min()) <= 1
    first, again, other = (assign_folds(race[:, None], 5, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_folds_of_a_number_without_ties_depend_on_the_seed_and_spread_its_values():
    age = torch.rand(103, generator=torch.Generator().manual_seed(0))
    race = (torch.arange(103) % 4 == 0).float()
    for c, groups in ((age[:, None], [age >= 0]), (torch.stack([race, age], dim=1), [race == 0, race == 1])):
        several = [assign_folds(c, 5, seed=seed, numbers=[c.shape[1] - 1]) for seed in (0, 0, 1, 2)]
        assert torch.equal(several[0], several[1])
        for other in several[2:]:
            assert float((several[0] == other).float().mean()) < 0.5  # one in five by chance
        for fold, members in ((fold, members) for fold in several for members in groups):
            counts = torch.bincount(fold[members], minlength=5)
            assert int(counts.max() - counts.min()) <= 1
            by_age = fold[members][age[members].argsort()]
            for k in range(5):  # first of one block of five and last of the next
                assert int((by_age == k).nonzero()[:, 0].diff().max()) <= 9


def test_parts_of_people_with_a_protected_number_depend_on_the_seed_and_spread_its_values():
    data = Dataset.from_arrays(torch.zeros(100, 1), torch.arange(100.0), protected=[Protected("age", "continuous", ())])
    parts = [data.split(0.8, seed=seed) for seed in (0, 0, 1)]
    held_out = [other.c[:, 0] for _, other in parts]
    assert torch.equal(held_out[0], held_out[1])
    assert not torch.equal(held_out[0], held_out[2])
    assert all((rest // 5).unique().tolist() == list(range(20)) for rest in held_out)  # one of five neighbours each


def test_folds_of_classes_stay_as_they_are():
    race = torch.tensor([0.0, 1, 0, 2, 1, 0, 2, 0, 1, float("nan")])
    both = torch.stack([race, torch.tensor([0.0, 1, 1, 0, 1, 0, 0, 1, 0, 1])], dim=1)
    assert assign_folds(both, 3, seed=4).tolist() == [0, 0, 1, 1, 2, 1, 0, 0, 2, 2]  # as computed by 0.2.0


# --- people drawn again


def several(c: torch.Tensor, protected: tuple[Protected, ...], **fields: object) -> Dataset:
    x = torch.arange(float(len(c)))[:, None]
    return Dataset(x=x, c=c, protected=protected, features=(Feature("x0", "continuous", 0, 1),), **fields)  # type: ignore[arg-type]


RACE = Protected("race", "categorical", ("a", "b", "c"), "race")
AGE = Protected("age", "continuous", (), "age")


def test_every_group_of_all_variables_together_keeps_its_size():
    sex, race = torch.tensor([0.0, 0, 0, 0, 1, 1, 1, 1]), torch.tensor([0.0, 0, 1, 2, 0, 1, 1, float("nan")])
    age = torch.arange(8.0)
    data = several(torch.stack([sex, race, age], dim=1), (SEX, RACE, AGE))
    drawn = resample(data, generator=torch.Generator().manual_seed(1))
    groups, again = (d.c[:, :2].nan_to_num(nan=-1.0).tolist() for d in (data, drawn))
    assert sorted(groups) == sorted(again)
    assert set(drawn.x[:, 0].tolist()) <= set(data.x[:, 0].tolist())


def test_groups_are_drawn_by_their_part_of_all_weights():
    # cells (0, 0), (0, 1), (1, 0), (1, 1) of 100 each with weights 1, 8, 1, 0
    c = torch.cartesian_prod(torch.arange(2.0), torch.arange(2.0)).repeat_interleave(100, 0)
    weights = torch.tensor([1.0, 8.0, 1.0, 0.0]).repeat_interleave(100)
    drawn = resample(several(c, (SEX, Protected("old")), weights=weights), generator=torch.Generator().manual_seed(0))
    cells = (2 * drawn.c[:, 0] + drawn.c[:, 1]).long()
    assert torch.bincount(cells, minlength=4).tolist() == [40, 320, 40, 0]


def test_weighted_people_are_drawn_by_their_weights_and_then_count_alike():
    weights = torch.tensor([0.0, 3.0, 1.0, 0.0]).repeat(1000)
    data = several((torch.arange(4000) >= 2000).float()[:, None], (SEX,), weights=weights)
    drawn = resample(data, generator=torch.Generator().manual_seed(0))
    assert drawn.weights is None
    kind = drawn.x[:, 0].long() % 4
    counts = torch.bincount(kind, minlength=4)
    assert counts[[0, 3]].tolist() == [0, 0]
    assert abs(float(counts[1]) / 4000 - 0.75) < 0.03  # sd: sqrt(0.75 * 0.25 / 4000) = 0.007
    assert int((drawn.c[:, 0] == 1).sum()) == 2000


def test_projection_clips_and_renormalises_blocks_and_leaves_the_rest():
    features = (Feature("age", "continuous", 0, 1), block("job", "abc", start=1), Feature("debt", "continuous", 4, 5))
    x = torch.tensor([[-2.0, 0.5, -0.5, 1.5, -3.0], [1.0, 0.0, 0.0, 0.0, 2.0]])
    out = project_blocks(x, features)  # (0.5, 0, 1.5) / 2; an empty block stays empty
    torch.testing.assert_close(out, torch.tensor([[-2.0, 0.25, 0.0, 0.75, -3.0], [1.0, 0.0, 0.0, 0.0, 2.0]]))


def test_where_clipping_leaves_nothing_the_largest_entry_gets_everything():
    out = project_blocks(torch.tensor([[-3.0, -1.0, -2.0], [0.2, 0.2, -1.0]]), (block("job", "abc"),))
    torch.testing.assert_close(out, torch.tensor([[0.0, 1.0, 0.0], [0.5, 0.5, 0.0]]))


def test_projection_leaves_whole_categories_alone_and_has_a_gradient():
    x = one_hot([0, 2], 3).requires_grad_()
    out = project_blocks(x, (block("job", "abc"),))
    torch.testing.assert_close(out, x)
    out[:, 1].sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, torch.tensor([[0.0, 1.0, 0.0], [0.0, 1.0, 0.0]]).double())


def test_a_dataset_shows_how_many_people_are_in_each_group_and_no_value_of_theirs():
    data = Dataset.from_arrays([[3.25], [7.125], [3.25]], c=[0, 1, 1], names=["debt"])
    assert repr(data) == "<Dataset of 3 people, 1 features in 1 columns; c: 1 of 0, 2 of 1>"
    c = torch.tensor([[0.0, 31.5], [float("nan"), 20.5]])
    shown = repr(several(c, (SEX, AGE), y=torch.zeros(2), weights=torch.ones(2)))
    assert shown.endswith("; sex: 1 of female, 1 unknown; age: 2 with a number; labels; weights>")


def test_rows_have_the_hash_of_their_numbers_in_order():
    data = Dataset.from_arrays(torch.tensor([[1.0], [2.0]]), [0, 1])
    by_hand = sha256(np.float32([1.0, 2.0]).tobytes() + data.c.numpy().tobytes()).hexdigest()
    assert rows_sha256(data) == by_hand
    assert rows_sha256(data[torch.tensor([1, 0])]) != by_hand
