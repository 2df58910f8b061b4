"""The spread as one would write it down: no kernels, no tensors, one agent after another."""

import math
from dataclasses import dataclass

import numpy as np

M64 = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15


def mix64(z: int) -> int:
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & M64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & M64
    return z ^ (z >> 31)


def draw(seed: int, step: int, stream: int, agent: int) -> float:
    start = (mix64(seed & M64) + GOLDEN * (step + 1)) & M64
    key = mix64(start ^ mix64(stream + 1))
    return (mix64((key + GOLDEN * (agent + 1)) & M64) >> 32) / 2**32


@dataclass
class Plain:
    """One run; columns are lists, `edges` rows of (src, dst)."""

    spread: object
    edges: list
    group: list
    compartment: list
    infected_time: list
    next_time: list
    seed: int
    rate: list
    mortality: float
    bits: int = 24
    contact: list | None = None
    isolating: float = 0.0
    willing: list | None = None

    def step(self, t: int) -> tuple[int, int]:
        spread, size = self.spread, len(self.compartment)
        last, days = len(spread.durations), spread.weights.shape[1]
        weights = np.round(spread.weights * 2.0**self.bits).astype(int)
        pressure = [0] * size
        for src, dst in self.edges:
            day = t - self.infected_time[src]
            if 0 < self.compartment[src] <= last and 0 <= day < days:
                pressure[dst] += int(weights[self.compartment[src], day])
        today = self.rate[min(t // spread.steps_per_rate, len(self.rate) - 1)]
        newly = []
        for i in range(size):
            if self.compartment[i] == 0 and pressure[i] > 0:
                group = self.group[i]
                closed = self.contact[group] if self.contact else 1.0
                factor = today * (closed * float(spread.susceptibility[group]))
                rate = factor * (pressure[i] * 2.0**-self.bits)
                chance = min(rate, 1.0 - math.exp(-rate))
                if self.willing and self.isolating:
                    chance *= 1.0 - self.isolating * self.willing[i]
                if draw(self.seed, t, 0, i) < chance:
                    newly.append(i)
        deaths = 0
        for i in newly:
            self.compartment[i], self.infected_time[i] = 1, t
            self.next_time[i] = t + 1 + spread.durations[0]
        for i in range(size):
            if 0 < self.compartment[i] <= last and self.next_time[i] <= t:
                if self.compartment[i] < last:
                    self.compartment[i] += 1
                    self.next_time[i] = t + spread.durations[self.compartment[i] - 1]
                else:
                    dies = draw(self.seed, t, 1, i) < self.mortality
                    self.compartment[i] = last + 2 if dies else last + 1
                    self.next_time[i] = 32_767
                    deaths += dies
        return len(newly), deaths
