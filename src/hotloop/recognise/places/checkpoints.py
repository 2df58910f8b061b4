"""Checkpoints: what saves tensors, and what training libraries call to save all of a training.

What they write is thrown away. A library's own function is more than the tensors: it collects the
state, writes further files, and removes old ones.
"""

import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from hotloop.recognise.place_stage import PLAIN, Replay
from hotloop.recognise.places import CHECKPOINT
from hotloop.recognise.recognition import Recognition

# By module: what saves, the package that exports it, and its argument for the file, the second.
_FUNCTIONS: Mapping[str, tuple[str, str, str]] = {
    "torch.serialization": ("save", "torch", "f"),
    "safetensors.torch": ("save_file", "safetensors", "filename"),
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
        function, package, argument = _FUNCTIONS[name]
        saved = _Saved(recognition, argument)
        stage = recognition.function(checkpoint, replay=Replay(instead=saved.stand_in))
        recognition.patches.exported(
            library, function, package, lambda own: stage(saved.keeping(own))
        )
    else:
        kind, method = _METHODS[name]
        make = recognition.method(
            checkpoint,
            key=lambda _self, _args, _kwargs: method,
            replay=PLAIN if name in _RETURNS_ITS_PATH else Replay(instead=nothing),
        )
        recognition.patches.family(getattr(library, kind), method, make)


class _Saved:
    """What was saved under each name, so that a file is there where saving is left out.

    A script that saves to a file of its own and renames it finds that file missing otherwise. A
    name is that of the file without its numbers.
    """

    def __init__(self, recognition: Recognition, argument: str) -> None:
        self._recognition = recognition
        self._argument = argument
        self._kept: dict[str, Path] = {}

    def keeping(self, save: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that saves, and keeps the first file of each name."""

        def keep(*args: Any, **kwargs: Any) -> Any:
            output = save(*args, **kwargs)
            folder, path = self._recognition.folder, self._path_in(args, kwargs)
            if folder is not None and path is not None and _name(path) not in self._kept:
                kept = folder / f"{self._argument}-{os.getpid()}-{len(self._kept)}"
                with suppress(
                    OSError
                ):  # it is where no second name can be made: then there is none
                    os.link(path, kept)
                    self._kept[_name(path)] = kept
            return output

        return keep

    def stand_in(self, *args: Any, **kwargs: Any) -> None:
        """Save nothing; where the script expects a new file, it is one that was saved before."""
        path = self._path_in(args, kwargs)
        if path is None or not self._kept or Path(path).exists():
            return
        with suppress(OSError):  # as it would be raised by saving: the folder is not there
            os.link(self._kept.get(_name(path), next(iter(self._kept.values()))), path)

    def _path_in(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
        """The path that a call saves to; None for an open file, which is there already."""
        where = args[1] if len(args) > 1 else kwargs.get(self._argument)
        return os.fspath(where) if isinstance(where, str | os.PathLike) else None


def _name(path: str) -> str:
    return re.sub(r"\d+", "", Path(path).name)


def nothing(*_args: Any, **_kwargs: Any) -> None:
    """What stands for an effect that goes nowhere."""
