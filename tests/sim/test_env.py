"""Simulations as envs: rows that equal single runs, resets of all kinds, what is refused."""

from functools import cache, partial

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from hotloop.envs.process import ProcessVectorEnv
from hotloop.errors import SettingError, ShapeError, StateError
from hotloop.learn import ppo
from hotloop.loop.state import Snapshot
from hotloop.models.epidemic.covid import CovidSettings
from hotloop.models.epidemic.covid import model as covid_model
from hotloop.models.epidemic.covid.disease import SCHOOL_AGE
from hotloop.models.epidemic.covid.env import ClosureSettings, covid_env, covid_vector_env
from hotloop.populations import PopulationData, load
from hotloop.populations.ages import AGE_CODES, AGE_GROUPS
from hotloop.rollout import StepCollector
from hotloop.sim import Column, Executor, LoadPopulation, Model, Series, Substep
from hotloop.sim.draws import INITIAL
from hotloop.sim.env import SimulationEnv, SimulationVectorEnv, Task
from hotloop.testing.conformance import ConformanceSettings, check
from support.populations import without_start

AGENTS, DAYS = 300, 17  # two weeks and a rest
DISEASE = CovidSettings(num_steps=DAYS, willingness=0.6, exposed_share=0.1)
MODES = ("next_step", "same_step", "disabled")
SICK, OPEN = "agents/people/sick", "environment/open"
PEOPLE = 40


@cache
def population():
    """One that leaves it to each seed who is exposed at first."""
    return without_start(load(AGENTS))


def covid_envs(**settings):
    return covid_vector_env(population(), covid=DISEASE, **{"threads": 1, **settings})


def covid_one():
    return covid_env(population(), covid=DISEASE, threads=1)


class Catch(Substep):
    reads, writes = (SICK, OPEN), (SICK, "environment/cases")

    def transition(self, state, action):
        share = state[SICK].float().mean(-1, keepdim=True) * state[OPEN].unsqueeze(-1)
        newly = (state[SICK] == 0) & (state.uniform(0, "people") < share)
        return {SICK: state[SICK] | newly.to(torch.uint8), "environment/cases": newly.sum(-1)}


def first_sick(_data, state):
    return state.uniform(INITIAL, "people") < 0.2


MODEL = Model(
    "catch",
    substeps=(Catch(),),
    populations={"people": {"sick": Column(first_sick, torch.uint8)}},
    sizes={"people": PEOPLE},
    environment={"cases": Series(), "open": 1.0},
    num_steps_per_episode=6,
)


class Opening(Task):
    """Open by an action from 0 to 1; reward minus cases."""

    observation_space = spaces.Box(0, PEOPLE, (2,), np.float64)
    action_space = spaces.Box(0, 1, (), np.float32)
    steps_per_action = 2

    def controls(self, actions):
        return {OPEN: torch.from_numpy(actions)}

    def observation(self, state):
        now = torch.full((len(state[SICK]),), float(state.step), dtype=torch.float64)
        return torch.stack((state[SICK].sum(-1).double(), now), -1)

    def reward(self, state, actions, first_step):
        return -state["environment/cases"][:, first_step : state.step].double().sum(-1)


def rollout(envs, actions, seed):
    seen = [envs.reset(seed=seed)[0]]
    for action in actions:
        seen.append(envs.step(action)[:4])
    return seen


def assert_same(got, expected):
    assert type(got) is type(expected)
    if isinstance(got, dict):
        assert got.keys() == expected.keys()
        for key in got:
            assert_same(got[key], expected[key])
    elif isinstance(got, tuple | list):
        assert len(got) == len(expected)
        for one, other in zip(got, expected, strict=True):
            assert_same(one, other)
    elif isinstance(got, np.ndarray) and got.dtype == object:
        assert_same(list(got), list(expected))
    elif isinstance(got, np.ndarray):
        assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
        assert got.tobytes() == expected.tobytes()
    else:
        assert got == expected


def sampled(envs, count):
    envs.action_space.seed(0)
    return [envs.action_space.sample() for _ in range(count)]


