"""Torch policies of other libraries in fragment workers: on the CPU, with generators of their own.

Apart from the modules of these libraries, whose collectors share it.
"""

import copy
import inspect
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import torch
from torch import nn

from hotloop.errors import SettingError, nearest
from hotloop.rollout.fragments import FragmentCollector

Module = TypeVar("Module", bound=nn.Module)


class OwnGenerators:
    """The global generators of torch and NumPy as one policy uses them.

    Policies of other libraries draw from the global generators. Where workers share a process,
    each policy has to go on where it stopped, and the caller's generators have to stay as they are.
    """

    def __init__(self) -> None:
        self.seed(0)

    def seed(self, seed: int) -> None:
        """Draw from generators of this seed from now on."""
        self._torch = torch.Generator().manual_seed(seed).get_state()
        self._numpy = np.random.RandomState(seed % 2**32).get_state()

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Make them the global ones inside, and go on from where they were before."""
        callers = torch.get_rng_state(), np.random.get_state()
        torch.set_rng_state(self._torch)
        np.random.set_state(self._numpy)
        try:
            yield
        finally:
            self._torch, self._numpy = torch.get_rng_state(), np.random.get_state()
            torch.set_rng_state(callers[0])
            np.random.set_state(callers[1])


def on_cpu(module: Module) -> Module:
    """Return the module itself if all of its tensors are on the CPU, else a copy there."""
    tensors = [*module.parameters(), *module.buffers()]
    if all(tensor.device.type == "cpu" for tensor in tensors):
        return module
    return copy.deepcopy(module).to("cpu")


def check_settings(
    settings: Mapping[str, Any], own: Collection[str], instead: Mapping[str, str]
) -> None:
    """Refuse settings that do not go to `FragmentCollector` as they are.

    own: names that the library's collector sets itself. instead: names of the library's that do
    not apply, with what to do.
    Raises: SettingError.
    """
    parameters = inspect.signature(FragmentCollector.__init__).parameters
    known = [name for name in parameters if name not in ("self", *own)]
    for name in settings:
        if name not in known:
            what = f"; {instead[name]}" if name in instead else nearest(name, known)
            raise SettingError(
                f"{name}: expected a setting of ActorCollector or of FragmentCollector, got another"
                f" name{what}"
            )
