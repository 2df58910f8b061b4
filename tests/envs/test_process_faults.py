"""Workers that raise, die or hang, in a step, a reset or a start: what the driver makes of it."""

import contextlib
import os
import signal
import threading
import time
from functools import partial
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

import hotloop.envs.process.engine as engine
import hotloop.envs.process.handle as handle
import hotloop.envs.process.workers as workers
from hotloop.envs.process import ProcessVectorEnv
from hotloop.envs.serial import SerialVectorEnv
from hotloop.errors import StateError, WorkerError
from hotloop.testing.synthetic import (
    Failure,
    Ledger,
    SyntheticEnv,
    SyntheticSettings,
    read_counters,
    synthetic_fns,
)
from support.gated_envs import Gated
from support.sampled_envs import Sampled, Words
from support.trees import assert_same
from support.wait import wait_until

MODES = list(AutoresetMode)
DEATHS = ["kill", "segfault", "exit"]
ZEROS = np.zeros(4, np.int64)


@pytest.fixture
def pool():
    """Makes process engines that are closed at the end."""
    made = []

    def make(fns, num_workers=2, **kwargs):
        made.append(ProcessVectorEnv(fns, num_workers=num_workers, **kwargs))
        return made[-1]

    yield make
    for envs in made:
        envs.close()


@pytest.fixture
def failing(pool, tmp_path):
    """Makes four synthetic envs in two workers; env 0 fails once, in the way given."""

    def make(kind, at=3, call="step", env_id=0, once=True, episode_steps=100, **kwargs):
        marker = str(tmp_path / "failed") if once else None
        failure = Failure(kind, at, env_id=env_id, call=call, once_marker=marker)
        settings = SyntheticSettings(failures=(failure,), episode_steps=episode_steps)
        return pool(synthetic_fns(4, settings), **kwargs)

    return make


def lost_rows(step):
    """Envs whose episode a worker took along, as a step tells it."""
    told = step[4].get("_worker_restarted", np.zeros(len(step[2]), bool))
    return np.flatnonzero(told).tolist()


# --- exceptions ----------------------------------------------------------------------------------


class Own(Exception):
    """An exception that cannot be pickled as it is."""

    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")
        self.lock = threading.Lock()


class Raises(Sampled):
    def __init__(self, error=None, when="step"):
        super().__init__(spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(2), 50)
        self.error, self.when = error, when

    def fail(self, where):
        if self.error is not None and where == self.when:
            error, self.error = self.error, None
            raise error()

    def step(self, action):
        self.fail("step")
        return super().step(action)

    def reset(self, **kwargs):
        self.fail("reset")
        return super().reset(**kwargs)

    def method(self):
        self.fail("call")
        return 3


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("when", ["step", "reset", "call"])
def test_an_exception_is_raised_in_the_driver(pool, when, mode):
    fns = [Raises, Raises, Raises, partial(Raises, partial(KeyError, "planned"), when)]
    envs = pool(fns, autoreset_mode=mode)
    if when != "reset":
        envs.reset(seed=0)
    uses = {
        "step": lambda: envs.step(ZEROS),
        "reset": envs.reset,
        "call": lambda: envs.call("method"),
    }
    with pytest.raises(KeyError, match="planned") as raised:
        uses[when]()
    notes = "\n".join(raised.value.__notes__)
    assert "in env 3" in notes
    assert "In the worker:" in notes
    assert f"in {'method' if when == 'call' else when}" in notes  # the remote traceback
    plain = SerialVectorEnv([Raises] * 4, autoreset_mode=mode)
    assert_same(envs.reset(seed=5), plain.reset(seed=5))
    for _ in range(3):
        assert_same(envs.step(ZEROS), plain.step(ZEROS))
    assert envs.call("method") == (3,) * 4
    plain.close()


