"""One turn of one system: its arguments, its clock and its one line of JSON.

Needs numpy only, because it runs in the Python of every peer. A turn is a process: one run that
nobody counts (it compiles, and fills the caches), then `repeats` runs of `steps` days, each from
the start. Making the population and the model is outside the clock, drawing random numbers and
counting who was infected is inside.
"""

import argparse
import gc
import importlib.metadata
import json
import os
import platform
import resource
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter, process_time

import numpy as np

# Seconds of each step, and how many were infected in it.
Run = tuple[Sequence[float], Sequence[float]]


@dataclass(frozen=True)
class Population:
    """age: (N,) codes 0 to 5. edges: (E, 2) rows src, dst. stages: (N,) codes 0 to 4."""

    age: np.ndarray
    edges: np.ndarray
    stages: np.ndarray

    @property
    def size(self) -> int:
        return len(self.age)


class Turn:
    """What the command line asked for, and the measuring of it."""

    def __init__(self, system: str, packages: Sequence[str]) -> None:
        parser = argparse.ArgumentParser()
        parser.add_argument("population", help="npz with age, edges and stages")
        parser.add_argument("steps", type=int)
        parser.add_argument("repeats", type=int)
        parser.add_argument("--threads", type=int, default=1, help="0: as many as it likes")
        parser.add_argument("--mode", default="forward", help="what the system is to do")
        parser.add_argument("--first-seed", type=int, default=0)
        parser.add_argument("--source", help="a folder of sources, for a system not installed")
        self.asked = parser.parse_args()
        self.steps: int = self.asked.steps
        self.threads: int = self.asked.threads
        self.mode: str = self.asked.mode
        with np.load(self.asked.population) as arrays:
            self.population = Population(arrays["age"], arrays["edges"], arrays["stages"])
        self.system, self.packages = system, packages
        self.extra: dict[str, object] = {}

    def measure(self, start: Callable[[int], Callable[[int], Run]]) -> None:
        """Measure and print. `start(seed)` makes a model; what it returns runs so many steps."""
        seconds, infected, started, processor = [], [], [], []
        grown = 0
        first = self.asked.first_seed
        for seed in range(first, first + self.asked.repeats + 1):
            began = perf_counter()
            run = start(seed)
            started.append(perf_counter() - began)
            gc.collect()
            before, clock = resident_bytes(), process_time()
            took, caught = run(self.steps)
            processor.append(process_time() - clock)
            grown = max(grown, resident_bytes() - before)
            seconds.append([float(s) for s in took])
            infected.append([float(n) for n in caught])
            del run
        versions = {name: importlib.metadata.version(name) for name in self.packages}
        outcome = {
            "system": self.system,
            "versions": {"python": platform.python_version(), **versions},
            "agents": self.population.size,
            "threads": self.threads or os.cpu_count(),
            "seconds": seconds[1:],
            "processor_seconds": processor[1:],
            "start_seconds": started[1:],
            "infected": infected[1:],
            "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            "grown_bytes": grown,
            **self.extra,
        }
        print(json.dumps(outcome), file=sys.__stdout__)


def timed(step: Callable[[], float], steps: int) -> Run:
    """Call `step` so often; it returns how many it infected."""
    seconds, infected = [], []
    for _ in range(steps):
        began = perf_counter()
        infected.append(step())
        seconds.append(perf_counter() - began)
    return seconds, infected


def resident_bytes() -> int:
    """Memory of this process now."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()
