"""Agents that stop at different times in fixed slots: who acts, who stopped, who is reset when."""

import pickle
from functools import partial

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from hotloop.envs.process import ProcessVectorEnv
from hotloop.errors import SettingError, ShapeError, StateError, TargetError
from hotloop.integrations.pettingzoo import parallel_vector_env


class Countdown:
    """Agents a, b, c stop in steps 2, 3 and 5; b is cut, the others terminate.

    Observation (start, steps, own number, own last action), reward 10 × steps + own number.
    """

    render_mode = "rgb_array"

    def __init__(self):
        self.metadata = {"name": "countdown", "render_modes": ["rgb_array"]}
        self.possible_agents = ["a", "b", "c"]
        self.lifetime = {"a": 2, "b": 3, "c": 5}
        self.closed = 0
        self.seen = []

    def observation_space(self, agent):
        return spaces.Box(-1, 1000, (4,), np.float32)

    def action_space(self, agent):
        return spaces.Discrete(9)

    def reset(self, seed=None, options=None):
        self.start = self.start + 1 if seed is None else seed
        if options:
            self.start = options["start"]
        self.steps = 0
        self.agents = list(self.possible_agents)
        return {a: self.look(a, -1) for a in self.agents}, {a: {"reset": True} for a in self.agents}

    def look(self, agent, action):
        number = self.possible_agents.index(agent)
        return np.array([self.start, self.steps, number, action], np.float32)

    def step(self, actions):
        assert set(actions) == set(self.agents)
        self.seen.append(actions)
        self.steps += 1
        every = self.possible_agents  # also those that stopped before, as some envs do
        over = {a: self.steps >= self.lifetime[a] for a in every}
        acted = self.agents
        self.agents = [a for a in acted if not over[a]]
        return (
            {a: self.look(a, actions.get(a, -1)) for a in every},
            {a: 10.0 * self.steps + k for k, a in enumerate(every)},
            {a: over[a] and a != "b" for a in every},
            {a: over[a] and a == "b" for a in every},
            {a: {"left": self.lifetime[a] - self.steps} for a in acted},
        )

    def render(self):
        return np.full((2, 2, 3), self.steps, np.uint8)

    def close(self):
        self.closed += 1


def assert_same(got, expected):
    """Infos of workers may come in another order."""
    assert type(got) is type(expected)
    if isinstance(got, dict):
        assert got.keys() == expected.keys()
        got, expected = ([d[key] for key in sorted(d)] for d in (got, expected))
    if isinstance(got, list | tuple) or (isinstance(got, np.ndarray) and got.dtype == object):
        for one, other in zip(got, expected, strict=True):
            assert_same(one, other)
    else:
        np.testing.assert_array_equal(got, expected)


def run(envs, steps):
    """What a number of steps gives, with the actions 3, 4, 5 in turn."""
    actions = np.resize([3, 4, 5], envs.num_envs)
    return [envs.step(actions) for _ in range(steps)]


def test_slots_of_agents_that_stop_at_different_times():
    envs = parallel_vector_env(Countdown)
    assert (envs.num_envs, envs.observation_space.shape) == (3, (3, 4))
    assert envs.metadata["autoreset_mode"] == AutoresetMode.NEXT_STEP
    obs, infos = envs.reset(seed=7)
    np.testing.assert_array_equal(obs, [[7, 0, 0, -1], [7, 0, 1, -1], [7, 0, 2, -1]])
    assert obs.dtype == np.float32
    assert infos["agent_mask"].tolist() == [True] * 3
    assert infos["reset"].tolist() == [True] * 3
    obs, reward, terminated, truncated, infos = zip(*run(envs, 7), strict=True)
    stopped = [0, 0, 0, 0]
    np.testing.assert_array_equal(obs[0], [[7, 1, 0, 3], [7, 1, 1, 4], [7, 1, 2, 5]])
    np.testing.assert_array_equal(obs[1], [[7, 2, 0, 3], [7, 2, 1, 4], [7, 2, 2, 5]])
    np.testing.assert_array_equal(obs[2], [stopped, [7, 3, 1, 4], [7, 3, 2, 5]])
    np.testing.assert_array_equal(obs[3], [stopped, stopped, [7, 4, 2, 5]])
    np.testing.assert_array_equal(obs[4], [stopped, stopped, [7, 5, 2, 5]])
    np.testing.assert_array_equal(obs[5], [[8, 0, 0, -1], [8, 0, 1, -1], [8, 0, 2, -1]])
    np.testing.assert_array_equal(obs[6], [[8, 1, 0, 3], [8, 1, 1, 4], [8, 1, 2, 5]])
    rewards = [[10, 11, 12], [20, 21, 22], [0, 31, 32], [0, 0, 42], [0, 0, 52], [0] * 3]
    np.testing.assert_array_equal(reward[:6], rewards)
    assert reward[0].dtype == np.float64
    np.testing.assert_array_equal(np.argwhere(terminated), [[1, 0], [4, 2]])
    np.testing.assert_array_equal(np.argwhere(truncated), [[2, 1]])
    masks = ["111", "011", "001", "001", "000", "111", "111"]
    assert ["".join(str(int(m)) for m in i["agent_mask"]) for i in infos] == masks
    assert infos[2]["left"].tolist() == [0, 0, 2]
    assert infos[2]["_left"].tolist() == [False, True, True]
    assert infos[5]["_reset"].all()
    seen = envs._members[0].env.seen
    assert seen[:3] == [{"a": 3, "b": 4, "c": 5}] * 2 + [{"b": 4, "c": 5}]
    assert [list(actions) for actions in seen[3:]] == [["c"], ["c"], ["a", "b", "c"]]


