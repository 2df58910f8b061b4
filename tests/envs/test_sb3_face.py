"""Stable-Baselines3 on the engines here: equal to its own vector envs, and its algorithms train."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

pytest.importorskip("stable_baselines3")
with pytest.MonkeyPatch.context() as patch:
    patch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.vec_env import DummyVecEnv as TheirDummyVecEnv
    from stable_baselines3.common.vec_env import VecNormalize

from hotloop.envs.adapters.stable_baselines3 import DummyVecEnv, SubprocVecEnv


class Walk(gymnasium.Env):
    """Dict observations, options at a reset, infos of several kinds, both kinds of ends."""

    def __init__(self, limit=7):
        self.observation_space = spaces.Dict(
            {"at": spaces.Box(-9, 9, (2,)), "step": spaces.Discrete(100)}
        )
        self.action_space = spaces.Box(-1, 1, (2,))
        self.limit = limit
        self.asked = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        self.steps = 0
        return self._obs(), {"options": str(options), "draw": float(self.at[0])}

    def step(self, action):
        self.at = self.at + action
        self.steps += 1
        info = {"far": bool(self.at[0] > 0.5), "nested": {"steps": self.steps}}
        return self._obs(), float(self.at[1]), self.at[0] > 1, self.steps >= self.limit, info

    def ask(self, by=1):
        self.asked += by
        return self.asked

    def _obs(self):
        return {"at": self.at.copy(), "step": self.steps}


@pytest.fixture(params=["dummy", "subproc"])
def make(request):
    made = []

    def make_one(fns):
        made.append(
            DummyVecEnv(fns) if request.param == "dummy" else SubprocVecEnv(fns, num_workers=2)
        )
        return made[-1]

    yield make_one
    for envs in made:
        envs.close()


def assert_same(one, other):
    assert type(one) is type(other) or isinstance(one, dict)
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            assert_same(one[key], other[key])
    elif isinstance(one, list):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            assert_same(a, b)
    elif isinstance(one, np.ndarray):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
    else:
        assert one == other


@pytest.mark.parametrize(
    "fn", [Walk, lambda: Monitor(gymnasium.make("CartPole-v1"))], ids=["dict", "monitored"]
)
def test_equal_to_their_own(make, fn):
    ours, theirs = make([fn] * 3), TheirDummyVecEnv([fn] * 3)
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    assert ours.metadata == theirs.metadata
    for envs in (ours, theirs):
        envs.seed(5)
        envs.action_space.seed(1)
    assert_same(ours.reset(), theirs.reset())
    assert_same(ours.reset_infos, theirs.reset_infos)
    ends = 0
    for _ in range(120):
        actions = np.array([theirs.action_space.sample() for _ in range(3)])
        got, expected = ours.step(actions), theirs.step(actions)
        for info in [*got[3], *expected[3]]:
            info.get("episode", {}).pop("t", None)  # the seconds since the start
        for a, b in zip(got, expected, strict=True):
            assert_same(a, b)
        assert_same(ours.reset_infos, theirs.reset_infos)
        ends += got[2].sum()
    assert ends > 3


def test_seeds_and_options_are_used_once(make):
    envs = make([Walk] * 3)
    envs.seed(3)
    envs.set_options([{"start": 1}, {}, {"start": 1}])
    first = envs.reset()["at"]
    assert [info["options"] for info in envs.reset_infos] == [
        "{'start': 1}",
        "None",
        "{'start': 1}",
    ]
    second = envs.reset()["at"]
    assert envs.reset_infos[0]["options"] == "None"
    assert not np.array_equal(first, second)
    envs.seed(3)
    np.testing.assert_array_equal(envs.reset()["at"], first)


def test_questions_reach_only_the_envs_asked(make):
    envs = make([lambda: Monitor(Walk())] * 3)
    assert envs.get_attr("limit", indices=[2, 0]) == [7, 7]
    assert envs.env_method("ask", indices=1, by=2) == [2]
    assert envs.env_method("ask") == [1, 3, 1]
    envs.set_attr("name", "left", indices=[-1])
    assert envs.get_attr("name", indices=2) == ["left"]
    assert envs.has_attr("limit")
    assert not envs.has_attr("name")
    assert envs.env_is_wrapped(Monitor) == [True] * 3
    assert envs.env_is_wrapped(gymnasium.wrappers.TimeLimit, indices=[0]) == [False]
    with pytest.raises(IndexError):
        envs.get_attr("limit", indices=3)


def test_a_reset_drops_a_step_that_nobody_waited_for(make):
    envs = make([Walk] * 2)
    envs.reset()
    envs.step_async(np.ones((2, 2), np.float32))
    obs = envs.reset()
    assert obs["step"].tolist() == [0, 0]
    assert envs.step(np.zeros((2, 2), np.float32))[0]["step"].tolist() == [1, 1]


def test_an_error_comes_home(make):
    class Fails(Walk):
        def step(self, action):
            raise ValueError("out of fuel")

    envs = make([Walk, Fails])
    envs.reset()
    with pytest.raises(ValueError, match="out of fuel") as caught:
        envs.step(np.zeros((2, 2), np.float32))
    assert "in env 1" in caught.value.__notes__


def test_one_env_for_all_is_refused():
    env = Walk()
    with pytest.raises(ValueError, match="the same instance"):
        DummyVecEnv([lambda: env] * 2)


def test_pictures_are_tiled(make):
    envs = make([lambda: gymnasium.make("FrozenLake-v1", render_mode="rgb_array")] * 2)
    envs.reset()
    height, width, _ = envs.get_images()[0].shape
    assert envs.render().shape == (2 * height, width, 3)
    plain = make([Walk] * 2)
    with pytest.warns(UserWarning, match="render mode is None"):
        assert plain.get_images() == [None, None]


def test_ppo_trains_through_its_wrappers():
    envs = make_vec_env("CartPole-v1", n_envs=4, seed=0, vec_env_cls=SubprocVecEnv)
    envs = VecNormalize(envs)
    model = PPO("MlpPolicy", envs, n_steps=64, batch_size=256, n_epochs=1, seed=0, device="cpu")
    before = [p.detach().clone() for p in model.policy.parameters()]
    model.learn(256)
    assert model.num_timesteps == 256
    assert len(model.ep_info_buffer) > 5
    moved = [not p.equal(q) for p, q in zip(model.policy.parameters(), before, strict=True)]
    assert all(moved)
    envs.close()
