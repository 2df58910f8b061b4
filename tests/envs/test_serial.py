"""The serial vector env against Gymnasium's own: what it leaves out, and its refusals."""

from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import RecordEpisodeStatistics, TimeLimit

from hotloop.envs import SerialVectorEnv, make_env
from hotloop.errors import ShapeError, StateError, TargetError
from hotloop.loop.state import Snapshot
from support.trees import assert_same

MODES = list(AutoresetMode)


class Countdown(gymnasium.Env):
    """Ends or is cut after a few steps, with an `info` of every shape an env may give."""

    observation_space = spaces.Box(-10, 10, (2, 3), np.float64)

    def __init__(self, action_space, longest=6):
        self.action_space = action_space
        self.longest = longest
        self.left = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = int(self.np_random.integers(1, self.longest))
        return self.np_random.normal(size=(2, 3)), {"left": self.left}

    def step(self, action):
        self.left -= 1
        info = {"total": float(np.sum(action)), "nested": {"left": self.left}}
        obs = self.np_random.normal(size=(2, 3)) + np.sum(action)
        return obs, float(obs[0, 0]), self.left == 0, self.left == 1, info


class Buffered(Countdown):
    """Hands out the same object every time, as a careless env does."""

    observation_space = spaces.Sequence(spaces.Discrete(1000))

    def __init__(self):
        super().__init__(spaces.Discrete(2))
        self.steps = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps.clear()
        return self.steps, {}

    def step(self, action):
        self.steps.append(len(self.steps))
        return self.steps, 0.0, False, False, {}


ACTIONS = [
    spaces.Discrete(3),
    spaces.Discrete(3, start=-1),
    spaces.Box(-1, 1, (2,), np.float32),
    spaces.MultiDiscrete([2, 4]),
    spaces.MultiBinary(3),
]
MAKERS = [partial(Countdown, space) for space in ACTIONS] + [
    partial(make_env, env_id) for env_id in ("CartPole-v1", "Pendulum-v1", "MountainCar-v0")
]


def limited(limit, longest=40):
    return TimeLimit(Countdown(ACTIONS[0], longest), limit)


def run_beside(ours, theirs, steps, seed=7):
    """Both take the same steps; what ended is reset by hand where nobody else does."""
    ours.action_space.seed(3)
    assert_same(ours.reset(seed=seed), theirs.reset(seed=seed))
    return step_beside(ours, theirs, steps)


def step_beside(ours, theirs, steps):
    ended = 0
    for _ in range(steps):
        action = ours.action_space.sample()
        step = ours.step(action)
        assert_same(step, theirs.step(action))
        over = step[2] | step[3]
        ended += int(over.sum())
        if over.any() and ours.autoreset_mode == AutoresetMode.DISABLED:
            again = [envs.reset(options={"reset_mask": over.copy()}) for envs in (ours, theirs)]
            assert_same(*again)
    return ended


@pytest.fixture
def pair():
    """Makes ours and Gymnasium's of the same makers, closed at the end."""
    made = []

    def make(fns, mode=AutoresetMode.NEXT_STEP, **kwargs):
        made.append(SerialVectorEnv(fns, autoreset_mode=mode, **kwargs))
        made.append(SyncVectorEnv(fns, autoreset_mode=mode, **kwargs))
        return made[-2:]

    yield make
    for envs in made:
        envs.close()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("maker", MAKERS, ids=lambda m: str(m.args[0]))
def test_engine_equivalence(maker, mode, pair):
    ours, theirs = pair([maker] * 4, mode)
    assert ours.action_space == theirs.action_space
    assert ours.observation_space == theirs.observation_space
    assert ours.metadata == theirs.metadata
    assert run_beside(ours, theirs, 220) > 0
    assert_same(ours.reset(), theirs.reset())
    step_beside(ours, theirs, 5)


def test_next_step_is_the_default():
    assert SerialVectorEnv([MAKERS[0]]).autoreset_mode == AutoresetMode.NEXT_STEP


@pytest.mark.parametrize("copy", [True, False])
def test_returned_arrays_are_the_callers_if_copied(copy):
    envs = SerialVectorEnv([partial(make_env, "CartPole-v1")] * 2, copy=copy)
    first = envs.reset(seed=0)[0]
    kept = first.copy()
    second, reward = envs.step(np.array([0, 1]))[:2]
    assert np.shares_memory(first, second) != copy
    assert np.array_equal(first, kept) == copy
    rewards = reward.copy()
    reward[:] = 9
    assert_same(envs.step(np.array([0, 1]))[1], rewards)
    envs.close()


