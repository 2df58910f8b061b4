"""Blocks: what is timed, what is drained, and what a body may return."""

from typing import Any

import pytest

from hotloop.errors import LoopError
from hotloop.loop import (
    DELAY,
    Arm,
    Block,
    Loop,
    Request,
    SharedControl,
    Stage,
    conduct,
    drive,
    gauges,
)
from hotloop.loop.conduct import Conductor, Measurement
from support.clock import FakeClock


def ask(*requests: Request) -> Measurement[list[Block]]:
    blocks = []
    for request in requests:
        blocks.append((yield request))
    return blocks


def run(
    body: Any, *requests: Request, control: SharedControl | None = None, **options: Any
) -> list[Block]:
    return drive(Loop(body=body, **options), ask(*requests), control or SharedControl(FakeClock()))


def test_a_block_has_a_duration_and_units_for_each_iteration() -> None:
    clock = FakeClock()
    durations = iter([10, 20, 30, 40, 50])

    def body() -> int:
        return clock.wait_ns(next(durations)) // 10

    first, second = run(
        body,
        Request(Arm("a"), iterations=2),
        Request(Arm("b"), iterations=2, drain=1),
        control=SharedControl(clock),
    )
    assert first.duration_ns == [10, 20]
    assert first.units == [1.0, 2.0]
    assert second.duration_ns == [40, 50], "the drained iteration is not timed"
    assert first.ns_per_iteration == 15


def test_what_happens_between_blocks_is_not_timed() -> None:
    clock = FakeClock()
    control = SharedControl(clock)
    (block,) = run(
        lambda: clock.wait_ns(7),
        Request(Arm("a"), iterations=3, before=lambda: clock.wait_ns(1_000) and None),
        control=control,
    )
    assert block.duration_ns == [7, 7, 7]


@pytest.mark.parametrize(
    ("drain", "drain_s", "before_it"), [(1, 0.0, 0), (3, 0.0, 2), (0, 5e-8, 5)]
)
def test_an_untimed_iteration_follows_what_takes_long(
    drain: int, drain_s: float, before_it: int
) -> None:
    """Meanwhile the loop's other threads go on: what they then have ready is gone after it."""
    clock = FakeClock()
    control = SharedControl(clock)
    work = Stage("work", control=control)(lambda: clock.wait_ns(10))
    seen: list[int] = []
    iterations = 0

    def body() -> int:
        nonlocal iterations
        iterations += 1
        work()
        return 1

    request = Request(
        Arm("a"),
        iterations=2,
        drain=drain,
        drain_s=drain_s,
        before_last_drained=lambda: seen.append(iterations),
        before=lambda: seen.append(iterations),
    )
    (block,) = run(body, request, control=control)
    assert seen == [before_it, before_it + 1]
    assert block.drained == before_it + 1
    assert len(block.events) == 2, "none of the last drained iteration"


def test_a_block_may_be_asked_for_by_time() -> None:
    clock = FakeClock()
    (block,) = run(
        lambda: clock.wait_ns(300_000),
        Request(Arm("a"), seconds=0.001),
        control=SharedControl(clock),
    )
    assert len(block.duration_ns) == 4, "it ends with the iteration that passes the time"


def test_events_and_real_delays_belong_to_their_block() -> None:
    clock = FakeClock()
    control = SharedControl(clock)
    work = Stage("work", control=control)(lambda: clock.wait_ns(5))
    late = Arm("late", {"work": DELAY(1e-6)})
    plain, delayed = run(
        lambda: work() and 1,
        Request(Arm("plain"), iterations=2),
        Request(late, iterations=2, drain=3),
        control=control,
    )
    assert len(plain.events) == 2
    assert plain.delayed_ns == {"work": 0}
    assert len(delayed.events) == 2
    assert delayed.delayed_ns == {"work": 2000}


