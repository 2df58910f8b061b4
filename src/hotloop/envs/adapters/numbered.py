"""An env that knows its number, so that one question to all envs reaches only those it is for.

Apart from the Stable-Baselines3 face, so that a worker loads no torch for it.
"""

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium


class NumberedEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An env with its number among all; it steps as the env itself."""

    def __init__(self, env_fn: Callable[[], gymnasium.Env[Any, Any]], number: int) -> None:
        super().__init__(env_fn())
        self.number = number
        self.step = self.env.step  # type: ignore[method-assign]  # nothing to do in between

    def reset(self, **given: Any) -> tuple[Any, dict[str, Any]]:
        """Start an episode; options are passed on only if there are any.

        Old envs know none, and Stable-Baselines3 gives them none.
        """
        if not given.get("options"):
            given.pop("options", None)
        return self.env.reset(**given)

    def read(self, numbers: Sequence[int], name: str) -> Any:
        """An attribute of the outermost wrapper that has it, if this env is meant."""
        return self.env.get_wrapper_attr(name) if self.number in numbers else None

    def write(self, numbers: Sequence[int], name: str, value: Any) -> None:
        """Set an attribute of the outermost wrapper, if this env is meant."""
        if self.number in numbers:
            setattr(self.env, name, value)

    def ask(
        self, numbers: Sequence[int], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """What a method of the env returns, if this env is meant."""
        if self.number not in numbers:
            return None
        return self.env.get_wrapper_attr(name)(*args, **kwargs)

    def is_wrapped(self, numbers: Sequence[int], wrapper_class: type[Any]) -> bool:
        """Whether one of its wrappers is of a class, if this env is meant."""
        env: Any = self.env
        while self.number in numbers and isinstance(env, gymnasium.Wrapper):
            if isinstance(env, wrapper_class):
                return True
            env = env.env
        return False
