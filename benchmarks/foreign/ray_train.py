"""Ray Train, with two workers in PyTorch; each ranks its random series as it reads them."""

import argparse
import tempfile

import ray
import ray.train.torch
import torch
from ray.train import RunConfig, ScalingConfig
from torch import nn
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader, Dataset

SERIES, LENGTH, BATCH = 1_024, 128, 32


class Series(Dataset):
    """Random series with the times at which their values are passed on the way up."""

    def __init__(self, ready):
        self.raw = torch.rand(SERIES, LENGTH)
        self.ready = [self.prepared(row) for row in range(SERIES)] if ready else None

    def prepared(self, row):
        values = self.raw[row].tolist()
        ranks = [sum(other < value for other in values) / LENGTH for value in values]
        return torch.tensor(ranks)

    def __len__(self):
        return SERIES

    def __getitem__(self, row):
        return self.prepared(row) if self.ready is None else self.ready[row], self.raw[row, :1]


def train(settings):
    """What each worker does."""
    torch.manual_seed(1)
    loader = DataLoader(Series(settings["ready"]), batch_size=BATCH, shuffle=True)
    loader = ray.train.torch.prepare_data_loader(loader)
    model = nn.Sequential(nn.Linear(LENGTH, 1_024), nn.ReLU(), nn.Linear(1_024, 1))
    model = ray.train.torch.prepare_model(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    done = 0
    while done < settings["steps"]:
        for series, first in loader:
            loss = mse_loss(model(series), first)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            done += 1
            if done == settings["steps"]:
                break
        ray.train.report({"loss": loss.item()})


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("steps", type=int, nargs="?", default=50_000, help="batches of a worker")
    options.add_argument("--fix", action="store_true", help="prepare the series once, before")
    chosen = options.parse_args()
    ray.init(num_cpus=3, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    with tempfile.TemporaryDirectory() as folder:
        ray.train.torch.TorchTrainer(
            train,
            train_loop_config={"steps": chosen.steps, "ready": chosen.fix},
            scaling_config=ScalingConfig(num_workers=2),
            run_config=RunConfig(storage_path=folder),
        ).fit()
    ray.shutdown()


if __name__ == "__main__":
    main()
