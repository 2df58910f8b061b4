"""Twice as many threads of torch as there are cores, as where a library reads the wrong number."""

import os

import torch

import hotloop

torch.set_num_threads(2 * len(os.sched_getaffinity(0)) + 2)  # fault: threads
x = torch.randn(2_000_000)

for _ in hotloop.iterations(range(1_000_000)):
    x = torch.tanh(x) + 0.1
