"""The wakeup between processes: no call is lost, whoever shares the cores."""

import multiprocessing
import os
import threading
import time

import numpy as np
import pytest
from gymnasium import spaces

import hotloop.envs.process.wakeups as wakeups
from hotloop.data.layout import Layout
from hotloop.data.shared import SharedBlock
from hotloop.envs.process import ProcessVectorEnv
from hotloop.envs.process.channel import MESSAGE, Channel, Shape
from hotloop.envs.process.wakeups import AdaptiveSpin, Wakeup, choose_spin, open_wakeup
from hotloop.loop.declared_state import DeclaredState
from hotloop.loop.effects import check_call
from hotloop.testing.synthetic import (
    Duration,
    Ledger,
    SyntheticSettings,
    read_counters,
    synthetic_fns,
)
from support.wait import wait_until


@pytest.fixture(autouse=True)
def _nobody_looks(monkeypatch):
    # A wakeup that does not ring must hang the test, not wait until the driver looks for the dead.
    monkeypatch.setattr("hotloop.envs.process.workers.LOOK_S", 600.0)


def cell():
    return memoryview(bytearray(8)).cast("q")


@pytest.fixture
def wakeup():
    made = Wakeup(cell(), cell(), open_wakeup())
    yield made
    made.close()
    made.close()


def busy(end):
    while time.monotonic() < end:
        pass


@pytest.fixture
def third_process():
    """Keeps a core busy beside the test."""
    process = multiprocessing.get_context("fork").Process(
        target=busy, args=(time.monotonic() + 30,), daemon=True
    )
    process.start()
    yield
    process.kill()
    process.join()
    process.close()


def tiny_steps(count, **kwargs):
    ledger = Ledger()
    envs = ProcessVectorEnv(synthetic_fns(2), num_workers=2, **kwargs)
    try:
        ledger.add(read_counters(envs.reset(seed=0)[0]))
        actions = np.zeros(2, np.int64)
        for number in range(count):
            obs = envs.step(actions)[0]
            if number % 10 == 0:
                row = read_counters(obs)
                assert row.total[0] == row.total[1]
    finally:
        envs.close()


@pytest.mark.slow
def test_a_hundred_thousand_tiny_steps():
    tiny_steps(100_000)


def test_tiny_steps_beside_a_busy_process(third_process):
    tiny_steps(500)


@pytest.mark.parametrize(
    "spin", [lambda: wakeups.look_once, AdaptiveSpin], ids=["asleep", "looking"]
)
def test_tiny_steps_however_they_wait(spin, monkeypatch):
    """Forked workers wait alike: without a look before sleeping, each step needs every wakeup."""
    monkeypatch.setattr(wakeups, "MOST_NS", 10_000)
    for module in ("workers", "worker"):
        monkeypatch.setattr(f"hotloop.envs.process.{module}.choose_spin", lambda *_: spin())
    tiny_steps(1_000, context="fork")


def test_where_writes_are_not_ordered_every_change_rings(monkeypatch):
    monkeypatch.setattr(wakeups, "ORDERED", False)
    tiny_steps(500, context="fork")


def test_without_eventfd_a_pipe_rings(monkeypatch):
    monkeypatch.delattr(os, "eventfd")
    tiny_steps(500, context="fork")


def test_a_full_pipe_does_not_stop_the_ringer(monkeypatch):
    monkeypatch.delattr(os, "eventfd")
    monkeypatch.setattr(wakeups, "ORDERED", False)
    full = Wakeup(cell(), cell(), open_wakeup())
    for _ in range(20_000):
        full.wake()
    assert full.wait(lambda: True, wakeups.look_once) == []
    full.close()


def test_a_ring_before_the_sleep_is_not_lost(wakeup):
    due = [False]

    def wake():
        time.sleep(0.05)
        due[0] = True
        wakeup.wake()

    thread = threading.Thread(target=wake)
    thread.start()
    assert wakeup.wait(lambda: due[0], wakeups.look_once, timeout_s=20) == []
    assert due[0]
    thread.join()
    assert not wakeup.is_needed


def test_what_is_watched_and_the_time_end_a_wait(wakeup):
    read, write = os.pipe()
    start = time.monotonic()
    assert wakeup.wait(lambda: False, wakeups.look_once, (read,), 0.05) == []
    assert time.monotonic() - start >= 0.05
    os.write(write, b"x")
    assert wakeup.wait(lambda: False, wakeups.look_once, (read,), 20) == [read]
    assert not wakeup.is_needed
    os.close(read)
    os.close(write)


