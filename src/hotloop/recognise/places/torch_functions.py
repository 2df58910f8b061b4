"""`torch.func`: its calls are counted, and are no stage.

What is transformed is a function of the user's: there is neither a call of a module nor a backward
pass whose outputs could be kept.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any

from hotloop.recognise.places import TRANSFORMED
from hotloop.recognise.recognition import Recognition

_FUNCTIONS = ("grad", "grad_and_value", "vmap", "functional_call")


def install(recognition: Recognition, library: ModuleType) -> None:
    """Count the calls of its functions; library: one of those that define them."""
    kept = recognition.kept

    def make(function: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            kept[TRANSFORMED] = kept.get(TRANSFORMED, 0) + 1
            return function(*args, **kwargs)

        return counted

    for name in _FUNCTIONS:
        if name in vars(library):
            recognition.patches.exported(library, name, "torch.func", make)
