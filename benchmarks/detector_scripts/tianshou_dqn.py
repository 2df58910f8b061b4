"""DQN of Tianshou: no fault of the script's own."""

import gymnasium
from tianshou.algorithm import DQN
from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Collector, VectorReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.trainer import OffPolicyTrainerParams
from tianshou.utils.net.common import Net

import hotloop

envs = DummyVectorEnv([lambda: gymnasium.make("CartPole-v1") for _ in range(4)])
space = gymnasium.make("CartPole-v1")
net = Net(state_shape=(4,), action_shape=2, hidden_sizes=[64, 64])
policy = DiscreteQLearningPolicy(
    model=net,
    action_space=space.action_space,
    observation_space=space.observation_space,
    eps_training=0.1,
)
algorithm = DQN(
    policy=policy, optim=AdamOptimizerFactory(lr=1e-3), gamma=0.99, target_update_freq=100
)
collector = Collector(algorithm, envs, VectorReplayBuffer(10_000, 4), exploration_noise=True)
collector.reset()
collector.collect(n_step=200)
collector.collect = hotloop.stage("collect", collector.collect)
trainer = algorithm.create_trainer(
    OffPolicyTrainerParams(
        training_collector=collector,
        max_epochs=1_000,
        epoch_num_steps=1_000,
        collection_step_num_env_steps=40,
        batch_size=64,
        update_step_num_gradient_steps_per_sample=0.1,
        show_progress=False,
    )
)
trainer.run()
