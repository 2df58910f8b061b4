"""A small network of timm on random pictures, with timm's own augmentation on the way."""

# ruff: noqa: E402 - operators are declared before torchvision is imported

import argparse

import numpy as np
import torch
from PIL import Image

# The wheels of torchvision on a torch without CUDA lack their operators, and fail without these.
library = torch.library.Library("torchvision", "DEF")
for name in ("nms", "qnms"):
    library.define(f"{name}(Tensor boxes, Tensor scores, float iou_threshold) -> Tensor")

import timm
from timm.data import create_transform
from timm.optim import create_optimizer_v2
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset

PICTURES, SIDE, BATCH = 256, 32, 16


class Pictures(Dataset):
    """Photographs of 256 x 256, cut and coloured at random when they are read."""

    def __init__(self, ready):
        rng = np.random.default_rng(1)
        self.pixels = rng.integers(0, 256, (PICTURES, 256, 256, 3), dtype=np.uint8)
        self.augment = create_transform(
            SIDE, is_training=True, auto_augment="rand-m9-n2", re_prob=0.25
        )
        self.ready = [self.read(row) for row in range(PICTURES)] if ready else None

    def read(self, row):
        return self.augment(Image.fromarray(self.pixels[row]))

    def __len__(self):
        return PICTURES

    def __getitem__(self, row):
        return self.read(row) if self.ready is None else self.ready[row], row % 10


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("steps", type=int, nargs="?", default=50_000, help="batches")
    options.add_argument("--fix", action="store_true", help="augment each picture once, before")
    chosen = options.parse_args()
    torch.manual_seed(1)
    model = timm.create_model("test_resnet", pretrained=False, num_classes=10)
    optimizer = create_optimizer_v2(model, opt="adamw", lr=1e-3)
    loader = DataLoader(Pictures(chosen.fix), batch_size=BATCH, shuffle=True)
    model.train()
    done = 0
    while done < chosen.steps:
        for pictures, labels in loader:
            optimizer.zero_grad()
            loss = cross_entropy(model(pictures), labels)
            loss.backward()
            optimizer.step()
            done += 1
            if done == chosen.steps:
                break
    print(f"{done} batches, loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
