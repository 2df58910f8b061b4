"""Tianshou's PPO under the rule: its own trainer, an epoch for every fragment of all envs.

For vectors and discrete actions. The settings have hotloop's names. Tianshou's trainer has no
schedule for the clip: where settings fall, only the learning rate does.
"""

from typing import Any

import gymnasium
import numpy as np
import torch
from rule import asked
from tianshou.algorithm import PPO
from tianshou.algorithm.modelfree.reinforce import DiscreteActorPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory, LRSchedulerFactoryLinear
from tianshou.data import Collector, VectorReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.trainer import OnPolicyTrainerParams
from tianshou.utils.net.common import Net
from tianshou.utils.net.discrete import DiscreteActor, DiscreteCritic
from torch import nn

torch.set_num_threads(1)
seed, watch, s = asked()
np.random.seed(seed)
torch.manual_seed(seed)
batch = s["num_envs"] * s["fragment_steps"]
space, actions = watch.envs[0].observation_space, watch.envs[0].action_space
hidden = [s["hidden_size"]] * s["hidden_layers"]


def body() -> Net:
    return Net(state_shape=space.shape, hidden_sizes=hidden, activation=nn.Tanh)


actor = DiscreteActor(preprocess_net=body(), action_shape=actions.n, softmax_output=False)
critic = DiscreteCritic(preprocess_net=body())
for module in (actor, critic):
    for part in module.modules():
        if isinstance(part, nn.Linear):
            nn.init.orthogonal_(part.weight, 2**0.5)
            nn.init.zeros_(part.bias)
with torch.no_grad():
    last = [part for part in actor.modules() if isinstance(part, nn.Linear)][-1]
    last.weight.mul_(0.01 / 2**0.5)

optimiser = AdamOptimizerFactory(lr=s["learning_rate"], eps=1e-5)
if s["anneal"]:
    optimiser.with_lr_scheduler_factory(
        LRSchedulerFactoryLinear(
            max_epochs=s["total_steps"] // batch,
            epoch_num_steps=batch,
            collection_step_num_env_steps=batch,
        )
    )
algorithm = PPO(
    policy=DiscreteActorPolicy(
        actor=actor,
        dist_fn=lambda logits: torch.distributions.Categorical(logits=logits),
        action_space=actions,
    ),
    critic=critic,
    optim=optimiser,
    eps_clip=s["clip"],
    vf_coef=s["value_weight"],
    ent_coef=s["entropy_weight"],
    max_grad_norm=s["max_grad_norm"],
    gae_lambda=s["gae_lambda"],
    gamma=s["gamma"],
)
envs = DummyVectorEnv([lambda: gymnasium.make(watch.rule.env_id)] * s["num_envs"])
envs.seed(seed)
collector = Collector(algorithm, envs, VectorReplayBuffer(batch, s["num_envs"]))
trainer = algorithm.create_trainer(
    OnPolicyTrainerParams(
        training_collector=collector,
        max_epochs=s["total_steps"] // batch + 1,
        epoch_num_steps=batch,
        collection_step_num_env_steps=batch,
        batch_size=batch // s["minibatches"],
        update_step_num_repetitions=s["epochs"],
        show_progress=False,
    )
)
trainer.reset()


def greedy(obs: Any) -> Any:
    with torch.no_grad():
        return actor(obs)[0].argmax(1).numpy()


env_steps = 0
watch.start()
while not watch.over:
    trainer.execute_epoch()
    env_steps += batch
    watch.judge(env_steps, greedy)
watch.report()
