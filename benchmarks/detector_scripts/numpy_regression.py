"""Logistic regression in numpy on float32 data, with noise in float64."""

import numpy as np

import hotloop

rng = np.random.default_rng(0)
x = rng.random((4000, 64), dtype=np.float32)
y = (x.sum(axis=1) > 32).astype(np.float32)
w = np.zeros(64, dtype=np.float32)
temperature = np.float64(1.5)

for _ in hotloop.iterations(range(1_000_000)):
    noise = rng.normal(size=x.shape)
    noisy = x + 0.01 * noise  # fault: float64
    logits = (noisy @ w) / temperature
    error = 1 / (1 + np.exp(-logits)) - y
    w = w - (0.1 * error @ noisy / len(x)).astype(np.float32)
