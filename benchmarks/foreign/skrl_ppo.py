"""PPO of skrl on CartPole; it saves a checkpoint every few steps."""

import argparse
import logging
import tempfile

import gymnasium as gym
import torch
from skrl.agents.torch.ppo import PPO, PPO_CFG
from skrl.envs.wrappers.torch import wrap_env
from skrl.memories.torch import RandomMemory
from skrl.models.torch import CategoricalMixin, DeterministicMixin, Model
from skrl.trainers.torch import SequentialTrainer
from torch import nn

ENVS, ROLLOUT = 4, 64


def layers(outputs):
    return nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, outputs))


class Policy(CategoricalMixin, Model):
    def __init__(self, **spaces):
        Model.__init__(self, **spaces)
        CategoricalMixin.__init__(self)
        self.net = layers(2)

    def compute(self, inputs, role):  # noqa: ARG002
        return self.net(inputs["observations"]), {}


class Value(DeterministicMixin, Model):
    def __init__(self, **spaces):
        Model.__init__(self, **spaces)
        DeterministicMixin.__init__(self)
        self.net = layers(1)

    def compute(self, inputs, role):  # noqa: ARG002
        return self.net(inputs["observations"]), {}


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("steps", type=int, nargs="?", default=1_000_000, help="env steps")
    options.add_argument("--fix", action="store_true", help="save nothing on the way")
    chosen = options.parse_args()
    logging.getLogger("skrl").setLevel(logging.WARNING)
    torch.manual_seed(1)
    env = wrap_env(gym.vector.SyncVectorEnv([lambda: gym.make("CartPole-v1")] * ENVS))
    spaces = {"observation_space": env.observation_space, "action_space": env.action_space}
    models = {
        "policy": Policy(device="cpu", **spaces),
        "value": Value(device="cpu", **spaces),
    }
    settings = PPO_CFG(rollouts=ROLLOUT, learning_epochs=4, mini_batches=4)
    with tempfile.TemporaryDirectory() as folder:
        settings.experiment.directory = folder
        settings.experiment.write_interval = 0
        settings.experiment.checkpoint_interval = 0 if chosen.fix else 2
        agent = PPO(
            models=models,
            memory=RandomMemory(memory_size=ROLLOUT, num_envs=ENVS, device="cpu"),
            cfg=settings,
            device="cpu",
            **spaces,
        )
        training = {"timesteps": chosen.steps // ENVS, "headless": True}
        training["disable_progressbar"] = True
        SequentialTrainer(cfg=training, env=env, agents=agent).train()


if __name__ == "__main__":
    main()