def test_an_exception_that_cannot_be_pickled_keeps_its_name(pool):
    envs = pool([Raises, partial(Raises, partial(Own, 1, 2))])
    envs.reset(seed=0)
    with pytest.raises(WorkerError, match="Own: 1 and 2") as raised:
        envs.step(ZEROS[:2])
    assert "in env 1" in "\n".join(raised.value.__notes__)


@pytest.mark.long
def test_errors_of_several_workers_do_not_disturb_what_follows(pool):
    plain = SerialVectorEnv([Raises] * 4)
    for _ in range(10):
        fns = [partial(Raises, partial(ValueError, k), "step") for k in range(4)]
        envs = pool(fns, 4)
        envs.reset(seed=0)
        for _ in range(2):
            with pytest.raises(ValueError, match=r"^\d"):
                envs.step(ZEROS)
            assert_same(envs.reset(seed=5), plain.reset(seed=5))
            for _ in range(2):
                assert_same(envs.step(ZEROS), plain.step(ZEROS))
            envs.set_attr("error", [None, partial(ValueError, 1), None, partial(ValueError, 3)])
        envs.close()
    plain.close()


def test_an_error_of_one_worker_leaves_the_calls_of_others_in_order(pool):
    envs = pool([partial(Raises, partial(OSError, "first"), "call"), *[Raises] * 3], 4)
    for _ in range(20):
        with pytest.raises(OSError, match="first"):
            envs.call("method")
        assert envs.get_attr("when") == ("call", "step", "step", "step")
        envs.set_attr("error", [partial(OSError, "first"), None, None, None])


class Tells(Sampled):
    """Tells what it is given."""

    def __init__(self, what):
        super().__init__(spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(2), 50)
        self.what = what

    def step(self, action):
        return *super().step(action)[:4], {"it": self.what}


def test_an_info_that_cannot_be_sent_is_named(pool):
    envs = pool([partial(Tells, None), lambda: Tells(threading.Lock())], context="fork")
    envs.reset(seed=0)
    with pytest.raises(TypeError, match="lock") as raised:
        envs.step(ZEROS[:2])
    assert "in envs 1 to 1: an info or observation that cannot" in "\n".join(raised.value.__notes__)
    envs.set_attr("what", 3)
    envs.reset(seed=0)
    assert envs.step(ZEROS[:2])[4]["it"].tolist() == [3, 3]


@pytest.mark.parametrize("batch_size", [None, 1])
def test_messages_larger_than_any_buffer(pool, batch_size, monkeypatch):
    big = np.arange(700_000.0)  # 5.6 MB of each env
    envs = pool([partial(Tells, big)] * 4, batch_size=batch_size)
    envs.reset(seed=0)
    for _ in range(2):
        if batch_size is None:
            infos = [envs.step(ZEROS)[4]]
        else:
            envs.send(ZEROS, np.arange(4))
            infos = [envs.recv()[4] for _ in range(4)]
        rows = [row for info in infos for row in info["it"]]
        assert len(rows) == 4
        assert all(np.array_equal(row, big) for row in rows)
    assert all(np.array_equal(row, big) for row in envs.get_attr("what"))
    envs.set_attr("what", big[::-1].copy())
    monkeypatch.setattr(workers, "CLOSE_S", 1000.0)
    envs.send(ZEROS, np.arange(4))  # closing while they tell it
    processes = [handle.process for handle in envs._workers.handles]
    kill, ended = envs._workers.kill, []

    def noted():
        ended.extend(process.exitcode for process in processes)
        kill()

    monkeypatch.setattr(envs._workers, "kill", noted)
    envs.close()
    assert ended == [0, 0], "they came to their end by themselves"


