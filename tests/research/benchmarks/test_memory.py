"""The largest memory of a child is known after it has ended."""

import os
import subprocess
import sys

BENCH = "memory"
BIG = 64  # MB


def test_a_child_that_has_ended_keeps_the_largest_memory_it_had(bench):
    code = f"x = bytearray({BIG} << 20); print(len(x), flush=True); input()"
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdin is not None
    assert child.stdout is not None
    with child.stdin, child.stdout:
        child.stdout.readline()
        peaks = {}
        bench.look(peaks)
        alive = peaks[str(child.pid)]
        assert BIG < alive < 2 * BIG
        child.stdin.write(b"\n")
        child.stdin.flush()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and nobody has waited for it
        assert bench.peak(str(child.pid)) == 0.0
        bench.look(peaks)
    assert peaks[str(child.pid)] == alive
    assert child.wait() == 0