# --- equality -----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("vector", "single", "actions"),
    [
        (covid_envs, covid_one, 8),
        (
            partial(SimulationVectorEnv, MODEL, Opening()),
            partial(SimulationEnv, MODEL, Opening()),
            11,
        ),
    ],
    ids=["covid", "own"],
)
def test_equals_gymnasium_over_single_envs_bit_for_bit(vector, single, actions, mode):
    kind = AutoresetMode[mode.upper()]
    ours = vector(num_envs=4, autoreset_mode=mode)
    theirs = SyncVectorEnv([single] * 4, autoreset_mode=kind)
    assert ours.single_observation_space == theirs.single_observation_space
    assert ours.action_space == theirs.action_space
    assert_same(ours.reset(seed=11), theirs.reset(seed=11))
    ends = 0
    for action in sampled(ours, actions):
        got, expected = ours.step(action), theirs.step(action)
        assert_same(got, expected)
        ends += got[3].sum()
        if kind == AutoresetMode.DISABLED and got[3].any():
            both = (e.reset(options={"reset_mask": got[3].copy()}) for e in (ours, theirs))
            assert_same(*both)
    assert ends >= 8
    assert_same(ours.reset(seed=[3, None, 4, None]), theirs.reset(seed=[3, None, 4, None]))
    mask = np.array([False, True, False, True])
    for envs in (ours, theirs):
        envs.step(action)
    both = (e.reset(seed=5, options={"reset_mask": mask.copy()}) for e in (ours, theirs))
    assert_same(*both)
    for action in sampled(ours, 2 if kind == AutoresetMode.DISABLED else actions):
        assert_same(ours.step(action), theirs.step(action))
    ours.close()
    theirs.close()


def test_each_env_is_the_run_of_its_seed():
    settings = ClosureSettings(days_per_action=5)
    envs = covid_envs(num_envs=3, task=settings, autoreset_mode="disabled")
    actions = [np.array([[0, 0], [1, 1], [1, 2]]), np.array([[1, 2], [0, 0], [1, 1]])]
    envs.reset(seed=41)
    rewards = sum(envs.step(action)[1] for action in actions)
    for row in range(3):
        runner = Executor(covid_model(DISEASE), population(), seed=41 + row).init()
        measures = 0.0
        for action in actions:
            closed, level = action[row]
            contact = torch.ones(6, dtype=torch.float64)
            contact[SCHOOL_AGE] = settings.school_contacts_left if closed else 1.0
            runner.set_value("environment/contact_factor", contact)
            runner.set_value("environment/isolating", settings.isolation_levels[level])
            runner.step(5)
            measures += 5 * (closed + 3 * settings.isolation_levels[level])
        infected = runner.state["environment/daily_infected"].sum().item() * 1000 / AGENTS
        dead = runner.state["environment/daily_deaths"].sum().item() * 1000 / AGENTS
        assert rewards[row] == pytest.approx(-0.01 * (infected + 5 * dead + measures))
        assert infected > 0
    envs.close()


@pytest.mark.parametrize("group", AGE_GROUPS)
def test_closed_schools_close_the_contacts_of_those_up_to_19_only(group):
    people = population()
    ages = np.full(AGENTS, AGE_CODES[group], np.uint8)
    town = PopulationData("town", {"age": ages}, people.edges)
    envs = covid_vector_env(
        town, 8, task=ClosureSettings(school_contacts_left=0.0), covid=DISEASE, threads=1
    )
    infections = []
    for closed in (0, 1):
        envs.reset(seed=3)
        _, reward, *_ = envs.step(np.tile([closed, 0], (8, 1)))
        measures = 7.0 * closed
        infections.append((-100 * reward - measures).sum())
    envs.close()
    assert infections[0] > 0
    assert (infections[1] < 1e-6) == (group == "u19")
    assert group == "u19" or infections[1] == pytest.approx(infections[0])


def test_does_not_depend_on_the_program_or_its_threads():
    expected = None
    for settings in ({}, {"threads": 2}, {"fused": False}, {"active_set": True}):
        envs = covid_envs(num_envs=5, **settings)
        seen = rollout(envs, sampled(envs, 5), 7)
        expected = expected or seen
        assert_same(seen, expected)
        envs.close()


def test_a_worker_carries_it_like_any_vector_env():
    one = covid_envs(num_envs=4, autoreset_mode="same_step")
    actions = sampled(one, 7)
    make = partial(covid_envs, num_envs=2, autoreset_mode="same_step")
    carried = ProcessVectorEnv([make] * 2, num_workers=2)
    assert_same(rollout(carried, actions, 3), rollout(one, actions, 3))
    carried.close()
    one.close()


# --- Gymnasium's contract -----------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_conforms(mode):
    check(
        partial(covid_envs, num_envs=3, autoreset_mode=mode),
        single=covid_one,
        settings=ConformanceSettings(steps=12, max_steps=12, misuse=False),
    )


def test_a_single_env_conforms():
    check(covid_one, settings=ConformanceSettings(steps=12, max_steps=12, misuse=False))


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_misuse_does_not_crash_it(mode):
    check(
        partial(covid_envs, num_envs=2, autoreset_mode=mode),
        settings=ConformanceSettings(steps=6, max_steps=12),
    )


