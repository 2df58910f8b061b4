"""The vector env on Ray against the serial one, on a cluster of three nodes, and its recovery."""

import gc
import logging
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import cloudpickle
import gymnasium
import numpy as np
import psutil
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from hotloop.envs.actions import Given
from hotloop.envs.group import EnvGroup
from hotloop.envs.process import ProcessVectorEnv
from hotloop.envs.serial import SerialVectorEnv
from hotloop.errors import SettingError, StateError, TargetError, WorkerError
from hotloop.testing.conformance import check
from support.ray_warnings import RAY_WARNINGS
from support.wait import DEADLINE_S, wait_until

ray = pytest.importorskip("ray")
from ray.cluster_utils import Cluster  # noqa: E402
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # noqa: E402

from hotloop.envs.ray import RayVectorEnv  # noqa: E402

pytestmark = [*RAY_WARNINGS, pytest.mark.long]
# The workers know this module by value: they do not have it.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

SMALL = {"num_cpus": 0.1}


@pytest.fixture(scope="module", autouse=True)
def cluster():
    """A head with two cores, and nodes with one and with three."""
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "resources": {"head": 10}})
    made.add_node(num_cpus=1, resources={"small": 10}, wait=False)
    made.add_node(num_cpus=3, resources={"large": 10}, wait=False)
    made.wait_for_nodes()
    ray.init(made.address, log_to_driver=False)
    yield made
    ray.shutdown()
    made.shutdown()
    with warnings.catch_warnings():  # the processes and files that Ray leaves, here and not later
        warnings.simplefilter("ignore")
        gc.collect()


class Everything(gymnasium.Env):
    """Nested observations with text, nested actions, infos that differ."""

    metadata = {"render_modes": ["ansi"]}  # noqa: RUF012
    observation_space = spaces.Dict(
        {
            "place": spaces.Box(-9, 9, (2,), np.float64),
            "pair": spaces.Tuple((spaces.Discrete(100), spaces.Text(8))),
        }
    )
    action_space = spaces.Tuple((spaces.Discrete(4), spaces.Box(-1, 1, (2,), np.float32)))
    render_mode = "ansi"
    level = 1

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = int(self.np_random.integers(2, 7))
        return self.obs(), {"start": self.left, **(options or {})}

    def step(self, action):
        self.left -= 1
        action[1][:] += 1  # its own, to change
        reward = self.left + float(action[1].sum())
        info = {"half": self.left / 2} if self.left % 2 else {}
        return self.obs(), reward, self.left == 0, self.left == 1, info

    def obs(self):
        place = self.np_random.uniform(-9, 9, 2)
        return {"place": place, "pair": (self.left, "x" * self.left)}

    def render(self):
        return f"left {self.left}"

    def add(self, number):
        return self.left + number


class Walk(gymnasium.Env):
    """A random walk of a drawn length; what it is told may go wrong."""

    observation_space = spaces.Box(-100, 100, (3,), np.float32)
    action_space = spaces.Discrete(3)

    def __init__(self, fault=None, marker=None):
        self.fault, self.marker = fault, marker

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if self.fault == "reset":
            raise KeyError("no reset today")
        self.left = int(self.np_random.integers(9, 20))
        self.at = self.np_random.normal(size=3).astype(np.float32)
        return self.at.copy(), {}

    def step(self, action):
        if self.fault == "step":
            raise OddError("planted", 7)
        if self.fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.fault == "hang" and not self.marker.exists():
            self.marker.touch()
            time.sleep(1000)
        while self.fault == "wait" and not self.marker.exists():
            time.sleep(0.01)
        if self.fault == "lock":
            return self.at, 0.0, False, False, {"lock": threading.Lock()}
        self.left -= 1
        self.at = self.at + np.float32(action) + self.np_random.normal(size=3).astype(np.float32)
        return self.at.copy(), 1.0, self.left == 0, False, {}


class OddError(Exception):
    """An exception that only its own class can rebuild."""

    def __init__(self, what, number):
        super().__init__(what, number)
        self.number = number