def test_nobody_looks_on_where_processes_share_cores(monkeypatch):
    assert isinstance(choose_spin(4, 4), AdaptiveSpin)
    assert isinstance(choose_spin(4, 5), AdaptiveSpin)
    assert choose_spin(4, 9) is wakeups.look_once
    monkeypatch.setattr(wakeups, "ORDERED", False)
    assert choose_spin(4, 4) is wakeups.look_once


class World:
    """A clock that goes on by `look_us` with every look; what is awaited is told at `told_us`."""

    def __init__(self, look_us=1):
        self.now_us, self.look_us, self.told_us, self.looks = 0, look_us, 0, 0
        self.given_us = 0  # for so long whoever has the core next keeps it
        self.marked_ns = cell()

    def clock_ns(self):
        return 1000 * self.now_us

    def give(self):
        self.now_us += self.given_us

    def wait(self, spin, after_us):
        """Wait once; returns whether it came while looking, and how many looks there were."""
        self.told_us, self.looks = self.now_us + after_us, 0
        self.marked_ns[0] = 1000 * self.told_us
        return spin(self.is_due, self.marked_ns), self.looks

    def is_due(self):
        self.looks += 1
        self.now_us += self.look_us
        return self.now_us >= self.told_us


def skips(world, looks, waits):
    """Whether none of so many waits looks more than once."""
    return all(world.wait(looks, 100)[1] == 1 for _ in range(waits))


def test_looks_go_on_where_they_pay_off():
    world = World()
    looks = AdaptiveSpin(world.clock_ns)
    assert all(world.wait(looks, 300)[0] for _ in range(1000))
    came, seen = world.wait(looks, 50_000)
    assert not came
    assert seen * world.look_us < 5 * 300, "and no longer than they usually have to"
    assert world.wait(looks, 300)[0]


def test_looks_in_vain_come_to_an_end_and_are_tried_again_ever_more_rarely():
    world = World()
    looks = AdaptiveSpin(world.clock_ns)
    looked = [world.wait(looks, 1_000_000)[1] > 1 for _ in range(20_000)]
    assert all(looked[: wakeups.PATIENCE])
    assert 4 < sum(looked) < 60
    assert sum(looked[10_000:]) < sum(looked[:10_000])
    for _ in range(2 * wakeups.LONGEST_PAUSE):
        world.wait(looks, 10)
    assert world.wait(looks, 10)[1] > 1, "until they pay off again"


def test_who_loses_the_core_while_looking_sleeps_at_once():
    world = World()
    looks = AdaptiveSpin(world.clock_ns)
    world.look_us = wakeups.TAKEN_NS // 1000  # another program has the core between any two looks
    for _ in range(wakeups.LATE_LOOKS):
        world.wait(looks, 1_000_000)
    world.look_us = 1
    assert skips(world, looks, wakeups.PAUSE)
    assert world.wait(looks, 100)[0]


def test_a_machine_that_was_taken_away_now_and_then_is_no_neighbour():
    """As a host takes a virtual machine's cores: for some ms, a few times a second."""
    world, told = World(), []
    looks = AdaptiveSpin(world.clock_ns, rest=world.give, on_sharing=told.append)
    for _ in range(100):
        world.given_us = 3000
        world.wait(looks, 100)
        world.given_us = 0
        assert all(world.wait(looks, 100)[1] > 1 for _ in range(wakeups.FORGOTTEN_AFTER))
    assert not told


def test_who_gives_the_core_away_goes_on_where_what_comes_is_seen_on_time():
    """A step of ours may take longer than another program's time slice."""
    world = World()
    looks = AdaptiveSpin(world.clock_ns, rest=world.give)
    for step_us in (50, 300, 3000):
        world.given_us = step_us  # a worker of ours, until it tells that it is done
        assert all(world.wait(looks, step_us)[0] for _ in range(100)), step_us


def test_who_sees_late_what_came_sleeps_at_once_and_tries_ever_more_rarely():
    world = World()
    looks = AdaptiveSpin(world.clock_ns, rest=world.give)

    def late(times):
        world.given_us = 3000  # a time slice of another program
        assert all(world.wait(looks, 100)[0] for _ in range(times)), "but long ago"
        world.given_us = 0

    late(wakeups.LATE_LOOKS)
    assert skips(world, looks, wakeups.PAUSE)
    late(1)
    assert skips(world, looks, 2 * wakeups.PAUSE)
    assert all(world.wait(looks, 100)[1] > 1 for _ in range(5)), "in time by good luck"
    late(1)
    assert skips(world, looks, 3 * wakeups.PAUSE), "which makes it no more often"
    for _ in range(2000):
        world.wait(looks, 100)
    late(wakeups.LATE_LOOKS)
    assert skips(world, looks, wakeups.PAUSE)
    world.given_us = 0
    assert world.wait(looks, 100)[1] > 1, "while a long time alone does"


