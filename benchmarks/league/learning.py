"""Training with other people's libraries: torch and its DataLoader, Stable-Baselines3, Tianshou."""

import contextlib
import io
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from hotloop.loop import Loop, stage
from league.engines import prepared, run_in
from league.entry import Draws, Entry, Fixes, python_work

BATCH, BATCHES = 16, 20  # of an epoch: few, so that its start is a part of the time


class Samples:
    """A data set whose samples cost Python work, 16 pieces a batch."""

    def __init__(self, left: float) -> None:
        self.costly = round(BATCH * left)

    def __len__(self) -> int:
        return BATCH * BATCHES

    def __getitem__(self, k: int) -> np.ndarray:
        if k % BATCH < self.costly:
            python_work(1)
        return np.full(64, k, np.float32)


def _network(width: int, layers: int) -> Any:
    import torch

    hidden = [m for _ in range(layers) for m in (torch.nn.Linear(width, width), torch.nn.ReLU())]
    return torch.nn.Sequential(torch.nn.Linear(64, width), *hidden, torch.nn.Linear(width, 1))


@contextmanager
def loader(num_workers: int, fixes: Fixes, draws: Draws) -> Iterator[Loop]:
    """A DataLoader, its iterator made anew every 20 batches, and optimiser steps."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(draws.seed())
    source: Any = torch.utils.data.DataLoader(
        Samples(fixes["load"]),  # type: ignore[arg-type]
        batch_size=BATCH,
        num_workers=num_workers,
    )
    if not fixes["load"]:
        source = list(source)
    network = _network(128, 1)
    optimizer = torch.optim.SGD(network.parameters(), 1e-6)
    staged = stage("load", source, effect="pure")

    def fit(batch: torch.Tensor) -> None:
        for _ in range(fixes.count("train", 4)):
            optimizer.zero_grad()
            network(batch).square().mean().backward()
            optimizer.step()

    train = stage("train", fit, effect="stateful")

    def epochs() -> Iterator[Any]:
        while True:
            yield from staged

    batches = epochs()

    def body() -> int:
        train(next(batches))
        return BATCH

    try:
        yield Loop(body=body, name="loader", unit="samples", state=[network, optimizer])
    finally:
        batches.close()  # type: ignore[attr-defined]


@contextmanager
def plain_torch(fixes: Fixes, draws: Draws) -> Iterator[Loop]:
    """Augment with NumPy, move to torch, four optimiser steps."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(draws.seed())
    rng = np.random.default_rng(draws.seed())
    images = rng.normal(size=(256, 64)).astype(np.float32)
    network = _network(256, 2)
    optimizer = torch.optim.Adam(network.parameters(), 1e-6)

    def augment_batch() -> np.ndarray:
        out = images
        for _ in range(8):
            out = np.roll(out, 1, axis=1) * rng.normal(1, 0.01, size=(256, 1)).astype(np.float32)
        return out

    def fit(batch: np.ndarray) -> None:
        for _ in range(fixes.count("train", 4)):
            optimizer.zero_grad()
            network(torch.from_numpy(batch)).square().mean().backward()
            optimizer.step()

    augments = prepared(fixes, "augment", augment_batch)
    augment = stage("augment", augments, effect="pure")
    train = stage("train", fit, effect="stateful")

    def body() -> int:
        train(augment())
        return 256

    run_in(body, augments)
    yield Loop(body=body, name="torch", unit="samples", state=[network, optimizer])


