"""Stable-Baselines3's PPO with its zoo's settings for CartPole-v1, under the rule."""

import sys
from typing import Any

import torch
from rule import ENV_ID, Watch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env


class Judge(BaseCallback):
    """Looks at the policy whenever an update has ended, which is when a rollout begins."""

    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self.watch = watch

    def _on_training_start(self) -> None:
        self.watch.start()

    def _on_rollout_start(self) -> None:
        if self.num_timesteps and not self.watch.over:
            self.watch.judge(self.num_timesteps, self.greedy)

    def _on_step(self) -> bool:
        return not self.watch.over

    def greedy(self, obs: Any) -> Any:
        return self.model.predict(obs, deterministic=True)[0]


torch.set_num_threads(1)
seed = int(sys.argv[1])
model = PPO(
    "MlpPolicy",
    make_vec_env(ENV_ID, n_envs=8, seed=seed),
    n_steps=32,
    batch_size=256,
    n_epochs=20,
    gamma=0.98,
    gae_lambda=0.8,
    ent_coef=0.0,
    learning_rate=lambda left: 1e-3 * left,
    clip_range=lambda left: 0.2 * left,
    seed=seed,
    device="cpu",
)
watch = Watch()
model.learn(100_000, callback=Judge(watch))
watch.report()
