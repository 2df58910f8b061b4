"""PPO in one file, on envs in this process: no fault. Its loops over time carry what they need."""

import gymnasium
import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

import hotloop

ENVS, STEPS, EPOCHS, MINIBATCHES = 4, 32, 2, 4
GAMMA, LAMBDA, CLIP = 0.99, 0.95, 0.2


class Agent(nn.Module):
    def __init__(self, observations: int, actions: int):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(observations, 64), nn.Tanh(), nn.Linear(64, actions))
        self.critic = nn.Sequential(nn.Linear(observations, 64), nn.Tanh(), nn.Linear(64, 1))

    def act(self, obs, action=None):
        choice = Categorical(logits=self.actor(obs))
        if action is None:
            action = choice.sample()
        return action, choice.log_prob(action), choice.entropy(), self.critic(obs).squeeze(-1)


def main():
    torch.manual_seed(1)
    envs = gymnasium.vector.SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")] * ENVS)
    agent = Agent(4, 2)
    optimiser = torch.optim.Adam(agent.parameters(), lr=2.5e-4, eps=1e-5)
    obs = torch.zeros(STEPS, ENVS, 4)
    actions = torch.zeros(STEPS, ENVS)
    log_probs, rewards, dones, values = (torch.zeros(STEPS, ENVS) for _ in range(4))
    next_obs = torch.as_tensor(envs.reset(seed=1)[0])
    next_done = torch.zeros(ENVS)
    returns_of_episodes = np.zeros(ENVS)
    for _ in hotloop.iterations(range(1_000_000), unit="updates"):
        for step in range(STEPS):
            obs[step] = next_obs
            dones[step] = next_done
            with torch.no_grad():
                action, log_probs[step], _, values[step] = agent.act(next_obs)
            actions[step] = action
            new_obs, reward, terminated, truncated, _ = envs.step(action.numpy())
            rewards[step] = torch.as_tensor(reward)
            next_obs = torch.as_tensor(new_obs)
            next_done = torch.as_tensor(np.logical_or(terminated, truncated)).float()
            returns_of_episodes += reward
            for k in range(ENVS):
                if next_done[k]:
                    returns_of_episodes[k] = 0.0
        with torch.no_grad():
            next_value = agent.act(next_obs)[3]
            advantages = torch.zeros_like(rewards)
            last = 0
            for t in reversed(range(STEPS)):
                going = 1.0 - (next_done if t == STEPS - 1 else dones[t + 1])
                following = next_value if t == STEPS - 1 else values[t + 1]
                delta = rewards[t] + GAMMA * following * going - values[t]
                advantages[t] = last = delta + GAMMA * LAMBDA * going * last
            returns = advantages + values
        flat = [x.reshape(-1, *x.shape[2:]) for x in (obs, actions, log_probs, advantages, returns)]
        for _ in range(EPOCHS):
            for rows in torch.randperm(ENVS * STEPS).chunk(MINIBATCHES):
                b_obs, b_actions, b_log_probs, b_advantages, b_returns = (x[rows] for x in flat)
                _, new, entropy, value = agent.act(b_obs, b_actions)
                ratio = (new - b_log_probs).exp()
                norm = (b_advantages - b_advantages.mean()) / (b_advantages.std() + 1e-8)
                policy = -torch.min(norm * ratio, norm * ratio.clamp(1 - CLIP, 1 + CLIP)).mean()
                loss = policy - 0.01 * entropy.mean() + 0.5 * (value - b_returns).pow(2).mean()
                optimiser.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimiser.step()


main()
