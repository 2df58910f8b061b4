"""What timing the calls of a loop costs, on a clock whose looks take a known time."""

import pytest

from hotloop.benchmark.call_cost import SHARE, CallCost, measure_call_cost
from hotloop.loop.conduct import drive
from hotloop.loop.control import SharedControl
from hotloop.loop.loop import Loop
from hotloop.loop.stage import Stage
from hotloop.loop.stage_types import StageView
from support.clock import FakeClock

LOOK_NS = 4_000
ITERATION_NS, CALLS = 100_000, 4


def cost(
    marking: frozenset[str] | None,
    *,
    begins: tuple[str, ...] = ("load",),
    iteration_ns: float = ITERATION_NS,
    asked: bool = True,
) -> CallCost | None:
    """Of a loop that loads once and trains in four calls; a timed call is two looks more."""
    clock = FakeClock(look_ns=LOOK_NS)
    control = SharedControl(clock)
    load = Stage("load", effect="pure", control=control)(lambda: clock.burn_ns(20_000))
    train = Stage("train", effect="pure", control=control)(lambda: clock.burn_ns(20_000))
    again = Stage("again", effect="pure", control=control)(lambda: None)

    def body() -> int:
        load()
        for _ in range(CALLS):
            train()
        if "again" in begins and not control.marks_only:
            again()
        return 1

    body()  # stages are known from their first call on
    again()
    control.marking = marking
    measurement = measure_call_cost(control, iteration_ns, budget_s=2 / SHARE)
    found = drive(Loop(body), measurement, control)
    assert not control.marks_only
    assert (clock.now_ns() > 1_000_000_000) == asked, "it takes the time that it was given"
    return found


def test_the_cost_of_a_call_and_of_an_iteration_are_found() -> None:
    found = cost(frozenset({"load"}))
    assert found is not None
    assert found.call_ns.value == pytest.approx(2 * LOOK_NS)
    assert found.calls == 1 + CALLS, "those that say where iterations begin are timed too"
    assert found.end_ns == 0, "nothing watches the calls of a loop that says when it ends"
    assert found.iteration_ns.value == pytest.approx(2 * LOOK_NS * (1 + CALLS))


def test_nothing_is_said_where_not_all_that_marks_iterations_is_known() -> None:
    assert cost(None, asked=False) is None


def test_nothing_is_said_where_the_iterations_are_not_alike() -> None:
    """One of the marks comes in one kind of blocks only."""
    assert cost(frozenset({"load", "again"}), begins=("load", "again")) is None


def test_where_nearly_all_calls_say_where_iterations_begin_the_least_is_said() -> None:
    """Of the few others, what all blocks differ by would make the cost of each of them."""
    found = cost(frozenset({"load", "train"}), asked=False)
    assert found is not None
    assert found.call_ns.low == found.call_ns.high == pytest.approx(2 * LOOK_NS)
    assert found.calls == 1 + CALLS


def test_iterations_for_which_there_is_no_time_are_not_asked() -> None:
    """Six pairs of blocks of two iterations, after two each, would take three times as long."""
    assert cost(frozenset({"load"}), iteration_ns=125_000_000, asked=False) is None


def test_what_other_programs_took_while_an_iterations_end_was_seen_is_not_its_cost() -> None:
    clock = FakeClock(look_ns=LOOK_NS)
    control = SharedControl(clock)
    load, train = (
        Stage(name, effect="pure", control=control)(lambda: clock.burn_ns(20_000))
        for name in ("load", "train")
    )

    def watch(_called: StageView) -> None:
        clock.burn_ns(30_000)
        clock.wait_ns(10_000_000)

    def body() -> int:
        load()
        for _ in range(CALLS):
            train()
        return 1

    body()
    control.marking, control.watcher = frozenset({"load"}), watch
    found = drive(Loop(body), measure_call_cost(control, 10e6, budget_s=60), control)
    assert found is not None
    assert found.end_ns == pytest.approx(30_000)
    assert control.watcher is watch
