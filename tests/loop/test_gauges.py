"""Gauges of the kernel: what the processes of this one have used."""

import subprocess
import sys

import psutil

from hotloop.loop.gauges import DescendantsGauge
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