def test_objects_are_the_callers_if_copied(pair):
    ours, theirs = pair([Buffered] * 2)
    for envs in (ours, theirs):
        envs.reset(seed=0)
        first = envs.step(np.zeros(2, np.int64))[0]
        envs.step(np.zeros(2, np.int64))
        assert first == ([0], [0])


# --- the time limit, which is passed by -----------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("limit", [1, 2, 5])
def test_time_limits_of_each_env(mode, limit, pair):
    ours, theirs = pair([partial(limited, limit + k) for k in range(3)], mode)
    assert run_beside(ours, theirs, 60) > 20


@pytest.mark.parametrize("mode", MODES)
def test_the_inner_of_two_time_limits_holds_too(mode, pair):
    ours, theirs = pair([lambda: TimeLimit(limited(3), 5), lambda: TimeLimit(limited(5), 3)], mode)
    assert run_beside(ours, theirs, 40) > 15


@pytest.mark.parametrize("before", [0, 1, 3])
def test_stepping_by_hand_counts(before, pair):
    """`envs` and `call` step an env without the vector env; its time limit must know."""
    for by_call in (False, True):
        ours, theirs = pair([partial(limited, 7)] * 2)
        run_beside(ours, theirs, before)
        if by_call:
            assert_same(ours.call("step", 1), theirs.call("step", 1))
        else:
            assert_same(ours.envs[1].step(1), theirs.envs[1].step(1))
        assert ours.call("_elapsed_steps") == theirs.call("_elapsed_steps")
        step_beside(ours, theirs, 30)


def test_a_reset_by_hand_counts(pair):
    ours, theirs = pair([partial(limited, 7)] * 2)
    run_beside(ours, theirs, 5)
    assert_same(ours.call("reset", seed=5), theirs.call("reset", seed=5))
    step_beside(ours, theirs, 30)


@pytest.mark.parametrize("before", [0, 3])
def test_a_time_limit_that_is_changed_holds(before, pair):
    ours, theirs = pair([partial(limited, 9)] * 2)
    run_beside(ours, theirs, before)
    for envs in (ours, theirs):
        envs.set_attr("_max_episode_steps", [4, 6])
    assert ours.get_attr("_max_episode_steps") == (4, 6)
    step_beside(ours, theirs, 40)


def test_the_time_limit_counts_on_after_an_error(pair):
    """Envs before the one that fails have made their step."""

    class Fails(Countdown):
        fails = False

        def step(self, action):
            if self.fails:
                raise ValueError("planned")
            return super().step(action)

    ours, theirs = pair([partial(limited, 5), lambda: TimeLimit(Fails(ACTIONS[0], 40), 5)])
    run_beside(ours, theirs, 2)
    for envs in (ours, theirs):
        envs.call("unwrapped")[1].fails = True
        with pytest.raises(ValueError, match="planned") as raised:
            envs.step(np.array([0, 0]))
        envs.call("unwrapped")[1].fails = False
        if envs is ours:
            assert "in env 1" in raised.value.__notes__
    step_beside(ours, theirs, 20)


@pytest.mark.parametrize("mode", MODES)
def test_wrappers_outside_of_the_limit_see_every_step(mode, pair):
    def recorded():
        return RecordEpisodeStatistics(limited(4))

    ours, theirs = pair([recorded] * 2, mode)
    ours.reset(seed=1), theirs.reset(seed=1)
    for _ in range(12):
        got, expected = ours.step(np.zeros(2, np.int64)), theirs.step(np.zeros(2, np.int64))
        for infos in (got[4], expected[4]):
            for part in (infos, infos.get("final_info", {})):
                part.get("episode", {}).pop("t", None)
        assert_same(got, expected)
        if mode == AutoresetMode.DISABLED and (got[2] | got[3]).any():
            mask = got[2] | got[3]
            assert_same(*(e.reset(options={"reset_mask": mask.copy()}) for e in (ours, theirs)))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("copy", [True, False])
