"""An evolution strategy in numpy, in float32 throughout: no fault."""

import numpy as np

import hotloop

rng = np.random.default_rng(0)
mean = np.zeros(256, dtype=np.float32)
goal = rng.random(256, dtype=np.float32)

for _ in hotloop.iterations(range(1_000_000), unit="generations"):
    tries = mean + np.float32(0.1) * rng.standard_normal((128, 256), dtype=np.float32)
    scores = -((tries - goal) ** 2).sum(axis=1)
    best = tries[np.argsort(scores)[-32:]]
    mean = best.mean(axis=0)
