"""SAC of Stable-Baselines3 on Pendulum; the env waits at each step, as a device would."""

import argparse
import time

import gymnasium as gym
from stable_baselines3 import SAC


class Device(gym.Wrapper):
    """Waits until its sensors have been read."""

    def step(self, action):
        time.sleep(0.006)
        return self.env.step(action)


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("steps", type=int, nargs="?", default=500_000, help="env steps")
    options.add_argument("--fix", action="store_true", help="do not wait")
    chosen = options.parse_args()
    env = gym.make("Pendulum-v1")
    if not chosen.fix:
        env = Device(env)
    network = {"net_arch": [64, 64]}
    model = SAC(
        "MlpPolicy",
        env,
        batch_size=64,
        learning_starts=100,
        policy_kwargs=network,
        seed=1,
        device="cpu",
    )
    model.learn(chosen.steps)


if __name__ == "__main__":
    main()