@pytest.mark.parametrize(
    ("units", "message"),
    [
        (None, "returned no units"),
        (float("nan"), "nan units; expected a finite number"),
        (float("inf"), "inf units; expected a finite number"),
        (-1.0, "zero or more"),
        ("many", "returned str; expected the number of env steps"),
    ],
)
def test_units_that_cannot_be_counted_are_refused(units: object, message: str) -> None:
    with pytest.raises(LoopError, match=message):
        run(lambda: units, Request(Arm("a"), iterations=1), unit="env steps")


def test_a_body_that_ends_says_after_how_many_iterations() -> None:
    left = iter(range(3))
    with pytest.raises(LoopError, match="ended after 3 iterations"):
        run(lambda: next(left), Request(Arm("a"), iterations=5))


def test_a_measurement_may_take_an_error_and_go_on() -> None:
    calls = 0

    def body() -> int:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise ValueError("once")
        return 1

    def forgiving() -> Measurement[list[str]]:
        seen = []
        for _ in range(3):
            try:
                yield Request(Arm("a"), iterations=1)
                seen.append("fine")
            except ValueError:
                seen.append("raised")
        return seen

    assert drive(Loop(body=body), forgiving(), SharedControl(FakeClock())) == [
        "fine",
        "raised",
        "fine",
    ]


def test_an_error_that_is_not_taken_is_raised_and_the_measurement_cleans_up() -> None:
    cleaned = []

    def body() -> int:
        raise OSError("broken")

    def careful() -> Measurement[None]:
        try:
            yield Request(Arm("a"), iterations=1)
        finally:
            cleaned.append(True)

    control = SharedControl(FakeClock())
    with pytest.raises(OSError, match="broken"):
        drive(Loop(body=body), careful(), control)
    assert cleaned == [True]
    assert not any(control.modes), "nothing is measured any more"


def test_progress_is_reported_between_iterations() -> None:
    clock = FakeClock()
    seen: list[int] = []

    def observer(conductor: Conductor) -> None:
        seen.append(conductor.iterations_done)
        clock.wait_ns(10**9)

    (block,) = drive(
        Loop(body=lambda: clock.wait_ns(250_000_000) and 1),
        ask(Request(Arm("a"), iterations=6)),
        SharedControl(clock),
        observer,
    )
    assert seen, "it was told"
    assert set(block.duration_ns) == {250_000_000}, "and its time counts to nobody"


@pytest.mark.parametrize(
    ("threads_ns", "processes_ns", "cores", "stolen_ns"),
    [
        (0, 0, 1.0, 40),  # the kernel counts 80, and it did not run for 40
        (30, 0, 1.0, 10),
        (30, 30, 1.0, 0),
        (30, 30, 2.0, 10),  # they had two cores to run on
    ],
)
def test_what_the_loop_takes_from_itself_is_not_stolen(
    monkeypatch: pytest.MonkeyPatch,
    threads_ns: int,
    processes_ns: int,
    cores: float,
    stolen_ns: int,
) -> None:
    class Busy(FakeClock):
        others_ns = 0

        def process_cpu_ns(self) -> int:
            return self.cpu_ns + self.others_ns

    clock = Busy()
    spent = {"queued": 0, "processes": 0}

    class Gauge:
        def __init__(self, name: str) -> None:
            self.read_ns = lambda: spent[name]

        def search(self) -> None:
            pass

        def close(self) -> None:
            pass

    monkeypatch.setattr(gauges, "RunQueueGauge", lambda: Gauge("queued"))
    monkeypatch.setattr(gauges, "DescendantsGauge", lambda: Gauge("processes"))
    monkeypatch.setattr(conduct, "usable_cores", lambda: cores)

    def body() -> int:
        clock.cpu_ns += 60
        clock.others_ns += threads_ns
        spent["queued"] += 80
        spent["processes"] += processes_ns
        return clock.wait_ns(100)

    (block,) = run(body, Request(Arm("a"), iterations=3), control=SharedControl(clock))
    assert block.stolen_ns == 3 * stolen_ns


@pytest.mark.parametrize("options", [{"batches": 0}, {"in_flight": -1}])
def test_impossible_loops_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(LoopError, match="batches must be at least 1"):
        Loop(body=lambda: 1, **options)  # type: ignore[arg-type]
