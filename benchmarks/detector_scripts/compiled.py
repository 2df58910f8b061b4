"""A model compiled once, before its loop: no fault."""

import torch
from torch import nn

import hotloop

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 1))
compiled = torch.compile(model, backend="aot_eager")
optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
x, y = torch.randn(1024, 32), torch.randn(1024, 1)

for _ in hotloop.iterations(range(1_000_000)):
    rows = torch.randint(0, 1024, (128,))
    loss = (compiled(x[rows]) - y[rows]).pow(2).mean()
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
