"""A perceptron on tensors, in minibatches: no fault."""

import torch
from torch import nn

import hotloop

torch.manual_seed(0)
x = torch.randn(4096, 32)
y = (x[:, :4].sum(1, keepdim=True) > 0).float()
model = nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 1))
optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3)
loss_of = nn.BCEWithLogitsLoss()

for epoch in hotloop.iterations(range(1_000_000), unit="epochs"):
    total = 0.0
    for rows in torch.randperm(len(x)).split(256):
        optimiser.zero_grad()
        loss = loss_of(model(x[rows]), y[rows])
        loss.backward()
        optimiser.step()
        total += loss.item() * len(rows)
    if epoch % 100 == 0:
        print(f"epoch {epoch} loss {total / len(x):.3f}")
