"""Training on a card: noise is made on the host, and the loss is read in every step."""

import torch
from torch import nn

import hotloop
from card import card


def main(device):
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1)).to(device)
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-2)
    x, y = torch.randn(256, 16).to(device), torch.randn(256, 1).to(device)
    total = 0.0
    for _ in hotloop.iterations(range(1_000_000)):
        noise = 0.1 * torch.randn(256, 16)  # fault: wrong device
        mask = torch.ones(256, 1)  # fault: wrong device
        predicted = model(x + noise.to(device))
        loss = ((predicted - y).pow(2) * mask.to(device)).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        total += loss.item()  # fault: synchronisation


with card() as device:
    main(device)
