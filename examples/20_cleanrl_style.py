"""You will see PPO, written in one file as CleanRL writes it, learn CartPole from worker processes.

    python examples/20_cleanrl_style.py

Only where the steps come from is other than there: two workers hold envs and copies of the agent,
and send fragments, [T, B]. The advantages bootstrap from the true last observation of a truncated
episode.
"""

import time
from functools import partial

import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

from hotloop.envs import make_vec
from hotloop.rollout import FragmentCollector

STEPS, ENVS, UPDATES, EPOCHS, GAMMA, LAMBDA, CLIP = 64, 8, 40, 6, 0.98, 0.95, 0.2


class Agent(nn.Module):
    """An actor, which the workers call, and a critic."""

    def __init__(self):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 2))
        self.critic = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 1))

    def seed(self, seed):
        torch.manual_seed(seed)  # of the worker; else both draw the same

    @torch.no_grad()
    def __call__(self, obs):
        dist = Categorical(logits=self.actor(torch.as_tensor(obs)))
        action = dist.sample()
        return action.numpy(), {"log_prob": dist.log_prob(action).numpy()}


def read(f):
    log_prob, reward = f.extras["log_prob"], f.reward.astype(np.float32)
    return f.obs, f.all_next_obs, f.action, log_prob, reward, f.terminated, f.truncated


def joined(fragments):
    parts = zip(*map(read, fragments), strict=True)
    return [torch.as_tensor(np.concatenate(part, 1)) for part in parts]


def learn(agent, optimizer, batch):
    obs, next_obs, actions, log_probs, rewards, terminated, truncated = batch
    with torch.no_grad():
        values, next_values = agent.critic(obs)[..., 0], agent.critic(next_obs)[..., 0]
        deltas = rewards + GAMMA * next_values * ~terminated - values
        advantages, following = torch.zeros_like(rewards), 0.0
        for t in reversed(range(len(rewards))):
            over = terminated[t] | truncated[t]
            advantages[t] = following = deltas[t] + GAMMA * LAMBDA * following * ~over
    b_obs, b_actions, b_log_probs = obs.flatten(0, 1), actions.flatten(), log_probs.flatten()
    b_advantages, b_targets = advantages.flatten(), (advantages + values).flatten()
    for _ in range(EPOCHS):
        for mb in torch.randperm(len(b_obs)).split(256):
            dist = Categorical(logits=agent.actor(b_obs[mb]))
            ratio = (dist.log_prob(b_actions[mb]) - b_log_probs[mb]).exp()
            adv = b_advantages[mb]
            adv = (adv - adv.mean()) / (adv.std() + 1e-8)
            pg_loss = torch.max(-adv * ratio, -adv * ratio.clamp(1 - CLIP, 1 + CLIP)).mean()
            v_loss = 0.5 * ((agent.critic(b_obs[mb])[:, 0] - b_targets[mb]) ** 2).mean()
            loss = pg_loss - 0.01 * dist.entropy().mean() + 0.5 * v_loss
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    agent = Agent()
    optimizer = torch.optim.Adam(agent.parameters(), lr=3e-3, eps=1e-5)
    make_envs = partial(make_vec, "CartPole-v1", ENVS, backend="serial", autoreset_mode="same_step")
    collector = FragmentCollector(make_envs, agent, fragment_steps=STEPS, work_ahead=False)
    start, returns = time.perf_counter(), []
    for update in range(1, UPDATES + 1):
        fragments = collector.collect(2)  # one of each worker, by the newest agent
        learn(agent, optimizer, joined(fragments))
        collector.update(agent)
        returns += [length for f in fragments for length in f.episode_lengths]
        if update % 8 == 0:
            print(f"update {update}: {np.mean(returns[-20:]):.0f} steps an episode")
    collector.close()
    rate = collector.counts.env_steps / (time.perf_counter() - start)
    print(f"{rate:,.0f} env steps/s, learning included")
