"""You will see TorchRL's PPO learn CartPole from worker processes: the episodes get longer.

    python examples/21_torchrl.py

Nothing of TorchRL is changed: its loss takes what `ActorCollector` brings from two workers.
"""

import warnings
from functools import partial

import torch
from tensordict.nn import TensorDictModule
from torch import nn
from torch.distributions import Categorical
from torchrl.modules import ProbabilisticActor, ValueOperator
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE

from hotloop.envs import make_vec
from hotloop.integrations.torchrl import ActorCollector

STEPS, ENVS, UPDATES = 64, 8, 30


def net(outputs):
    return nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, outputs))


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # TorchRL announces its changes
    torch.manual_seed(0)
    torch.set_num_threads(1)
    logits = TensorDictModule(net(2), in_keys=["observation"], out_keys=["logits"])
    policy = ProbabilisticActor(
        logits, in_keys=["logits"], distribution_class=Categorical, return_log_prob=True
    )
    value = ValueOperator(net(1), in_keys=["observation"])
    advantage = GAE(gamma=0.98, lmbda=0.95, value_network=value)
    loss = ClipPPOLoss(policy, value, entropy_coeff=0.01)
    optimiser = torch.optim.Adam(loss.parameters(), lr=3e-3)
    make_envs = partial(make_vec, "CartPole-v1", ENVS, backend="serial", autoreset_mode="same_step")
    frames, total = 2 * ENVS * STEPS, UPDATES * 2 * ENVS * STEPS  # a fragment of each worker
    collector = ActorCollector(
        make_envs, policy, fragment_steps=STEPS, frames_per_batch=frames, total_frames=total
    )
    for update, batch in enumerate(collector, 1):
        with torch.no_grad():
            advantage(batch)
        for _ in range(6):
            for rows in torch.randperm(frames).split(256):
                parts = loss(batch.reshape(-1)[rows])
                optimiser.zero_grad()
                sum(parts[f"loss_{name}"] for name in ("objective", "critic", "entropy")).backward()
                optimiser.step()
        collector.update_policy_weights_()
        if update % 6 == 0:
            episodes = max(1, int(batch["next", "done"].sum()))
            print(f"update {update}: {frames / episodes:.0f} steps an episode")
    collector.shutdown()
