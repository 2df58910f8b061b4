"""What does it cost to watch a training all the time?

A plain PyTorch loop and a PPO in one file are watched. The cost, in processor time, has three
parts:

- Between windows only the step of the optimiser is not the library's own: each is counted. So the
  loop takes turns with itself, a few iterations each, in random order: the optimiser has the class
  that is watched, or one that differs only in having the library's own step. That nothing else of
  the watch is called, and nothing at all in the turns without, is looked at call by call.
- A window, or a line: by how much its iterations, and the next few, took longer than the mean of
  the others, what the loop itself does now and then, as at the start of an epoch, with it. They
  come as often as they do where nobody says otherwise.
- The thread that looks after what is due: its processor time.

    taskset -c 0 env OMP_NUM_THREADS=1 python benchmarks/watch_cost.py \
        --markdown docs/benchmarks/watch_cost.md
"""

import argparse
import gc
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import gymnasium
import numpy as np
import torch
from torch import nn
from torch.optim import Optimizer

import hotloop
from hotloop.loop.figures import Interval, jackknife_error, student_interval
from hotloop.watch.sampler import FIRST, Sampler
from hotloop.watch.watching import Watch
from tables import table, write_page

TARGET = 1.005
HOTLOOP = str(Path(hotloop.__file__).parent)
# Short: the speed of a processor drifts over parts of a second.
TURN_S = 0.03
# The share of a turn that does not count: the caches hold what was called before.
SETTLING = 0.2
# So many iterations after a window are looked at with it.
AFTER = 3
# Of the turns' ratios so many are left out at either end: others use the machine too.
TRIMMED = 0.1
# Windows and lines are put together in so many parts, for the interval.
PARTS = 10
FAR_NS = 10**15


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    options.add_argument("--markdown", type=Path)
    options.add_argument("--turns", type=int, default=2000)
    options.add_argument("--watched-s", type=float, default=200)
    chosen = options.parse_args()
    rows = []
    for name, make in LOOPS.items():
        cost = measure(make, chosen.turns, chosen.watched_s)
        rows.append([name, *cost.cells()])
    parts = [
        f"Processor time with the watch over that without, with 95% intervals: between windows, "
        f"{chosen.turns} turns each of about {TURN_S * 1e3:.0f} ms; and what windows and lines, "
        f"and the thread that looks after them, add in {chosen.watched_s:.0f} s. Until the "
        "iterations are found, all calls are timed: how long that took is in the last column.",
        table(
            [
                "loop",
                "an iteration",
                "between",
                "windows, lines",
                "thread",
                "all",
                "",
                "s until found",
            ],
            rows,
        ),
    ]
    write_page(chosen.markdown, "What a watch costs", parts, "benchmarks/watch_cost.py")


@dataclass
class Rare:
    """What happens now and then while a loop is watched.

    added: by how much windows and lines made each part longer, and how long that was, (PARTS, 2),
    in s. thread: the share of the time that the watch's own thread took.
    """

    added: np.ndarray
    thread: float
    windows: int


@dataclass
class Cost:
    """What was measured of one loop. medians: of turns with the watch and without, (turns, 2)."""

    found_s: float
    medians: np.ndarray
    rare: Rare

    def cells(self) -> list[str]:
        """The cells of the table."""
        between = _interval(_trimmed_ratio, self.medians)
        rare = _interval(_ratio, self.rare.added)
        value = 1 + between.value + rare.value + self.rare.thread
        width = ((between.high - between.value) ** 2 + (rare.high - rare.value) ** 2) ** 0.5
        reached = "reached" if value + width <= TARGET else "missed"
        if value - width <= TARGET < value + width:
            reached = "cannot be told from the target here"
        return [
            f"{self.medians[:, 1].mean() * 1e3:.3g} ms",
            _shown(between),
            f"{_shown(rare)} ({self.rare.windows} windows)",
            f"{self.rare.thread:+.4f}",
            f"{value:.4f} [{value - width:.4f}, {value + width:.4f}], target {TARGET}",
            reached,
            f"{self.found_s:.1f}",
        ]


def _trimmed_ratio(turns: np.ndarray) -> float:
    """By how much longer the first of each pair is, from the trimmed mean of the log ratios."""
    ratios = np.sort(np.log(turns[:, 0] / turns[:, 1]))
    out = round(TRIMMED * len(ratios))
    return float(np.expm1(ratios[out : len(ratios) - out].mean()))


def _ratio(rows: np.ndarray) -> float:
    first, second = rows.sum(0)
    return float(first / second)


def _interval(of: Callable[[np.ndarray], float], rows: np.ndarray) -> Interval:
    left_out = np.array([of(np.delete(rows, k, 0)) for k in range(len(rows))])
    return student_interval(of(rows), jackknife_error(left_out), len(rows) - 1)


def _shown(interval: Interval) -> str:
    return f"{interval.value:+.4f} [{interval.low:+.4f}, {interval.high:+.4f}]"


