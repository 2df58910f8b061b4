"""DQN of Tianshou, put together by hand; the env waits for a simulator at each step."""

import argparse
import time

import gymnasium as gym
from tianshou.algorithm import DQN
from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Collector, VectorReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.trainer import OffPolicyTrainerParams
from tianshou.utils.net.common import Net

EPOCH = 1_000


class Remote(gym.Wrapper):
    """CartPole as if it ran elsewhere."""

    def step(self, action):
        time.sleep(0.001)
        return self.env.step(action)


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("steps", type=int, nargs="?", default=1_000_000, help="env steps")
    options.add_argument("--fix", action="store_true", help="do not wait")
    chosen = options.parse_args()

    def make():
        env = gym.make("CartPole-v1")
        return env if chosen.fix else Remote(env)

    envs = DummyVectorEnv([make for _ in range(4)])
    envs.seed(1)
    space = make()
    policy = DiscreteQLearningPolicy(
        model=Net(state_shape=(4,), action_shape=2, hidden_sizes=[64, 64]),
        action_space=space.action_space,
        observation_space=space.observation_space,
        eps_training=0.1,
    )
    algorithm = DQN(policy=policy, optim=AdamOptimizerFactory(lr=1e-3), target_update_freq=300)
    buffer = VectorReplayBuffer(20_000, buffer_num=4)
    collector = Collector(algorithm, envs, buffer, exploration_noise=True)
    collector.reset()
    collector.collect(n_step=200)
    training = OffPolicyTrainerParams(
        training_collector=collector,
        max_epochs=max(1, chosen.steps // EPOCH),
        epoch_num_steps=EPOCH,
        collection_step_num_env_steps=20,
        update_step_num_gradient_steps_per_sample=0.2,
        batch_size=64,
        show_progress=False,
    )
    algorithm.run_training(training)


if __name__ == "__main__":
    main()
