"""Tapes: which outputs are replayed, how many are kept, and how burning affects other threads."""

import gc
import threading
import time
from collections import Counter

import numpy as np
import pytest

from hotloop.loop.arm import DELAY, WAIT, Arm, Kind, Mode, amount_of, epoch_of, kind_of, packed
from hotloop.loop.burn import burn_until
from hotloop.loop.control import SharedControl
from hotloop.loop.stage import Stage
from hotloop.loop.tape import FEW_OUTPUTS, MAX_BYTES, MIN_OUTPUTS, Tape
from support.clock import FakeClock


def recorded(outputs: list[object], most_bytes: int = 1 << 30) -> Tape:
    tape = Tape()
    for output in outputs:
        tape.record("target", (), output, (), 1000, 500, most_bytes=most_bytes)
    return tape


def test_all_outputs_are_replayed_equally_often_over_the_rounds() -> None:
    """Blocks of three iterations, with a tape of twenty: not the first three for ever."""
    tape = recorded(list(range(20)))
    seen: Counter[int] = Counter()
    for round_number in range(200):
        tape.rewind((round_number * 0.6180339887498949) % 1)
        for _ in range(3):
            entry = tape.next()
            assert entry is not None
            seen[entry[0]] += 1
    assert set(seen) == set(range(20))
    assert max(seen.values()) <= 1.2 * min(seen.values())


def test_arms_of_one_round_replay_the_same_outputs() -> None:
    tape = recorded(list(range(20)))
    replayed = []
    for _ in range(2):
        tape.rewind(0.37)
        replayed.append([tape.next()[0] for _ in range(30)])  # type: ignore[union-attr]
    assert replayed[0] == replayed[1]
    assert replayed[0][0] == 7


def test_outputs_of_unequal_size_are_recorded_until_their_mean_size_is_known() -> None:
    rng = np.random.default_rng(0)
    alike = recorded([np.zeros(20_000) for _ in range(400)])
    varied = recorded([np.zeros(rng.integers(1_000, 40_000)) for _ in range(400)])
    assert MAX_BYTES <= alike.bytes < 2 * MAX_BYTES or len(alike) == MIN_OUTPUTS
    assert len(varied) > 10 * len(alike)


def test_a_tape_within_little_memory_keeps_the_fewest_outputs_that_are_enough() -> None:
    megabyte = np.zeros(1 << 17)
    tape = recorded([megabyte] * 50, most_bytes=12 << 20)
    assert FEW_OUTPUTS <= len(tape) <= 6, "two copies of each are kept"
    assert tape.limited
    assert tape.problem is None
    assert tape.needed == FEW_OUTPUTS


def test_outputs_that_are_too_large_to_keep_say_what_to_do() -> None:
    tape = recorded([np.zeros(1 << 17)] * 5, most_bytes=3 << 20)
    assert tape.problem is not None
    assert "--tape-memory" in tape.problem
    assert not tape.entries


def test_a_stage_that_always_returns_the_same_needs_few_outputs() -> None:
    assert recorded([None] * 5).needed == FEW_OUTPUTS
    assert recorded([1, 2, 3]).needed == MIN_OUTPUTS
    assert recorded([np.zeros(3)] * 5).needed == MIN_OUTPUTS


def test_consumers_writes_are_undone_also_after_a_whole_turn_of_the_tape() -> None:
    tape = recorded([np.ones(3) for _ in range(20)])
    tape.rewind(0.9)
    for _ in range(5):
        tape.next()[0][:] = 7  # type: ignore[union-attr]
    tape.rewind()
    assert tape.mutated
    assert all((entry[0] == 1).all() for entry in tape.entries)