# --- deaths --------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", DEATHS)
def test_a_worker_that_dies_in_a_step(failing, kind, mode):
    envs = failing(kind, autoreset_mode=mode)
    plain = SerialVectorEnv(synthetic_fns(4), autoreset_mode=mode)
    envs.reset(seed=0)
    before = [plain.reset(seed=0)[0]]
    steps = []
    for number in range(6):
        step, other = envs.step(ZEROS), plain.step(ZEROS)
        steps.append(step)
        before.append(other[0])
        assert_same(step[0][2:], other[0][2:])  # the other worker's envs
        if number != 2:
            assert lost_rows(step) == []
            assert not step[3].any()
        elif mode == AutoresetMode.DISABLED:
            envs.reset(options={"reset_mask": step[3].copy()})
    lost = steps[2]
    assert lost_rows(lost) == [0, 1]
    assert lost[3].tolist() == [True, True, False, False]
    assert not lost[2].any()
    assert lost[1].tolist() == [0, 0, 1, 1]
    cut = lost[0] if mode != AutoresetMode.SAME_STEP else np.stack(lost[4]["final_obs"][:2])
    assert_same(cut[:2], before[2][:2])  # where it was last seen
    assert read_counters(envs.reset(seed=1)[0]).total.tolist() == [0] * 4
    plain.close()


@pytest.mark.parametrize("kind", DEATHS)
def test_a_worker_that_dies_in_a_reset(failing, kind):
    envs = failing(kind, at=2, call="reset")
    plain = SerialVectorEnv(synthetic_fns(4))
    for seed in (0, 1, 2):
        assert_same(envs.reset(seed=seed), plain.reset(seed=seed))
        assert_same(envs.step(ZEROS), plain.step(ZEROS))
    plain.close()


@pytest.mark.parametrize("mode", MODES)
def test_a_death_in_the_reset_of_an_episodes_end(failing, mode):
    envs = failing("kill", at=2, call="reset", episode_steps=3, autoreset_mode=mode)
    envs.reset(seed=0)
    lost, flags = [], []
    for _ in range(8):
        step = envs.step(ZEROS)
        lost += lost_rows(step)
        flags.append(step[2] | step[3])
        if mode == AutoresetMode.DISABLED and flags[-1].any():
            envs.reset(options={"reset_mask": flags[-1].copy()})
    # Whose episode was over loses nothing; in same-step mode the end itself was lost.
    assert lost == ([0, 1] if mode == AutoresetMode.SAME_STEP else [])
    assert np.sum(flags, 0)[2:].tolist() == np.sum(flags, 0)[:2].tolist() == [2, 2]


def test_a_worker_that_dies_while_it_makes_its_envs():
    def dies():
        os._exit(3)

    with pytest.raises(WorkerError, match=r"worker 1 died or hung.*\(exit code 3\).*serial"):
        ProcessVectorEnv([SyntheticEnv, dies], num_workers=2, context="fork")


class DiesWhenMade(SyntheticEnv):
    def __init__(self, folder, times):
        super().__init__()
        (folder / f"{os.getpid()}").touch()
        if 1 < len(list(folder.iterdir())) <= 1 + times:
            os._exit(4)


def test_a_worker_that_dies_of_being_restarted(pool, tmp_path):
    envs = pool([partial(DiesWhenMade, tmp_path, 2)] * 2, 1, context="fork", restarts=3)
    envs.reset(seed=0)
    os.kill(envs.call("unwrapped") and envs._workers.handles[0].process.pid, signal.SIGKILL)
    assert lost_rows(envs.step(ZEROS[:2])) == [0, 1]
    assert envs._workers.handles[0].restarts == 3


def test_more_deaths_than_allowed_close_everything(failing):
    envs = failing("kill", at=2, once=False, restarts=2)
    envs.reset(seed=0)
    processes = [handle.process for handle in envs._workers.handles]
    message = r"worker 0 \(envs 0 to 1\) died \(signal 9\), after 2 restarts.*=2"
    with pytest.raises(WorkerError, match=message):  # noqa: PT012
        for _ in range(10):
            envs.step(ZEROS)
    assert envs.closed
    for process in processes:
        with pytest.raises(ValueError, match="process object is closed"):
            process.is_alive()
    for use in (lambda: envs.step(ZEROS), envs.reset, envs.recv, lambda: envs.call("spec")):
        with pytest.raises(gymnasium.error.ClosedEnvironmentError):
            use()
    envs.close()