def test_same_step_shows_the_last_observations_in_the_infos():
    envs = parallel_vector_env(Countdown, autoreset_mode="same_step")
    envs.reset(seed=7)
    obs, reward, terminated, truncated, infos = zip(*run(envs, 6), strict=True)
    np.testing.assert_array_equal(obs[1][0], [0, 0, 0, 0])
    np.testing.assert_array_equal(infos[1]["final_obs"][0], [7, 2, 0, 3])
    assert infos[1]["final_info"]["left"].tolist() == [0, 0, 0]
    assert infos[1]["_final_obs"].tolist() == [True, False, False]
    np.testing.assert_array_equal(infos[4]["final_obs"][2], [7, 5, 2, 5])
    assert infos[4]["final_obs"][0] is None
    assert infos[4]["_final_obs"].tolist() == [False, False, True]
    np.testing.assert_array_equal(obs[4], [[8, 0, 0, -1], [8, 0, 1, -1], [8, 0, 2, -1]])
    assert infos[4]["agent_mask"].all()
    assert infos[4]["_reset"].all()
    np.testing.assert_array_equal(obs[5], [[8, 1, 0, 3], [8, 1, 1, 4], [8, 1, 2, 5]])
    np.testing.assert_array_equal(reward[4], [0, 0, 52])
    np.testing.assert_array_equal(np.argwhere(terminated), [[1, 0], [4, 2]])
    np.testing.assert_array_equal(np.argwhere(truncated), [[2, 1]])


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_several_parallel_envs_are_each_on_their_own(mode):
    both = parallel_vector_env([Countdown, Countdown], autoreset_mode=mode)
    one, other = (parallel_vector_env(Countdown, autoreset_mode=mode) for _ in range(2))
    got = both.reset(seed=20)[0]
    np.testing.assert_array_equal(
        got, np.concatenate([one.reset(seed=20)[0], other.reset(seed=23)[0]])
    )
    mask = np.array([False] * 3 + [True] * 3)
    for k in range(20):
        if k == 3:
            obs, infos = both.reset(seed=90, options={"reset_mask": mask})
            np.testing.assert_array_equal(obs[3:], other.reset(seed=93)[0])
            assert infos["_reset"].tolist() == mask.tolist()
        (step,), (first,), (second,) = run(both, 1), run(one, 1), run(other, 1)
        for got, a, b in zip(step[:4], first, second, strict=False):
            np.testing.assert_array_equal(got, np.concatenate([a, b]))
        for key in {**first[4], **second[4]}:
            if key.startswith("_"):
                none = np.zeros(3, bool)
                parts = [first[4].get(key, none), second[4].get(key, none)]
                np.testing.assert_array_equal(step[4][key], np.concatenate(parts))


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_it_is_the_same_when_workers_carry_it(mode):
    actions = np.random.default_rng(0).integers(0, 9, (40, 6))
    pool = ProcessVectorEnv([partial(parallel_vector_env, Countdown, mode)] * 2, num_workers=2)
    whole = parallel_vector_env([Countdown] * 2, mode)
    try:
        assert_same(pool.reset(seed=3), whole.reset(seed=3))
        for action in actions:
            assert_same(pool.step(action), whole.step(action))
    finally:
        pool.close()


def test_reset_hands_options_on():
    envs = parallel_vector_env(Countdown)
    assert (envs.reset(seed=1, options={"start": 500})[0][:, 0] == 500).all()


class Newcomer(Countdown):
    """c comes only in the second step."""

    def reset(self, seed=None, options=None):
        obs, infos = super().reset(seed, options)
        self.agents = ["a", "b"]
        return {a: obs[a] for a in self.agents}, {a: infos[a] for a in self.agents}

    def step(self, actions):
        outcome = super().step(actions)
        if self.steps == 1:
            self.agents = ["a", "b", "c"]
        return outcome


def test_an_agent_may_come_later():
    envs = parallel_vector_env(Newcomer)
    obs, infos = envs.reset(seed=1)
    assert infos["agent_mask"].tolist() == [True, True, False]
    assert (obs[2] == 0).all()
    obs, reward, _, _, infos = run(envs, 1)[0]
    assert infos["agent_mask"].tolist() == [True, True, True]
    np.testing.assert_array_equal(obs[2], [1, 1, 2, -1])
    assert reward[2] == 0
    assert run(envs, 1)[0][1][2] == 22


