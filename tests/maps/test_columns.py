from dataclasses import replace

import torch
from populations import block, individuals, one_hot

from fairfox.data.dataset import Dataset, Feature
from fairfox.maps.columns import features_among, outside, ranks_of, with_ranks
from fairfox.maps.protocol import UNKNOWN, Mapped
from fairfox.maps.ranks import kept_missing

NAN = float("nan")
FEATURES = (Feature("debt", "continuous", 0, 2), block("job", "ab", start=2), Feature("age", "continuous", 4, 5))


def with_own_group(c: list[float]) -> Dataset:
    """Return people with a number and, withheld, their sex."""
    sex = torch.tensor(c).nan_to_num().long()
    x = torch.cat([torch.arange(len(c)).double()[:, None], one_hot(sex, 2)], dim=1)
    features = (Feature("pay", "continuous", 0, 1), block("sex", ("f", "m"), start=1))
    return individuals(x, c, features=features, withheld=torch.tensor([False, True, True]))


def test_the_largest_distance_of_an_entry_is_found_and_numbers_do_not_count():
    x = torch.tensor([[9.0, 0, 0.5, 0.5, -9], [9, 0, 1.25, -0.5, 9], [0, 0, 3, 0, 0]])
    assert outside(x, FEATURES).tolist() == [0, 0.5, 2]
    assert outside(x, FEATURES[2:]).tolist() == [0, 0, 0]


def test_what_was_missing_stays_as_it_was():
    before = torch.tensor([[0.0, 1, 1, 0, 3], [2, 0, 1, 0, 3]])
    assert kept_missing(before + 5, before, FEATURES).tolist() == [[0, 6, 6, 5, 8], [7, 5, 6, 5, 8]]


def test_features_find_their_places_among_some_columns():
    found = features_among(FEATURES, torch.tensor([False, False, True, True, True]))
    assert [(f.name, f.start, f.stop) for f in found] == [("job", 0, 2), ("age", 2, 3)]
    assert found[0].levels == ("a", "b")
    assert features_among(FEATURES, torch.zeros(5, dtype=torch.bool)) == ()


def test_there_are_ranks_only_of_columns_that_are_there():
    data = with_own_group([0, 1, 0, 1])
    assert ranks_of(data, 0, torch.zeros(3, dtype=torch.bool), seed=0) is None
    ranks = ranks_of(data, 0, data.withheld, seed=0)
    assert ranks is not None
    assert ranks.map(data).rows.tolist() == [[0, 0, 1], [1, 1, 0], [2, 0, 1], [3, 1, 0]]  # the number stays


def test_ranks_of_weighted_rows_are_those_of_the_people_they_stand_for():
    data = replace(with_own_group([0, 1, 0, 1]), weights=torch.tensor([1.0, 1.0, 0.0, 0.0]))
    ranks = ranks_of(data, 0, torch.tensor([True, False, False]), seed=0)
    assert ranks is not None
    assert ranks.map(data).rows[:2, 0].tolist() == [1, 0]  # each group has but one person, at 0 and at 1


def test_columns_are_set_beside_what_a_map_says_and_who_cannot_go_keeps_their_row():
    data = with_own_group([0, 1, 0, 1, NAN])
    ranks = ranks_of(data[:4], 0, data.withheld, seed=0)
    stay = torch.tensor([False, False, True, False, False])
    mapped = Mapped(data.x + 10, stay, "another reason", torch.arange(5.0))
    out = with_ranks(mapped, ranks, data, 1 - data.c[:, 0])
    assert out.abstained.tolist() == [False, False, True, False, True]
    assert out.rows[[0, 1, 3]].tolist() == [[10, 0, 1], [11, 1, 0], [13, 1, 0]]
    assert torch.equal(out.rows[out.abstained], data.x[out.abstained])
    assert out.reason == UNKNOWN
    assert out.overshoot is mapped.overshoot
    assert with_ranks(mapped, None, data, 1 - data.c[:, 0]) is mapped
    few = with_ranks(Mapped(data.x[:4] + 10, stay[:4], "another reason"), ranks, data[:4], 1 - data.c[:4, 0])
    assert few.reason == "another reason"  # nobody more stays
