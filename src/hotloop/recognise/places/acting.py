"""Libraries that act with gradients on, though nothing is learned from these passes."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

from hotloop.recognise.recognition import Recognition

# Of Tianshou: what asks the policy for the actions of a step.
_CLASS, _METHOD = "BaseCollector", "_compute_action_policy_hidden"


def install(recognition: Recognition, library: ModuleType) -> None:
    """Have the calls of modules within a collector's steps count as acting."""
    inside = recognition.inside

    def make(function: Callable[..., Any]) -> Callable[..., Any]:
        def asked(*args: Any, **kwargs: Any) -> Any:
            inside.acts = True
            try:
                return function(*args, **kwargs)
            finally:
                inside.acts = False

        return asked

    recognition.patches.family(getattr(library, _CLASS), _METHOD, make)
