"""A replay in shards that are Ray actors."""

import gc
import logging
import os
import signal
import warnings
from pathlib import Path

import numpy as np
import pytest

from hotloop.errors import WorkerError
from hotloop.rollout import shards_ray
from hotloop.rollout.shard import ShardSettings
from hotloop.rollout.shard_pools import room_for, shard_pool
from hotloop.rollout.shards import ShardedReplay
from support.plain_shards import PlainShardPool
from support.ray_warnings import RAY_WARNINGS
from support.transitions import expect_whole, transitions
from support.wait import wait_until

ray = pytest.importorskip("ray")
pytestmark = RAY_WARNINGS

TESTS = str(Path(__file__).parents[1])
PYTHONPATH = os.pathsep.join(filter(None, (TESTS, os.environ.get("PYTHONPATH"))))
NODE_BYTES = 2 << 30
SETTINGS = ShardSettings(30, 0.6, 30 * 40)


@pytest.fixture(scope="module", autouse=True)
def cluster():
    ray.init(
        address="local",
        num_cpus=1,
        _memory=NODE_BYTES,
        include_dashboard=False,
        log_to_driver=False,
        runtime_env={"env_vars": {"PYTHONPATH": PYTHONPATH, "OMP_NUM_THREADS": "1"}},
    )
    yield
    ray.shutdown()
    with warnings.catch_warnings():  # the processes and files that Ray leaves, here and not later
        warnings.simplefilter("ignore")
        gc.collect()


def fill(replay, count, first=0):
    for number in range(first, first + count, 15):
        replay.add(transitions(number, 15), np.arange(number, number + 15) % 7)


@pytest.mark.slow
def test_actors_draw_what_the_plain_form_draws():
    replay = ShardedReplay(shard_pool("ray", SETTINGS), 2, SETTINGS)
    plain = ShardedReplay(PlainShardPool(SETTINGS), 2, SETTINGS)
    drawn = []
    for one in (replay, plain):
        rng = np.random.default_rng(1)
        fill(one, 90)
        for _ in range(5):
            batch = one.draw(32, rng, beta=0.4)
            one.set_errors(batch.number, batch.number % 5)
        expect_whole(batch)
        drawn.append((batch.number, batch.weight, *one.state_dict()["transitions"]))
    replay.close()
    for mine, other in zip(*drawn, strict=True):
        np.testing.assert_array_equal(mine, other)


def test_a_killed_actor_is_replaced_and_nothing_is_left_after_close(caplog):
    replay = ShardedReplay(shard_pool("ray", SETTINGS), 2, SETTINGS, prefetch=2, restarts=1)
    rng = np.random.default_rng(0)
    fill(replay, 60)
    replay.draw(16, rng, beta=0.4)
    os.kill(pid_of(replay, 1), signal.SIGKILL)
    with caplog.at_level(logging.WARNING, "hotloop"):
        while replay.restarts_left:
            expect_whole(replay.draw(16, rng, beta=0.4))
            replay.set_errors(np.arange(60), np.ones(60))
    assert (replay.lost, len(replay)) == (30, 30)
    assert "replay shard 1: it died" in caplog.text
    fill(replay, 15, first=60)
    for _ in range(4):
        drawn = replay.draw(16, rng, beta=0.4)
    expect_whole(drawn)
    assert set(drawn.number[drawn.number % 2 == 1]) <= set(range(61, 75, 2))
    ray.kill(replay._messages._pool._actors[0])
    with pytest.raises(WorkerError, match=r"shard 0: it died .*no restart is left"):
        draw_for_ever(replay, rng)
    replay.close()
    replay.close()
    wait_until(lambda: ray.available_resources().get("memory") == NODE_BYTES, "no shard is left")


def draw_for_ever(replay, rng):
    while True:
        replay.draw(16, rng, beta=0.4)


def pid_of(replay, shard):
    def own_pid(_):
        return os.getpid()

    return ray.get(replay._messages._pool._actors[shard].__ray_call__.remote(own_pid))


def test_memory_is_asked_for_and_must_fit():
    settings = ShardSettings(30, 0.6, NODE_BYTES // 4)
    replay = ShardedReplay(shard_pool("ray", settings), 2, settings)
    wait_until(
        lambda: ray.available_resources()["memory"] == NODE_BYTES // 2, "two quarters are taken"
    )
    replay.close()
    row_bytes = 1 << 20
    room = room_for("ray", 1, 3000, row_bytes)
    assert room.rows == int(0.8 * 2048)
    assert room.advice == "no number of shards would do"
    assert room_for("ray", 2, 100, row_bytes).advice == "replay_shards=1 would do"


def test_a_cluster_that_does_not_say_its_memory_is_not_asked_for_any(monkeypatch, caplog):
    monkeypatch.setattr(shards_ray, "node_memory", lambda: None)
    assert room_for("ray", 2, 10**9, 10**9).rows is None
    with caplog.at_level(logging.WARNING, "hotloop"):
        replay = ShardedReplay(shard_pool("ray", SETTINGS), 1, SETTINGS)
    assert "does not say how much memory" in caplog.text
    fill(replay, 15)
    expect_whole(replay.draw(4, np.random.default_rng(0), beta=0.4))
    replay.close()


def test_a_shard_that_finds_no_place_is_said():
    settings = ShardSettings(30, 0.6, 10 * NODE_BYTES)
    with pytest.raises(
        WorkerError, match=r"shard 0: no answer for 0\.5 s to its start.*no restart"
    ):
        ShardedReplay(shard_pool("ray", settings), 1, settings, restarts=0, timeout_s=0.5)
