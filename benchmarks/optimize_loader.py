"""A training with a DataLoader, whose loop is marked and nothing else: a target of optimize.

hotloop optimize benchmarks/optimize_loader.py -- waits    # samples wait, as for a disk
hotloop optimize benchmarks/optimize_loader.py -- works    # samples are computed, as by decoding
"""

import sys
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

import hotloop

SAMPLES, SAMPLE_S = 512, 0.002


def waits(index):
    time.sleep(SAMPLE_S)
    return torch.full((64,), float(index))


def works(index):
    picture = np.random.default_rng(index).standard_normal((96, 96))
    for _ in range(12):
        picture = np.sort(np.tanh(picture), axis=0)
    return torch.from_numpy(picture[:8, :8].astype(np.float32).reshape(-1))


class Samples(Dataset):
    def __init__(self, make):
        self.make = make

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        return self.make(index), index % 10


def passes(loader):
    while True:
        yield from loader


def main():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    optimiser = torch.optim.Adam(model.parameters())
    samples = Samples({"waits": waits, "works": works}[sys.argv[1]])
    loader = DataLoader(samples, batch_size=16, shuffle=True)
    for x, y in hotloop.iterations(
        passes(loader), unit="samples", units=lambda batch: len(batch[1])
    ):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimiser.step()


if __name__ == "__main__":
    main()
