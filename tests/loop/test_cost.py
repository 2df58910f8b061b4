"""The cost of the probe, exact on a clock that moves when it is read; and no memory stays open."""

import gc
import weakref
from pathlib import Path

from hotloop.loop.clock import RealClock
from hotloop.loop.control import SharedControl
from hotloop.loop.cost import probe_cost
from support.clock import FakeClock


def test_a_timed_call_costs_its_two_readings_of_the_clock() -> None:
    cost = probe_cost(FakeClock(look_ns=100))
    assert cost.timed_ns == 200
    assert cost.replayed_ns == 200


def test_on_the_real_clock_measuring_takes_time_and_leaves_no_file_open() -> None:
    cost = probe_cost(RealClock())
    assert cost.timed_ns > 0
    assert cost.replayed_ns > 0
    gc.collect()
    before = len(list(Path("/proc/self/fd").iterdir()))
    probe_cost(RealClock())
    gc.collect()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_shared_control_closes_its_memory_when_it_is_no_longer_referenced() -> None:
    control = SharedControl()
    opened, gone = Path(f"/proc/self/fd/{control._fd}"), weakref.ref(control)
    link = opened.readlink()
    del control
    gc.collect()
    assert gone() is None
    assert not opened.exists() or opened.readlink() != link
