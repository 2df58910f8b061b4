"""You will see PPO, written in one file as CleanRL writes it, learn CartPole from worker processes.

    python examples/20_cleanrl_style.py

The steps come from workers that hold copies of the agent, the advantages from `hotloop.ops`.
"""

from functools import partial

import torch
from torch import nn
from torch.distributions import Categorical

from hotloop import make_vec, ops
from hotloop.rollout import FragmentCollector


class Agent(nn.Module):
    """An actor, which the workers call, and a critic."""

    def __init__(self):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 2))
        self.critic = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 1), nn.Flatten(-2))
        self.seed = torch.manual_seed  # is called in each worker; else all would draw the same

    def __call__(self, obs):
        dist = Categorical(logits=self.actor(torch.as_tensor(obs)).detach())
        action = dist.sample()
        return action.numpy(), {"log_prob": dist.log_prob(action).numpy()}


def learn(agent, optimizer, f):
    v, next_v = (agent.critic(torch.as_tensor(x)).detach().numpy() for x in (f.obs, f.all_next_obs))
    adv, ret = ops.gae(f.reward, v, next_v, f.terminated, f.truncated, gamma=0.98, lambda_=0.95)
    arrays = f.obs, f.action, f.extras["log_prob"], ops.normalise_advantages(adv), ret
    obs, action, log_prob, adv, ret = (torch.as_tensor(x).flatten(0, 1) for x in arrays)
    for mb in torch.cat([torch.randperm(len(obs)) for _ in range(6)]).split(128):
        dist = Categorical(logits=agent.actor(obs[mb]))
        ratio = (dist.log_prob(action[mb]) - log_prob[mb]).exp()
        pg_loss = torch.max(-adv[mb] * ratio, -adv[mb] * ratio.clamp(0.8, 1.2)).mean()
        v_loss = 0.5 * (agent.critic(obs[mb]) - ret[mb]).square().mean()
        optimizer.zero_grad()
        (pg_loss - 0.01 * dist.entropy().mean() + 0.5 * v_loss).backward()
        nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
        optimizer.step()


if __name__ == "__main__":
    agent = Agent()
    optimizer = torch.optim.Adam(agent.parameters(), lr=3e-3, eps=1e-5)
    envs = partial(make_vec, "CartPole-v1", 8, backend="serial", autoreset_mode="same_step")
    with FragmentCollector(envs, agent, fragment_steps=64, work_ahead=False) as collector:
        for update in range(1, 81):
            (fragment,) = collector.collect(1)  # [T, B], of one of the workers
            learn(agent, optimizer, fragment)
            collector.update(agent)
            if update % 16 == 0:
                print(f"update {update}: {fragment.terminated.sum()} falls in 512 steps")