def same(got, expected):
    assert type(got) is type(expected)
    if isinstance(got, dict):
        assert got.keys() == expected.keys()
        for key in got:
            same(got[key], expected[key])
    elif isinstance(got, tuple):
        assert len(got) == len(expected)
        for one, other in zip(got, expected, strict=True):
            same(one, other)
    elif isinstance(got, np.ndarray) and got.dtype == object:
        same(tuple(got), tuple(expected))
    elif isinstance(got, np.ndarray):
        assert got.dtype == expected.dtype
        np.testing.assert_array_equal(got, expected)
    else:
        assert got == expected


def copied(actions):
    return tuple(map(copied, actions)) if isinstance(actions, tuple) else actions.copy()


def actors():
    from ray._private.state import actors

    return [actor for actor in actors().values() if actor["State"] != "DEAD"]


def pids(envs):
    return [handle.pid for handle in envs._actors.handles]


def none_lives(pids):
    return not any(map(psutil.pid_exists, pids))


# --- the same as in one process ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "workers"),
    [
        ("next_step", 2),
        pytest.param("same_step", 1, marks=pytest.mark.slow),
        pytest.param("disabled", 3, marks=pytest.mark.slow),
    ],
)
def test_engine_equivalence(mode, workers):
    serial = SerialVectorEnv([Everything] * 5, autoreset_mode=mode)
    ours = RayVectorEnv([Everything] * 5, num_workers=workers, autoreset_mode=mode, **SMALL)
    assert ours.observation_space == serial.observation_space
    assert ours.metadata == serial.metadata
    same(ours.reset(seed=7, options={"asked": 1}), serial.reset(seed=7, options={"asked": 1}))
    serial.action_space.seed(1)
    ended = 0
    for _ in range(30):
        actions = serial.action_space.sample()
        got, expected = ours.step(copied(actions)), serial.step(copied(actions))
        same(got, expected)
        over = expected[2] | expected[3]
        ended += int(over.sum())
        if mode == "disabled" and over.any():
            masks = [{"reset_mask": over.copy()} for _ in range(2)]
            same(ours.reset(options=masks[0]), serial.reset(options=masks[1]))
    assert ended > 10
    assert ours.call("add", 3) == serial.call("add", 3)
    assert ours.render() == serial.render()
    ours.set_attr("level", [3, 1, 4, 1, 5])
    assert ours.get_attr("level") == (3, 1, 4, 1, 5)
    serial.set_attr("level", 0)
    seeds = [5, None, 3, None, 1]
    same(ours.reset(seed=seeds), serial.reset(seed=seeds))
    ours.close()
    ours.close()
    with pytest.raises(gymnasium.error.ClosedEnvironmentError):
        ours.step(actions)


def vectorised():
    return gymnasium.make_vec("CartPole-v1", 3, vectorization_mode="vector_entry_point")


def pooled(processes, envs):
    return ProcessVectorEnv([Walk] * envs, num_workers=processes)


def native():
    from hotloop.integrations.envpool import EnvPoolVectorEnv

    return EnvPoolVectorEnv("CartPole-v1", 4, num_threads=1)


@pytest.mark.slow
def test_pool_of_pools():
    ours = RayVectorEnv([partial(pooled, 2, 4), partial(pooled, 1, 2)], num_workers=2, **SMALL)
    serial = SerialVectorEnv([Walk] * 6)
    assert ours.num_envs == 6
    same(ours.reset(seed=3), serial.reset(seed=3))
    for step in range(25):
        actions = np.arange(6) % 3 if step % 2 else np.ones(6, np.int64)
        same(ours.step(actions), serial.step(actions))
    inner = {child.pid for pid in pids(ours) for child in psutil.Process(pid).children()}
    assert len(inner) == 3
    with pytest.raises(StateError, match=r"envs 0 to 3 are one vector env"):
        ours.send(np.zeros(3, np.int64), [0, 1, 5])
    ours.step(actions)  # nothing had been sent
    ours.close()
    wait_until(lambda: none_lives(inner), "the inner pools end")


