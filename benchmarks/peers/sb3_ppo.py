"""Stable-Baselines3's PPO under the rule, or that of sbx, which computes with JAX (`sbx`).

The settings have hotloop's names. Normalised values are rewards that VecNormalize scales here.
"""

import sys
from typing import Any

import torch
from rule import asked
from sb3_judge import Judge
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize

if sys.argv[2:] == ["sbx"]:
    from sbx import PPO
else:
    from stable_baselines3 import PPO


def greedy(obs: Any) -> Any:
    seen = envs.normalize_obs(obs) if isinstance(envs, VecNormalize) else obs
    return model.predict(seen, deterministic=True)[0]


def falling(start: float) -> Any:
    return (lambda left: start * left) if s["anneal"] else start


torch.set_num_threads(1)
seed, watch, s = asked()
images = len(watch.envs[0].observation_space.shape) == 3
envs: Any = make_vec_env(watch.rule.env_id, n_envs=s["num_envs"], seed=seed)
if s["normalise_observations"] or s["normalise_values"]:
    envs = VecNormalize(
        envs,
        norm_obs=s["normalise_observations"],
        norm_reward=s["normalise_values"],
        gamma=s["gamma"],
    )
own = dict(s.get("sb3", {}))
network = {} if images else {"net_arch": [s["hidden_size"]] * s["hidden_layers"]}
if "activation" in own:
    network["activation_fn"] = getattr(torch.nn, own.pop("activation"))
for name in ("log_std_init", "ortho_init"):
    if name in own:
        network[name] = own.pop(name)
model = PPO(
    "CnnPolicy" if images else "MlpPolicy",
    envs,
    n_steps=s["fragment_steps"],
    batch_size=s["num_envs"] * s["fragment_steps"] // s["minibatches"],
    n_epochs=s["epochs"],
    gamma=s["gamma"],
    gae_lambda=s["gae_lambda"],
    ent_coef=s["entropy_weight"],
    vf_coef=s["value_weight"],
    max_grad_norm=s["max_grad_norm"],
    learning_rate=falling(s["learning_rate"]),
    clip_range=falling(s["clip"]),
    policy_kwargs=network,
    seed=seed,
    device="cpu",
    **own,
)
model.learn(s["total_steps"], callback=Judge(watch, greedy))
watch.report()
