"""Stable-Baselines3's DQN under the rule, with the settings of its zoo, by its own names."""

from typing import Any

import torch
from rule import asked
from stable_baselines3 import DQN
from stable_baselines3.common.callbacks import BaseCallback


class Judge(BaseCallback):
    """Looks at the policy whenever updates have ended, which is when a rollout begins."""

    def _on_training_start(self) -> None:
        watch.start()

    def _on_rollout_start(self) -> None:
        if self.num_timesteps and not watch.over:
            watch.judge(self.num_timesteps, greedy)

    def _on_step(self) -> bool:
        return not watch.over

    def _on_training_end(self) -> None:
        if not watch.over:
            watch.judge(self.num_timesteps, greedy)


def greedy(obs: Any) -> Any:
    return model.predict(obs, deterministic=True)[0]


torch.set_num_threads(1)
seed, watch, s = asked()
own = dict(s["sb3"])
model = DQN(
    "MlpPolicy",
    watch.rule.env_id,
    policy_kwargs={"net_arch": list(own.pop("net_arch"))},
    seed=seed,
    device="cpu",
    **own,
)
model.learn(s["total_steps"], callback=Judge())
watch.report()