def test_an_episode_ends_with_the_simulation():
    envs = SimulationVectorEnv(MODEL, Opening(), 2, num_steps=5)
    envs.reset(seed=0)
    flags = [envs.step(np.ones(2, np.float32))[2:4] for _ in range(4)]
    assert [bool(cut.all()) for _, cut in flags] == [False, False, True, False]
    assert not any(over.any() for over, _ in flags)


def test_seeds_of_episodes_are_reported_and_repeat_them():
    envs = covid_envs(num_envs=3, autoreset_mode="same_step")
    actions = sampled(envs, 6)
    envs.reset(seed=1)
    assert envs.episode_seeds.tolist() == [1, 2, 3]
    for action in actions[:3]:
        obs = envs.step(action)[0]
    seeds = envs.episode_seeds
    assert len({*seeds.tolist(), 1, 2, 3}) == 6
    after = [envs.step(action)[:4] for action in actions[:2]]
    again, _ = envs.reset(seed=seeds.tolist())
    assert_same(again, obs)
    assert_same([envs.step(action)[:4] for action in actions[:2]], after)
    envs.close()


def test_without_a_seed_episodes_differ():
    envs = covid_envs(num_envs=2)
    seen = {tuple(envs.reset() and envs.episode_seeds) for _ in range(3)}
    assert len(seen) == 3
    envs.close()


def test_envs_that_are_apart_come_together_again():
    envs = covid_envs(num_envs=3, autoreset_mode="same_step")
    start, _ = envs.reset(seed=0)
    action = envs.action_space.sample()
    envs.step(action)
    envs.reset(options={"reset_mask": np.array([True, False, False])})
    envs.step(action)
    envs.reset(options={"reset_mask": np.array([False, True, False])})
    ended = [envs.step(action)[3] for _ in range(3)]
    assert np.array(ended).sum(1).tolist() == [1, 1, 1]
    assert_same(envs.reset(seed=0)[0], start)
    assert envs.step(action)[3].tolist() == [False] * 3
    assert envs.step(action)[3].tolist() == [False] * 3
    assert envs.step(action)[3].tolist() == [True] * 3
    envs.close()


def test_closing_and_isolating_contain_the_epidemic():
    envs = covid_vector_env(2_000, 8, threads=1)
    left = {}
    for name, action in (("open", (0, 0)), ("schools", (1, 0)), ("all", (1, 2))):
        envs.reset(seed=0)
        for _ in range(12):
            obs = envs.step(np.tile(action, (8, 1)))[0]
        assert np.allclose(obs[:, :5].sum(1), 1)
        left[name] = obs[:, 0].mean()
    assert left["open"] < left["schools"] - 0.03 < left["all"] - 0.1
    envs.close()


def test_contacts_of_a_name_or_number_go_both_ways():
    ends = []
    for given in (2_000, load(2_000, both_ways=True), LoadPopulation(2_000), load(2_000)):
        envs = covid_vector_env(given, 4, threads=1)
        envs.reset(seed=0)
        for _ in range(12):
            obs = envs.step(np.zeros((4, 2), int))[0]
        ends.append(obs.copy())
        envs.close()
    both_ways, same, one_way, same_one_way = ends
    assert_same(both_ways, same)
    assert_same(one_way, same_one_way)
    assert both_ways[:, 0].mean() < one_way[:, 0].mean() - 0.2


def test_what_a_loop_saves_it_puts_back():
    envs = covid_envs(num_envs=3, autoreset_mode="same_step")
    actions = sampled(envs, 6)
    envs.reset(seed=2)
    envs.step(actions[0])
    envs.reset(options={"reset_mask": np.array([True, False, False])})
    snapshot = Snapshot([envs])
    first = [envs.step(action) for action in actions]
    for _ in range(2):
        snapshot.restore()
        assert_same([envs.step(action) for action in actions], first)
        envs.reset(seed=9)
    envs.close()


def test_a_collector_fills_fragments_of_it():
    envs = covid_envs(num_envs=4, autoreset_mode="same_step")
    collector = StepCollector(envs, lambda obs: np.zeros((len(obs), 2), np.int64), fragment_steps=6)
    fragment = collector.collect()
    assert fragment.obs.shape == (6, 4, 9)
    assert fragment.episodes == 8
    assert fragment.truncated.sum() == 8
    envs.close()


@pytest.fixture
def env_id():
    """The covid env under an id of Gymnasium's."""
    name = "HotloopCovid-v0"
    gymnasium.register(
        name,
        entry_point="hotloop.models.epidemic.covid.env:covid_env",
        vector_entry_point="hotloop.models.epidemic.covid.env:covid_vector_env",
        kwargs={"population": 2_000, "threads": 1},
    )
    yield name
    del gymnasium.registry[name]


