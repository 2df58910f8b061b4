"""PPO in one file: a rover learns to reach its goal. It knows nothing of hotloop."""

import gymnasium
import numpy as np
import torch
from rover import BEAMS, Rover
from torch import nn
from torch.distributions import Categorical

ENVS, STEPS, EPOCHS, MINIBATCH = 8, 32, 4, 64
GAMMA, LAMBDA, CLIP = 0.98, 0.95, 0.2


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(BEAMS + 2, 64), nn.Tanh(), nn.Linear(64, 3))
        self.critic = nn.Sequential(nn.Linear(BEAMS + 2, 64), nn.Tanh(), nn.Linear(64, 1))

    def forward(self, obs):
        return Categorical(logits=self.actor(obs)), self.critic(obs).squeeze(-1)


def main(updates):
    torch.manual_seed(1)
    envs = gymnasium.vector.SyncVectorEnv([Rover] * ENVS)
    agent = Agent()
    optimizer = torch.optim.Adam(agent.parameters(), lr=1e-3)
    next_obs, _ = envs.reset(seed=1)
    returns, running = [], np.zeros(ENVS)
    for _ in updates:
        kept = []
        for _ in range(STEPS):
            obs = torch.as_tensor(next_obs)
            with torch.no_grad():
                dist, value = agent(obs)
            action = dist.sample()
            next_obs, reward, terminated, truncated, _ = envs.step(action.numpy())
            over = terminated | truncated
            running += reward
            returns += list(running[over])
            running[over] = 0.0
            reward = torch.as_tensor(reward, dtype=torch.float32)
            kept.append((obs, action, dist.log_prob(action), value, reward, torch.as_tensor(over)))
        obs, actions, logprobs, values, rewards, overs = map(torch.stack, zip(*kept, strict=True))
        with torch.no_grad():
            following = agent(torch.as_tensor(next_obs))[1]
        advantages, last = torch.zeros(STEPS, ENVS), torch.zeros(ENVS)
        for t in reversed(range(STEPS)):
            going = (~overs[t]).float()
            delta = rewards[t] + GAMMA * following * going - values[t]
            advantages[t] = last = delta + GAMMA * LAMBDA * going * last
            following = values[t]
        flat = [x.flatten(0, 1) for x in (obs, actions, logprobs, advantages, advantages + values)]
        for _ in range(EPOCHS):
            for rows in torch.randperm(ENVS * STEPS).split(MINIBATCH):
                b_obs, b_actions, b_logprobs, b_advantages, b_targets = (x[rows] for x in flat)
                dist, value = agent(b_obs)
                ratio = (dist.log_prob(b_actions) - b_logprobs).exp()
                clipped = ratio.clamp(1 - CLIP, 1 + CLIP)
                policy_loss = -torch.min(b_advantages * ratio, b_advantages * clipped).mean()
                value_loss = (value - b_targets).pow(2).mean()
                loss = policy_loss + 0.5 * value_loss - 0.01 * dist.entropy().mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimizer.step()
    print(f"mean return of the last 20 episodes: {np.mean(returns[-20:]):.2f}")


if __name__ == "__main__":
    main(range(10_000))
