"""Gauges of the kernel: what the processes of this one have used."""

import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

from hotloop.loop.gauges import DescendantsGauge, RunQueueGauge
from support.wait import wait_until

SPINS = "import sys; sys.stdin.readline()\nwhile True: pass"


def test_what_processes_use_is_read_while_they_live_and_stays_when_they_end() -> None:
    # Earlier tests may have left processes that rest, such as the server of commands.
    gauge = DescendantsGauge()
    assert gauge.read_ns() == 0
    with subprocess.Popen([sys.executable, "-c", SPINS], stdin=subprocess.PIPE) as child:
        gauge.search()
        begin_ns = gauge.read_ns()
        assert child.stdin is not None
        child.stdin.write(b"\n")
        child.stdin.flush()
        wait_until(lambda: gauge.read_ns() - begin_ns > 100_000_000, "it has used 0.1 s")
        times = psutil.Process(child.pid).cpu_times()
        # The kernel shows hundredths of seconds there.
        assert gauge.read_ns() * 1e-9 >= times.user + times.system - 0.02
        child.kill()
    assert gauge.read_ns() - begin_ns > 100_000_000
    gauge.close()


@pytest.mark.skipif(
    not Path("/proc/self/schedstat").exists(), reason="this kernel does not count it"
)
def test_the_wait_for_a_core_is_of_the_thread_that_made_the_gauge_however_it_is_read() -> None:
    gauge = RunQueueGauge()
    read: list[int] = []

    def elsewhere() -> None:
        read.extend((gauge.read_ns(), gauge.read_ns(keep_lock=True)))

    before_ns = gauge.read_ns()
    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    after_ns = gauge.read_ns(keep_lock=True)
    assert before_ns <= read[0] <= read[1] <= after_ns
    gauge.close()
    assert gauge.read_ns(keep_lock=True) == gauge.read_ns() == 0, "nothing is read any more"
