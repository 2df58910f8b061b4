"""A flock in numpy, one agent after the other: a Python loop over the agents."""

import numpy as np

import hotloop

N = 300
rng = np.random.default_rng(0)
position = rng.random((N, 2))
velocity = rng.normal(size=(N, 2)) * 0.01


def steer():
    pull = np.zeros((N, 2))
    for i in range(N):  # fault: python loop
        away = position - position[i]
        near = (away**2).sum(axis=1) < 0.01
        pull[i] = away[near].mean(axis=0) + velocity[near].mean(axis=0) - velocity[i]
    return pull


for _ in hotloop.iterations(range(1_000_000), unit="steps"):
    velocity += 0.01 * steer()
    position = (position + velocity) % 1.0
