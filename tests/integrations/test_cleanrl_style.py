"""A loop as CleanRL writes it learns the same from fragments as from its own rollout."""

import importlib.util
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from hotloop.envs import make_vec
from hotloop.rollout import FragmentCollector

EXAMPLE = Path(__file__).parents[2] / "examples/20_cleanrl_style.py"
ENVS, STEPS, UPDATES, SEED = 4, 64, 4, 3


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("cleanrl_style", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def new_agent(example):
    torch.manual_seed(SEED)
    agent = example.Agent()
    return agent, torch.optim.Adam(agent.parameters(), lr=3e-3, eps=1e-5)


def parameters(agent):
    return torch.nn.utils.parameters_to_vector(agent.parameters()).detach().numpy().copy()


def from_fragments(example):
    agent, optimizer = new_agent(example)
    make = partial(make_vec, "CartPole-v1", ENVS, backend="serial", autoreset_mode="same_step")
    settings = {"num_workers": 1, "backend": "serial", "work_ahead": False, "seed": SEED}
    with FragmentCollector(make, agent, fragment_steps=STEPS, **settings) as collector:
        for _ in range(UPDATES):
            example.learn(agent, optimizer, *collector.collect(1))
            collector.update(agent)
    return parameters(agent)


def from_a_rollout(example):
    """CleanRL's rollout: storage that is filled step by step, on Gymnasium's vector env."""
    agent, optimizer = new_agent(example)
    envs = SyncVectorEnv(
        [lambda: gymnasium.make("CartPole-v1")] * ENVS, autoreset_mode=AutoresetMode.SAME_STEP
    )
    obs, _ = envs.reset(seed=SEED)
    for update in range(UPDATES):
        # A worker seeds its copy of the agent by its own seed and the version.
        agent.seed(int(np.random.SeedSequence((SEED, update)).generate_state(1)[0]))
        storage = []
        for _ in range(STEPS):
            action, extras = agent(obs)
            following, reward, terminated, truncated, infos = envs.step(action)
            arrived = following.copy()
            for index in np.flatnonzero(terminated | truncated):
                arrived[index] = infos["final_obs"][index]
            log_prob = extras["log_prob"]
            storage.append((obs, arrived, action, log_prob, reward, terminated, truncated))
            obs = following
        names = ("obs", "all_next_obs", "action", "log_prob", "reward", "terminated", "truncated")
        columns = map(np.stack, zip(*storage, strict=True))
        batch = SimpleNamespace(**dict(zip(names, columns, strict=True)))
        batch.extras = {"log_prob": batch.log_prob}
        example.learn(agent, optimizer, batch)
    envs.close()
    return parameters(agent)


def test_it_learns_the_same_bits(example):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        plain, ours = from_a_rollout(example), from_fragments(example)
    finally:
        torch.set_num_threads(threads)
    np.testing.assert_array_equal(plain, ours)
    assert np.abs(plain - parameters(new_agent(example)[0])).max() > 1e-3
