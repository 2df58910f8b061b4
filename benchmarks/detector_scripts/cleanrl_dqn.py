"""DQN in one file with a replay in a deque: no fault; the deque is bounded."""

import random
from collections import deque

import gymnasium
import numpy as np
import torch
from torch import nn

import hotloop

BATCH, GAMMA = 64, 0.99


def network():
    return nn.Sequential(
        nn.Linear(4, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 2)
    )


def main():
    env = gymnasium.make("CartPole-v1")
    online, target = network(), network()
    target.load_state_dict(online.state_dict())
    optimiser = torch.optim.Adam(online.parameters(), lr=2.5e-4)
    replay = deque(maxlen=10_000)
    obs, _ = env.reset(seed=1)
    returns = []
    episode_return = 0.0
    for step in hotloop.iterations(range(10_000_000), unit="env steps"):
        if random.random() < max(0.05, 1 - step / 5_000):
            action = env.action_space.sample()
        else:
            with torch.no_grad():
                action = int(online(torch.as_tensor(obs)).argmax())
        next_obs, reward, terminated, truncated, _ = env.step(action)
        replay.append((obs, action, reward, next_obs, terminated))
        episode_return += reward
        obs = next_obs
        if terminated or truncated:
            returns.append(episode_return)
            episode_return = 0.0
            obs, _ = env.reset()
        if len(replay) < BATCH:
            continue
        batch = random.sample(replay, BATCH)
        seen, actions, rewards, following, ended = (np.array(x) for x in zip(*batch, strict=True))
        with torch.no_grad():
            best = target(torch.as_tensor(following)).max(1).values
            goal = torch.as_tensor(rewards).float() + GAMMA * best * (
                1 - torch.as_tensor(ended).float()
            )
        q = online(torch.as_tensor(seen)).gather(1, torch.as_tensor(actions)[:, None]).squeeze(1)
        loss = nn.functional.mse_loss(q, goal)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if step % 500 == 0:
            target.load_state_dict(online.state_dict())


main()
