"""A Lightning module on random signals, each filtered in Python when it is read."""

import argparse
import logging
import math
import warnings

import lightning
import torch
from torch import nn
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader, Dataset

SIGNALS, LENGTH, BATCH = 2_048, 256, 32


class Signals(Dataset):
    """Noise and its mean, filtered by a chain of moving averages."""

    def __init__(self, ready):
        self.raw = torch.randn(SIGNALS, LENGTH)
        self.ready = [self.filtered(row) for row in range(SIGNALS)] if ready else None

    def filtered(self, row):
        signal = self.raw[row]
        for width in range(2, 14):
            signal = signal.unfold(0, width, 1).mean(-1)
        return nn.functional.pad(signal, (0, LENGTH - len(signal))) * math.sqrt(LENGTH)

    def __len__(self):
        return SIGNALS

    def __getitem__(self, row):
        signal = self.filtered(row) if self.ready is None else self.ready[row]
        return signal, self.raw[row].mean().unsqueeze(0)


class Regression(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(LENGTH, 512), nn.ReLU(), nn.Linear(512, 1))

    def training_step(self, batch):
        signal, target = batch
        loss = mse_loss(self.net(signal), target)
        self.log("train_loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("steps", type=int, nargs="?", default=200_000, help="batches")
    options.add_argument("--fix", action="store_true", help="filter the signals once, before")
    chosen = options.parse_args()
    warnings.filterwarnings("ignore", ".*num_workers.*")
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    lightning.seed_everything(1, verbose=False)
    loader = DataLoader(Signals(chosen.fix), batch_size=BATCH, shuffle=True)
    trainer = lightning.Trainer(
        max_steps=chosen.steps,
        max_epochs=-1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Regression(), loader)


if __name__ == "__main__":
    main()
