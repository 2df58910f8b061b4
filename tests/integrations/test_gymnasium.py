"""Gymnasium's vector envs on the engines here: equal to its own, in results and in refusals."""

import multiprocessing
import re
import subprocess
import sys
import warnings
from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.error import AlreadyPendingCallError, ClosedEnvironmentError, NoAsyncCallError
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AsyncVectorEnv as TheirAsyncVectorEnv
from gymnasium.vector import AutoresetMode
from gymnasium.vector import SyncVectorEnv as TheirSyncVectorEnv

from hotloop.envs.register import register
from hotloop.integrations.gymnasium import AsyncVectorEnv, SyncVectorEnv

MODES = list(AutoresetMode)


class Count(gymnasium.Env):
    """Counts its steps up to `limit`; waits, fails and tells as it is told by its actions."""

    def __init__(self, limit=3, high=9, gate=None):
        self.observation_space = spaces.Box(0, high, (2,), np.float32)
        self.action_space = spaces.Discrete(4)
        self.limit, self.gate = limit, gate

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if self.gate is not None:
            self.gate.wait()
        self.count = 0
        return self._obs(), {"draw": int(self.np_random.integers(100)), "options": options}

    def step(self, action):
        if self.gate is not None:
            self.gate.wait()
        if action == 3:
            raise ValueError(f"no action {action}")
        self.count += 1
        over = self.count >= self.limit
        return self._obs(), float(action), over, False, {"nested": {"count": self.count}}

    def wait(self):
        self.gate.wait()
        return "waited"

    def _obs(self):
        return np.full(2, self.count, np.float32)


@pytest.fixture
def opened():
    envs = []
    yield lambda made: envs.append(made) or made
    for made in envs:
        made.close(**({} if isinstance(made, SyncVectorEnv) else {"terminate": True}))


@pytest.fixture(
    params=[SyncVectorEnv, AsyncVectorEnv, partial(AsyncVectorEnv, shared_memory=False)],
    ids=["sync", "async", "async, not shared"],
)
def make(request, opened):
    return lambda *args, **kwargs: opened(request.param(*args, **kwargs))


@pytest.mark.parametrize("mode", MODES)
def test_equal_to_their_own(make, mode):
    fns = [partial(Count, limit) for limit in (3, 2, 4)]
    ours, theirs = make(fns, autoreset_mode=mode), TheirSyncVectorEnv(fns, autoreset_mode=mode)
    assert ours.metadata == theirs.metadata
    assert ours.observation_space == theirs.observation_space
    assert (ours.spec, repr(ours)) == (None, f"{type(ours).__name__}(num_envs=3)")
    assert data_equivalence(ours.reset(seed=4), theirs.reset(seed=4))
    assert ours.np_random_seed == theirs.np_random_seed == (4, 5, 6)
    rng = np.random.default_rng(0)
    for _ in range(12):
        actions = rng.integers(0, 3, 3)
        got, expected = ours.step(actions), theirs.step(actions)
        assert data_equivalence(got, expected)
        over = got[2] | got[3]
        if mode == AutoresetMode.DISABLED and over.any():
            options = [{"reset_mask": over.copy(), "by": "hand"} for _ in range(2)]
            assert data_equivalence(
                ours.reset(options=options[0]), theirs.reset(options=options[1])
            )


def test_a_reset_before_an_autoreset_leaves_nothing_pending(make):
    envs = make([partial(Count, 1)] * 2)
    envs.reset()
    assert envs.step([1, 1])[2].all()
    envs.reset()
    obs, reward, *_ = envs.step([2, 2])
    assert obs.tolist() == [[1, 1], [1, 1]]
    assert reward.tolist() == [2, 2]
    theirs = TheirAsyncVectorEnv([partial(Count, 1)] * 2, shared_memory=False)
    theirs.reset()
    theirs.step([1, 1])
    theirs.reset()
    # The fault that is not to be inherited; when it is gone there, this test says so.
    assert theirs.step([2, 2])[1].tolist() == [0, 0]
    theirs.close()


def test_copies_are_the_callers(make):
    envs = make([Count] * 2)
    first, _ = envs.reset()
    envs.step([1, 1])
    assert first.tolist() == [[0, 0], [0, 0]]
    shared = make([Count] * 2, copy=False)
    first, _ = shared.reset()
    shared.step([1, 1])
    assert first.tolist() == [[1, 1], [1, 1]]