@pytest.mark.slow
def test_a_native_engine_is_carried():
    ours, theirs = RayVectorEnv([vectorised], **SMALL), vectorised()
    theirs.autoreset_mode = theirs.metadata["autoreset_mode"]
    same(ours.reset(seed=3)[0], theirs.reset(seed=3)[0])
    for _ in range(60):
        got, expected = ours.step(np.ones(3, np.int64)), theirs.step(np.ones(3, np.int64))
        same(got[0], expected[0])
        same(got[2:4], expected[2:4])
    with pytest.raises(TargetError, match="autoreset_mode: expected SameStep"):
        RayVectorEnv([vectorised], autoreset_mode="same_step", **SMALL)
    ours.close()


@pytest.mark.slow
def test_envpool_is_carried():
    pytest.importorskip("envpool")
    ours = RayVectorEnv([native] * 2, num_workers=2, **SMALL)
    assert ours.num_envs == 8
    ours.reset()
    for _ in range(30):
        obs, reward, terminated, truncated, _ = ours.step(np.ones(8, np.int64))
    assert obs.shape == (8, 4)
    assert reward.shape == terminated.shape == truncated.shape == (8,)
    ours.close()


@pytest.mark.slow
def test_the_conformance_kit_passes():
    check(partial(RayVectorEnv, [Walk] * 3, num_workers=2, **SMALL), single=Walk)


class Picture(Walk):
    """Observations that Ray shares instead of sending them along."""

    observation_space = spaces.Box(0, 255, (200, 200), np.uint8)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.np_random.integers(0, 256, (200, 200), np.uint8), {}

    def step(self, action):
        _, *rest = super().step(action)
        return self.np_random.integers(0, 256, (200, 200), np.uint8), *rest


@pytest.mark.slow
def test_large_observations():
    ours = RayVectorEnv([Picture] * 4, num_workers=1, **SMALL)
    serial = SerialVectorEnv([Picture] * 4)
    same(ours.reset(seed=1), serial.reset(seed=1))
    for _ in range(12):
        got = ours.step(np.ones(4, np.int64))
        same(got, serial.step(np.ones(4, np.int64)))
    got[0][:] = 0  # the caller's own
    ours.close()


# --- batches of those that are ready -------------------------------------------------------------


def test_partial_batches_do_not_wait_for_the_slow(tmp_path):
    go = tmp_path / "go"
    slow = partial(Walk, "wait", go)
    ours = RayVectorEnv([Walk, Walk, slow, slow], num_workers=2, batch_size=2, **SMALL)
    serial = SerialVectorEnv([Walk] * 4)
    start = serial.reset(seed=1)[0]
    stepped = [serial.step(np.full(4, k)) for k in (1, 2)]
    ours.async_reset(seed=1)
    got = dict([seen(ours.recv()), seen(ours.recv())])
    same(got[0, 1], start[:2])
    same(got[2, 3], start[2:])
    ours.send(np.ones(4, np.int64), [3, 0, 2, 1])
    for k in range(2):
        batch = ours.recv()
        assert batch[4]["env_id"].tolist() == [0, 1]  # the others are waiting
        same(batch[0], stepped[k][0][:2])
        if k == 0:
            ours.send(np.full(2, 2))
    with pytest.raises(StateError, match=r"envs \[2\] are still stepping"):
        ours.send(np.ones(1, np.int64), [2])
    go.touch()
    same(seen(ours.recv()), ((2, 3), stepped[0][0][2:]))
    with pytest.raises(StateError, match="no env is under way"):
        ours.recv()
    # One env alone of a worker's two.
    ours.send(np.full(1, 2), [3])
    same(seen(ours.recv()), ((3,), stepped[1][0][3:]))
    ours.close()


def test_some_envs_are_awaited_by_name(tmp_path):
    go = tmp_path / "go"
    ours = RayVectorEnv([Walk, partial(Walk, "wait", go)], num_workers=2, batch_size=1, **SMALL)
    serial = SerialVectorEnv([Walk] * 2)
    ours.async_reset(seed=1)
    batch = ours.recv([1, 0])
    assert batch[4]["env_id"].tolist() == [1, 0]
    same(batch[0], serial.reset(seed=1)[0][::-1].copy())
    ours.send(Given([2, 1]), [0, 1])
    assert ours.poll(1).tolist() == [0]
    assert ours.poll(2, timeout_s=0.05).tolist() == [0]
    assert ours.under_way.tolist() == [0, 1]
    go.touch()
    assert ours.poll(2).tolist() == [0, 1]
    batch = ours.recv([1, 0])
    same(batch[0], serial.step(np.array([2, 1]))[0][::-1].copy())
    ours.close()


