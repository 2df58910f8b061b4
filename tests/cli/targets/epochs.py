"""A script whose epochs are short, and which makes the stage of its loader anew in each."""

import sys
from pathlib import Path

import torch
from loops import spin
from torch.utils.data import DataLoader, TensorDataset

import hotloop

BATCHES = 5
loader = DataLoader(TensorDataset(torch.arange(40.0)), batch_size=8, shuffle=True)
train = hotloop.stage("train", spin, effect="pure")
epochs = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
for _ in range(epochs):
    load = hotloop.stage("load", loader, effect="pure")
    assert (load.batch_size, len(load), len(load.dataset)) == (8, BATCHES, 40)
    for _ in load:
        train(20_000)
Path("ended").touch()