def test_attributes(make):
    envs = make([Count] * 3)
    envs.set_attr("limit", [7, 8, 9])
    assert envs.get_attr("limit") == (7, 8, 9)
    envs.set_attr("limit", 5)
    assert envs.call("limit") == (5, 5, 5)
    with pytest.raises(ValueError, match="Got `2` values for 3 environments"):
        envs.set_attr("limit", [1, 2])


@pytest.mark.parametrize(
    ("actions", "error"), [(np.zeros(2, int), ValueError), (0, TypeError), ([0] * 4, ValueError)]
)
def test_actions_for_other_numbers_of_envs_are_refused(make, actions, error):
    envs = make([Count] * 3)
    envs.reset()
    with pytest.raises(error):
        envs.step(actions)
    assert envs.step([1, 1, 1])[1].tolist() == [1, 1, 1]


def test_actions_that_do_not_fit_are_for_the_env(make):
    envs = make([Count] * 2)
    envs.reset()
    assert envs.step([0.5, 1.5])[1].tolist() == [0.5, 1.5]


def test_spaces_that_differ(make):
    fns = [partial(Count, high=high) for high in (1, 2)]
    with pytest.raises(RuntimeError, match=r"however .*are not equivalent.*`observation_mode"):
        make(fns)
    envs = make(fns, observation_mode="different")
    assert envs.observation_space.high.tolist() == [[1, 1], [2, 2]]
    assert envs.reset()[0].shape == (2, 2)
    batched, single = spaces.Box(0, 5, (2, 2)), spaces.Box(0, 5, (2,))
    assert make(fns, observation_mode=(batched, single)).single_observation_space == single
    with pytest.raises(ValueError, match="Invalid `observation_mode`"):
        make(fns, observation_mode="alike")
    with pytest.raises(TypeError, match="to be Spaces"):
        make(fns, observation_mode=(1, 2))
    wider = [Count, lambda: gymnasium.make("CartPole-v1")]
    with pytest.raises(ValueError, match="shape"):
        make(wider, observation_mode="different")


def test_closed_is_closed(make):
    envs = make([Count])
    envs.close()
    envs.close()
    with pytest.raises(ClosedEnvironmentError, match="Trying to operate on"):
        envs.reset()


def test_what_is_pending_is_named(opened):
    envs = opened(AsyncVectorEnv([Count] * 2))
    for what in ("reset", "step", "call"):
        with pytest.raises(
            NoAsyncCallError,
            match=re.escape(f"Calling `{what}_wait` without any prior call to `{what}_async`."),
        ):
            getattr(envs, f"{what}_wait")()
    envs.reset_async(seed=1)
    with pytest.raises(
        AlreadyPendingCallError,
        match="Calling `step_async` while waiting for a pending call to `reset` to complete",
    ):
        envs.step_async([1, 1])
    assert envs.reset_wait()[0].shape == (2, 2)
    envs.step_async([1, 1])
    for ask in (envs.reset_async, partial(envs.call_async, "limit"), partial(envs.get_attr, "x")):
        with pytest.raises(AlreadyPendingCallError, match="pending call to `step`"):
            ask()
    assert envs.step_wait()[1].tolist() == [1, 1]
    envs.call_async("limit")
    assert envs.call_wait() == (3, 3)
    with pytest.raises(ValueError, match="use `reset` directly"):
        envs.call("reset")


def test_a_wait_has_an_end(opened):
    gate = multiprocessing.get_context("fork").Event()
    envs = opened(AsyncVectorEnv([partial(Count, gate=gate)] * 2, context="fork"))
    envs.reset_async()
    with pytest.raises(multiprocessing.TimeoutError, match=r"timed out after 0\.01 second"):
        envs.reset_wait(timeout=0.01)
    gate.set()
    envs.reset(seed=3)  # what came too late is dropped
    gate.clear()
    envs.step_async([1, 2])
    with pytest.raises(multiprocessing.TimeoutError, match="`step_wait`"):
        envs.step_wait(timeout=0.01)
    gate.set()
    assert envs.step([2, 1])[1].tolist() == [2, 1]
    gate.clear()
    envs.call_async("wait")
    with pytest.raises(multiprocessing.TimeoutError, match="`call_wait`"):
        envs.call_wait(timeout=0.01)
    gate.set()
    assert envs.get_attr("limit") == (3, 3)  # not what came too late
    envs.step_async([1, 1])
    assert envs.step_wait(timeout=60)[1].tolist() == [1, 1]