def test_a_snapshot_is_restored_exactly(mode, copy):
    envs = SerialVectorEnv([partial(limited, 5)] * 3, autoreset_mode=mode, copy=copy)
    actions = np.random.default_rng(0).integers(0, 3, (30, 3))

    def steps(numbers):
        seen = []
        for number in numbers:
            step = envs.step(actions[number])
            seen.append(tuple(np.copy(part) for part in step[:4]))
            if mode == AutoresetMode.DISABLED and (step[2] | step[3]).any():
                mask = step[2] | step[3]
                seen.append(envs.reset(options={"reset_mask": mask})[0].copy())
        return seen

    envs.reset(seed=4)
    for moment in range(8):
        steps([moment])
        snapshot = Snapshot([envs])
        first = steps(range(10, 22))
        snapshot.restore()
        assert_same(steps(range(10, 22)), first)
        _ = envs.envs  # what was passed by is looked at: restoring takes it back
        snapshot.restore()
        assert_same(steps(range(10, 22)), first)
        snapshot.restore()
    envs.close()


# --- refusals ------------------------------------------------------------------------------------


class Ragged(Countdown):
    """Too long a row in one env, too short a one in the next: together they fit."""

    observation_space = spaces.Box(-10, 10, (3,), np.float32)
    lengths = (3, 3)

    def __init__(self, length):
        super().__init__(spaces.Discrete(3))
        self.length = length

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(self.length, np.float32), {}


@pytest.mark.parametrize("copy", [True, False])
def test_rows_do_not_run_into_each_other(copy):
    envs = SerialVectorEnv([partial(Ragged, 2), partial(Ragged, 4)], copy=copy)
    with pytest.raises(ValueError, match=r"expected values of shape \(3,\), got some of shapes"):
        envs.reset(seed=0)
    envs.close()


class Halves(Countdown):
    observation_space = spaces.Discrete(5)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 1, {}

    def step(self, action):
        return 1.5, 0.0, False, False, {}


@pytest.mark.parametrize("copy", [True, False])
def test_a_number_is_not_cut(copy, pair):
    for envs in pair([partial(Halves, ACTIONS[0])] * 2, copy=copy):
        envs.reset(seed=0)
        with pytest.raises(TypeError):
            envs.step(np.zeros(2, np.int64))


def test_messages():
    with pytest.raises(TargetError, match=r"'CartPol-v1': .* did you mean 'CartPole-v1'\?"):
        make_env("CartPol-v1")
    with pytest.raises(TargetError, match=r"no_such_package:Env-v0"):
        make_env("no_such_package:Env-v0")
    with pytest.raises(TargetError, match=r"at least one env"):
        SerialVectorEnv([])
    with pytest.raises(TargetError, match=r"action space of env 1"):
        SerialVectorEnv([MAKERS[0], MAKERS[3]])
    envs = SerialVectorEnv([MAKERS[0]] * 2)
    with pytest.raises(ShapeError, match=r"actions: expected shape \(2,\).*got \(3,\)"):
        envs.step(np.zeros(3, np.int64))
    with pytest.raises(StateError, match=r"recv: no env is under way"):
        envs.recv()
    envs.close()
    for use in (lambda: envs.step(np.zeros(2, np.int64)), envs.recv, envs.async_reset):
        with pytest.raises(gymnasium.error.ClosedEnvironmentError, match=r"after a call to `close"):
            use()


def test_stepping_on_after_the_end_is_refused_where_nobody_resets():
    envs = SerialVectorEnv([partial(limited, 2)] * 2, autoreset_mode="disabled")
    envs.reset(seed=0)
    for _ in range(2):
        step = envs.step(np.zeros(2, np.int64))
    assert (step[2] | step[3]).all()
    with pytest.raises(AssertionError, match=r"env 0: a step after its episode ended.*reset_mask"):
        envs.step(np.zeros(2, np.int64))
    envs.close()


def test_an_interrupt_leaves_a_state_to_go_on_from():
    class Interrupts(Countdown):
        interrupts = False

        def step(self, action):
            if self.interrupts:
                self.interrupts = False
                raise KeyboardInterrupt
            return super().step(action)

    envs = SerialVectorEnv([MAKERS[0], partial(Interrupts, ACTIONS[0])], batch_size=1)
    for use in (envs.step, envs.send):
        envs.reset(seed=1)
        envs.envs[1].interrupts = True
        with pytest.raises(KeyboardInterrupt):
            use(np.zeros(2, np.int64), *([[0, 1]] if use == envs.send else []))
        assert envs.step(np.zeros(2, np.int64))[0].shape == (2, 2, 3)
    envs.close()
