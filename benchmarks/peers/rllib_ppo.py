"""RLlib's PPO under the rule, with envs and learner in one process.

For vectors and discrete actions. The settings have hotloop's names. RLlib has no schedule for the
clip: where settings fall, only the learning rate does.
"""

import contextlib
import os
import sys
from typing import Any

import ray
import torch
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from rule import asked

torch.set_num_threads(1)
seed, watch, s = asked()
batch = s["num_envs"] * s["fragment_steps"]
rate = s["learning_rate"]
# A Ray of its own: the default may join another one that runs on this machine.
ray.init(address="local", include_dashboard=False, logging_level="ERROR", log_to_driver=False)
config = (
    PPOConfig()
    .environment(watch.rule.env_id)
    .env_runners(
        num_env_runners=0,
        num_envs_per_env_runner=s["num_envs"],
        rollout_fragment_length=s["fragment_steps"],
    )
    .learners(num_learners=0)
    .training(
        train_batch_size_per_learner=batch,
        minibatch_size=batch // s["minibatches"],
        num_epochs=s["epochs"],
        gamma=s["gamma"],
        lambda_=s["gae_lambda"],
        clip_param=s["clip"],
        lr=[[0, rate], [s["total_steps"], 0.0]] if s["anneal"] else rate,
        entropy_coeff=s["entropy_weight"],
        vf_loss_coeff=s["value_weight"],
        vf_clip_param=float("inf"),
        grad_clip=s["max_grad_norm"],
        use_kl_loss=False,
    )
    .rl_module(
        model_config=DefaultModelConfig(
            fcnet_hiddens=[s["hidden_size"]] * s["hidden_layers"],
            fcnet_activation="tanh",
            vf_share_layers=False,
        )
    )
    .debugging(seed=seed, log_level="ERROR")
)
with contextlib.redirect_stdout(sys.stderr):
    algorithm = config.build_algo()


def greedy(obs: Any) -> Any:
    with torch.no_grad():
        outputs = algorithm.get_module().forward_inference({"obs": torch.as_tensor(obs)})
    return outputs["action_dist_inputs"].argmax(1).numpy()


watch.start()
while not watch.over:
    result = algorithm.train()
    watch.judge(int(result["num_env_steps_sampled_lifetime"]), greedy)
watch.report()
sys.stdout.flush()
os._exit(0)  # Ray's processes end with this one, quicker than by asking each
