"""PPO of Stable-Baselines3 on CartPole; each env step draws a picture that nobody looks at."""

import argparse

import gymnasium as gym
import numpy as np
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env

SIDE = 96


class Pictures(gym.Wrapper):
    """Draws the cart and the pole after each step, for a film that is never made."""

    def step(self, action):
        obs, reward, terminated, truncated, info = self.env.step(action)
        rows, columns = np.mgrid[0:SIDE, 0:SIDE] / SIDE - 0.5
        pole = np.abs((columns - obs[0] / 5) * np.cos(obs[2]) - rows * np.sin(obs[2]))
        info["picture"] = np.exp(-((40 * pole) ** 2)).astype(np.float32)
        return obs, reward, terminated, truncated, info


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("steps", type=int, nargs="?", default=2_000_000, help="env steps")
    options.add_argument("--fix", action="store_true", help="draw no pictures")
    chosen = options.parse_args()
    wrapper = None if chosen.fix else Pictures
    envs = make_vec_env("CartPole-v1", n_envs=4, seed=1, wrapper_class=wrapper)
    model = PPO("MlpPolicy", envs, n_steps=128, batch_size=128, n_epochs=4, seed=1, device="cpu")
    model.learn(total_timesteps=chosen.steps)
    print("episodes end after", np.mean([each["l"] for each in model.ep_info_buffer]), "steps")


if __name__ == "__main__":
    main()
