from collections import deque
from multiprocessing import Pipe

import pytest

from fairfox.scale.parts import Outcome, Task
from fairfox.scale.places import Part, Source
from fairfox.scale.pool import _give_out, _hand, _heard, _told, _Worker

TASKS = [Task(Part(Source("", f"f{n}", 1, None), (0, 1), 10 * n, 10), f"part-{n}") for n in range(3)]


class Process:
    """A process that has ended."""

    def join(self) -> None:
        self.joined = True


def crew_of(count: int) -> tuple[list[_Worker], list]:
    """Return workers, and the other ends of the pipes to them."""
    pipes = [Pipe() for _ in range(count)]
    return [_Worker(Process(), here) for here, _ in pipes], [there for _, there in pipes]


def test_everyone_who_is_idle_gets_a_task_and_says_how_far_it_is():
    crew, ends = crew_of(2)
    waiting = deque((task, False) for task in TASKS)
    _give_out(waiting, crew)
    assert [end.recv() for end in ends] == TASKS[:2]
    assert list(waiting) == [(TASKS[2], False)]
    counted: list[int] = []
    ends[1].send(7)
    assert _heard(crew) == [crew[1]]
    assert list(_told(crew[1], crew, waiting, counted.append)) == []
    ends[1].send(Outcome(TASKS[1]))
    assert list(_told(crew[1], crew, waiting, counted.append)) == [Outcome(TASKS[1])]
    assert counted == [7]
    _give_out(waiting, crew)
    assert [worker.task for worker in crew] == [TASKS[0], TASKS[2]]


def test_the_task_of_a_worker_that_dies_is_given_to_another_and_fails_when_that_dies_too():
    crew, ends = crew_of(2)
    waiting: deque[tuple[Task, bool]] = deque([(TASKS[1], False)])
    _give_out(waiting, crew[:1])
    first = crew[0]
    ends[0].close()
    assert list(_told(first, crew, waiting, lambda rows: None)) == []
    assert len(crew) == 1
    assert first not in crew
    assert list(waiting) == [(TASKS[1], True)]
    _give_out(waiting, crew)
    ends[1].close()
    (outcome,) = _told(crew[0], crew, waiting, lambda rows: None)
    assert "'f1', rows 10 to 19: the worker process died twice" in outcome.error
    assert not outcome.fatal
    assert not waiting
    assert not crew


def test_an_error_that_nobody_expected_is_not_swallowed():
    crew, ends = crew_of(1)
    _give_out(deque([(TASKS[0], False)]), crew)
    ends[0].send("Traceback: ZeroDivisionError")
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        list(_told(crew[0], crew, deque(), lambda rows: None))


def test_a_job_goes_through_a_pipe_and_a_worker_that_is_dead_takes_none():
    taken, handed = Pipe(duplex=False)
    _hand(handed, b"job")
    assert taken.recv_bytes() == b"job"
    assert handed.closed
    with pytest.raises(EOFError):
        taken.recv_bytes()
    taken, handed = Pipe(duplex=False)
    taken.close()
    _hand(handed, b"job")
    assert handed.closed
