"""Tests that were read from files are looked at and tried before anybody is scored."""

from dataclasses import replace

import pytest
import torch

from fairfox.data.protected import read_variables
from fairfox.data.sources import Crossing, Cut, ProtectedSource
from fairfox.data.table import load_table
from fairfox.errors import FileError
from fairfox.fitted import FittedTest
from fairfox.fitting import fit_test
from fairfox.synthetic.two_groups import LENDING
from fairfox.wholeness import check_whole, made_up, try_out

TABLE = LENDING.sample(200, seed=0).table.drop_columns(["approved"])


@pytest.fixture(scope="module")
def test() -> FittedTest:
    return fit_test(TABLE, protected=["sex", "tenure_years"], refits=1)


def test_made_up_people_are_of_all_groups_and_some_unknown_and_always_the_same(test: FittedTest):
    data, state = made_up(test), torch.get_rng_state()
    assert data.c[:-5, 0].unique().tolist() == [0, 1]
    assert data.c[-5:].isnan().all()
    assert (float(data.c[:-5, 1].min()), float(data.c[:-5, 1].max())) != (0, 0)
    assert torch.equal(made_up(test).x, data.x)
    assert torch.equal(torch.get_rng_state(), state)


def test_a_test_as_it_was_fitted_is_whole_and_works(test: FittedTest):
    check_whole(test, [test, *test.tests.values()])
    try_out(test)


@pytest.mark.parametrize(
    "change",
    [
        {"metric": torch.zeros(1, 1)},
        {"name": "nothing"},
        {"proxy": ()},
        {"proxy": ({}, {})},
        {"quality": ()},
        {"legitimate": ("nothing",)},
    ],
)
def test_parts_of_other_lengths_are_refused(test: FittedTest, change: dict):
    with pytest.raises(FileError, match="do not fit together"):
        check_whole(replace(test, **change), [])


def source(*names: str) -> ProtectedSource:
    return read_variables(names, load_table(TABLE), intersections=len(names) > 1)[-1]


def with_source(test: FittedTest, one: ProtectedSource) -> FittedTest:
    sources = (one, *test.encoding.sources[1:])
    known = replace(test.known, protected=tuple(s.variable for s in sources))
    quality = tuple(replace(q, variable=s.variable.name) for q, s in zip(test.quality, sources, strict=True))
    return replace(test, encoding=replace(test.encoding, sources=sources), known=known, quality=quality)


@pytest.mark.parametrize("spec", ["sex", "income<30000", "sex=Female", "sex==Female", "sex!=Female"])
def test_whatever_reads_a_protected_variable_is_whole(test: FittedTest, spec: str):
    check_whole(with_source(test, source(spec)), [])


def test_a_crossing_is_whole_and_one_of_crossings_is_refused(test: FittedTest):
    crossing = source("sex", "income<30000")
    check_whole(with_source(test, crossing), [])
    assert isinstance(crossing.reader, Crossing)
    again = replace(crossing, reader=replace(crossing.reader, parts=(crossing, crossing)))  # costs double each time
    with pytest.raises(FileError, match="do not fit together"):
        check_whole(with_source(test, again), [])


def test_a_class_that_there_is_not_is_refused(test: FittedTest):
    own = source("sex")
    for classes in ((0, 2), (0,), (-1, 0)):
        with pytest.raises(FileError, match="do not fit together"):
            check_whole(with_source(test, replace(own, reader=replace(own.reader, classes=classes))), [])
    with pytest.raises(FileError, match="do not fit together"):
        check_whole(with_source(test, replace(own, reader=Cut("sex", "<", "x"))), [])


@pytest.mark.parametrize(("name", "value"), [("seed", -1), ("seed", 10**30), ("batch_size", 0), ("batch_size", 2**70)])
def test_numbers_out_of_range_are_refused(test: FittedTest, name: str, value: int):
    with pytest.raises(FileError, match=f"'{name}' in it is not within"):
        check_whole(test, [replace(test, **{name: value})])


def test_a_test_that_cannot_measure_anybody_is_refused(test: FittedTest):
    with pytest.raises(FileError, match=r"do not fit together \(RuntimeError\)"):
        try_out(replace(test, metric=torch.zeros(1, 1, dtype=torch.float64)))
