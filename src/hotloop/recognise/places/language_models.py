"""Training of language models by rewards: generation, and TRL's rewards and log-probabilities."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

from hotloop.recognise.places import GENERATION, LOGPROB, REWARD
from hotloop.recognise.places.torch_modules import kind_of_call
from hotloop.recognise.recognition import Recognition

TRAINERS = ("GRPOTrainer", "RLOOTrainer")
LOG_PROBABILITIES = "_get_per_token_logps_and_entropies"


def install(recognition: Recognition, library: ModuleType) -> None:
    """Make them stages; library: transformers' module of generation, or one of TRL's trainers."""
    if hasattr(library, "GenerationMixin"):
        generation = recognition.stage(GENERATION, effect="pure")
        make = recognition.method(generation, key=kind_of_call)
        recognition.patches.function(library.GenerationMixin, "generate", make)
    for name in TRAINERS:
        trainer = vars(library).get(name)
        if trainer is not None and trainer.__module__ == library.__name__:
            _install_trainer(recognition, trainer)


def _install_trainer(recognition: Recognition, trainer: type) -> None:
    reward = recognition.stage(REWARD, effect="pure")
    number_of_prompts = recognition.method(reward, key=lambda _self, args, _kwargs: len(args[0]))
    recognition.patches.function(trainer, "_calculate_rewards", number_of_prompts)
    logprob = recognition.method(recognition.stage(LOGPROB, effect="pure"), key=kind_of_call)

    def without_gradient(function: Callable[..., Any]) -> Callable[..., Any]:
        import torch

        staged = logprob(function)

        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            # With gradient it is the forward pass of the update, which is a stage already.
            asked = function if torch.is_grad_enabled() else staged
            return asked(self, *args, **kwargs)

        return call

    if LOG_PROBABILITIES in vars(trainer):
        recognition.patches.function(trainer, LOG_PROBABILITIES, without_gradient)
