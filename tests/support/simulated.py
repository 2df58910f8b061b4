"""Simulated experiments on loops with rare work, whose true gains are known.

An iteration fetches for 1 ms, trains for 2 ms and does 1 ms of other things; the fetching has
rare long calls. Blocks are as an experiment makes them: random lengths, equal within a round, arms
in random order.
"""

import math
from dataclasses import dataclass

import numpy as np

from hotloop.simplify.estimate import Samples

FETCH_NS, TRAIN_NS, REST_NS = 1e6, 2e6, 1e6
LIMIT_NS = 3e6
ARMS = [
    "baseline",
    "A/A 1",
    "A/A 2",
    "A/A 3",
    "free fetch",
    "free train",
    "pad fetch",
    "delay fetch #1",
    "delay train #1",
    "delay train #2",
]


@dataclass(frozen=True)
class Simulated:
    """A loop: "periodic" or "random" long calls, one in `every`; or "lognormal" durations."""

    course: str
    every: int = 20
    extra_ns: float = 50e6
    sigma: float = 1.5

    def __str__(self) -> str:
        return f"{self.course}-{self.every}"

    @property
    def at_random(self) -> bool:
        """Whether chance says when a long call comes."""
        return self.course == "random"

    @property
    def fetch_ns(self) -> float:
        """The mean time of a fetch."""
        if self.course == "lognormal":
            return 2 * FETCH_NS * math.exp(self.sigma**2 / 2)
        return FETCH_NS + self.extra_ns / self.every

    @property
    def mean_ns(self) -> float:
        """The mean time of an iteration."""
        return self.fetch_ns + TRAIN_NS + REST_NS

    @property
    def gains(self) -> tuple[float, float]:
        """What a free fetch and a free training gain."""
        return self.fetch_ns / self.mean_ns, TRAIN_NS / self.mean_ns

    @property
    def share(self) -> float:
        """The rare calls' share of the time."""
        return self.extra_ns / self.every / self.mean_ns

    def events_in(self, blocks: int, iterations: int) -> float:
        """How many rare calls so many blocks hold, on average."""
        return blocks * iterations / self.every

    def calls(self, rng: np.random.Generator, length: int, phase: int) -> np.ndarray:
        """The durations of so many fetches."""
        if self.course == "lognormal":
            return 2 * FETCH_NS * np.exp(rng.normal(0, self.sigma, length))
        if self.course == "periodic":
            long = (np.arange(length) + phase) % self.every == 0
        else:
            long = rng.random(length) < 1 / self.every
        return FETCH_NS + self.extra_ns * long


TRUTHS = [
    Simulated("periodic", 20),
    Simulated("periodic", 50),
    Simulated("random", 20),
    Simulated("random", 50),
    Simulated("lognormal"),
]


def simulate(
    rng: np.random.Generator, kind: Simulated, machine: str, *, rounds: int, least: int
) -> Samples:
    """One experiment: blocks of `least` to twice as many iterations.

    machine: "quiet" has 1% of noise a block; "drifting" besides changes its speed from block to
    block; "interrupted" besides lends the core to others for a tenth of the time, and nine tenths
    of that are seen.
    """
    shape = (rounds, len(ARMS))
    ns, units, stolen = np.full(shape, np.nan), np.full(shape, np.nan), np.zeros(shape)
    rare, events = np.zeros((*shape, 1)), np.zeros((*shape, 1))
    phase, speed = int(rng.integers(kind.every)), 1.0
    for r in range(rounds):
        length = int(rng.integers(least, 2 * least + 1))
        for a in rng.permutation(len(ARMS)):
            if machine == "drifting":
                speed = 1 + 0.95 * (speed - 1) + rng.normal(0, 0.01)
            arm = ARMS[a]
            calls = kind.calls(rng, length, phase)
            phase += length
            train = 0.0 if arm == "free train" else length * TRAIN_NS
            fetch = float(calls.sum())
            if arm in ("free fetch", "pad fetch"):
                fetch = 0.0 if arm == "free fetch" else length * FETCH_NS
            else:
                beyond = calls[calls > LIMIT_NS] - LIMIT_NS
                rare[r, a, 0], events[r, a, 0] = speed * beyond.sum(), len(beyond)
            work = speed * (fetch + train + length * REST_NS) * (1 + rng.normal(0, 0.01))
            if machine == "interrupted":
                taken = rng.exponential(3e6, rng.poisson(work / 30e6)).sum()
                work, stolen[r, a] = work + taken, 0.9 * taken
            ns[r, a], units[r, a] = work, length
    real = np.array([[arm not in ("free fetch", "pad fetch")] for arm in ARMS])
    return Samples(ns, units, ARMS, ARMS[:4], stolen, rare_ns=rare, rare_events=events, real=real)
