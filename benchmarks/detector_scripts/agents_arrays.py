"""An epidemic on arrays in float32: no fault."""

import numpy as np

import hotloop

N = 20_000
rng = np.random.default_rng(0)
infected = rng.random(N) < 0.01
susceptibility = rng.random(N, dtype=np.float32)
contacts = rng.integers(0, N, size=(N, 8))

for _ in hotloop.iterations(range(1_000_000), unit="steps"):
    pressure = infected[contacts].mean(axis=1, dtype=np.float32)
    newly = rng.random(N, dtype=np.float32) < pressure * susceptibility
    recovered = rng.random(N, dtype=np.float32) < np.float32(0.1)
    infected = (infected | newly) & ~recovered