def test_dict_spaces():
    class Named(Countdown):
        def observation_space(self, agent):
            return spaces.Dict(x=spaces.Box(-1, 1000, (4,), np.float32), n=spaces.Discrete(9))

        def action_space(self, agent):
            return spaces.Dict(go=spaces.Discrete(9))

        def look(self, agent, action):
            action = action["go"] if isinstance(action, dict) else action
            return {"x": super().look(agent, action), "n": self.steps}

    envs = parallel_vector_env(Named)
    obs, _ = envs.reset(seed=1)
    assert obs["x"].shape == (3, 4)
    for _ in range(3):
        obs, *_ = envs.step({"go": np.array([1, 2, 3])})
    assert obs["n"].tolist() == [0, 3, 3]
    np.testing.assert_array_equal(obs["x"][:, 3], [0, 2, 3])


def test_rock_paper_scissors_of_pettingzoo():
    rps = pytest.importorskip("pettingzoo.classic.rps_v2")
    envs = parallel_vector_env([partial(rps.parallel_env, max_cycles=3)] * 2)
    obs, infos = envs.reset(seed=0)
    assert obs.tolist() == [3, 3, 3, 3]
    obs, reward, terminated, truncated, infos = envs.step(np.array([0, 1, 2, 2]))
    assert obs.tolist() == [1, 0, 2, 2]
    assert reward.tolist() == [-1, 1, 0, 0]
    envs.step(np.array([0, 0, 0, 0]))
    _, _, terminated, truncated, infos = envs.step(np.array([0, 0, 0, 0]))
    assert truncated.all()
    assert not terminated.any()
    assert not infos["agent_mask"].any()
    assert envs.step(np.array([0, 0, 0, 0]))[0].tolist() == [3, 3, 3, 3]
    envs.close()


def test_render_close_and_sending_the_maker():
    make = pickle.loads(pickle.dumps(partial(parallel_vector_env, [Countdown, Countdown])))
    envs = make()
    envs.reset(seed=0)
    assert [frame.max() for frame in envs.render()] == [0] * 6
    assert envs.render_mode == "rgb_array"
    envs.close()
    envs.close()
    assert [member.env.closed for member in envs._members] == [1, 1]


class Uneven(Countdown):
    def action_space(self, agent):
        return spaces.Discrete(3 if agent == "b" else 9)


class Mute(Countdown):
    def step(self, actions):
        obs, *rest = super().step(actions)
        obs.pop("c")
        return obs, *rest


class Runaway(Countdown):
    def step(self, actions):
        outcome = super().step(actions)
        self.agents = ["a", "b"]
        return outcome


class Stranger(Countdown):
    def step(self, actions):
        outcome = super().step(actions)
        self.agents = ["a", "b", "c", "z"]
        return outcome


class Broken(Countdown):
    def step(self, actions):
        raise ZeroDivisionError("oops")


class Nobody(Countdown):
    def __init__(self):
        super().__init__()
        self.possible_agents = []


def test_messages():
    with pytest.raises(TargetError, match=r"agent 'b': action space: expected that of 'a'"):
        parallel_vector_env(Uneven)
    with pytest.raises(TargetError, match=r"slots 3 to 5: agent 'b': action space"):
        parallel_vector_env([Countdown, Uneven])
    with pytest.raises(TargetError, match=r"possible_agents: .* got \[\]"):
        parallel_vector_env(Nobody)
    with pytest.raises(TargetError, match="at least one"):
        parallel_vector_env([])
    with pytest.raises(SettingError, match="got 'disabled'"):
        parallel_vector_env(Countdown, "disabled")
    for env, message in (
        (Mute, r"agent 'c': expected one observation .* got those of \['a', 'b'\]"),
        (Runaway, r"agent 'c' left env\.agents: expected its termination"),
        (Stranger, r"possible_agents, got also \['z'\]"),
    ):
        envs = parallel_vector_env(env)
        with pytest.raises(StateError, match="step before its first reset"):
            run(envs, 1)
        envs.reset(seed=0)
        with pytest.raises(TargetError, match=message):
            run(envs, 1)
    envs = parallel_vector_env([Countdown, Broken])
    envs.reset(seed=0)
    with pytest.raises(ZeroDivisionError) as raised:
        run(envs, 1)
    assert raised.value.__notes__ == ["in parallel env Broken, slots 3 to 5"]
    with pytest.raises(ShapeError, match=r"\(6,\)"):
        envs.step(np.zeros(3, int))
    for mask, error, message in (
        (np.array([True] * 4 + [False] * 2), SettingError, "slots 3 to 5 are one parallel env"),
        (np.zeros(6, bool), ValueError, "at least one True"),
        (np.ones(5, bool), ValueError, r"shape `\(6,\)"),
    ):
        with pytest.raises(error, match=message):
            envs.reset(options={"reset_mask": mask})
