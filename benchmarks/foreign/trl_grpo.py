"""GRPO of TRL on a tiny language model of random weights; its reward compares texts in Python."""

import argparse
import difflib
import string
import tempfile

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer

GENERATIONS, LENGTH = 4, 16


def tokenizer_of_letters():
    """A tokenizer that knows single letters."""
    words = {word: number for number, word in enumerate(["<pad>", "<eos>", "<unk>"])}
    words |= {letter: len(words) + k for k, letter in enumerate(string.ascii_letters)}
    letters = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    letters.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    names = {"pad_token": "<pad>", "eos_token": "<eos>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(tokenizer_object=letters, **names)


def alike(prompts, completions, **_):
    """How alike a completion and its prompt are, by their longest common parts."""
    pairs = zip(prompts, completions, strict=True)
    return [difflib.SequenceMatcher(None, a * 12, b * 12, autojunk=False).ratio() for a, b in pairs]


def short(completions, **_):
    """How many letters there are, as a quick reward."""
    return [float(len(completion)) for completion in completions]


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("steps", type=int, nargs="?", default=20_000, help="updates")
    options.add_argument("--fix", action="store_true", help="take a reward that is quick to find")
    chosen = options.parse_args()
    torch.manual_seed(1)
    tokenizer = tokenizer_of_letters()
    sizes = {"n_positions": 64, "n_embd": 32, "n_layer": 1, "n_head": 2}
    ends = {"bos_token_id": 1, "eos_token_id": 1, "pad_token_id": 0}
    model = GPT2LMHeadModel(GPT2Config(vocab_size=len(tokenizer), **ends, **sizes))
    prompts = [string.ascii_letters[k : k + 20] for k in range(30)]
    with tempfile.TemporaryDirectory() as folder:
        # The model that the trained one must stay near to is loaded from where this one is from.
        model.save_pretrained(folder)
        model = GPT2LMHeadModel.from_pretrained(folder)
        settings = GRPOConfig(
            output_dir=folder,
            max_steps=chosen.steps,
            per_device_train_batch_size=2 * GENERATIONS,
            num_generations=GENERATIONS,
            max_completion_length=LENGTH,
            beta=0.04,
            save_strategy="no",
            logging_steps=200,
            disable_tqdm=True,
            report_to="none",
            use_cpu=True,
            bf16=False,
            seed=1,
        )
        trainer = GRPOTrainer(
            model=model,
            reward_funcs=short if chosen.fix else alike,
            args=settings,
            train_dataset=Dataset.from_dict({"prompt": prompts}),
            processing_class=tokenizer,
        )
        trainer.train()


if __name__ == "__main__":
    main()
