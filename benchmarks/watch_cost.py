"""What does it cost to watch a training all the time?

A plain PyTorch loop and a PPO in one file are watched, and take turns in one process with the same
loop without the watch: batches, the order drawn, with what was put around the functions of
libraries taken away for the batches without. The cost is the ratio of the processor times of the
process, turn by turn. Lines are printed, and TensorBoard events written, as often as they are where
nobody says otherwise; the clock of the watch stands still while the loop runs without it.

    taskset -c 0 env OMP_NUM_THREADS=1 python benchmarks/watch_cost.py \
        --markdown docs/benchmarks/watch_cost.md
"""

import argparse
import gc
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import gymnasium
import numpy as np
import torch
from torch import nn

import hotloop
from hotloop.loop.figures import Interval, paired_ratio
from hotloop.watch.sampler import FIRST, Sampler
from tables import table, write_page

TARGET = 1.005
# Short: the speed of a processor drifts over seconds.
BATCH_S = 0.2
# So long the loop runs untimed after a change: what the interpreter had learned of classes is void
# then. A training is watched from its start on.
SETTLING_S = 0.4


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--markdown", type=Path)
    options.add_argument("--turns", type=int, default=400)
    chosen = options.parse_args()
    rows = []
    for name, make in LOOPS.items():
        ratio, found_s, iteration_ms = measure(make, chosen.turns)
        reached = "reached" if ratio.high <= TARGET else "missed"
        if ratio.low <= TARGET < ratio.high:
            reached = "cannot be told from the target here"
        shown = f"{ratio.value:.4f} [{ratio.low:.4f}, {ratio.high:.4f}]"
        rows.append([name, f"{iteration_ms:.3g} ms", shown, f"{TARGET}", reached, f"{found_s:.1f}"])
    parts = [
        f"Processor time with the watch over that without: {chosen.turns} turns of a batch each, "
        f"about {BATCH_S * 1e3:.0f} ms, and the 95% interval of the ratio. Until the iterations "
        "are found, all calls are timed: how long that took is in the last column.",
        table(["loop", "an iteration", "ratio", "target", "", "s until found"], rows),
    ]
    write_page(chosen.markdown, "What a watch costs", parts, "benchmarks/watch_cost.py")


def measure(make: Callable[[], Iterator[None]], turns: int) -> tuple[Interval, float, float]:
    """The ratio; the seconds until the iterations were found; ms of an iteration without."""
    loop = make()
    order = random.Random(0)
    with (
        tempfile.TemporaryDirectory() as folder,
        hotloop.watch(tensorboard=folder) as watched,
    ):
        begin = time.perf_counter()
        while watched.record.iteration is None:
            next(loop)
        found_s = time.perf_counter() - begin
        start = time.process_time()
        for _ in range(20):
            next(loop)
        length = max(1, round(BATCH_S / ((time.process_time() - start) / 20)))
        taken: dict[bool, list[float]] = {True: [], False: []}
        while watched._sampler._opened < FIRST:  # these come whatever they cost
            next(loop)
        # What is there now is no work of the loop: looking through it takes long, and falls into
        # whose turn it is.
        gc.collect()
        gc.freeze()
        recognition = watched._recognition
        recognition.__exit__()
        left_ns = time.perf_counter_ns()
        for _ in range(turns):
            for with_watch in order.sample([True, False], 2):
                if with_watch:
                    recognition.__enter__()
                    skip(watched._sampler, time.perf_counter_ns() - left_ns)
                taken[with_watch].append(batch(loop, length))
                if with_watch:
                    recognition.__exit__()
                    left_ns = time.perf_counter_ns()
        gc.unfreeze()
        recognition.__enter__()  # for the watch to leave
    ratio = paired_ratio(np.array(taken[True]), np.array(taken[False]))
    return ratio, found_s, float(np.mean(taken[False])) / length * 1e3


def skip(sampler: Sampler, away_ns: int) -> None:
    """Let what is due be due so much later."""
    sampler._next_window += away_ns
    sampler._next_line += away_ns


def batch(loop: Iterator[None], length: int) -> float:
    settled = time.process_time() + SETTLING_S
    while time.process_time() < settled:
        next(loop)
    start = time.process_time()
    for _ in range(length):
        next(loop)
    return time.process_time() - start


def plain() -> Iterator[None]:
    """A perceptron on batches of a DataLoader."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 10))
    optimiser = torch.optim.Adam(model.parameters(), 1e-3)
    data = torch.utils.data.TensorDataset(torch.randn(8192, 64), torch.randint(0, 10, (8192,)))
    while True:
        for x, y in torch.utils.data.DataLoader(data, batch_size=256, shuffle=True):
            loss = nn.functional.cross_entropy(model(x), y)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            yield


def ppo(steps: int = 32, envs: int = 4, epochs: int = 2) -> Iterator[None]:
    """PPO on CartPole, all of it in one function."""
    torch.manual_seed(0)
    vector = gymnasium.make_vec("CartPole-v1", num_envs=envs, vectorization_mode="sync")
    actor = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 2))
    critic = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 1))
    optimiser = torch.optim.Adam([*actor.parameters(), *critic.parameters()], 2.5e-4)
    seen, _ = vector.reset(seed=0)
    while True:
        rows = []
        for _ in range(steps):
            at = torch.as_tensor(seen)
            with torch.no_grad():
                chances = torch.distributions.Categorical(logits=actor(at))
                value = critic(at).squeeze(-1)
            action = chances.sample()
            seen, reward, terminated, truncated, _ = vector.step(action.numpy())
            done = torch.as_tensor(terminated | truncated).float()
            reward = torch.as_tensor(reward).float()
            rows.append((at, action, chances.log_prob(action), value, reward, done))
        obs, actions, old, values, rewards, dones = map(torch.stack, zip(*rows, strict=True))
        returns = torch.zeros_like(rewards)
        following = critic(torch.as_tensor(seen)).squeeze(-1).detach()
        for t in reversed(range(steps)):
            following = returns[t] = rewards[t] + 0.99 * (1 - dones[t]) * following
        flat = [x.flatten(0, 1) for x in (obs, actions, old, returns - values, returns)]
        for _ in range(epochs):
            for rows_of in torch.randperm(steps * envs).split(steps * envs // 4):
                x, a, before, advantage, target = (each[rows_of] for each in flat)
                chances = torch.distributions.Categorical(logits=actor(x))
                ratio = (chances.log_prob(a) - before).exp()
                gain = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
                loss = -gain + 0.5 * (critic(x).squeeze(-1) - target).square().mean()
                optimiser.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(actor.parameters(), 0.5)
                optimiser.step()
        yield


LOOPS: dict[str, Callable[[], Iterator[None]]] = {
    "a plain PyTorch loop": plain,
    "PPO in one file": ppo,
}


if __name__ == "__main__":
    main()
