"""A DataLoader with a worker that keeps up with a larger model: no fault."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import hotloop

torch.manual_seed(0)
x, y = torch.randn(4096, 64), torch.randint(0, 10, (4096,))
model = nn.Sequential(
    nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
)
optimiser = torch.optim.SGD(model.parameters(), lr=1e-2)
loss_of = nn.CrossEntropyLoss()


def batches():
    loader = DataLoader(
        TensorDataset(x, y), batch_size=512, num_workers=1, persistent_workers=True, drop_last=True
    )
    while True:
        yield from loader


for inputs, labels in hotloop.iterations(batches(), unit="batches"):
    loss = loss_of(model(inputs), labels)
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
