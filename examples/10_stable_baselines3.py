"""You will see PPO of Stable-Baselines3 learn to balance a pole: the mean return rises.

    python examples/10_stable_baselines3.py
    hotloop benchmark examples/10_stable_baselines3.py --seconds 15

Nothing of Stable-Baselines3 is changed: its `make_vec_env` takes the class of the vector env, and
hotloop's holds many envs in each process. The same class goes into its wrappers.
"""

import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env

import hotloop
from hotloop.integrations.stable_baselines3 import SubprocVecEnv

ENVS, STEPS, UPDATES = 16, 64, 25

torch.set_num_threads(1)
envs = make_vec_env("CartPole-v1", n_envs=ENVS, seed=0, vec_env_cls=SubprocVecEnv)
model = PPO(
    "MlpPolicy",
    envs,
    n_steps=STEPS,
    batch_size=256,
    n_epochs=4,
    learning_rate=2e-3,
    seed=0,
    device="cpu",
)
for update in hotloop.iterations(range(UPDATES), unit="env steps", units=lambda _: ENVS * STEPS):
    model.learn(ENVS * STEPS, reset_num_timesteps=False)
    if update % 6 == 0:
        returns = [episode["r"] for episode in model.ep_info_buffer]
        print(f"update {update:2d}  mean return of the last 100 episodes {np.mean(returns):6.1f}")
envs.close()
