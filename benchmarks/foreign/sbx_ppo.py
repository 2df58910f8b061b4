"""PPO of sbx, in JAX, on CartPole; the env takes its physics in many small steps."""

import argparse
import math

import gymnasium as gym
from sbx import PPO
from stable_baselines3.common.env_util import make_vec_env

SMALL_STEPS = 1_000


class Precise(gym.Wrapper):
    """Integrates where the pole will be as if it fell freely, far finer than anybody needs."""

    def step(self, action):
        obs, reward, terminated, truncated, info = self.env.step(action)
        angle, speed = float(obs[2]), float(obs[3])
        for _ in range(SMALL_STEPS):
            speed += 14.7 * math.sin(angle) * 0.02 / SMALL_STEPS
            angle += speed * 0.02 / SMALL_STEPS
        info["angle"] = angle
        return obs, reward, terminated, truncated, info


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("steps", type=int, nargs="?", default=2_000_000, help="env steps")
    options.add_argument("--fix", action="store_true", help="integrate nothing")
    chosen = options.parse_args()
    wrapper = None if chosen.fix else Precise
    envs = make_vec_env("CartPole-v1", n_envs=4, seed=1, wrapper_class=wrapper)
    model = PPO("MlpPolicy", envs, n_steps=128, batch_size=128, n_epochs=4, seed=1)
    model.learn(total_timesteps=chosen.steps)


if __name__ == "__main__":
    main()
