import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from populations import table_of

from fairfox.data.protected import classes_to_merge, merge_rare_classes, read_protected
from fairfox.data.sources import ProtectedSource
from fairfox.data.table import Table
from fairfox.errors import DataError


def crowd(**counts: int) -> Table:
    return table_of(v=[name for name, count in counts.items() for _ in range(count)])


def merged(table: Table, limit: float) -> ProtectedSource:
    return read_protected("v", table, merge_rare=limit)


@pytest.mark.parametrize(
    ("counts", "limit", "gone"),
    [
        ([50, 30, 20], 0.1, []),
        ([50, 5, 40, 5], 0.1, [1, 3]),  # 5 + 5 = 10, not rarer than a tenth
        ([50, 3, 40, 4], 0.1, [1, 3]),  # 7 of 97 is still rare; 40 is not
        ([60, 30, 5, 5], 0.05, []),  # a share of exactly the limit is not rare
        ([60, 30, 6, 4], 0.05, [2, 3]),  # one rare class joins the next smallest
        ([90, 5, 5], 0.2, [1, 2]),  # together still rare, and two classes are left
        ([95, 5], 0.1, []),  # two classes stay two
        ([25, 25, 25, 25], 0.3, [0, 1, 2, 3]),  # all are rare
        ([40, 40, 10, 10], 0.2, [2, 3]),
        ([60, 20, 20, 1], 0.1, [1, 3]),  # of equal ones the first joins
    ],
)
def test_rare_classes_are_put_together(counts: list[int], limit: float, gone: list[int]):
    assert classes_to_merge(counts, limit) == gone


@settings(deadline=None)
@given(counts=st.lists(st.integers(1, 1000), min_size=2, max_size=12), limit=st.floats(0.001, 0.499))
def test_all_rare_classes_go_and_one_never_goes_alone(counts: list[int], limit: float):
    gone = classes_to_merge(counts, limit)
    shares = np.array(counts) / sum(counts)
    if len(gone) == len(counts):
        assert (shares < limit).all()
        return
    kept = [share for k, share in enumerate(shares) if k not in gone]
    assert len(gone) != 1
    assert min(kept) >= limit or len(counts) == 2
    assert (shares[gone] < limit).sum() >= len(gone) - 1  # at most one that is not rare joins
    assert not gone or shares[gone].max() <= min(kept)  # the smallest go


def test_the_new_class_is_the_last_and_remembers_what_it_is_made_of():
    table = crowd(a=10, b=250, c=5, d=235)
    source = merged(table, 0.03)
    assert source.variable.levels == ("b", "d", "other (a, c)")
    assert source.variable.kind == "categorical"
    assert source.merged == {"other (a, c)": ("a", "c")}
    np.testing.assert_array_equal(source.encode(table_of(v=["a", "b", None, "c", "d"])), [2, 0, np.nan, 2, 1])


@pytest.mark.parametrize(
    ("counts", "name", "told"),
    [
        ({"p": 4, "q": 1}, "other (2 rare classes)", ("2 rare classes",)),
        ({"p": 5, "q": 4}, "other (p and 1 more)", ("p", "1 rare class")),
        ({"p": 4, "q": 6, "r": 1, "s": 7}, "other (q, s and 2 more)", ("q", "s", "2 rare classes")),
        ({"p": 4, "q": 6, "r": 5, "s": 7, "t": 8}, "other (q, r, s and 2 more)", ("q", "r", "s", "t", "1 rare class")),
    ],
)
def test_a_class_of_fewer_than_five_people_is_merged_without_its_name(
    counts: dict[str, int], name: str, told: tuple[str, ...]
):
    table = crowd(a=250, b=200, **counts)
    source = merged(table, 0.03)
    assert source.merged == {name: told}
    assert source.variable.levels == ("a", "b", name)
    assert int((source.encode(table) == 2).sum()) == sum(counts.values())


def test_a_new_value_joins_the_merged_class_and_is_refused_where_there_is_none():
    np.testing.assert_array_equal(merged(crowd(a=50, b=48, c=1, d=1), 0.02).encode(table_of(v=["z", "b"])), [2, 1])
    with pytest.raises(DataError, match="holds 'z' here, but the groups to compare are 'a', 'b', 'c'"):
        merged(crowd(a=50, b=48, c=9), 0.02).encode(table_of(v=["z", "b"]))


def test_missing_values_do_not_count():
    values = ["a"] * 6 + ["b"] * 6 + ["c"] + [None] * 87  # c is 1 of 13
    assert merged(table_of(v=values), 0.05).merged == {}
    assert merged(table_of(v=values), 0.1).merged == {"other (a and 1 more)": ("a", "1 rare class")}


def test_numbers_cuts_and_two_groups_stay_as_they_are():
    table = table_of(v=np.arange(20) + 0.5, w=["x"] + ["y"] * 19)
    for spec in ("v", "v<1", "w"):
        source = read_protected(spec, table)
        assert merge_rare_classes(source, source.encode(table), 0.2) == source


def test_nothing_is_left_where_every_class_is_rare():
    with pytest.raises(DataError) as caught:
        merged(crowd(a=1, b=1, c=1, d=1), 0.3)
    assert str(caught.value) == (
        "Every group of 'v' is rarer than 0.3, so merge_rare (--merge-rare) would leave only one group; give a smaller "
        "share, or a cut that makes two groups"
    )
