"""A head trained on frozen features, which are computed again in each epoch."""

import torch
from torch import nn

import hotloop

torch.manual_seed(0)
images = torch.randn(64, 3, 16, 16)
labels = torch.randint(0, 4, (64,))
backbone = nn.Sequential(
    nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 32, 3), nn.ReLU(), nn.Flatten()
)
backbone.eval().requires_grad_(False)
head = nn.Linear(32 * 12 * 12, 4)
optimiser = torch.optim.SGD(head.parameters(), lr=1e-3)

for _ in hotloop.iterations(range(1_000_000), unit="epochs"):
    for start in range(0, len(images), 16):
        features = backbone(images[start : start + 16])  # fault: equal inputs
        loss = nn.functional.cross_entropy(head(features), labels[start : start + 16])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
