from time import sleep

import numpy as np

from fairfox.costs import Cost, measured_cost, resident_bytes


def test_seconds_and_the_memory_at_the_peak_are_measured():
    with measured_cost() as cost:
        held = np.ones(30_000_000)  # 240 MB, touched
        sleep(0.05)
        del held
    assert 0.05 <= cost.seconds < 5
    assert 200e6 < cost.memory < 400e6


def test_costs_of_one_after_the_other_add_their_seconds_and_keep_the_larger_peak():
    assert Cost(1.0, 5) + Cost(2.0, 3) == Cost(3.0, 5)


def test_work_that_fails_is_measured_too():
    try:
        with measured_cost() as cost:
            sleep(0.02)
            raise KeyError("x")
    except KeyError:
        assert cost.seconds >= 0.02


def test_the_memory_of_the_process_is_at_least_that_of_its_imports():
    assert resident_bytes() > 10e6