def test_who_shares_its_core_with_another_program_says_so_until_looks_pay_off_again():
    world, told = World(), []
    looks = AdaptiveSpin(world.clock_ns, on_sharing=told.append)
    world.wait(looks, 100)
    for _ in range(2):
        world.look_us = wakeups.TAKEN_NS // 1000
        for _ in range(wakeups.LATE_LOOKS):
            world.wait(looks, 1_000_000)
        world.look_us = 1
        for _ in range(wakeups.LONGEST_PAUSE):
            world.wait(looks, 100)
    for _ in range(wakeups.PATIENCE + 1):
        world.wait(looks, 1_000_000)
    assert told == [False, True, False, True], "and looks in vain say nothing of others"


def test_a_ring_of_entries_wraps_around():
    """Many more entries than a ring has room for, in rings of the smallest pool."""
    envs = ProcessVectorEnv(synthetic_fns(2), num_workers=1, batch_size=1)
    room = envs._workers.channel.shape.entries
    envs.async_reset(seed=0)
    ledger = Ledger()
    for _ in range(3 * room):
        obs, *_, infos = envs.recv()
        ledger.add(read_counters(obs))
        envs.send(np.zeros(1, np.int64), infos["env_id"])
    assert envs._workers.handles[0].posted > 2 * room
    assert ledger.transitions > 2 * room
    envs.close()


def worker_cells(end):
    return end.posted, end.asleep, end.marked_ns, end.finished, end.stepped, end.messages


@pytest.mark.parametrize("workers", [1, 2, 16, 17, 256])
def test_steps_are_counted_over_all_workers_few_or_many(workers):
    layout = Layout.of(spaces.Discrete(2))
    channel = Channel(Shape(workers, workers, layout, layout, ()))
    for number in range(workers):
        end = channel.end(number)
        for k, cell in enumerate(worker_cells(end)):
            cell[0] = -(10**9) * (k + 1)  # of other cells nothing is counted
        end.stepped[0] = 2**40 + number
    assert channel.count_stepped() == workers * 2**40 + sum(range(workers))
    channel.close()


def test_cells_and_rings_of_many_workers_are_apart():
    layout = Layout.of(spaces.Box(0, 1, (3,), np.float32))
    shape = Shape(200, 200, layout, Layout.of(spaces.Discrete(2)), ())
    channel = Channel(shape)
    other = Channel(shape, SharedBlock(channel.block.nbytes, fd=os.dup(channel.block.fd)))
    for number in range(200):
        end = channel.end(number)
        for k, own in enumerate(worker_cells(end)):
            own[0] = number * 10 + k
        end.to_do[0], end.to_do[shape.entries - 1] = number, MESSAGE
        end.done[0], end.done[shape.entries - 1] = -number, number
    channel.driver_asleep[0], channel.driver_marked_ns[0], channel.wanted[0] = 77, 78, 79
    channel.table.obs[:] = 5
    for number in range(200):
        end = other.end(number)
        assert [own[0] for own in worker_cells(end)] == [number * 10 + k for k in range(6)]
        assert (end.to_do[0], end.to_do[shape.entries - 1]) == (number, MESSAGE)
        assert (end.done[0], end.done[shape.entries - 1]) == (-number, number)
    driver = (other.driver_asleep, other.driver_marked_ns, other.wanted)
    assert [own[0] for own in driver] == [77, 78, 79]
    assert (other.table.obs == 5).all()
    assert not other.table.reward.any()
    channel.close()
    other.close()


def test_what_workers_do_meanwhile_is_no_effect_of_a_call():
    slow = SyntheticSettings(step=Duration(0.2))
    envs = ProcessVectorEnv(synthetic_fns(2, slow), num_workers=2)
    try:
        envs.reset(seed=0)
        stepped = envs._workers.channel.count_stepped

        def act():
            wait_until(lambda: stepped() == before + 2, "both workers have stepped")
            return envs.num_envs

        before = stepped()
        envs.send(np.zeros(2, np.int64))
        checked = check_call("act", "stateful", act, (), {}, state=DeclaredState())
        assert "\n".join(map(str, checked.violations)) == ""
        envs.recv()
    finally:
        envs.close()
