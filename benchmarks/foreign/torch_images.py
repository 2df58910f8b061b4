"""A small network on random images, in plain PyTorch; each item is turned as it is read."""

import argparse
import math

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, TensorDataset

IMAGES, BATCH = 2_048, 64


class Turned(Dataset):
    """Images of 28 by 28, each turned by an angle of its own."""

    def __init__(self, images, labels):
        self.images, self.labels = images, labels

    def __len__(self):
        return len(self.images)

    def __getitem__(self, row):
        angle = math.tau * row / len(self)
        turn = [[math.cos(angle), -math.sin(angle), 0], [math.sin(angle), math.cos(angle), 0]]
        grid = functional.affine_grid(torch.tensor([turn]), [1, 1, 28, 28], align_corners=False)
        image = functional.grid_sample(self.images[row][None], grid, align_corners=False)
        return (image[0] - image.mean()) / image.std(), self.labels[row]


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("steps", type=int, nargs="?", default=200_000, help="batches")
    options.add_argument("--fix", action="store_true", help="turn the images once, before")
    chosen = options.parse_args()
    torch.manual_seed(1)
    dataset = Turned(torch.rand(IMAGES, 1, 28, 28), torch.randint(10, (IMAGES,)))
    if chosen.fix:
        images, labels = zip(*(dataset[row] for row in range(IMAGES)), strict=True)
        dataset = TensorDataset(torch.stack(images), torch.stack(labels))
    loader = DataLoader(dataset, batch_size=BATCH, shuffle=True)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 5, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 12 * 12, 10)
    )
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    done = 0
    while done < chosen.steps:
        for images, labels in loader:
            loss = functional.cross_entropy(model(images), labels)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            done += 1
            if done == chosen.steps:
                break
    print(f"{done} batches, loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