def test_closing_says_what_was_pending(opened):
    envs = opened(AsyncVectorEnv([Count] * 2))
    envs.reset()
    envs.step_async([1, 1])
    with pytest.warns(UserWarning, match="Calling `close` while waiting for a pending call"):
        envs.close(terminate=True)


def test_every_error_is_told_and_the_last_raised(opened):
    envs = opened(AsyncVectorEnv([Count] * 3, num_workers=3))
    envs.reset()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with pytest.raises(ValueError, match="no action 3"):
            envs.step([3, 1, 3])
    said = [str(warning.message) for warning in told]
    assert {found[1] for line in said if (found := re.search(r"Worker-(\d)", line))} == {"0", "2"}
    assert sum("Received the following error from Worker" in line for line in said) == 2
    assert sum("ValueError: no action 3\n\x1b" in line for line in said) == 2
    assert "Raising the last exception" in said[-1]
    assert envs.reset()[0].tolist() == [[0, 0]] * 3  # no worker was lost


def test_what_cannot_be_had_is_refused():
    custom = partial(Count)
    with pytest.raises(ValueError, match="worker: expected None"):
        AsyncVectorEnv([custom], worker=lambda *args: None)
    with pytest.raises(ValueError, match="must be a positive"):
        AsyncVectorEnv([custom], max_concurrency=0)
    with pytest.raises(ValueError, match="must be an integer"):
        AsyncVectorEnv([custom], max_concurrency=1.5)


class Named(gymnasium.Env):
    """Its space is one of its own."""

    class Words(spaces.Space):
        @property
        def is_np_flattenable(self):
            return False

        def contains(self, x):
            return isinstance(x, str)

        def sample(self, mask=None, probability=None):
            return "word"

        def __eq__(self, other):
            return isinstance(other, Named.Words)

        __hash__ = None

    observation_space = action_space = Words()

    def reset(self, *, seed=None, options=None):
        return "begin", {}

    def step(self, action):
        return f"after {action}", 0.0, False, False, {}


def test_custom_spaces_take_pipes(opened):
    with pytest.raises(ValueError, match="shared_memory=False"):
        AsyncVectorEnv([Named] * 2)
    envs = opened(AsyncVectorEnv([Named] * 2, shared_memory=False))
    assert envs.reset()[0] == ("begin", "begin")
    assert envs.step(("this", "that"))[0] == ("after this", "after that")


def test_max_concurrency_limits_the_processes(opened):
    assert opened(AsyncVectorEnv([Count] * 3, max_concurrency=1)).engine.num_workers == 1


FRESH = """
import sys
import gymnasium
envs = gymnasium.make_vec("hotloop.envs:hotloop/Vec-v0", 3, env_id="CartPole-v1", backend="serial")
assert envs.reset(seed=0)[0].shape == (3, 4)
assert gymnasium.make("hotloop/CartPole-v1").reset(seed=0)[0].shape == (4,)
loaded = {"torch", "numba", "ray"}.intersection(sys.modules)
assert not loaded, loaded
assert gymnasium.make_vec("hotloop/CartPole-v1", 5).reset(seed=0)[0].shape == (5, 4)
"""


@pytest.mark.long
def test_ids_in_a_fresh_interpreter():
    """Gymnasium imports the package that stands before the colon."""
    done = subprocess.run([sys.executable, "-c", FRESH], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_ids_where_the_package_was_imported_before_gymnasium():
    code = "import hotloop.envs, gymnasium; gymnasium.make('hotloop.envs:hotloop/CartPole-v1')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_ids_for_make_vec():
    known = dict(gymnasium.registry)
    try:
        register()
        envs = gymnasium.make_vec(
            "hotloop/Vec-v0", num_envs=3, env_id="CartPole-v1", backend="serial"
        )
        assert envs.num_envs == 3
        assert envs.reset(seed=0)[0].shape == (3, 4)
        assert "hotloop/Vec-v0" in repr(envs)
        envs.close()
        native = gymnasium.make_vec("hotloop/CartPole-v1", num_envs=5)
        assert native.reset(seed=0)[0].shape == (5, 4)
        native.close()
        single = gymnasium.make("hotloop/CartPole-v1")
        assert single.spec.max_episode_steps == 500
        single.close()
    finally:
        gymnasium.registry.clear()
        gymnasium.registry.update(known)
