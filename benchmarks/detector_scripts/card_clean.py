"""The same on the card throughout, the loss read once in a hundred steps: no fault."""

import torch
from torch import nn

import hotloop
from card import card


def main(device):
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1)).to(device)
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-2)
    x, y = torch.randn(256, 16).to(device), torch.randn(256, 1).to(device)
    total = torch.zeros((), device=device)
    for step in hotloop.iterations(range(1_000_000)):
        noise = torch.randn(256, 16, device=device)
        loss = (model(x + 0.1 * noise) - y).pow(2).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        total += loss.detach()
        if step % 100 == 99:
            print(f"loss {total.item() / 100:.3f}")
            total.zero_()


with card() as device:
    main(device)