def test_after_ctrl_c_it_goes_on(tmp_path):
    go = tmp_path / "go"
    ours = RayVectorEnv([Walk, partial(Walk, "wait", go)], num_workers=2, **SMALL)
    ours.reset(seed=0)
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012  # it may come before the step
        timer.start()
        ours.step(np.zeros(2, np.int64))
    go.touch()
    same(ours.reset(seed=3), SerialVectorEnv([Walk] * 2).reset(seed=3))
    assert not ours.step(np.zeros(2, np.int64))[3].any()
    ours.close()


def seen(batch):
    return tuple(batch[4]["env_id"].tolist()), batch[0]


@pytest.mark.slow
def test_splits_take_turns_over_all_workers():
    ours = RayVectorEnv([Walk] * 6, num_workers=2, splits=2, **SMALL)
    serial = SerialVectorEnv([Walk] * 6, splits=2)
    for envs in (ours, serial):
        envs.async_reset(seed=4)
    for k in range(40):
        got, expected = ours.recv(), serial.recv()
        same(got, expected)
        for envs in (ours, serial):
            envs.send(np.full(3, k % 3))
    same(ours.recv()[0], serial.recv()[0])
    ours.recv()
    same(ours.reset(seed=9), serial_reset(serial, 9))
    ours.close()


def serial_reset(serial, seed):
    serial.recv()
    return serial.reset(seed=seed)


# --- placing -------------------------------------------------------------------------------------


def test_workers_go_where_their_resources_are():
    def nodes(**settings):
        envs = RayVectorEnv([Walk] * 3, **settings)
        placed = envs.worker_nodes
        envs.close()
        return placed

    ids = {name: node["NodeID"] for node in ray.nodes() for name in node["Resources"]}
    large = {"resources": {"large": 1}}
    assert set(nodes(num_workers=3, ray_options=large)) == {ids["large"]}
    strategy = NodeAffinitySchedulingStrategy(ids["head"], soft=False)
    options = {"scheduling_strategy": strategy}
    assert nodes(num_workers=1, num_cpus=0.5, ray_options=options) == (ids["head"],)
    # As many as there is room for: one on the small node would need a core of its own.
    assert len(nodes(ray_options={"resources": {"small": 5}}, num_cpus=0.5)) == 2


def test_more_than_the_cluster_has_is_refused():
    with pytest.raises(SettingError, match=r"each with 2 CPU: .* room for 2, 3 nodes: .*3 CPU"):
        RayVectorEnv([Walk] * 3, num_workers=3, num_cpus=2)
    with pytest.raises(SettingError, match=r"3 gpu_of_dreams.* room for 0"):
        RayVectorEnv([Walk], num_workers=1, ray_options={"resources": {"gpu_of_dreams": 3}})
    with pytest.raises(SettingError, match=r"ray_options: .* got max_restarts"):
        RayVectorEnv([Walk], ray_options={"max_restarts": 3})
    with pytest.raises(SettingError, match="num_workers: expected 1 to 1"):
        RayVectorEnv([Walk], num_workers=2)


def test_waiting_for_a_place_ends():
    holder = RayVectorEnv([Walk], num_cpus=0, ray_options={"resources": {"small": 8}})
    with pytest.raises(WorkerError, match=r"1 of 1 workers have no place after 0.5 s: .*4 small"):
        RayVectorEnv(
            [Walk],
            num_cpus=0,
            ray_options={"resources": {"small": 4}},
            start_timeout_s=0.5,
        )
    holder.close()


def test_a_cluster_without_living_nodes_is_known_at_once(monkeypatch):
    gone = SimpleNamespace(nodes=lambda: [{"Alive": False}] * 3)
    monkeypatch.setattr("hotloop.envs.ray.cluster.RAY", gone)
    with pytest.raises(WorkerError, match="none of the cluster's 3 nodes is alive"):
        RayVectorEnv([Walk], num_workers=1, autoscales=True, start_timeout_s=600)


