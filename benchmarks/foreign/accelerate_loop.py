"""A loop with Accelerate on random texts; the collation counts letters one by one in Python."""

import argparse
import itertools
import random

import torch
from accelerate import Accelerator
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

TEXTS, LETTERS, BATCH = 2_000, 200, 32
ALPHABET = "abcdefghijklmnopqrstuvwxyz "


def counts_of(text):
    """How often each letter follows each other, as one vector."""
    counts = torch.zeros(len(ALPHABET) ** 2)
    places = [ALPHABET.index(letter) for letter in text]
    for first, second in itertools.pairwise(places):
        counts[first * len(ALPHABET) + second] += 1
    return counts


def collate(items):
    vectors = [item if torch.is_tensor(item) else counts_of(item) for item, _ in items]
    return torch.stack(vectors), torch.tensor([label for _, label in items])


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("steps", type=int, nargs="?", default=100_000, help="batches")
    options.add_argument("--fix", action="store_true", help="count the letters once, before")
    chosen = options.parse_args()
    random.seed(1)
    torch.manual_seed(1)
    data = [("".join(random.choices(ALPHABET, k=LETTERS)), k % 4) for k in range(TEXTS)]
    if chosen.fix:
        data = [(counts_of(text), label) for text, label in data]
    accelerator = Accelerator(cpu=True)
    model = nn.Sequential(nn.Linear(len(ALPHABET) ** 2, 1_024), nn.ReLU(), nn.Linear(1_024, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loader = DataLoader(data, batch_size=BATCH, shuffle=True, collate_fn=collate)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    done = 0
    while done < chosen.steps:
        for counts, labels in loader:
            loss = cross_entropy(model(counts), labels)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            done += 1
            if done == chosen.steps:
                break
    accelerator.print(f"{done} batches, loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
