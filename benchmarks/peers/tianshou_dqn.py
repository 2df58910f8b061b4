"""Tianshou's DQN with prioritised replay under the rule: its own trainer, a short epoch at a time.

For vectors and discrete actions. ε falls by a constant factor a step, as in its examples.
"""

from typing import Any

import gymnasium
import numpy as np
import torch
from rule import asked
from tianshou.algorithm import DQN
from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Collector, PrioritizedVectorReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.trainer import OffPolicyTrainerParams
from tianshou.utils.net.common import Net

torch.set_num_threads(1)
seed, watch, s = asked()
np.random.seed(seed)
torch.manual_seed(seed)
space, actions = watch.envs[0].observation_space, watch.envs[0].action_space
hidden = [s["hidden_size"]] * s["hidden_layers"]
heads = {"hidden_sizes": hidden}
net = Net(
    state_shape=space.shape,
    action_shape=actions.n,
    hidden_sizes=hidden,
    dueling_param=(heads, heads) if s["dueling"] else None,
)
policy = DiscreteQLearningPolicy(
    model=net, action_space=actions, observation_space=space, eps_training=s["epsilon"]
)
algorithm = DQN(
    policy=policy,
    optim=AdamOptimizerFactory(lr=s["learning_rate"]),
    gamma=s["gamma"],
    n_step_return_horizon=s["n_step"],
    target_update_freq=s["target_every"],
)
envs = DummyVectorEnv([lambda: gymnasium.make(watch.rule.env_id)] * s["num_envs"])
envs.seed(seed)
replay = PrioritizedVectorReplayBuffer(
    s["replay_size"],
    s["num_envs"],
    alpha=s["priority_exponent"],
    beta=s["importance_exponent"],
)
collector = Collector(algorithm, envs, replay, exploration_noise=True)
collector.reset()
collector.collect(n_step=s["learn_after"])


def explore(_epoch: int, env_step: int) -> None:
    policy.set_eps_training(max(s["epsilon"] * s["epsilon_decay"] ** env_step, s["epsilon_end"]))


trainer = algorithm.create_trainer(
    OffPolicyTrainerParams(
        training_collector=collector,
        max_epochs=s["total_steps"] // s["epoch_steps"] + 1,
        epoch_num_steps=s["epoch_steps"],
        collection_step_num_env_steps=s["fragment_steps"] * s["num_envs"],
        batch_size=s["batch_size"],
        update_step_num_gradient_steps_per_sample=s["updates_per_step"],
        training_fn=explore,
        show_progress=False,
    )
)
trainer.reset()


def greedy(obs: Any) -> Any:
    with torch.no_grad():
        return net(obs)[0].argmax(1).numpy()


env_steps = 0
watch.start()
while not watch.over:
    trainer.execute_epoch()
    env_steps += s["epoch_steps"]
    watch.judge(env_steps, greedy)
watch.report()