# --- errors --------------------------------------------------------------------------------------


def test_errors_keep_their_type_and_say_where():
    with pytest.raises(ZeroDivisionError, match="not made") as caught:
        RayVectorEnv([Walk, unmade], num_workers=1, **SMALL)
    assert "while making env 1" in caught.value.__notes__ or "unmade" in str(caught.value.__notes__)

    ours = RayVectorEnv([Walk, partial(Walk, "step"), Walk], num_workers=2, **SMALL)
    ours.reset(seed=0)
    with pytest.raises(OddError) as caught:
        ours.step(np.zeros(3, np.int64))
    assert caught.value.number == 7
    assert "in env 1" in caught.value.__notes__
    assert "In the worker" in caught.value.__notes__[-1]
    assert 'raise OddError("planted", 7)' in caught.value.__notes__[-1]
    with pytest.raises(AttributeError, match="nowhere"):
        ours.call("nowhere")
    ours.set_attr("fault", ["lock", None, None])
    with pytest.raises(TypeError, match="lock") as caught:
        ours.step(np.zeros(3, np.int64))
    assert any("in worker 0 (envs 0 to 1" in note for note in caught.value.__notes__)
    assert any("cannot be sent" in note for note in caught.value.__notes__)
    ours.set_attr("fault", [None, "reset", None])
    with pytest.raises(KeyError, match="no reset today") as caught:
        ours.reset(seed=0)
    assert "in env 1" in caught.value.__notes__
    ours.set_attr("fault", None)
    same(ours.reset(seed=0)[0], SerialVectorEnv([Walk] * 3).reset(seed=0)[0])
    ours.close()


def unmade():
    raise ZeroDivisionError("not made")


def test_unlike_envs_are_refused():
    with pytest.raises(TargetError, match="observation space of env 1"):
        RayVectorEnv([Walk, partial(gymnasium.make, "CartPole-v1")], num_workers=2, **SMALL)
    assert not actors()


def test_makers_that_cannot_be_sent_are_refused():
    lock = threading.Lock()
    with pytest.raises(TargetError, match="cannot be pickled"):
        RayVectorEnv([lambda: lock and Walk()], num_workers=1, **SMALL)


# --- recovery ------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["next_step", pytest.param("same_step", marks=pytest.mark.slow)])
def test_a_killed_worker_is_started_anew(mode, caplog):
    ours = RayVectorEnv([Walk] * 4, num_workers=2, autoreset_mode=mode, **SMALL)
    serial = SerialVectorEnv([Walk] * 4, autoreset_mode=mode)
    start = ours.reset(seed=5)[0]
    same(start, serial.reset(seed=5)[0])
    os.kill(pids(ours)[1], signal.SIGKILL)
    with caplog.at_level(logging.WARNING, "hotloop"):
        got = ours.step(np.ones(4, np.int64))
    assert "worker 1 (envs 2 to 3" in caplog.text
    expected = serial.step(np.ones(4, np.int64))
    same(got[0][:2], expected[0][:2])
    assert got[3].tolist() == [False, False, True, True]
    assert got[4]["worker_restarted"].tolist() == [False, False, True, True]
    assert got[1].tolist() == [1, 1, 0, 0]
    fresh = restarted(mode, 5, (2, 3), 1)
    if mode == "same_step":
        same(np.stack(got[4]["final_obs"][2:]), start[2:])
    else:
        same(got[0][2:], start[2:])  # the episodes end where they were last seen
        got = ours.step(np.ones(4, np.int64))
        same(got[0][:2], serial.step(np.ones(4, np.int64))[0][:2])
        assert not got[3].any()
    same(got[0][2:], fresh)
    ours.close()


