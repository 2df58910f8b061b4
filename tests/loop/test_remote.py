"""Arms and reports as messages: a process that obeys so is measured as one that maps the memory."""

import multiprocessing
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import pytest

import hotloop
from hotloop.loop.arm import DELAY, FREE, OFF, REAL, RECORD, Arm, Mode
from hotloop.loop.control import ArmMessage, SharedControl
from hotloop.loop.remote import RemoteControl, RemoteProcess, StageReport
from hotloop.loop.worker_reports import RING_EVENTS
from support.clock import FakeClock


def obey(connection: Connection, first: ArmMessage) -> None:
    """A process with stages of its own, which does as it is told."""
    remote, calls = RemoteControl(first), 0

    def count() -> int:
        nonlocal calls
        calls += 1
        return calls

    # Made in another order than in the driver, and one that the driver does not know.
    stages = {name: hotloop.stage(name, count, effect="pure") for name in ("other", "b", "a")}
    while (request := connection.recv()) is not None:
        kind, value = request
        if kind == "obey":
            connection.send(remote.obey(value))
        elif kind == "report":
            connection.send(remote.report())
        else:
            connection.send([stages[kind]() for _ in range(value)])


class Driver:
    """The control that sets arms, and a process that it reaches by messages only."""

    def __init__(self, connection: Connection, control: SharedControl) -> None:
        self.control, self._connection = control, connection
        self._process = RemoteProcess(control, 1)
        control.workers.remote.add(self._process.reports)
        control.followers.add(self)

    def ask(self, kind: str, value: Any = None) -> Any:
        self._connection.send((kind, value))
        return self._connection.recv()

    def obey(self) -> None:
        self.ask("obey", self.control.message())

    def fetch(self) -> None:
        asked_ns = self.control.clock.now_ns()
        self._process.take(self.ask("report"), asked_ns)

    def events(self) -> list[str]:
        self.control.fetch_reports()
        names = self.control.names()
        return [names[event.stage] for event in self.control.drain_events()]

    def put(self, mode: Mode, stage: str = "a") -> None:
        self.control.set(Arm("test", {stage: mode}))


@pytest.fixture(scope="module")
def process() -> Iterator[tuple[Connection, SharedControl]]:
    control = SharedControl()
    for name in ("a", "b"):
        control.index(name)
    ours, theirs = multiprocessing.Pipe()
    worker = multiprocessing.get_context("spawn").Process(
        target=obey, args=(theirs, control.message())
    )
    worker.start()
    yield ours, control
    ours.send(None)
    worker.join()
    ours.close()
    theirs.close()


@pytest.fixture
def driver(process: tuple[Connection, SharedControl]) -> Iterator[Driver]:
    made = Driver(*process)
    yield made
    made.control.set(Arm("off", rest=OFF))
    made.events()


def test_idle_stages_report_nothing(driver: Driver) -> None:
    driver.control.set(Arm("off", rest=OFF))
    driver.ask("a", 3)
    assert driver.events() == []


def test_calls_are_timed_under_the_owners_numbers(driver: Driver) -> None:
    driver.put(REAL)
    begin = driver.control.clock.now_ns()
    for name in ("b", "a", "other", "a"):
        driver.ask(name, 1)
    driver.control.fetch_reports()
    events, names = driver.control.drain_events(), driver.control.names()
    assert [names[event.stage] for event in events] == ["b", "a", "other", "a"]
    assert names[:2] == ["a", "b"], "numbers of the driver stay"
    times = [at for event in events for at in (event.start_ns, event.end_ns)]
    in_order = [begin, *times, driver.control.clock.now_ns()]
    assert in_order == sorted(in_order), "on one machine the clock is the same"
    assert len({event.lane for event in events}) == 1


def test_stages_are_delayed_recorded_and_replayed(driver: Driver) -> None:
    driver.put(DELAY(0.002))
    before = driver.control.workers.delay_ns(0)
    driver.ask("a", 3)
    driver.control.fetch_reports()
    assert driver.control.workers.delay_ns(0) - before >= 6_000_000
    assert driver.control.workers.delay_ns(1) == 0

    driver.put(RECORD)
    recorded = driver.ask("a", 4)
    driver.control.fetch_reports()
    assert [outputs for outputs, _ in driver.control.workers.tapes(0)] == [4]
    driver.put(FREE)
    assert driver.ask("a", 3) == recorded[:3]
    driver.put(REAL)
    assert driver.ask("a", 1) == [recorded[-1] + 1], "it had not run in between"


def test_limits_and_phase_travel_with_the_arm(driver: Driver) -> None:
    usual = driver.control.longest_wait_ns[0]
    driver.control.longest_wait_ns[0] = 1_000_000
    driver.put(DELAY(0.5))
    before = driver.control.workers.delay_ns(0)
    driver.ask("a", 1)
    driver.control.fetch_reports()
    driver.control.longest_wait_ns[0] = usual
    assert 0 < driver.control.workers.delay_ns(0) - before < 400_000_000


def test_events_that_came_too_many_are_counted(driver: Driver) -> None:
    driver.put(REAL)
    before = driver.control.workers.dropped_events
    driver.ask("a", RING_EVENTS + 10)
    assert len(driver.events()) == RING_EVENTS
    assert driver.control.workers.dropped_events - before == 10


def test_a_follower_that_is_gone_is_not_told() -> None:
    control = SharedControl()
    told: list[int] = []
    follower = _Follower(control, lambda: told.append(control.epoch))
    control.set(Arm("one"))
    del follower
    control.set(Arm("two"))
    assert told == [1]


class _Follower:
    def __init__(self, control: SharedControl, obey: Callable[[], None]) -> None:
        self.obey, self.fetch = obey, obey
        control.followers.add(self)


def report(now_ns: int, *times: int) -> StageReport:
    events = np.array([(0, time, time + 5, 7) for time in times], np.int64)
    return StageReport("another machine", now_ns, ["a"], events, [], [], 0)


def test_the_clock_of_another_machine_is_shifted_by_the_quickest_answer() -> None:
    clock = FakeClock()
    control = SharedControl(clock=clock)
    process = RemoteProcess(control, 1)
    begin = clock.now_ns()

    def exchange(before_ns: int, after_ns: int, lag_ns: int) -> int:
        """Where an event lands that happened as the report was made; the other clock lags."""
        asked_ns = clock.now_ns()
        clock.time_ns += before_ns
        there = clock.now_ns() - lag_ns
        clock.time_ns += after_ns
        process.take(report(there, there), asked_ns)
        return process.reports.take_events()[0].start_ns - (there + lag_ns)

    assert exchange(100, 100, lag_ns=5_000) == 0
    assert exchange(900, 100, lag_ns=5_000) == 0, "a slower answer says less"
    assert exchange(30, 50, lag_ns=5_000) == 10, "half of the difference of its ways"
    assert clock.now_ns() > begin


def test_lanes_of_two_processes_differ() -> None:
    control = SharedControl()
    lanes = set()
    for number in (1, 2):
        process = RemoteProcess(control, number)
        process.take(report(0, 1), control.clock.now_ns())
        lanes |= {event.lane for event in process.reports.take_events()}
    assert len(lanes) == 2
