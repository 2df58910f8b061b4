"""Stable-Baselines3's DQN under the rule, with the settings of its zoo, by its own names."""

from typing import Any

import torch
from rule import asked
from sb3_judge import Judge
from stable_baselines3 import DQN


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
model.learn(s["total_steps"], callback=Judge(watch, greedy))
watch.report()