def restarted(mode, seed, rows, restarts):
    """The first observations of restarted envs: a reset by the seed of restarts, then autoreset's.

    The second reset goes on with the generator of the first, as autoreset does.
    """
    group = EnvGroup([Walk] * len(rows), AutoresetMode[mode.upper()])
    seeds = [
        int(np.random.SeedSequence(seed, spawn_key=(row, restarts)).generate_state(1)[0])
        for row in rows
    ]
    group.reset(range(len(rows)), seeds, None)
    return np.stack(group.reset(range(len(rows)), [None] * len(rows), None).obs)


@pytest.mark.slow
def test_resets_under_way_are_sent_again(tmp_path):
    ours = RayVectorEnv([Walk] * 4, num_workers=2, batch_size=2, **SMALL)
    os.kill(pids(ours)[0], signal.SIGKILL)
    ours.async_reset(seed=8)
    got = dict([seen(ours.recv()), seen(ours.recv())])
    start = SerialVectorEnv([Walk] * 4).reset(seed=8)[0]
    same(got[0, 1], start[:2])
    same(got[2, 3], start[2:])
    ours.close()


@pytest.mark.slow
def test_a_hanging_worker_is_started_anew(tmp_path, monkeypatch):
    hung = tmp_path / "hung"
    ours = RayVectorEnv([Walk, partial(Walk, "hang", hung)], num_workers=2, timeout_s=2.0, **SMALL)
    clock = SimpleNamespace(now_s=0.0)

    def monotonic():
        """The time is up once one worker hangs and the other has answered, however long it took."""
        if hung.exists() and all(flight.handle.number == 1 for flight in ours._pending.values()):
            clock.now_s = 100.0
        return clock.now_s

    clock.monotonic = monotonic
    for module in ("engine", "actors"):
        monkeypatch.setattr(f"hotloop.envs.ray.{module}.time", clock)
    ours.reset(seed=0)
    got = ours.step(np.zeros(2, np.int64))
    assert got[3].tolist() == [False, True]
    assert not ours.step(np.zeros(2, np.int64))[3].any()
    ours.close()


@pytest.mark.slow
def test_too_many_deaths_are_an_error():
    ours = RayVectorEnv([Walk, partial(Walk, "kill")], num_workers=2, restarts=1, **SMALL)
    ours.reset(seed=0)
    ours.step(np.zeros(2, np.int64))  # cut
    ours.step(np.zeros(2, np.int64))  # reset
    with pytest.raises(WorkerError, match=r"worker 1 .* after 1 restarts: expected at most"):
        ours.step(np.zeros(2, np.int64))
    with pytest.raises(gymnasium.error.ClosedEnvironmentError):
        ours.reset()
    assert not actors()
    ours.close()


def test_a_removed_node_takes_nothing_else_along(cluster):
    extra = cluster.add_node(num_cpus=1, resources={"spot": 1})
    strategy = {"scheduling_strategy": NodeAffinitySchedulingStrategy(extra.node_id, soft=True)}
    ours = RayVectorEnv([Walk] * 2, num_workers=1, ray_options=strategy, **SMALL)
    others = RayVectorEnv(
        [Walk] * 2, num_workers=1, ray_options={"resources": {"head": 1}}, **SMALL
    )
    assert ours.worker_nodes == (extra.node_id,)
    for envs in (ours, others):
        envs.reset(seed=0)
        envs.step(np.zeros(2, np.int64))
    ours.send(np.zeros(2, np.int64), [0, 1])
    ours.recv()
    cluster.remove_node(extra)
    got = ours.step(np.zeros(2, np.int64))
    assert got[3].all()
    assert ours.worker_nodes != (extra.node_id,)
    assert not ours.step(np.zeros(2, np.int64))[3].any()
    assert not others.step(np.zeros(2, np.int64))[3].any()
    ours.close()
    others.close()


# --- ending --------------------------------------------------------------------------------------


def test_nothing_is_left():
    ours = RayVectorEnv([Walk] * 2, num_workers=2, **SMALL)
    ours.reset()
    ours.send(np.zeros(2, np.int64), [0, 1])
    left = pids(ours)
    del ours
    gc.collect()
    assert not actors()
    wait_until(lambda: none_lives(left), "the workers end")


