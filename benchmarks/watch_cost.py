"""What does it cost to watch a training all the time?

A plain PyTorch loop and a PPO in one file are watched, and take turns in one process with the same
loop without the watch: batches, the order drawn, with what was put around the functions of
libraries taken away for the batches without. The cost has two parts, in processor time of the
process. Between windows it is the ratio of the turns' median iterations: each is counted, and what
the loop itself does now and then, as at the start of an epoch, is in no median. Of a window, or a
line, it is by how much its iterations, and the next few, took longer than that median. Windows and
lines come as often as they do where nobody says otherwise; the clock of the watch stands still
while the loop runs without it.

    taskset -c 0 env OMP_NUM_THREADS=1 python benchmarks/watch_cost.py \
        --markdown docs/benchmarks/watch_cost.md
"""

import argparse
import gc
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import gymnasium
import numpy as np
import torch
from torch import nn

import hotloop
from hotloop.loop.figures import Interval, jackknife_error, student_interval
from hotloop.watch.sampler import FIRST
from hotloop.watch.watching import Watch
from tables import table, write_page

TARGET = 1.005
# Short: the speed of a processor drifts over seconds.
BATCH_S = 0.2
# So long the loop runs after a change before its median counts: what the interpreter had learned of
# classes is void then. A training is watched from its start on.
SETTLING_S = 0.4
# So many iterations after a window are looked at with it.
AFTER = 3


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--markdown", type=Path)
    options.add_argument("--turns", type=int, default=400)
    chosen = options.parse_args()
    rows = []
    for name, make in LOOPS.items():
        cost = measure(make, chosen.turns)
        rows.append([name, *cost.cells()])
    parts = [
        f"Processor time with the watch over that without, {chosen.turns} turns of each of about "
        f"{BATCH_S * 1e3:.0f} ms, with 95% intervals: between windows from the turns' median "
        "iterations, and what windows and lines add. Until the iterations are found, all calls are "
        "timed: how long that took is in the last column.",
        table(
            ["loop", "an iteration", "between", "windows, lines", "both", "", "s until found"], rows
        ),
    ]
    write_page(chosen.markdown, "What a watch costs", parts, "benchmarks/watch_cost.py")


@dataclass
class Cost:
    """What was measured of one loop.

    medians: of the iterations of each turn, (turns, 2): with the watch, and without. added: by how
    much windows and lines made each turn longer, settling included, and how long that was,
    (turns, 2), both in s.
    """

    found_s: float
    medians: np.ndarray
    added: np.ndarray
    windows: int

    def cells(self) -> list[str]:
        """The cells of the table."""
        both = self.interval(self.between, self.rare)
        reached = "reached" if both.high <= TARGET else "missed"
        if both.low <= TARGET < both.high:
            reached = "cannot be told from the target here"
        return [
            f"{self.medians[:, 1].mean() * 1e3:.3g} ms",
            _shown(self.interval(self.between)),
            f"{_shown(self.interval(self.rare), 0)} ({self.windows} windows)",
            f"{_shown(both)}, target {TARGET}",
            reached,
            f"{self.found_s:.1f}",
        ]

    def between(self, turns: np.ndarray) -> float:
        """The ratio between windows, from these turns."""
        with_watch, without = self.medians[turns].sum(0)
        return float(with_watch / without)

    def rare(self, turns: np.ndarray) -> float:
        """What windows and lines add to the ratio, from these turns."""
        added, time_s = self.added[turns].sum(0)
        return float(added / time_s)

    def interval(self, *parts: Callable[[np.ndarray], float]) -> Interval:
        """The sum of parts, with its jackknife interval over the turns."""
        every = np.arange(len(self.medians))
        left_out = np.array([sum(part(np.delete(every, k)) for part in parts) for k in every])
        value = sum(part(every) for part in parts)
        return student_interval(value, jackknife_error(left_out), len(every) - 1)


def _shown(interval: Interval, digits: int = 4) -> str:
    if not digits:
        return f"+{interval.value:.4f} [{interval.low:.4f}, {interval.high:.4f}]"
    return f"{interval.value:.4f} [{interval.low:.4f}, {interval.high:.4f}]"


def measure(make: Callable[[], Iterator[None]], turns: int) -> Cost:
    """Watch a loop in turns."""
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
        sampler, recognition = watched._sampler, watched._recognition
        while sampler._opened < FIRST:  # these come whatever they cost
            next(loop)
        # What is there now is no work of the loop: looking through it takes long, and falls into
        # whose turn it is.
        gc.collect()
        gc.freeze()
        cost = Cost(found_s, np.zeros((turns, 2)), np.zeros((turns, 2)), -sampler._opened)
        recognition.__exit__()
        left_ns = time.perf_counter_ns()
        for turn in range(turns):
            for with_watch in order.sample([True, False], 2):
                if with_watch:
                    recognition.__enter__()
                    away_ns = time.perf_counter_ns() - left_ns
                    sampler._next_window += away_ns
                    sampler._next_line += away_ns
                taken, rare, settled = run(loop, watched if with_watch else None)
                median = float(np.median(taken[settled:][~rare[settled:]]))
                cost.medians[turn, int(not with_watch)] = median
                if with_watch:
                    cost.added[turn] = (taken[rare] - median).sum(), taken.sum()
                    recognition.__exit__()
                    left_ns = time.perf_counter_ns()
        gc.unfreeze()
        recognition.__enter__()  # for the watch to leave
        cost.windows += sampler._opened
    return cost


def run(loop: Iterator[None], watched: Watch | None) -> tuple[np.ndarray, np.ndarray, int]:
    """Run a turn; a window that has begun is in it as a whole.

    Returns: the processor time of each iteration, in s; whether a window or a line was in it or
    just before; and after how many the loop had settled.
    """
    periods = [] if watched is None else watched.record.periods
    is_open = False
    taken, rare = [], []
    settled = left = 0
    begin = start = time.process_time()
    lines = len(periods)
    while start - begin < SETTLING_S + BATCH_S or is_open:
        next(loop)
        end = time.process_time()
        is_open = watched is not None and watched._sampler._conductor is not None
        if is_open or len(periods) != lines:
            left, lines = 1 + AFTER, len(periods)
        elif left:
            left -= 1
        taken.append(end - start)
        rare.append(left > 0)
        if end - begin < SETTLING_S:
            settled = len(taken)
        start = end
    return np.array(taken), np.array(rare), settled


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
