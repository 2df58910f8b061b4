"""A DataLoader without workers, whose items are costly: the loop waits, for the same each epoch."""

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import hotloop

raw = np.random.default_rng(0).integers(0, 255, size=(48, 64, 64), dtype=np.uint8)


def decode(image):
    spectrum = np.fft.fft2(image.astype(np.float32) / 255)
    for _ in range(4):
        spectrum = np.fft.fft2(np.fft.ifft2(spectrum))
    return np.abs(spectrum).astype(np.float32)


class Images(Dataset):
    def __len__(self):
        return len(raw)

    def __getitem__(self, index):  # fault: equal inputs
        return torch.from_numpy(decode(raw[index]))


model = nn.Sequential(nn.Flatten(), nn.Linear(4096, 8))
optimiser = torch.optim.SGD(model.parameters(), lr=1e-5)
loader = DataLoader(Images(), batch_size=8, shuffle=True)

for _ in hotloop.iterations(range(1_000_000), unit="epochs"):
    for batch in loader:  # fault: loader
        loss = model(batch).pow(2).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
