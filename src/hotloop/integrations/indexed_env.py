"""An env that knows its index, so that a call of all envs can be answered by some of them.

Apart from `stable_baselines3`, so that a worker loads no torch for it.
"""

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium


class IndexedEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An env with its index among all; it steps as the env itself."""

    def __init__(self, env_fn: Callable[[], gymnasium.Env[Any, Any]], index: int) -> None:
        super().__init__(env_fn())
        self.index = index
        self.step = self.env.step  # type: ignore[method-assign]  # nothing to do in between

    def reset(self, **given: Any) -> tuple[Any, dict[str, Any]]:
        """Start an episode; options are passed on only if there are any.

        Old envs take none, and Stable-Baselines3 gives them none.
        """
        if not given.get("options"):
            given.pop("options", None)
        return self.env.reset(**given)

    def read(self, indices: Sequence[int], name: str) -> Any:
        """An attribute of the outermost wrapper that has it, if this env is among `indices`."""
        return self.env.get_wrapper_attr(name) if self.index in indices else None

    def write(self, indices: Sequence[int], name: str, value: Any) -> None:
        """Set an attribute of the outermost wrapper, if this env is among `indices`."""
        if self.index in indices:
            setattr(self.env, name, value)

    def ask(
        self, indices: Sequence[int], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """What a method of the env returns, if this env is among `indices`."""
        if self.index not in indices:
            return None
        return self.env.get_wrapper_attr(name)(*args, **kwargs)

    def is_wrapped(self, indices: Sequence[int], wrapper_class: type[Any]) -> bool:
        """Whether one of its wrappers is of a class, if this env is among `indices`."""
        env: Any = self.env
        while self.index in indices and isinstance(env, gymnasium.Wrapper):
            if isinstance(env, wrapper_class):
                return True
            env = env.env
        return False
