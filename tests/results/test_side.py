"""A side in its process: a test runs as it is ordered to, and only its call is timed."""

import contextlib
import socket
import time
from pathlib import Path

import psutil
import pytest

from hotloop.errors import SideError
from hotloop.loop.conduct import drive
from hotloop.loop.control import SharedControl
from hotloop.loop.loop import Loop
from hotloop.repeat.channel import Channel
from hotloop.repeat.side_process import SideProcess
from hotloop.repeat.sides import Place, parse_side
from hotloop.results.pytest_side import Call
from hotloop.results.side import _Obeying
from support.clock import FakeClock
from support.wait import wait_until

TESTS = """
from pathlib import Path


def test_counted(benchmark, request):
    def call(word):
        with open("calls", "a") as file:
            file.write(word)
        return word

    result = benchmark.pedantic(call, setup=lambda: (("x",), {}))
    assert result == "x"
    Path("after").touch()


def test_ends(benchmark):
    def call():
        Path("turns").open("a").write(".")
        if Path("turns").stat().st_size > 3:
            raise ValueError("no more data")

    benchmark.pedantic(call, teardown=lambda: None)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "test_user.py").write_text(TESTS)
    return tmp_path


def side_of(folder: Path, name: str) -> SideProcess:
    return SideProcess(parse_side("A", f"test_user.py::{name}", Place(folder)), seed=1)


def test_a_test_runs_as_ordered(folder: Path) -> None:
    side = side_of(folder, "test_counted")
    with contextlib.closing(side):
        began = side.begin()
        assert began["unit"] == "calls"
        calls = folder / "calls"
        assert calls.read_text() == "x", "one call, to check the test"
        side.order({"iterations": 3, "drain": 2})
        block = side.answer()
        assert (block["iterations"], block["units"]) == (3, 3)
        assert calls.read_text() == 6 * "x"
        (folder / "after").unlink()  # of the check
        pid = side.process.pid
    assert (folder / "after").exists(), "a measured test goes on to its end"
    wait_until(lambda: not psutil.pid_exists(pid), "the side is gone")


def test_a_call_that_fails_while_it_is_measured_is_said(folder: Path) -> None:
    side = side_of(folder, "test_ends")
    with contextlib.closing(side):
        side.begin()
        side.order({"iterations": 9})
        with pytest.raises(SideError, match="the test failed: ValueError: no more data") as raised:
            side.answer()
    assert "test_user.py:" in str(raised.value)


def test_set_up_and_tear_down_are_not_timed() -> None:
    clock = FakeClock()
    call = Call(
        lambda turns: clock.wait_ns(turns),
        setup=lambda: clock.wait_ns(10_000) and ((7,), {}),
        teardown=lambda turns: clock.wait_ns(500_000),
    )
    ours, theirs = map(Channel, socket.socketpair())
    with contextlib.closing(ours), contextlib.closing(theirs):
        ours.send({"iterations": 4, "drain": 1})
        ours.send({"end": True})
        loop = Loop(body=call.body, unit="calls")
        obeying = _Obeying(theirs, None, (call.prepare, call.finish))
        drive(loop, obeying.measure(loop), SharedControl(clock))
        ours.receive()
        block = ours.receive()
    assert (block["units"], block["wall_ns"]) == (4, 4 * 7)
    assert clock.time_ns == 1_000 + 5 * 510_007


def test_short_calls_share_an_iteration() -> None:
    call = Call(lambda: 5)
    call.lengthen()
    assert call.body() > 1
    assert call.result == 5
    stalls_s = iter([0.02])
    stalled = Call(lambda: [time.sleep(each) for each in stalls_s])  # once
    stalled.lengthen()
    assert stalled.body() > 1
    once = Call(lambda: 5, setup=lambda: None)
    once.lengthen()
    assert once.body() == 1
