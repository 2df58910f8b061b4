"""A replay in shards: what is drawn is what one replay of the same contents would give."""

import logging
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hotloop.errors import SettingError, ShapeError, WorkerError
from hotloop.rollout.replay import FLOOR, PrioritisedReplay
from hotloop.rollout.shard import ShardSettings
from hotloop.rollout.shard_messages import MAX_UNANSWERED
from hotloop.rollout.shard_pools import (
    enough_shards,
    expect_shard_backend,
    most_rows,
    room_for,
    shard_pool,
)
from hotloop.rollout.shards import ShardedReplay
from support.equivalence import COMMON
from support.often import examples
from support.plain_shards import PlainShardPool
from support.transitions import expect_whole, transitions
from support.wait import DEADLINE_S, wait_until

ROW_BYTES = 40


def sharded(shards, capacity, exponent=0.6, pool=PlainShardPool, **more):
    """A replay in shards of `capacity` each."""
    given_to_all = ShardSettings(capacity, exponent, capacity * ROW_BYTES)
    return ShardedReplay(pool(given_to_all), shards, given_to_all, **more)


def fill(replay, count, seed=0, at_once=7):
    """Add transitions number 0 to count - 1; returns their errors."""
    error = np.random.default_rng(seed).exponential(size=count)
    for first in range(0, count, at_once):
        some = min(at_once, count - first)
        replay.add(transitions(first, some), error[first : first + some])
    return error


# --- as from one replay ----------------------------------------------------------------------


@settings(max_examples=examples(60), **COMMON)
@given(
    shards=st.integers(1, 5),
    capacity=st.integers(1, 12),
    counts=st.lists(st.integers(0, 60), min_size=1, max_size=6),
    prefetch=st.integers(0, 3),
    seed=st.integers(0, 99),
)
def test_what_is_drawn_is_whole_and_among_the_newest(shards, capacity, counts, prefetch, seed):
    rng = np.random.default_rng(seed)
    replay, added = sharded(shards, capacity, prefetch=prefetch), 0
    for count in counts:
        replay.add(transitions(added, count), rng.exponential(size=count))
        added += count
        assert len(replay) == min(added, shards * capacity)
        if added:
            drawn = replay.draw(30, rng, beta=0.5)
            # Batches drawn ahead are of the time before the transitions that were added last.
            oldest = 0 if prefetch else max(0, added - shards * capacity)
            assert oldest <= drawn.number.min() <= drawn.number.max() < added
            assert 0 < drawn.weight.min() <= drawn.weight.max() == 1
            expect_whole(drawn)
            replay.set_errors(drawn.number, rng.exponential(size=30))


