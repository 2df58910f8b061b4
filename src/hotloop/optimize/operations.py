"""Watching every operation of torch that a loop runs, forward and backward, below autograd."""

import os
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from hotloop.loop.values import torch_if_loaded
from hotloop.optimize.patience import Patience


@dataclass(frozen=True)
class Operation:
    """One call of an operation. name: such as "aten._to_copy". frame: of the caller in Python."""

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any
    frame: types.FrameType


Listener = Callable[[Operation], None]


class Operations:
    """The shared instrument: gives each operation to its listeners while `watching`."""

    def __init__(self) -> None:
        self.listeners: list[Listener] = []

    @contextmanager
    def watching(self, seconds: float) -> Iterator[None]:
        """Watch the operations of this thread, and of the backward passes it starts.

        seconds: how long that is planned for; once `Patience` is over operations only pass
        through, in the middle of an iteration too.
        """
        if torch_if_loaded() is None or not self.listeners:
            yield
            return
        _warm_up()
        mode = _mode(self.listeners, Patience(seconds))
        mode.__enter__()
        try:
            yield
        finally:
            mode.__exit__(None, None, None)


def _warm_up() -> None:
    """Let torch import what its first watched operation needs: that can take a second."""
    import torch

    with _mode([], Patience(0.0)):
        torch.zeros(1).add(1)


def _mode(listeners: list[Listener], patience: Patience) -> Any:
    from torch.utils._python_dispatch import TorchDispatchMode

    process = os.getpid()

    class WatchingMode(TorchDispatchMode):
        def __torch_dispatch__(  # type: ignore[no-untyped-def]  # torch's own has none
            self, func, types, args=(), kwargs=None
        ):
            kwargs = kwargs or {}
            result = func(*args, **kwargs)
            # A forked child inherits the mode, and can never take it off.
            if os.getpid() == process and not patience.is_over():
                name = f"{func.namespace}.{func._opname}"
                operation = Operation(name, args, kwargs, result, sys._getframe(1))
                for listener in listeners:
                    listener(operation)
            return result

    return WatchingMode()  # type: ignore[no-untyped-call]  # as its parent
