"""What the probe costs: exact on a clock that moves when it is read, and what a board leaves."""

import gc
import weakref
from pathlib import Path

from hotloop.loop.board import Board
from hotloop.loop.clock import RealClock
from hotloop.loop.cost import probe_cost
from support.clock import FakeClock


def test_a_timed_call_costs_its_two_looks_at_the_clock() -> None:
    cost = probe_cost(FakeClock(look_ns=100))
    assert cost.timed_ns == 200
    assert cost.replayed_ns == 200


def test_on_the_real_clock_measuring_takes_time_and_leaves_nothing_open() -> None:
    cost = probe_cost(RealClock())
    assert cost.timed_ns > 0
    assert cost.replayed_ns > 0
    gc.collect()
    before = len(list(Path("/proc/self/fd").iterdir()))
    probe_cost(RealClock())
    gc.collect()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_board_closes_its_memory_when_nobody_has_it_any_more() -> None:
    board = Board()
    opened, gone = Path(f"/proc/self/fd/{board._fd}"), weakref.ref(board)
    link = opened.readlink()
    del board
    gc.collect()
    assert gone() is None
    assert not opened.exists() or opened.readlink() != link
