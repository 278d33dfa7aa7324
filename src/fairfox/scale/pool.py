"""Tasks in worker processes on this machine: as many as there are cores, and none of them dies in silence."""

from __future__ import annotations

import os
import pickle
import signal
import traceback
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import connection, get_context, parent_process
from threading import Thread
from typing import Any

import torch

from fairfox.scale.job import Job
from fairfox.scale.parts import Outcome, Task, Tick, run_task

_POLL = 0.5  # seconds between two looks at workers that say nothing
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


def run_here(job: Job, tasks: Sequence[Task], tick: Tick) -> Iterator[Outcome]:
    """Yield the outcome of each task, done in this process with one thread, and one that reads ahead for a GPU."""
    threads = torch.get_num_threads()
    try:
        for task in tasks:
            yield run_task(job, task, tick, ahead=job.device != "cpu")
    finally:
        torch.set_num_threads(threads)


@dataclass(eq=False)
class _Worker:
    """A process, the pipe to it, what it is at, and whether that has killed another one before."""

    process: Any
    pipe: Any
    task: Task | None = None
    again: bool = False


def run_pool(job: Job, tasks: Sequence[Task], workers: int, tick: Tick) -> Iterator[Outcome]:
    """Yield the outcomes of all tasks as they come, from worker processes with one thread each.

    The task of a worker that dies is given to a new one; when that dies too, the task has failed.
    """
    waiting: deque[tuple[Task, bool]] = deque((task, False) for task in tasks)
    crew: list[_Worker] = []
    content = pickle.dumps(job)
    with _environment(_ONE_THREAD):
        try:
            while waiting or any(worker.task for worker in crew):
                while len(crew) < min(workers, len(waiting) + sum(worker.task is not None for worker in crew)):
                    crew.append(_hire(content))
                _give_out(waiting, crew)
                for worker in _heard(crew):
                    yield from _told(worker, crew, waiting, tick)
        finally:
            for worker in crew:
                worker.process.terminate()
                worker.process.join()


def _hire(job: bytes) -> _Worker:
    context = get_context("spawn")  # forks of a process with threads may hang
    here, there = context.Pipe()
    taken, handed = context.Pipe(duplex=False)  # people of the job's example are never on a disk
    process = context.Process(target=_work, args=(taken, there), daemon=True)
    process.start()
    there.close()  # so that the pipe ends when the worker does
    taken.close()
    Thread(target=_hand, args=(handed, job), daemon=True).start()  # a worker that starts takes nothing for a while
    return _Worker(process, here)


def _hand(pipe: Any, job: bytes) -> None:
    """Give a worker its job, and nothing more."""
    try:
        pipe.send_bytes(job)
    except OSError:  # it is dead already, as will be heard
        return
    finally:
        pipe.close()


def _give_out(waiting: deque[tuple[Task, bool]], crew: Sequence[_Worker]) -> None:
    for worker in crew:
        if worker.task is None and waiting:
            worker.task, worker.again = waiting.popleft()
            try:
                worker.pipe.send(worker.task)
            except OSError:  # it is dead already, as will be heard
                continue


def _heard(crew: Sequence[_Worker]) -> list[_Worker]:
    """Return the busy workers that have something to say, after a while."""
    said = connection.wait([worker.pipe for worker in crew if worker.task is not None], timeout=_POLL)
    return [worker for worker in crew if worker.pipe in said]


def _told(worker: _Worker, crew: list[_Worker], waiting: deque[tuple[Task, bool]], tick: Tick) -> Iterator[Outcome]:
    """Yield the outcome of a worker's task where it has come to one."""
    assert worker.task is not None
    try:
        message = worker.pipe.recv()
    except (EOFError, OSError):
        crew.remove(worker)
        worker.process.join()
        if worker.again:
            yield Outcome(worker.task, error=_blame(worker.task))
        else:
            waiting.appendleft((worker.task, True))
        return
    if isinstance(message, int):
        tick(message)
    elif isinstance(message, Outcome):
        worker.task = None
        yield message
    else:
        raise RuntimeError(f"A worker failed in a way that was not expected:\n{message}")


def _blame(task: Task) -> str:
    first, last = task.part.first_row, task.part.first_row + task.part.rows - 1
    return (
        f"'{task.part.source.name}', rows {first} to {last}: the worker process died twice (out of memory, or the "
        "model ended it); give it more memory, or fewer people at a time (--part-rows, --workers)"
    )


def _work(taken: Any, pipe: Any) -> None:
    """Be a worker: do what is asked, leave Ctrl-C to the parent, and end when that does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_follow_parent, daemon=True).start()
    try:
        job: Job = pickle.loads(taken.recv_bytes())
        while True:
            pipe.send(run_task(job, pipe.recv(), pipe.send))
    except EOFError:
        return
    except Exception:  # a bug, to be shown where people look
        pipe.send(traceback.format_exc())


def _follow_parent() -> None:
    parent = parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    os._exit(1)  # parents that are killed cannot tell their workers


@contextmanager
def _environment(settings: dict[str, str]) -> Iterator[None]:
    """Hand settings to the processes that are started meanwhile."""
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