def run_driver(body, **env):
    script = (
        "import sys, os, signal, time, ray, gymnasium, numpy as np\n"
        "from hotloop.envs.ray import RayVectorEnv\n"
        "make = lambda: gymnasium.make('CartPole-v1')\n"
        "class Slow(gymnasium.Wrapper):\n"
        "    def step(self, action): time.sleep(100)\n" + textwrap.dedent(body)
    )
    return subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **env},
    )


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["exit", "raise", "SIGINT", "SIGKILL"])
def test_drivers_that_end_leave_no_actor(cluster, ending):
    driver = run_driver(
        f"""
        ray.init({cluster.address!r}, log_to_driver=False)
        envs = RayVectorEnv([lambda: Slow(make())] * 2, num_workers=2, num_cpus=0.1)
        envs.reset()
        print(*[handle.pid for handle in envs._actors.handles], flush=True)
        {"envs.step(np.zeros(2, int))" if "SIG" in ending else ""}
        {"raise SystemExit(3)" if ending == "raise" else ""}
        """
    )
    left = [int(pid) for pid in driver.stdout.readline().split()]
    assert len(left) == 2, driver.stderr.read()
    if "SIG" in ending:
        time.sleep(0.3)
        driver.send_signal(getattr(signal, ending))
    driver.communicate(timeout=DEADLINE_S)
    wait_until(lambda: none_lives(left), "the workers end")
    wait_until(lambda: not actors(), "no actor is left")


@pytest.mark.parametrize(("given", "expected"), [(None, 0), ("7", 7)])
def test_workers_of_a_ray_that_is_started_here_have_their_full_share(given, expected, monkeypatch):
    """Unless the environment says otherwise: Ray's own workers give way to all other programs."""
    if given is None:
        monkeypatch.delenv("RAY_worker_niceness", raising=False)
    else:
        monkeypatch.setenv("RAY_worker_niceness", given)
    body = """
        from hotloop.envs.ray.cluster import start_ray
        start_ray("local", quiet=True)
        print(ray.get(ray.remote(lambda: os.nice(0)).remote()))
        print(os.environ.get("RAY_worker_niceness"))
        """
    out, err = run_driver(body).communicate(timeout=DEADLINE_S)
    assert out.split() == [str(expected), str(given)], err


@pytest.mark.slow
def test_with_tokens(tmp_path):
    token = tmp_path / "token"
    token.write_text("0123456789abcdef" * 4)
    body = """
        envs = RayVectorEnv([make] * 2, num_workers=1, num_cpus=0.5, address="local")
        envs.reset(seed=0)
        print(envs.step(np.zeros(2, int))[0].shape, ray.is_initialized())
        envs.close()
        print(ray.is_initialized())
        """
    env = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token), "HOME": str(tmp_path)}
    out, err = run_driver(body, **env).communicate(timeout=110)
    assert out.split("\n")[:2] == ["(2, 4) True", "True"], err


@pytest.mark.slow
def test_through_a_ray_address(tmp_path):
    body = """
        from ray.cluster_utils import Cluster
        cluster = Cluster(True, head_node_args={"num_cpus": 2, "ray_client_server_port": 28713})
        envs = RayVectorEnv(
            [make] * 4, num_workers=2, num_cpus=0.5, address="ray://127.0.0.1:28713"
        )
        print(ray.util.client.ray.is_connected())
        first = envs.reset(seed=0)[0]
        again = [envs.step(np.zeros(4, int))[0] for _ in range(5)][-1]
        print(first.shape, again.shape)
        os.kill(envs._actors.handles[0].pid, signal.SIGKILL)
        print(envs.step(np.zeros(4, int))[3])
        envs.close()
        ray.shutdown()
        cluster.shutdown()
        """
    out, err = run_driver(body).communicate(timeout=100)
    lines = out.split("\n")[:3]
    assert lines == ["True", "(4, 4) (4, 4)", "[ True  True False False]"], err


def test_ray_is_named_in_one_place_only():
    code = "import hotloop, hotloop.envs, sys; sys.exit('ray' in sys.modules)"
    assert (
        subprocess.run(
            [sys.executable, "-c", code], check=False, cwd=Path(__file__).parent
        ).returncode
        == 0
    )
