"""PPO by the high-level interface of Tianshou; the env solves equations that nobody needs."""

import argparse

import gymnasium as gym
import numpy as np
from tianshou.highlevel.config import OnPolicyTrainingConfig
from tianshou.highlevel.env import EnvFactoryRegistered, VectorEnvType
from tianshou.highlevel.experiment import ExperimentConfig, PPOExperimentBuilder
from tianshou.highlevel.params.algorithm_params import PPOParams

EPOCH = 2_048


class Solved(gym.Wrapper):
    """Adds to each step how a plate would bend under the cart."""

    def step(self, action):
        obs, reward, terminated, truncated, info = self.env.step(action)
        stiffness = 3 * np.eye(100) - np.eye(100, k=1) - np.eye(100, k=-1)
        info["bending"] = np.linalg.solve(stiffness, np.full(100, obs[0])).max()
        return obs, reward, terminated, truncated, info


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("steps", type=int, nargs="?", default=2_000_000, help="env steps")
    options.add_argument("--fix", action="store_true", help="solve nothing")
    chosen = options.parse_args()
    gym.register(
        "Solved-v0", lambda **_: Solved(gym.make("CartPole-v1").unwrapped), max_episode_steps=500
    )
    experiment = (
        PPOExperimentBuilder(
            EnvFactoryRegistered(
                task="CartPole-v1" if chosen.fix else "Solved-v0", venv_type=VectorEnvType.DUMMY
            ),
            ExperimentConfig(seed=1, device="cpu", watch=False, persistence_enabled=False),
            OnPolicyTrainingConfig(
                max_epochs=max(1, chosen.steps // EPOCH),
                epoch_num_steps=EPOCH,
                num_training_envs=8,
                test_step_num_episodes=1,
                collection_step_num_env_steps=1_024,
                update_step_num_repetitions=4,
                batch_size=128,
                buffer_size=1_024,
            ),
        )
        .with_ppo_params(PPOParams(lr=3e-4))
        .with_actor_factory_default(hidden_sizes=(64, 64))
        .with_critic_factory_default(hidden_sizes=(64, 64))
        .build()
    )
    experiment.run()


if __name__ == "__main__":
    main()
