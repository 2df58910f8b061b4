"""PPO in one file, in the manner of CleanRL; it asks the policy once for each env, not for all."""

import argparse

import gymnasium as gym
import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

ENVS, STEPS, EPOCHS, MINIBATCH = 8, 64, 4, 128
GAMMA, LAMBDA, CLIP = 0.99, 0.95, 0.2


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 2))
        self.critic = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 1))

    def get_action_and_value(self, obs, action=None):
        distribution = Categorical(logits=self.actor(obs))
        if action is None:
            action = distribution.sample()
        value = self.critic(obs).squeeze(-1)
        return action, distribution.log_prob(action), distribution.entropy(), value


def choose_actions(agent, obs, at_once):
    """What the agent says of all envs, asked for all at once or one by one."""
    if at_once:
        return agent.get_action_and_value(obs)
    said = [agent.get_action_and_value(row) for row in obs]
    return tuple(torch.stack(each) for each in zip(*said, strict=True))


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("steps", type=int, nargs="?", default=2_000_000, help="env steps")
    options.add_argument("--fix", action="store_true", help="ask for all envs at once")
    chosen = options.parse_args()
    torch.manual_seed(1)
    envs = gym.vector.SyncVectorEnv([lambda: gym.make("CartPole-v1")] * ENVS)
    agent = Agent()
    optimizer = torch.optim.Adam(agent.parameters(), lr=2.5e-4, eps=1e-5)
    obs, actions = torch.zeros(STEPS, ENVS, 4), torch.zeros(STEPS, ENVS)
    logprobs, rewards, dones, values = (torch.zeros(STEPS, ENVS) for _ in range(4))
    next_obs, next_done = torch.as_tensor(envs.reset(seed=1)[0]), torch.zeros(ENVS)
    for _ in range(chosen.steps // (ENVS * STEPS)):
        for step in range(STEPS):
            obs[step], dones[step] = next_obs, next_done
            with torch.no_grad():
                said = choose_actions(agent, next_obs, chosen.fix)
                actions[step], logprobs[step], _, values[step] = said
            seen, reward, terminated, truncated, _ = envs.step(actions[step].long().numpy())
            rewards[step], next_obs = torch.as_tensor(reward), torch.as_tensor(seen)
            next_done = torch.as_tensor(np.logical_or(terminated, truncated)).float()
        with torch.no_grad():
            following, going = agent.critic(next_obs).squeeze(-1), 1 - next_done
            advantages, last = torch.zeros(STEPS, ENVS), torch.zeros(ENVS)
            for t in reversed(range(STEPS)):
                delta = rewards[t] + GAMMA * following * going - values[t]
                advantages[t] = last = delta + GAMMA * LAMBDA * going * last
                following, going = values[t], 1 - dones[t]
        flat = [x.flatten(0, 1) for x in (obs, actions, logprobs, advantages, advantages + values)]
        for _ in range(EPOCHS):
            for rows in torch.randperm(ENVS * STEPS).split(MINIBATCH):
                b_obs, b_actions, b_logprobs, b_advantages, b_returns = (x[rows] for x in flat)
                _, logprob, entropy, value = agent.get_action_and_value(b_obs, b_actions)
                ratio = (logprob - b_logprobs).exp()
                clipped = ratio.clamp(1 - CLIP, 1 + CLIP)
                policy_loss = -torch.min(b_advantages * ratio, b_advantages * clipped).mean()
                value_loss = (value - b_returns).pow(2).mean()
                optimizer.zero_grad()
                (policy_loss + 0.5 * value_loss - 0.01 * entropy.mean()).backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimizer.step()


if __name__ == "__main__":
    main()