def measure(make: Callable[[], Iterator[Optimizer]], turns: int, watched_s: float) -> Cost:
    """Watch a loop."""
    loop = make()
    optimiser = next(loop)
    with (
        tempfile.TemporaryDirectory() as folder,
        hotloop.watch(tensorboard=folder) as watched,
    ):
        begin = time.perf_counter()
        while watched.record.iteration is None:
            next(loop)
        found_s = time.perf_counter() - begin
        sampler = watched._sampler
        while sampler._opened < FIRST:  # these come whatever they cost
            next(loop)
        # What is there now is no work of the loop: looking through it takes long, and falls into
        # whose turn it is.
        gc.collect()
        gc.freeze()
        medians = between_windows(loop, optimiser, sampler, turns)
        rare = now_and_then(loop, watched, watched_s)
        gc.unfreeze()
    return Cost(found_s, medians, rare)


def between_windows(
    loop: Iterator[Optimizer], optimiser: Optimizer, sampler: Sampler, turns: int
) -> np.ndarray:
    """Return the median iterations of turns with the watch, and without, in s, (turns, 2)."""
    due = sampler._next_window, sampler._next_line
    began_ns = sampler._now()
    sampler._next_window = sampler._next_line = FAR_NS + began_ns
    while sampler._is_shown or sampler._conductor is not None:
        next(loop)
    own = type(optimiser)
    kinds = own, without_watch(own)
    begin = time.perf_counter()
    next(loop)
    iterations = max(3, round(TURN_S / (time.perf_counter() - begin)))
    counted = {f"{own.__name__}.step"}
    for kind, expected in zip(kinds, (counted, set()), strict=True):
        optimiser.__class__ = kind
        called = calls_of_hotloop(loop)
        if called != expected:
            sys.exit(f"an iteration calls {called} of hotloop, expected {expected}")
    order = random.Random(0)
    medians = np.zeros((turns, 2))
    for turn in range(turns):
        for which in order.sample([0, 1], 2):
            optimiser.__class__ = kinds[which]
            medians[turn, which] = median_iteration(loop, iterations)
    optimiser.__class__ = own
    away_ns = sampler._now() - began_ns
    sampler._next_window, sampler._next_line = (each + away_ns for each in due)
    return medians


def without_watch(kind: type[Optimizer]) -> type[Optimizer]:
    """The same class of optimisers, with the library's own step."""
    alone = type(kind.__name__, (kind,), {})
    alone.step = kind.step.__wrapped__  # type: ignore[attr-defined,method-assign]
    return alone


def calls_of_hotloop(loop: Iterator[Optimizer]) -> set[str]:
    """Which functions of hotloop an iteration calls."""
    called = set()

    def note(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(HOTLOOP):
            called.add(frame.f_code.co_qualname)

    next(loop)
    sys.setprofile(note)
    next(loop)
    sys.setprofile(None)
    return called


def median_iteration(loop: Iterator[Optimizer], iterations: int) -> float:
    """The processor time of this thread, in s."""
    times = [0.0] * (iterations + 1)
    for k in range(iterations + 1):
        times[k] = time.thread_time()
        if k < iterations:
            next(loop)
    return float(np.median(np.diff(times)[round(SETTLING * iterations) :]))


def now_and_then(loop: Iterator[Optimizer], watched: Watch, watched_s: float) -> Rare:
    """Watch the loop as a training is watched; a window that has begun is in it as a whole."""
    sampler, periods = watched._sampler, watched.record.periods
    (alarm,) = (each for each in threading.enumerate() if each.name == "hotloop-watch")
    assert alarm.ident is not None
    clock = time.pthread_getcpuclockid(alarm.ident)
    opened, lines, left = sampler._opened, len(periods), 0
    taken: list[float] = []
    rare: list[bool] = []
    of_thread, begin = time.clock_gettime(clock), time.process_time()
    start = begin
    while start - begin < watched_s or sampler._conductor is not None:
        next(loop)
        end = time.process_time()
        if sampler._conductor is not None or len(periods) != lines:
            left, lines = 1 + AFTER, len(periods)
        elif left:
            left -= 1
        taken.append(end - start)
        rare.append(left > 0)
        start = end
    thread = (time.clock_gettime(clock) - of_thread) / (start - begin)
    added = np.zeros((PARTS, 2))
    parts = np.array_split(np.array(taken), PARTS), np.array_split(np.array(rare), PARTS)
    for k, (times, now) in enumerate(zip(*parts, strict=True)):
        added[k] = (times[now] - times[~now].mean()).sum(), times.sum()
    return Rare(added, thread, sampler._opened - opened)


def plain() -> Iterator[Optimizer]:
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
            yield optimiser


def ppo(steps: int = 32, envs: int = 4, epochs: int = 2) -> Iterator[Optimizer]:
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
        yield optimiser


LOOPS: dict[str, Callable[[], Iterator[Optimizer]]] = {
    "a plain PyTorch loop": plain,
    "PPO in one file": ppo,
}


if __name__ == "__main__":
    main()