def test_the_garbage_collector_skips_a_tape() -> None:
    """What a tape holds of plain outputs and arrays does not make the loop's collections longer."""
    gc.collect()
    before = len(gc.get_objects())
    tapes = [recorded([None] * 300), recorded([1.5 * k for k in range(300)])]
    tapes.append(recorded([np.ones(3) for _ in range(300)]))
    gc.collect()
    gc.collect()  # a tuple is let go once its parts are
    assert sum(map(len, tapes)) == 900
    assert len(gc.get_objects()) - before < 60


# --- one word for an arm -------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [WAIT(2), DELAY(0.05), WAIT(19181.9), Mode(Kind.FREE)])
def test_a_word_holds_kind_amount_and_epoch(mode: Mode) -> None:
    word = packed(mode, (1 << 24) + 5)
    assert 0 < word < 1 << 64
    assert kind_of(word) == mode.kind
    assert epoch_of(word) == 5
    assert amount_of(word) == pytest.approx(mode.amount)
    assert packed(Mode(Kind.OFF), 7) == 0


def test_an_arm_that_changes_during_a_call_does_not_mix_kinds_and_amounts() -> None:
    """A call begun under DELAY(0.001) ends after the arm has become WAIT(19181.9)."""
    clock = FakeClock()
    control = SharedControl(clock)

    def work() -> None:
        clock.wait_ns(50_000_000)
        control.set(Arm("other", {"x": WAIT(19181.9)}))

    staged = Stage("x", control=control)(work)
    control.set(Arm("delayed", {"x": DELAY(0.001)}))
    start = clock.now_ns()
    staged()
    assert clock.now_ns() - start == 51_000_000


def test_no_wait_is_longer_than_the_control_allows() -> None:
    clock = FakeClock()
    control = SharedControl(clock)
    staged = Stage("x", control=control)(lambda: None)
    control.longest_wait_ns[0] = 3_000_000
    control.set(Arm("delayed", {"x": DELAY(60.0)}))
    start = clock.now_ns()
    staged()
    assert clock.now_ns() - start == 3_000_000


# --- burning -------------------------------------------------------------------------------------


@pytest.mark.parametrize("releases", [True, False])
@pytest.mark.parametrize("moved", [0, 4 << 20])
def test_burning_takes_processor_time_until_the_deadline(releases: bool, moved: int) -> None:
    burn_until(time.perf_counter_ns() + 3_000_000, releases, moved)  # learns its speed
    cpu, start = time.thread_time_ns(), time.perf_counter_ns()
    burn_until(start + 20_000_000, releases, moved)
    assert time.perf_counter_ns() - start >= 20_000_000
    assert time.thread_time_ns() - cpu > 0


def test_burning_without_the_lock_lets_other_threads_compute() -> None:
    """Counted, not timed: how far another thread counts while one burns."""
    counts = {}
    for releases in (False, True):
        counted, stop = [0], threading.Event()

        def count(counted: list[int] = counted, stop: threading.Event = stop) -> None:
            while not stop.is_set():
                counted[0] += 1

        thread = threading.Thread(target=count)
        burn_until(time.perf_counter_ns() + 3_000_000, releases, 0)
        thread.start()
        counted[0] = 0
        cpu = time.thread_time_ns()
        while time.thread_time_ns() - cpu < 60_000_000:  # so much of this thread's own work
            burn_until(time.perf_counter_ns() + 1_000_000, releases, 0)
        counts[releases] = counted[0]
        stop.set()
        thread.join()
    assert counts[True] > 0
    assert counts[False] > 0, "the lock is given away now and then, as Python does"


def test_a_stage_releases_the_lock_if_other_threads_compute_meanwhile() -> None:
    alone, held, released = Tape(), Tape(), Tape()
    for _ in range(5):
        alone.record("t", (), None, (), 1000, 1000, process_cpu_ns=1000)
        held.record("t", (), None, (), 2000, 1000, process_cpu_ns=2000)
        released.record("t", (), None, (), 1000, 1000, process_cpu_ns=1900)
    assert [tape.releases_lock for tape in (alone, held, released)] == [False, False, True]
