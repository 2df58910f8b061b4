"""PPO of TorchRL on CartPole, with a collector and a trainer; the env looks far ahead in vain."""

import argparse
import copy

import gymnasium as gym
import torch
from tensordict.nn import TensorDictModule
from torch import nn
from torch.distributions import Categorical
from torchrl.collectors import Collector
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
from torchrl.data.replay_buffers.samplers import SamplerWithoutReplacement
from torchrl.envs import GymWrapper
from torchrl.modules import ProbabilisticActor, ValueOperator
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE
from torchrl.trainers import ReplayBufferTrainer, Trainer

FRAMES, BATCH, AHEAD = 512, 64, 60


class Ahead(gym.Wrapper):
    """Plays on with a copy of the env after each step, and says how long that went well."""

    def step(self, action):
        obs, reward, terminated, truncated, info = self.env.step(action)
        copied, well = copy.deepcopy(self.env.unwrapped), 0
        while not terminated and well < AHEAD and abs(copied.state[2]) < 1:
            copied.steps_beyond_terminated = None
            copied.step(well % 2)
            well += 1
        info["well"] = well
        return obs, reward, terminated, truncated, info


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("steps", type=int, nargs="?", default=1_000_000, help="env steps")
    options.add_argument("--fix", action="store_true", help="do not look ahead")
    chosen = options.parse_args()
    torch.manual_seed(1)
    env = gym.make("CartPole-v1")
    env = GymWrapper(env if chosen.fix else Ahead(env), categorical_action_encoding=True)
    actor = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 2))
    policy = ProbabilisticActor(
        TensorDictModule(actor, in_keys=["observation"], out_keys=["logits"]),
        in_keys=["logits"],
        distribution_class=Categorical,
        return_log_prob=True,
    )
    critic = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 1))
    value = ValueOperator(critic, in_keys=["observation"])
    loss = ClipPPOLoss(policy, value)
    advantage = GAE(gamma=0.99, lmbda=0.95, value_network=value)
    buffer = TensorDictReplayBuffer(
        storage=LazyTensorStorage(FRAMES), sampler=SamplerWithoutReplacement(), batch_size=BATCH
    )
    trainer = Trainer(
        collector=Collector(env, policy, frames_per_batch=FRAMES, total_frames=chosen.steps),
        total_frames=chosen.steps,
        frame_skip=1,
        optim_steps_per_batch=4 * FRAMES // BATCH,
        loss_module=loss,
        optimizer=torch.optim.Adam(loss.parameters(), lr=3e-4),
        clip_norm=1.0,
        progress_bar=False,
    )
    trainer.register_op("batch_process", advantage)
    ReplayBufferTrainer(buffer, flatten_tensordicts=True).register(trainer)
    trainer.train()


if __name__ == "__main__":
    main()
