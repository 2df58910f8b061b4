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

from hotloop.errors import ShapeError
from hotloop.integrations.stable_baselines3 import DummyVecEnv, SubprocVecEnv


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
            DummyVecEnv(fns)
            if request.param == "dummy"
            else SubprocVecEnv(fns, num_workers=min(2, len(fns)))
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


class Teller(gymnasium.Env):
    """Tells whatever `infos` holds, keeps its last action, and ends when it is told to."""

    def __init__(self, space=None, infos=({},), limit=3):
        self.observation_space = spaces.Box(-9, 9, (2,))
        self.action_space = space or spaces.Discrete(2)
        self.infos, self.limit = infos, limit
        self.action = None
        self.at = np.zeros(2, np.float32)

    def reset(self, seed=None):  # an old env: it knows no options
        self.steps = 0
        return self.at, {}

    def step(self, action):
        self.action = action
        self.steps += 1
        return (
            self.at,
            0.0,
            self.steps >= self.limit,
            False,
            self.infos[self.steps % len(self.infos)],
        )


def test_an_old_env_that_knows_no_options(make):
    envs = make([Teller] * 2)
    envs.seed(1)
    envs.reset()
    for _ in range(4):
        envs.step(np.zeros(2, np.int64))
    envs.set_options({"start": 1})
    with pytest.raises(TypeError, match="options"):
        envs.reset()


@pytest.mark.parametrize(
    ("space", "actions", "expected"),
    [
        (spaces.MultiBinary(3), np.ones((2, 3), np.float32), [1, 1, 1]),
        (spaces.Box(0, 255, (2,), np.uint8), np.full((2, 2), 200.0), [200, 200]),
        (spaces.Box(0, 255, (2,), np.uint8), np.full((2, 2), 0.5), [0.5, 0.5]),
        (spaces.Discrete(3), [2, 2], 2),
        (spaces.Dict(a=spaces.Discrete(3), b=spaces.Box(0, 1)), [{"a": 1, "b": [0.5]}] * 2, None),
        (spaces.Tuple([spaces.Discrete(3), spaces.Discrete(2)]), [(2, 1)] * 2, (2, 1)),
    ],
    ids=["binary", "bytes", "fractions", "list", "dict", "tuple"],
)
def test_actions_as_their_own_takes_them(make, space, actions, expected):
    envs = make([lambda: Teller(space)] * 2)
    theirs = TheirDummyVecEnv([lambda: Teller(space)] * 2)
    for each in (envs, theirs):
        each.reset()
        each.step(actions)
    for got, action in zip(envs.get_attr("action"), theirs.get_attr("action"), strict=True):
        if isinstance(action, dict | tuple):
            assert got == action
        else:
            np.testing.assert_array_equal(got, action)
            np.testing.assert_array_equal(got, expected)


def test_one_env_takes_an_action_that_is_no_batch(make):
    envs = make([lambda: Teller(spaces.Box(-1, 1, (2,)))])
    envs.reset()
    envs.step(np.array([0.5, -0.5], np.float32))
    assert envs.get_attr("action")[0].tolist() == [0.5, -0.5]


def test_actions_for_other_than_all_envs():
    envs = SubprocVecEnv([Teller] * 2, num_workers=1)
    with pytest.raises(ShapeError, match="expected 2, one an env, got 3"):
        envs.step([1, 1, 0])
    envs.close()
    alone = SubprocVecEnv([lambda: Teller(spaces.Box(-1, 1, (2,)))])
    alone.reset()
    with pytest.raises(ShapeError, match="expected 1, one an env, got 3"):
        alone.step([1, 2, 3])
    alone.close()
    dummy, theirs = DummyVecEnv([Teller] * 2), TheirDummyVecEnv([Teller] * 2)
    for each in (dummy, theirs):
        each.reset()
    with pytest.warns(UserWarning, match="expected 2, one an env, got 3; those after"):
        dummy.step(np.array([1, 0, 1]))
    theirs.step(np.array([1, 0, 1]))
    assert dummy.get_attr("action") == theirs.get_attr("action") == [1, 0]
    with pytest.raises(ShapeError, match="expected 2, one an env, got 1"):
        dummy.step([1])


def test_observations_within_one_another_are_refused_by_dummy_as_by_theirs():
    class Nested(Teller):
        def __init__(self):
            super().__init__()
            self.observation_space = spaces.Dict(a=spaces.Dict(b=spaces.Box(0, 1)))

    for made in (DummyVecEnv, TheirDummyVecEnv):
        with pytest.raises(NotImplementedError, match=r"[Nn]ested"):
            made([Nested])


def test_infos_come_as_they_were_told(make):
    told = {
        "env_id": "mine",
        "a": 1,
        "_a": 2,
        "large": 2**70,
        "point": np.array(3.5),
        "final_obs": 7,
    }
    envs = make([lambda: Teller(infos=[told], limit=2)] * 2)
    envs.reset()
    for over in (False, True):
        infos = envs.step(np.zeros(2, np.int64))[3]
        last = {"terminal_observation": np.zeros(2, np.float32)} if over else {}
        for info in infos:
            assert isinstance(info["point"], np.ndarray)
            assert_same(info, told | last | {"TimeLimit.truncated": False})


def test_what_is_told_is_the_callers(make):
    """A list that an env goes on with, and the last observation that a wrapper writes into."""
    trail = []
    envs = make([lambda: Teller(infos=[{"trail": trail}], limit=2)])
    envs.reset()
    first = envs.step(np.zeros(1, np.int64))[3][0]
    trail.append("later")
    assert first["trail"] == []
    info = envs.step(np.zeros(1, np.int64))[3][0]
    info["terminal_observation"][:] = 5
    info["more"] = 1
    assert envs.get_attr("at")[0].tolist() == [0, 0]
    assert "more" not in envs.get_attr("infos")[0][0]


@pytest.mark.parametrize("space", [spaces.MultiBinary(2), spaces.MultiDiscrete([2, 3])])
def test_ppo_steps_binary_and_multidiscrete_actions(make, space):
    model = PPO(
        "MlpPolicy", make([lambda: Teller(space)] * 2), n_steps=8, batch_size=16, n_epochs=1
    )
    model.learn(16)
    assert model.num_timesteps == 16


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
