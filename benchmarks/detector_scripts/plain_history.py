"""The same with two faults: a history of tensors with their graphs, and a loss by sample."""

import numpy as np
import torch
from torch import nn

import hotloop

torch.manual_seed(0)
x = torch.randn(512, 32)
labels = np.random.default_rng(0).normal(size=(512, 8))
model = nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 8))
optimiser = torch.optim.SGD(model.parameters(), lr=1e-3)
history = []


def loss_of(predicted, wanted):
    total = 0.0
    for k in range(len(predicted)):  # fault: python loop
        total = total + (predicted[k] - wanted[k]).abs().sum()
    return total / len(predicted)


for _ in hotloop.iterations(range(1_000_000)):
    wanted = torch.from_numpy(labels).float()  # too little of the time to be worth an edit
    loss = loss_of(model(x), wanted)
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    history.append(loss)  # fault: growing container
