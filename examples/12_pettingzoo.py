"""You will see two agents learn to leave a corridor: the return of an episode rises.

    python examples/12_pettingzoo.py
    hotloop benchmark examples/12_pettingzoo.py --seconds 2

A parallel env of PettingZoo becomes slots of a vector env. An agent that is out acts no more while
its mate still walks; `infos["agent_mask"]` tells which slots to learn from.
"""

import numpy as np
from gymnasium import spaces

import hotloop
from hotloop.integrations.pettingzoo import parallel_vector_env


class Corridor:
    """Each pays for every agent still inside; the door is at 0, and all see where they are."""

    def __init__(self) -> None:
        self.agents = self.possible_agents = ["red", "blue"]
        self.observation_space = lambda _: spaces.Box(-9, 9, (1,), np.float32)
        self.action_space = lambda _: spaces.Discrete(3)  # left, stay, right

    def reset(self, seed=None, **_):
        self.rng = np.random.default_rng(seed) if seed is not None else self.rng
        self.agents, self.steps = self.possible_agents, 0
        self.at = {agent: int(self.rng.choice([-4, -2, 1, 3])) for agent in self.agents}
        return {agent: np.array([x], np.float32) for agent, x in self.at.items()}, {}

    def step(self, actions):
        self.steps += 1
        self.at = {agent: np.clip(self.at[agent] + actions[agent] - 1, -9, 9) for agent in actions}
        out = {agent: x == 0 for agent, x in self.at.items()}
        late = {agent: self.steps >= 20 and not out[agent] for agent in actions}
        self.agents = [agent for agent in actions if not out[agent] and not late[agent]]
        obs = {agent: np.array([x], np.float32) for agent, x in self.at.items()}
        return obs, dict.fromkeys(actions, -0.1 * len(actions)), out, late, {}


envs = parallel_vector_env([Corridor] * 32)
rng, weights = np.random.default_rng(0), np.zeros((1, 3))
obs, infos = envs.reset(seed=0)
for update in hotloop.iterations(range(61), unit="env steps", units=lambda _: 40 * envs.num_envs):
    grads, rewards, acts, ends = [], [], [], []
    for _ in range(40):
        p = np.exp(obs @ weights) / np.exp(obs @ weights).sum(axis=1, keepdims=True)
        action = (p.cumsum(axis=1) < rng.random((len(p), 1))).sum(axis=1).clip(max=2)
        grads.append(obs[:, :, None] * (np.eye(3)[action] - p)[:, None])
        acts.append(infos["agent_mask"])
        obs, reward, terminated, truncated, infos = envs.step(action)
        rewards.append(reward), ends.append(terminated | truncated)
    to_go = np.zeros((41, envs.num_envs))
    for t in reversed(range(40)):
        to_go[t] = rewards[t] + np.where(ends[t], 0, to_go[t + 1])
    advantage = np.where(acts, to_go[:-1] - to_go[:-1][np.array(acts)].mean(), 0)
    weights += 0.3 * np.einsum("tb,tbij->ij", advantage, grads) / np.sum(acts)
    if update % 15 == 0:
        print(f"update {update:2d}  return of an agent {np.sum(rewards) / np.sum(ends):6.2f}")
