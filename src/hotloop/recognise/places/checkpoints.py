"""Checkpoints: what saves tensors, and what training libraries call to save all of a training.

What they write is thrown away. A library's own function is more than the tensors: it collects the
state, writes further files, and removes old ones.
"""

from collections.abc import Mapping
from types import ModuleType
from typing import Any

from hotloop.recognise.place_stage import PLAIN, Replay
from hotloop.recognise.places import CHECKPOINT
from hotloop.recognise.recognition import Recognition

# By module: what saves, and the package that exports it.
_FUNCTIONS: Mapping[str, tuple[str, str]] = {
    "torch.serialization": ("save", "torch"),
    "safetensors.torch": ("save_file", "safetensors"),
}
# By module: the class and its method.
_METHODS: Mapping[str, tuple[str, str]] = {
    "stable_baselines3.common.base_class": ("BaseAlgorithm", "save"),
    "stable_baselines3.common.off_policy_algorithm": ("OffPolicyAlgorithm", "save_replay_buffer"),
    "transformers.trainer": ("Trainer", "_save_checkpoint"),
    "lightning.pytorch.trainer.trainer": ("Trainer", "save_checkpoint"),
    "pytorch_lightning.trainer.trainer": ("Trainer", "save_checkpoint"),
    "accelerate.accelerator": ("Accelerator", "save_state"),
    "skrl.agents.torch.base": ("Agent", "write_checkpoint"),
}
_RETURNS_ITS_PATH = ("accelerate.accelerator",)


def install(recognition: Recognition, library: ModuleType) -> None:
    """Make saving a stage, which is left out where it is replaced."""
    checkpoint = recognition.stage(CHECKPOINT, effect="pure", kind="io")
    name = library.__name__
    if name in _FUNCTIONS:
        function, package = _FUNCTIONS[name]
        make = recognition.function(checkpoint, replay=Replay(instead=nothing))
        recognition.patches.exported(library, function, package, make)
    else:
        kind, method = _METHODS[name]
        make = recognition.method(
            checkpoint,
            key=lambda _self, _args, _kwargs: method,
            replay=PLAIN if name in _RETURNS_ITS_PATH else Replay(instead=nothing),
        )
        recognition.patches.family(getattr(library, kind), method, make)


def nothing(*_args: Any, **_kwargs: Any) -> None:
    """What stands for an effect that goes nowhere."""
