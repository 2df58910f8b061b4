"""Transformers' Trainer on a tiny language model of random weights; it saves every few steps."""

import argparse
import tempfile

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

LENGTH, WORDS = 32, 2_000


class Lines(Dataset):
    """Lines of random words."""

    def __init__(self):
        self.tokens = torch.randint(WORDS, (4_096, LENGTH))

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, row):
        return {"input_ids": self.tokens[row], "labels": self.tokens[row]}


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("steps", type=int, nargs="?", default=50_000, help="batches")
    options.add_argument("--fix", action="store_true", help="save nothing on the way")
    chosen = options.parse_args()
    torch.manual_seed(1)
    sizes = {"n_positions": LENGTH, "n_embd": 64, "n_layer": 2, "n_head": 2}
    model = GPT2LMHeadModel(GPT2Config(vocab_size=WORDS, bos_token_id=0, eos_token_id=0, **sizes))
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            max_steps=chosen.steps,
            per_device_train_batch_size=8,
            save_strategy="no" if chosen.fix else "steps",
            save_steps=2,
            save_total_limit=1,
            logging_steps=500,
            disable_tqdm=True,
            report_to="none",
            use_cpu=True,
            seed=1,
        )
        Trainer(model, arguments, train_dataset=Lines()).train()


if __name__ == "__main__":
    main()
