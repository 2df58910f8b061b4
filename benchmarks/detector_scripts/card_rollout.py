"""A policy on a card, envs on the host: a step copies actions, and checks its distribution."""

import gymnasium
import torch
from torch import nn

import hotloop
from card import card


def main(device):
    envs = gymnasium.vector.SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")] * 4)
    policy = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 2)).to(device)
    obs, _ = envs.reset(seed=1)
    for _ in hotloop.iterations(range(1_000_000), unit="rollouts"):
        for _ in range(16):
            with torch.no_grad():
                logits = policy(torch.as_tensor(obs).to(device))
                choice = torch.distributions.Categorical(logits=logits)  # fault: synchronisation
                actions = choice.sample()
            obs, *_ = envs.step(actions.cpu().numpy())  # fault: synchronisation


with card() as device:
    main(device)