@pytest.mark.parametrize("shards", [1, 2, 3])
@pytest.mark.parametrize("exponent", [0.0, 0.6, 1.0])
def test_it_draws_what_one_replay_of_the_same_contents_draws(shards, exponent):
    """The shares of the formula; the sum of the counts' deviations is that of a fair draw."""
    replay = sharded(shards, 12 // shards, exponent)
    error = fill(replay, 30)[18:]
    number = np.arange(18, 30)
    error[:4] = [0.0, 10.0, -3.0, 0.1]
    replay.set_errors(number, error)
    priority = (np.abs(error) + FLOOR) ** exponent
    expected = priority / priority.sum()
    draws, rng = 4000, np.random.default_rng(0)
    drawn = [replay.draw(50, rng, beta=0.4) for _ in range(draws // 50)]
    count = np.bincount(np.concatenate([one.number for one in drawn]) - 18, minlength=12)
    # Parts of equal size vary less than draws at random would: 12 to 1 for that.
    assert ((count - draws * expected) ** 2 / (draws * expected)).sum() < 26.2  # 99% of χ²(12)
    for one in drawn[:5]:
        weight = (12 * expected[one.number - 18]) ** -0.4
        np.testing.assert_allclose(one.weight, weight / weight.max(), rtol=1e-9)


def test_the_same_numbers_give_the_same_transitions_in_one_shard():
    one, other = PrioritisedReplay(20), sharded(1, 20)
    for replay in (one, other):
        fill(replay, 33)
        rng = np.random.default_rng(3)
        for _ in range(5):
            drawn = replay.draw(16, rng, beta=0.4)
            replay.set_errors(drawn.number, drawn.number / 7)
    drawn = [replay.draw(100, np.random.default_rng(5), beta=0.4) for replay in (one, other)]
    np.testing.assert_array_equal(drawn[0].number, drawn[1].number)
    np.testing.assert_allclose(drawn[0].weight, drawn[1].weight, rtol=1e-12)


def test_a_batch_has_a_part_of_every_shard_in_proportion_to_its_sum():
    replay = sharded(2, 4, exponent=1.0)
    replay.add(transitions(0, 8), np.where(np.arange(8) % 2, 3.0, 1.0))
    drawn = replay.draw(400, np.random.default_rng(0), beta=0.0)
    assert abs((drawn.number % 2).sum() - 300) <= 1


def test_without_prefetch_priorities_are_those_of_now():
    replay = sharded(3, 10, exponent=1.0)
    fill(replay, 30)
    rng = np.random.default_rng(0)
    for chosen in (4, 17, 29):
        replay.set_errors(np.arange(30), np.zeros(30))
        replay.set_errors(np.array([chosen]), np.array([1e9]))
        assert set(replay.draw(20, rng, beta=0.4).number) == {chosen}


@pytest.mark.parametrize("prefetch", [1, 3])
def test_batches_drawn_ahead_have_the_priorities_of_then_and_their_own_weights(prefetch):
    replay = sharded(2, 10, exponent=1.0, prefetch=prefetch)
    fill(replay, 20)
    rng = np.random.default_rng(0)
    before = np.abs(fill(sharded(2, 10), 20)) + FLOOR
    replay.draw(64, rng, beta=1.0)
    replay.set_errors(np.arange(20), np.zeros(20))
    replay.set_errors(np.array([4]), np.array([1e9]))
    for _ in range(prefetch):
        drawn = replay.draw(64, rng, beta=1.0)
        weight = 1 / before[drawn.number]
        np.testing.assert_allclose(drawn.weight, weight / weight.max(), rtol=1e-9)
    for _ in range(prefetch + 1):  # these were asked for by the sums of then
        replay.draw(64, rng, beta=1.0)
    assert set(replay.draw(64, rng, beta=1.0).number) == {4}


def test_weights_are_those_of_the_probabilities_with_which_it_was_drawn():
    """Over its probability, what is drawn of half of the transitions counts as a half of them."""
    replay = sharded(2, 50, exponent=1.0, prefetch=2)
    fill(replay, 100)
    rng, even = np.random.default_rng(0), np.arange(0, 100, 2)
    for k in range(12):
        # The sums that are known are older than the priorities, by which shard 0 is drawn.
        replay.set_errors(np.arange(100), np.ones(100))
        replay.set_errors(even, np.full(50, 1.0 + 4 * (k % 2)))
        drawn = replay.draw(400, rng, beta=1.0)
        if k > 3:
            share = drawn.weight[drawn.number % 2 == 0].sum() / drawn.weight.sum()
            assert abs(share - 0.5) < 0.01


def test_errors_of_what_is_gone_are_left_out():
    replay = sharded(2, 2)
    replay.add(transitions(0, 4), np.ones(4))
    drawn = replay.draw(50, np.random.default_rng(0), beta=0.0)
    replay.add(transitions(4, 3), np.zeros(3))
    replay.set_errors(drawn.number, np.full(50, 1e9))
    share = np.bincount(replay.draw(1000, np.random.default_rng(1), beta=0.0).number, minlength=7)
    assert share[3] > 990, "3 is still there, and 4 to 6 kept the errors that they came with"


# --- requests --------------------------------------------------------------------------------


def test_a_shard_has_no_more_than_so_many_requests_before_it():
    replay = sharded(2, 1000, prefetch=4)
    for k in range(100):
        replay.add(transitions(10 * k, 10), np.ones(10))
        replay.set_errors(np.arange(10 * k), np.ones(10 * k))
    assert MAX_UNANSWERED - 1 <= replay._messages._pool.most_waiting <= MAX_UNANSWERED
    replay.draw(10, np.random.default_rng(0), beta=0.4)
    assert replay._messages._pool.most_waiting <= MAX_UNANSWERED


def test_a_batch_of_another_size_is_drawn_anew():
    replay, rng = sharded(2, 10, prefetch=3), np.random.default_rng(0)
    fill(replay, 20)
    for count in (8, 8, 5, 5, 40):
        assert len(replay.draw(count, rng, beta=0.4).number) == count


def test_what_a_shard_raises_is_raised_here():
    replay = sharded(2, 10)
    replay.add(transitions(0, 4), np.ones(4))
    other = transitions(4, 4)._replace(reward=np.ones((4, 2), np.float32))
    replay.add(other, np.ones(4))
    with pytest.raises(ShapeError, match="expected transitions") as raised:
        replay.draw(5, np.random.default_rng(0), beta=0.4)
    assert any("replay shard" in note for note in raised.value.__notes__)
    with pytest.raises(WorkerError, match="raised ShapeError before"):
        replay.draw(5, np.random.default_rng(0), beta=0.4)


def test_bad_input_is_refused():
    for shards, more in ((0, {}), (2.5, {}), (2, {"prefetch": -1}), (2, {"timeout_s": 0})):
        with pytest.raises(SettingError, match="replay"):
            sharded(shards, 5, **more)
    replay = sharded(2, 5)
    with pytest.raises(SettingError, match="add some first"):
        replay.draw(1, np.random.default_rng(0), beta=0.4)
    with pytest.raises(ShapeError, match="finite"):
        replay.add(transitions(0, 2), np.array([1.0, np.nan]))
    replay.add(transitions(0, 2), np.ones(2))
    with pytest.raises(ShapeError, match="finite"):
        replay.set_errors(np.array([0]), np.array([np.inf]))
    with pytest.raises(SettingError, match=r"backend 'serial'.*'process' or 'ray'"):
        expect_shard_backend("serial")


# --- shards that die -------------------------------------------------------------------------


@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_shard_that_died_is_replaced_and_its_transitions_are_lost(prefetch, caplog):
    replay, rng = sharded(3, 10, prefetch=prefetch, restarts=1), np.random.default_rng(0)
    fill(replay, 40)
    replay.draw(30, rng, beta=0.4)
    replay._messages._pool.kill(1)
    with caplog.at_level(logging.WARNING, "hotloop"):
        for _ in range(4):
            drawn = replay.draw(30, rng, beta=0.4)
    assert [record.getMessage() for record in caplog.records] == [
        "replay shard 1: it died (killed by a test); 10 transitions are lost with it, and an empty "
        "one takes its place (0 more may be replaced)"
    ]
    assert 1 not in drawn.number % 3
    expect_whole(drawn)
    assert (len(replay), replay.lost, replay.restarts_left) == (20, 10, 0)
    assert replay.figures() == {
        "replay_size": 20.0,
        "replay_shards": 3.0,
        "transitions_lost": 10.0,
    }
    # Errors of what was lost go nowhere, and the numbers go on.
    replay.set_errors(np.arange(10, 40), np.ones(30))
    for first in range(40, 52, 3):
        replay.add(transitions(first, 3), np.full(3, 1e6))
    assert len(replay) == 24
    for _ in range(prefetch + 2):
        drawn = replay.draw(60, rng, beta=0.4)
    expect_whole(drawn)
    assert set(drawn.number[drawn.number % 3 == 1]) == {40, 43, 46, 49}


def test_a_batch_that_waits_for_a_dead_shard_is_drawn_anew():
    replay, rng = sharded(2, 10, prefetch=1), np.random.default_rng(0)
    fill(replay, 20)
    replay.draw(16, rng, beta=0.4)
    pool = replay._messages._pool
    pool.silent = {0}
    replay.draw(16, rng, beta=0.4)  # asks for the next, which waits for shard 0 from now on
    assert not replay._batches[0].is_complete
    pool.kill(0)
    pool.silent = set()
    for _ in range(3):
        drawn = replay.draw(16, rng, beta=0.4)
        assert len(drawn.number) == 16
        expect_whole(drawn)
    assert (drawn.number % 2 == 1).all()


def test_nothing_is_drawn_where_everything_was_lost():
    replay, rng = sharded(1, 10), np.random.default_rng(0)
    fill(replay, 10)
    replay._messages._pool.kill(0)
    assert replay.draw(5, rng, beta=0.4) is None
    assert len(replay) == 0
    replay.add(transitions(10, 3), np.ones(3))
    expect_whole(replay.draw(5, rng, beta=0.4))


def test_no_restart_left_is_said():
    replay, rng = sharded(2, 10, restarts=0), np.random.default_rng(0)
    fill(replay, 20)
    replay._messages._pool.kill(1)
    for _ in range(2):
        with pytest.raises(WorkerError, match=r"shard 1: it died .*no restart is left"):
            replay.draw(5, rng, beta=0.4)
    replay.close()
    assert replay._messages._pool.closed


def test_a_silent_shard_counts_as_dead():
    replay, rng = sharded(2, 10, timeout_s=0.05), np.random.default_rng(0)
    fill(replay, 20)
    replay.draw(5, rng, beta=0.4)
    replay._messages._pool.silent = {1}
    replay.set_errors(np.arange(20), np.ones(20))
    start, replay._messages._pool.start = (
        replay._messages._pool.start,
        lambda shard: (
            replay._messages._pool.silent.clear(),
            start(shard),
        ),
    )
    drawn = replay.draw(8, rng, beta=0.4)
    assert (drawn.number % 2 == 0).all()
    assert replay.restarts_left == 2


# --- saved -----------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 5, 24, 61])
@pytest.mark.parametrize("others", [0, 1, 2, 4])
def test_it_goes_on_in_another_number_of_shards(count, others, monkeypatch):
    monkeypatch.setattr("hotloop.rollout.shards.CHUNK_BYTES", 3 * ROW_BYTES)
    replay = sharded(3, 8)
    error = fill(replay, count)
    other = sharded(others, 24 // others) if others else PrioritisedReplay(24)
    for _ in range(2):  # also over what was there before
        other.load_state_dict(replay.state_dict(), transitions(0, 0))
    held = min(count, 24)
    assert len(other) == held
    saved = other.state_dict()
    order = (saved["added"] - held + np.arange(held)) % 24
    expected = (np.abs(error[count - held :]) + FLOOR) ** 0.6
    np.testing.assert_allclose(saved["priority"][order], expected)
    if not count:
        return
    expect = transitions(count - held, held)
    np.testing.assert_array_equal(saved["transitions"][3][order], expect.reward)
    other.add(transitions(count, 2), np.full(2, 1e9))
    drawn = other.draw(20, np.random.default_rng(0), beta=0.4)
    np.testing.assert_array_equal(np.unique(drawn.transitions.reward), [count, count + 1])


def test_one_replay_goes_on_in_shards():
    one, shards = PrioritisedReplay(24), sharded(3, 8)
    fill(one, 50)
    shards.load_state_dict(one.state_dict(), transitions(0, 0))
    again = PrioritisedReplay(24)
    again.load_state_dict(shards.state_dict(), transitions(0, 0))
    drawn = [replay.draw(50, np.random.default_rng(5), beta=0.4) for replay in (shards, again)]
    assert set(drawn[0].transitions.reward) <= set(range(26, 50))
    assert set(drawn[1].transitions.reward) <= set(range(26, 50))


def test_what_is_left_is_saved_where_a_shard_died():
    replay = sharded(3, 8, restarts=5)
    fill(replay, 24)
    replay._messages._pool.kill(1)
    saved = replay.state_dict()
    assert saved["transitions"][3].tolist() == [n for n in range(24) if n % 3 != 1]
    send, left = replay._messages._pool.send, [2]

    def kills(shard, request):
        left[0] -= 1
        if left[0] == 0:
            replay._messages._pool.kill(2)
        send(shard, request)

    replay._messages._pool.send = kills
    saved = replay.state_dict()
    assert saved["transitions"][3].tolist() == [n for n in range(24) if n % 3 == 0]


def test_a_state_of_something_else_is_refused():
    replay = sharded(2, 5)
    replay.add(transitions(0, 2), np.ones(2))
    state = replay.state_dict()
    other = sharded(2, 5)
    for change in (
        *({"added": 3}, {"transitions": []}, {"priority": np.ones(3)}),
        *({"priority": np.array([1.0, np.nan])}, {"priority": np.array([1.0, -1.0])}),
    ):
        with pytest.raises(ShapeError, match="replay: state"):
            other.load_state_dict({**state, **change}, transitions(0, 0))
    assert len(other) == 0


# --- what fits -------------------------------------------------------------------------------


def test_the_room_of_nodes_is_that_of_equal_shards():
    for memory, shards in (([1000.0], 1), ([1000.0, 100.0], 3), ([900.0, 500.0, 500.0], 4)):
        rows = most_rows(memory, shards, 10)
        sizes = range(1, 200)
        fitting = [
            size for size in sizes if sum(int(0.8 * m / (10 * size)) for m in memory) >= shards
        ]
        assert rows == shards * max(fitting, default=0)
    assert most_rows([1000.0, 1000.0], 1, 10) == 80
    assert enough_shards([1000.0, 1000.0], 160, 10) == 2
    assert enough_shards([1000.0, 1000.0], 170, 10) is None


def test_shards_here_share_the_memory_of_this_machine(monkeypatch):
    class Memory:
        available = 10_000

    monkeypatch.setattr(psutil, "virtual_memory", lambda: Memory)
    assert [room_for("process", n, 500, 40).rows for n in (0, 1, 5)] == [200] * 3


# --- in processes ----------------------------------------------------------------------------


def pids(replay):
    return [one.process.pid for one in replay._messages._pool._shards.values()]


def processes(settings):
    return shard_pool("process", settings)


@pytest.mark.long
@pytest.mark.parametrize(("shards", "prefetch"), [(1, 0), (2, 2)])
def test_processes_draw_what_the_plain_form_draws(shards, prefetch):
    replay, plain = (
        sharded(shards, 30, pool=pool, prefetch=prefetch) for pool in (processes, PlainShardPool)
    )
    drawn = []
    try:
        for one in (replay, plain):
            rng = np.random.default_rng(1)
            fill(one, 90)
            kept = [one.draw(16, rng, beta=0.4) for _ in range(40)]
            for batch in kept:
                expect_whole(batch)  # memory that is used again changes nothing that is kept
            one.set_errors(np.arange(70, 90), np.ones(20))
            state = one.state_dict()
            drawn.append([state["priority"], *state["transitions"]])
            if not prefetch:  # else the sums that are known depend on when answers arrive
                drawn[-1].append(one.draw(64, rng, beta=0.4).number)
        for mine, other in zip(*drawn, strict=True):
            np.testing.assert_array_equal(mine, other)
    finally:
        replay.close()


@pytest.mark.long
def test_a_killed_process_is_replaced_and_nothing_is_left_after_close():
    before = set(psutil.Process().children(recursive=True))
    replay, rng = sharded(2, 50, pool=processes, prefetch=1), np.random.default_rng(0)
    try:
        fill(replay, 100)
        replay.draw(16, rng, beta=0.4)
        killed = pids(replay)[0]
        os.kill(killed, signal.SIGKILL)
        wait_until(lambda: not is_running(killed), "the shard has died")
        for _ in range(4):
            expect_whole(replay.draw(16, rng, beta=0.4))
        assert (replay.lost, len(replay), replay.restarts_left) == (50, 50, 2)
        fill(replay, 0)
        replay.add(transitions(100, 10), np.ones(10))
        expect_whole(replay.draw(16, rng, beta=0.4))
        left = pids(replay)
    finally:
        replay.close()
        replay.close()
    assert not any(map(is_running, left))
    assert set(psutil.Process().children(recursive=True)) <= before
    with pytest.raises(WorkerError, match="closed"):
        replay.draw(16, rng, beta=0.4)


DRIVER = textwrap.dedent(
    """
    import sys, time
    sys.path[:0] = {path!r}
    from rollout.test_shards import fill, pids, processes, sharded

    replay = sharded(2, 50, pool=processes)
    fill(replay, 60)
    print(*pids(replay), flush=True)
    {last}
    """
)


@pytest.mark.long
@pytest.mark.parametrize("last", ["time.sleep(60)", "pass"])
def test_no_orphans(last):
    """Shards end with their driver, whether it is killed or forgets to close."""
    code = DRIVER.format(path=[str(Path(__file__).parents[1])], last=last)
    driver = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert driver.stdout is not None
    left = [int(pid) for pid in driver.stdout.readline().split()]
    assert len(left) == 2
    if last != "pass":
        driver.kill()
    driver.wait(timeout=DEADLINE_S)
    driver.stdout.close()
    wait_until(lambda: not any(map(is_running, left)), "shards end with their driver")


def is_running(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
