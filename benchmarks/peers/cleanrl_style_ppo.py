"""A PPO in the single-file style that many start from, under the rule.

Written for this comparison: plain torch modules, `torch.distributions`, Gymnasium's own
SyncVectorEnv, one Python loop, for vectors and discrete actions. The settings have hotloop's names.
As is usual in that style, a truncated episode counts as terminated.
"""

from functools import partial

import gymnasium
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from rule import asked
from torch import nn
from torch.distributions import Categorical

seed, watch, s = asked()
EPOCHS, LAMBDA, LEARNING_RATE, CLIP = s["epochs"], s["gae_lambda"], s["learning_rate"], s["clip"]
NUM_ENVS, NUM_STEPS, HIDDEN = s["num_envs"], s["fragment_steps"], s["hidden_size"]
BATCH = NUM_ENVS * NUM_STEPS
MINIBATCH = BATCH // s["minibatches"]
GAMMA, VALUE_WEIGHT, MAX_GRAD_NORM = s["gamma"], s["value_weight"], s["max_grad_norm"]
ENTROPY_WEIGHT = s["entropy_weight"]


def make_env():
    return gymnasium.wrappers.RecordEpisodeStatistics(gymnasium.make(watch.rule.env_id))


def layer(inputs, outputs, gain=2**0.5):
    linear = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(linear.weight, gain)
    nn.init.zeros_(linear.bias)
    return linear


def perceptron(inputs, outputs, gain):
    return nn.Sequential(
        layer(inputs, HIDDEN),
        nn.Tanh(),
        layer(HIDDEN, HIDDEN),
        nn.Tanh(),
        layer(HIDDEN, outputs, gain),
    )


class Agent(nn.Module):
    def __init__(self, inputs, actions):
        super().__init__()
        self.actor = perceptron(inputs, actions, 0.01)
        self.critic = perceptron(inputs, 1, 1.0)

    def act_and_value(self, obs, action=None):
        distribution = Categorical(logits=self.actor(obs))
        if action is None:
            action = distribution.sample()
        log_prob, entropy = distribution.log_prob(action), distribution.entropy()
        return action, log_prob, entropy, self.critic(obs).squeeze(-1)


def greedy(agent, obs):
    with torch.no_grad():
        return agent.actor(torch.as_tensor(obs)).argmax(1).numpy()


torch.set_num_threads(1)
np.random.seed(seed)
torch.manual_seed(seed)
envs = SyncVectorEnv([make_env] * NUM_ENVS, autoreset_mode=AutoresetMode.SAME_STEP)
inputs, actions = envs.single_observation_space.shape[0], int(envs.single_action_space.n)
agent = Agent(inputs, actions)
optimizer = torch.optim.Adam(agent.parameters(), lr=LEARNING_RATE, eps=1e-5)
obs_buffer = torch.zeros(NUM_STEPS, NUM_ENVS, inputs)
action_buffer = torch.zeros(NUM_STEPS, NUM_ENVS, dtype=torch.long)
log_prob_buffer, reward_buffer, done_buffer, value_buffer = (
    torch.zeros(NUM_STEPS, NUM_ENVS) for _ in range(4)
)
watch.start()
env_steps = 0
next_obs = torch.as_tensor(envs.reset(seed=seed)[0])
next_done = torch.zeros(NUM_ENVS)
while not watch.over:
    left = 1 - env_steps / s["total_steps"] if s["anneal"] else 1
    optimizer.param_groups[0]["lr"] = left * LEARNING_RATE
    for step in range(NUM_STEPS):
        env_steps += NUM_ENVS
        obs_buffer[step], done_buffer[step] = next_obs, next_done
        with torch.no_grad():
            action, log_prob, _, value = agent.act_and_value(next_obs)
        action_buffer[step], log_prob_buffer[step], value_buffer[step] = action, log_prob, value
        obs, reward, terminated, truncated, _ = envs.step(action.numpy())
        reward_buffer[step] = torch.as_tensor(reward)
        next_obs = torch.as_tensor(obs)
        next_done = torch.as_tensor(terminated | truncated, dtype=torch.float32)

    with torch.no_grad():
        next_value = agent.critic(next_obs).squeeze(-1)
        advantage_buffer, trace = torch.zeros_like(reward_buffer), torch.zeros(NUM_ENVS)
        for t in reversed(range(NUM_STEPS)):
            last = t == NUM_STEPS - 1
            going_on = 1 - (next_done if last else done_buffer[t + 1])
            following = next_value if last else value_buffer[t + 1]
            delta = reward_buffer[t] + GAMMA * following * going_on - value_buffer[t]
            advantage_buffer[t] = trace = delta + GAMMA * LAMBDA * going_on * trace
        return_buffer = advantage_buffer + value_buffer

    flat_obs, flat_action = obs_buffer.reshape(BATCH, -1), action_buffer.reshape(-1)
    flat_log_prob, flat_return = log_prob_buffer.reshape(-1), return_buffer.reshape(-1)
    flat_advantage = advantage_buffer.reshape(-1)
    for _ in range(EPOCHS):
        for index in torch.randperm(BATCH).split(MINIBATCH):
            _, log_prob, entropy, value = agent.act_and_value(flat_obs[index], flat_action[index])
            ratio = (log_prob - flat_log_prob[index]).exp()
            advantage = flat_advantage[index]
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
            bound = left * CLIP
            policy_loss = -torch.min(
                advantage * ratio, advantage * ratio.clamp(1 - bound, 1 + bound)
            ).mean()
            value_loss = (value - flat_return[index]).square().mean()
            loss = policy_loss + VALUE_WEIGHT * value_loss - ENTROPY_WEIGHT * entropy.mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), MAX_GRAD_NORM)
            optimizer.step()
    watch.judge(env_steps, partial(greedy, agent))
watch.report()
