"""Two ranks train one network with DistributedDataParallel; each augments its images in Python.

python -m torch.distributed.run --nproc-per-node 2 ddp.py
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy, pad
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

IMAGES, BATCH = 1_024, 32


class Images(Dataset):
    """Random images of 3 x 32 x 32, shifted and normalised channel by channel when read."""

    def __init__(self, ready):
        self.images = torch.rand(IMAGES, 3, 32, 32)
        self.labels = torch.randint(10, (IMAGES,))
        self.ready = [self.prepared(row) for row in range(IMAGES)] if ready else None

    def prepared(self, row):
        shifted = pad(self.images[row], (4, 4, 4, 4))[:, row % 8 :, row // 8 % 8 :][:, :32, :32]
        return torch.stack([(plane - plane.mean()) / plane.std() for plane in shifted])

    def __len__(self):
        return IMAGES

    def __getitem__(self, row):
        return self.prepared(row) if self.ready is None else self.ready[row], self.labels[row]


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("steps", type=int, nargs="?", default=200_000, help="batches of a rank")
    options.add_argument("--fix", action="store_true", help="prepare the images once, before")
    chosen = options.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    dataset = Images(chosen.fix)
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=BATCH, sampler=sampler)
    network = nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(3_600, 10)
    )
    model = DistributedDataParallel(network)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    done = 0
    while done < chosen.steps:
        sampler.set_epoch(done)
        for images, labels in loader:
            optimizer.zero_grad()
            loss = cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            done += 1
            if done >= chosen.steps:
                break
    if dist.get_rank() == 0:
        print(f"{done} batches, loss {loss.item():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