@contextmanager
def stable_baselines3(fixes: Fixes, draws: Draws) -> Iterator[Loop]:
    """PPO of Stable-Baselines3 on four CartPoles; half of training is half of its epochs."""
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env

    torch.set_num_threads(1)
    envs = make_vec_env("CartPole-v1", n_envs=4, seed=draws.seed())
    model = PPO(
        "MlpPolicy",
        envs,
        n_steps=16,
        batch_size=32,
        n_epochs=fixes.count("train", 4),
        learning_rate=1e-6,
        seed=draws.seed(),
        device="cpu",
    )
    steps = prepared(fixes, "env step", envs.step)
    acts = prepared(fixes, "policy", model.policy.forward)
    envs.step = stage("env step", steps, effect="stateful")  # type: ignore[method-assign]
    model.policy.forward = stage("policy", acts, effect="stateful")  # type: ignore[method-assign]
    model.train = stage("train", model.train, effect="stateful")  # type: ignore[method-assign]

    def body() -> int:
        model.learn(64, reset_num_timesteps=False)
        return 64

    with contextlib.redirect_stdout(io.StringIO()):
        run_in(body, steps, acts)
    try:
        yield Loop(
            body=body,
            name="stable-baselines3",
            unit="env steps",
            state=[model, envs],
        )
    finally:
        envs.close()


@contextmanager
def tianshou(fixes: Fixes, draws: Draws) -> Iterator[Loop]:
    """PPO of Tianshou on four CartPoles; half of an update is half of its repetitions."""
    import gymnasium
    import torch
    from tianshou.algorithm import PPO
    from tianshou.algorithm.modelfree.reinforce import DiscreteActorPolicy
    from tianshou.algorithm.optim import AdamOptimizerFactory
    from tianshou.data import Collector, VectorReplayBuffer
    from tianshou.env import DummyVectorEnv
    from tianshou.utils.net.common import Net
    from tianshou.utils.net.discrete import DiscreteActor, DiscreteCritic
    from tianshou.utils.torch_utils import policy_within_training_step

    torch.set_num_threads(1)
    torch.manual_seed(draws.seed())
    net = Net(state_shape=4, hidden_sizes=[64, 64])
    algorithm = PPO(
        policy=DiscreteActorPolicy(
            actor=DiscreteActor(preprocess_net=net, action_shape=2),
            action_space=gymnasium.spaces.Discrete(2),
        ),
        critic=DiscreteCritic(preprocess_net=net),
        optim=AdamOptimizerFactory(lr=1e-6),
    )
    envs = DummyVectorEnv([lambda: gymnasium.make("CartPole-v1")] * 4)
    envs.seed(draws.seed())
    buffer = VectorReplayBuffer(64, 4)
    steps = prepared(fixes, "env step", envs.step)
    envs.step = stage("env step", steps, effect="stateful")
    collector = Collector(algorithm, envs, buffer)
    collector.reset()
    update = stage("update", algorithm.update, effect="stateful")
    repeat = fixes.count("update", 4)

    def body() -> int:
        with policy_within_training_step(algorithm.policy):
            collector.collect(n_step=32)
            update(buffer, 32, repeat)
        collector.reset_buffer(keep_statistics=True)
        return 32

    run_in(body, steps)
    try:
        yield Loop(
            body=body,
            name="tianshou",
            unit="env steps",
            state=[algorithm, buffer, envs],
        )
    finally:
        envs.close()


TORCH = ("torch", "torch.utils.data")
LOOPS = {
    "loader-0": Entry(
        partial(loader, 0), "loader", (("load", 0.5), ("train", 0.0)), period=20, needs=TORCH
    ),
    "loader-2": Entry(
        partial(loader, 2),
        "loader",
        (("load", 0.0), ("train", 0.0), ("train", 0.5)),
        period=20,
        needs=TORCH,
    ),
    "torch": Entry(plain_torch, "library", (("augment", 0.0), ("train", 0.5)), needs=TORCH),
    "stable-baselines3": Entry(
        stable_baselines3,
        "library",
        (("train", 0.5), ("env step", 0.0)),
        needs=("stable_baselines3",),
    ),
    "tianshou": Entry(
        tianshou,
        "library",
        (("update", 0.5), ("env step", 0.0)),
        needs=("tianshou.algorithm", "tianshou.data", "tianshou.env"),
        compiles=True,
    ),
}