def test_restarted_envs_are_seeded_alike_every_time(failing, tmp_path):
    seen = []
    for _ in range(2):
        envs = failing("kill", episode_steps=4, autoreset_mode="same_step")
        envs.reset(seed=7)
        seen.append([envs.step(ZEROS)[0] for _ in range(8)])
        envs.close()
        (tmp_path / "failed").unlink()
    assert_same(seen[0], seen[1])


@pytest.mark.parametrize("space", [spaces.Text(5), spaces.Dict(a=Words(), b=spaces.Discrete(4))])
def test_objects_of_a_lost_episode_are_those_last_seen(pool, space):
    envs = pool([partial(Sampled, space, spaces.Discrete(2), 90)] * 2)
    envs.reset(seed=0)
    known = envs.step(ZEROS[:2])[0]
    os.kill(envs._workers.handles[0].process.pid, signal.SIGKILL)
    step = envs.step(ZEROS[:2])
    assert lost_rows(step) == [0]
    rows = (known, step[0]) if isinstance(known, tuple) else (known["a"], step[0]["a"])
    assert rows[0][0] == rows[1][0]


@pytest.mark.parametrize("mode", MODES)
def test_partial_batches_under_way_survive_a_death(pool, mode):
    settings = SyntheticSettings(episode_steps=(3, 8))
    envs = pool(synthetic_fns(6, settings), 3, batch_size=2, autoreset_mode=mode, restarts=99)
    ledger, lost, ends = Ledger(mode), 0, 0
    envs.async_reset(seed=0)
    over = np.zeros(6, bool)
    for number in range(300):
        obs, _, terminated, truncated, infos = envs.recv()
        ids = infos["env_id"]
        counters = read_counters(obs)
        assert counters.env_id.tolist() == ids.tolist()
        told = infos.get("_worker_restarted", np.zeros(len(ids), bool))
        assert truncated[told].all()
        lost += int(told.sum())
        # A lost episode's last row is what was seen before; whose episode was over begins anew
        # without a word, for it lost nothing.
        fresh = over[ids] & (counters.total == 0)
        for env_id in ids[told | fresh]:
            ledger.restarted(int(env_id))
        ledger.add(type(counters)(*(column[~told] for column in counters)))
        over[ids] = terminated | truncated
        ends += int(over[ids].sum())
        if mode == AutoresetMode.DISABLED and over[ids].any():
            mask = np.zeros(6, bool)
            mask[ids] = over[ids]
            envs.async_reset(options={"reset_mask": mask})
            ids = ids[~over[ids]]
        if len(ids):
            envs.send(np.zeros(len(ids), np.int64), ids)
        if number % 60 == 30:
            # One that was killed before may not have been missed yet.
            with contextlib.suppress(ProcessLookupError):
                os.kill(envs._workers.handles[number // 60 % 3].process.pid, signal.SIGKILL)
    assert lost >= 2
    assert ends > 20


def test_a_death_is_noticed_while_others_keep_the_driver_busy(pool, monkeypatch):
    monkeypatch.setattr(workers, "LOOK_S", 0.05)
    envs = pool(synthetic_fns(2), batch_size=1)
    first = envs._workers.handles[0].process.pid
    os.kill(first, signal.SIGSTOP)  # it would have done its reset before it is killed
    envs.async_reset(seed=0)
    os.kill(first, signal.SIGKILL)
    seen = set()
    while seen != {0, 1}:  # without an end where the death goes unnoticed
        ids = envs.recv()[4]["env_id"]
        seen |= set(ids.tolist())
        if 0 not in seen:
            envs.send(np.zeros(1, np.int64), ids)
    assert envs._workers.handles[0].restarts == 1


class LeavesChild(SyntheticEnv):
    """Forks a process that holds all that the worker has open, until it is killed."""

    def reset(self, **kwargs):
        if not hasattr(self, "child"):
            self.child = os.fork()
            if self.child == 0:
                while True:
                    time.sleep(3600)
        return super().reset(**kwargs)


def test_a_death_is_noticed_where_an_envs_child_lives_on(pool, monkeypatch):
    monkeypatch.setattr(workers, "LOOK_S", 0.05)
    envs = pool([LeavesChild], 1)
    envs.reset(seed=0)
    children = envs.get_attr("child")
    try:
        os.kill(envs._workers.handles[0].process.pid, signal.SIGKILL)
        # The first child lives: a wait for its end would never come back.
        assert lost_rows(envs.step(ZEROS[:1])) == [0]
        children += envs.get_attr("child")
        envs.close()
    finally:
        for pid in children:
            os.kill(pid, signal.SIGKILL)


# --- hangs ---------------------------------------------------------------------------------------


TIMEOUT_S = 100.0


@pytest.fixture
def clock(monkeypatch):
    """The driver's clock, which stands still until `now_s` is set: nobody is too slow for it."""
    clock = SimpleNamespace(now_s=0.0, monotonic=lambda: clock.now_s)
    monkeypatch.setattr(workers, "time", clock)
    monkeypatch.setattr(engine, "time", clock)
    monkeypatch.setattr(workers, "LOOK_S", 0.01)
    return clock


@pytest.fixture
def hanging(failing, clock, tmp_path):
    """As `failing`, of a hang; the time is up once env 0 hangs and the other worker is done."""

    def make(**kwargs):
        envs = failing("hang", timeout_s=TIMEOUT_S, **kwargs)
        marker, other = tmp_path / "failed", envs._workers.handles[1]

        def monotonic():
            if marker.exists() and not envs._under_way(other):
                clock.now_s = 1.01 * TIMEOUT_S
            return clock.now_s

        clock.monotonic = monotonic
        return envs

    return make


@pytest.mark.parametrize("mode", MODES)
def test_a_worker_that_hangs_in_a_step(hanging, mode):
    envs = hanging(autoreset_mode=mode)
    envs.reset(seed=0)
    lost = []
    for _ in range(5):
        step = envs.step(ZEROS)
        lost.append(lost_rows(step))
        if mode == AutoresetMode.DISABLED and step[3].any():
            envs.reset(options={"reset_mask": step[3].copy()})
    assert lost == [[], [], [0, 1], [], []]


def test_a_worker_that_hangs_in_a_reset(hanging):
    envs = hanging(at=1, call="reset")
    plain = SerialVectorEnv(synthetic_fns(4))
    assert_same(envs.reset(seed=3), plain.reset(seed=3))
    assert [handle.restarts for handle in envs._workers.handles] == [1, 0]
    plain.close()


class Sleeps(SyntheticEnv):
    def sleep(self, seconds):
        time.sleep(seconds)


def test_a_worker_that_hangs_in_a_call(pool):
    envs = pool([Sleeps] * 2, timeout_s=0.3)
    with pytest.raises(WorkerError, match=r"worker 0 .* did not answer for 0\.3 s"):
        envs.call("sleep", 60)
    assert envs.closed


def test_a_worker_that_hangs_while_it_makes_its_envs(monkeypatch):
    monkeypatch.setattr(handle, "START_S", 0.3)
    with pytest.raises(WorkerError, match=r"worker 0 died or hung"):
        ProcessVectorEnv([partial(time.sleep, 60)], num_workers=1, timeout_s=0.2)


def await_rest(envs):
    """Wait until every worker has done what it had to."""

    def done():
        return all(
            handle.end.stepped[0] - handle.stepped == len(envs._under_way(handle))
            for handle in envs._workers.handles
        )

    wait_until(done, "the workers come to rest")


def test_a_driver_that_takes_its_time_is_no_hang(pool, clock):
    envs = pool(synthetic_fns(2), timeout_s=TIMEOUT_S, batch_size=1)
    envs.async_reset(seed=0)
    for _ in range(3):
        await_rest(envs)
        clock.now_s += 2 * TIMEOUT_S
        ids = envs.recv()[4]["env_id"]
        envs.send(np.zeros(1, np.int64), ids)
    assert [handle.restarts for handle in envs._workers.handles] == [0, 0]


def test_a_driver_that_is_held_up_while_it_waits_is_no_hang(pool, clock, tmp_path):
    """What was done in the meantime is heard before anybody is taken for hung."""
    gate = tmp_path / "gate"
    envs = pool([partial(Gated, gate, k) for k in range(2)], timeout_s=TIMEOUT_S)
    envs.reset(seed=0)
    rest = envs._workers.rest

    def held_up(*args):
        ended = rest(*args)
        gate.touch()
        await_rest(envs)
        clock.now_s += 2 * TIMEOUT_S
        return ended

    envs._workers.rest = held_up
    assert lost_rows(envs.step(ZEROS[:2])) == []
    assert clock.now_s > 0
    assert [handle.restarts for handle in envs._workers.handles] == [0, 0]


# --- interrupts ----------------------------------------------------------------------------------


def interrupt_main():
    os.kill(os.getpid(), signal.SIGINT)


def interrupted_by(thread, act):
    """Whether Ctrl-C comes, from a thread, in the middle of `act` or after it."""
    try:
        thread.start()
        act()
        while True:  # late: taken here
            time.sleep(0.01)
    except KeyboardInterrupt:
        return True
    finally:
        thread.join()


@pytest.mark.parametrize("kwargs", [{}, {"batch_size": 1}, {"splits": 2}], ids=str)
def test_after_an_interrupt_at_any_place_one_can_go_on(pool, kwargs):
    plain = SerialVectorEnv(synthetic_fns(4))
    expected = [plain.reset(seed=5), *(plain.step(ZEROS) for _ in range(3))]
    plain.close()
    envs = pool(synthetic_fns(4), **kwargs)
    draw = np.random.default_rng(0)

    def act(rounds=300):
        for _ in range(rounds):
            envs.reset()
            envs.call("spec")
            for _ in range(5):
                envs.step(ZEROS)
            envs.async_reset()
            for _ in range(4):
                while len(envs.under_way):
                    envs.recv()
                envs.send(ZEROS, np.arange(4))
            while len(envs.under_way):
                envs.recv()

    act(1)  # what is imported late is imported now: an import cut short is not our subject
    for _ in range(40):
        delay_s = float(draw.uniform(0.001, 0.02))
        assert interrupted_by(threading.Timer(delay_s, interrupt_main), act)
        while len(under_way := envs.under_way):  # the interrupt may have come between two calls
            with contextlib.suppress(StateError):
                envs.recv(under_way)
        got = [envs.reset(seed=5), *(envs.step(ZEROS) for _ in range(3))]
        assert_same(got, expected)
    interrupted_by(threading.Timer(0.01, interrupt_main), act)
    envs.close()


def test_an_interrupt_while_an_env_hangs_can_be_closed(failing, tmp_path, monkeypatch):
    monkeypatch.setattr(workers, "CLOSE_S", 1000.0)  # what is not ended at once is not ended
    envs = failing("hang")
    envs.reset(seed=0)

    def interrupt_the_hang():
        wait_until((tmp_path / "failed").exists, "env 0 hangs")
        interrupt_main()

    thread = threading.Thread(target=interrupt_the_hang)
    assert interrupted_by(thread, lambda: [envs.step(ZEROS) for _ in range(9)])
    envs.close(terminate=True)
    assert envs.closed
