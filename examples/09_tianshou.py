"""You will see Tianshou's PPO learn to balance a pole: the episodes of each epoch get longer.

    python examples/09_tianshou.py
    hotloop benchmark examples/09_tianshou.py --seconds 30

Nothing of Tianshou is changed. Its envs are made by `SubprocVectorEnv` of hotloop, many to a
process, and its buffer is filled by a `FragmentCollector`, one fragment at a time.
"""

import gymnasium
import torch
from tianshou.algorithm import PPO
from tianshou.algorithm.modelfree.reinforce import DiscreteActorPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import VectorReplayBuffer
from tianshou.trainer import OnPolicyTrainerParams
from tianshou.utils.net.common import Net
from tianshou.utils.net.discrete import DiscreteActor, DiscreteCritic

import hotloop
from hotloop.integrations.tianshou import FragmentCollector, SubprocVectorEnv

ENVS, STEPS, EPOCHS = 16, 64, 24


torch.manual_seed(0)
torch.set_num_threads(1)
body = Net(state_shape=4, hidden_sizes=[64, 64])
algorithm = PPO(
    policy=DiscreteActorPolicy(
        actor=DiscreteActor(preprocess_net=body, action_shape=2),
        action_space=gymnasium.spaces.Discrete(2),
    ),
    critic=DiscreteCritic(preprocess_net=body),
    max_grad_norm=0.5,
    optim=AdamOptimizerFactory(lr=3e-3),
)
envs = SubprocVectorEnv([lambda: gymnasium.make("CartPole-v1")] * ENVS)
envs.seed(0)
collector = FragmentCollector(algorithm, envs, VectorReplayBuffer(ENVS * STEPS, ENVS))
trainer = algorithm.create_trainer(
    OnPolicyTrainerParams(
        training_collector=collector,
        max_epochs=EPOCHS,
        epoch_num_steps=ENVS * STEPS,
        collection_step_num_env_steps=ENVS * STEPS,
        batch_size=256,
        update_step_num_repetitions=6,
        show_progress=False,
    )
)
trainer.reset()
counted = 0
for epoch in hotloop.iterations(range(EPOCHS), unit="env steps", units=lambda _: ENVS * STEPS):
    trainer.execute_epoch()
    if epoch % 6 == 5:
        episodes, counted = collector.collect_episode - counted, collector.collect_episode
        print(f"epoch {epoch:2d}  steps of an episode {6 * ENVS * STEPS / max(episodes, 1):6.1f}")
envs.close()