def test_gymnasium_makes_it_by_its_id(env_id):
    envs = gymnasium.make_vec(env_id, num_envs=3, autoreset_mode="same_step")
    one = gymnasium.make(env_id)
    obs, _ = envs.reset(seed=5)
    assert np.array_equal(one.reset(seed=6)[0], obs[1])
    action = envs.action_space.sample()
    assert np.array_equal(one.step(action[1])[0], envs.step(action)[0][1])
    for made in (envs, one):
        made.close()


@pytest.mark.gpu
def test_a_gpu_sees_the_same_epidemics():
    results = []
    for device in ("cpu", "cuda"):
        envs = covid_envs(num_envs=16, device=device)
        seen = rollout(envs, sampled(envs, 3), 7)
        again = rollout(envs, sampled(envs, 3), 7)
        assert_same(seen, again)
        results.append(np.array([obs[:, :5] for obs, *_ in seen[1:]]))
        envs.close()
    # The same draws; an exponential may differ in its last bit, and turn a rare decision.
    assert np.allclose(*results, atol=0.02)
    assert np.allclose(results[1].sum(-1), 1)


@pytest.mark.slow
def test_ppo_learns_when_to_isolate(env_id):
    """Better than doing nothing, than closing all, and than the best that never changes."""
    settings = ppo.PPOSettings(
        *(env_id, 1, 40_000, 16, 24),
        learning_rate=2e-3,
        gamma=0.9,
        clip=0.2,
        hidden_size=32,
        entropy_weight=0.02,
    )
    make = partial(covid_vector_env, 2_000, autoreset_mode="same_step", threads=1)
    envs = make(16)
    learner = ppo.PPO(settings, envs)
    while learner.progress.env_steps < settings.total_steps:
        learner.iterate()
    judge = make(64)

    def mean_return(policy):
        obs, total = judge.reset(seed=10**6)[0], 0.0
        for _ in range(12):
            obs, reward, *_ = judge.step(policy(obs))
            total += reward.mean()
        return total

    constant = [
        mean_return(lambda obs, action=action: np.tile(action, (len(obs), 1)))
        for action in ((0, 0), (1, 2), (0, 1), (1, 1), (0, 2), (1, 0))
    ]
    assert mean_return(learner.policy.greedy) > max(constant) + 0.3
    for made in (envs, judge):
        made.close()


# --- what is refused ----------------------------------------------------------------------------


def test_refuses_invalid_arguments():
    class Odd(Opening):
        def observation(self, state):
            return state[SICK]

    class Unseen(Opening):
        observation_space = spaces.Discrete(2)

    with pytest.raises(SettingError, match="num_envs"):
        SimulationVectorEnv(MODEL, Opening(), 0)
    with pytest.raises(SettingError, match="expected a Box"):
        SimulationVectorEnv(MODEL, Unseen())
    with pytest.raises(ShapeError, match=r"observation of the task: expected shape \(2, 2\)"):
        SimulationVectorEnv(MODEL, Odd(), 2).reset()
    with pytest.raises(SettingError, match="autoreset_mode"):
        SimulationVectorEnv(MODEL, Opening(), autoreset_mode="sometimes")
    with pytest.raises(SettingError, match="isolation_levels"):
        ClosureSettings(isolation_levels=(0.0, 1.5))
    with pytest.raises(SettingError, match="days_per_action"):
        ClosureSettings(days_per_action=0)


def test_refuses_misuse():
    envs = SimulationVectorEnv(MODEL, Opening(), 2, autoreset_mode="disabled")
    with pytest.raises(StateError, match="before the first reset"):
        envs.step(np.ones(2, np.float32))
    with pytest.raises(StateError, match="first reset"):
        envs.reset(options={"reset_mask": np.array([True, False])})
    envs.reset()
    with pytest.raises(ShapeError):
        envs.step(np.ones(3, np.float32))
    with pytest.raises(TypeError, match="reset_mask"):
        envs.reset(options={"reset_mask": [True, False]})
    with pytest.raises(SettingError, match="seed"):
        envs.reset(seed=[2**63, 0])
    with pytest.raises(ValueError, match="length"):
        envs.reset(seed=[1])
    for _ in range(3):
        envs.step(np.ones(2, np.float32))
    with pytest.raises(StateError, match="autoreset is disabled"):
        envs.step(np.ones(2, np.float32))
    envs.close()
    with pytest.raises(gymnasium.error.ClosedEnvironmentError):
        envs.reset()
