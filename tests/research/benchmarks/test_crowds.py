"""The people whom benchmarks measure on."""

import numpy as np

BENCH = "crowds"


def test_people_of_both_groups_and_labels_are_there(bench):
    data = bench.population(400, 8)
    assert 0.4 < float(data.c.mean()) < 0.6
    assert 0.3 < float(data.y.mean()) < 0.7


def test_tables_have_numbers_of_the_kind_asked_for(bench):
    assert [str(kind) for kind in bench.people(5, 2, 0, dtype=np.float32).schema.types] == ["float", "float", "string"]
