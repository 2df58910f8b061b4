"""`jax.jit`: each call of a function that it has compiled, as Python sees it."""

import functools
import sys
from collections.abc import Hashable, Iterator
from types import ModuleType
from typing import Any

from hotloop.recognise.place_stage import Replay
from hotloop.recognise.places import UPDATES
from hotloop.recognise.recognition import Recognition


def install(recognition: Recognition, jax: ModuleType) -> None:
    """Make functions that the script and its libraries compile stages; JAX's own are none."""
    own = jax.jit

    def jit(fun: Any = None, *args: Any, **kwargs: Any) -> Any:
        if fun is None:  # as a decorator with arguments
            return functools.partial(jit, *args, **kwargs)
        return _Compiled(recognition, own(fun, *args, **kwargs))

    recognition.patches.set(jax, "jit", functools.wraps(own)(jit))


class _Compiled:
    """A compiled function: called, it is a stage; its attributes are the function's own.

    Compiled functions compute nothing but what they return, so that recorded outputs may stand
    for them. They may return before they have computed: what is recorded waits for that.
    """

    def __init__(self, recognition: Recognition, function: Any) -> None:
        self._recognition = recognition
        self._function = function
        self._is_known = False
        functools.update_wrapper(self, function, updated=())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        recognition = self._recognition
        name = f"jitted {getattr(self._function, '__name__', 'function')}"[:64]
        stage = recognition.stage(name, effect="pure")
        if not recognition.modes[stage.index] or recognition.inside.now:
            return self._function(*args, **kwargs)
        if not self._is_known:
            return self._first(name, *args, **kwargs)
        recognition.inside.now = True
        try:
            return stage.call(self._computed, args, kwargs, functools.partial(id, self), _REPLAY)
        finally:
            recognition.inside.now = False

    def _first(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Do the first call, which compiles, and look whether it changes what it was given."""
        self._is_known = True
        inside = self._recognition.inside
        inside.now = True
        try:
            given = {found for each in (*args, *kwargs.values()) for found in _states(each)}
            output = self._function(*args, **kwargs)
            if given.intersection(_states(output)):
                self._recognition.kept.setdefault(UPDATES, set()).add(name)
            return output
        finally:
            inside.now = False

    def _computed(self, *args: Any, **kwargs: Any) -> Any:
        return sys.modules["jax"].block_until_ready(self._function(*args, **kwargs))

    def __get__(self, owner: Any, kind: type | None = None) -> Any:
        return self if owner is None else functools.partial(self, owner)

    def __getattr__(self, name: str) -> Any:
        if name == "_function":
            raise AttributeError(name)
        return getattr(self._function, name)


class _Immutable:
    """A recorded output: arrays of JAX never change, so that no copy need be made."""

    def __init__(self, output: Any) -> None:
        self.output = output

    def __deepcopy__(self, _memo: dict[int, Any]) -> "_Immutable":
        return self


_REPLAY = Replay(
    frozen=lambda output, _args: _Immutable(output),
    thawed=lambda recorded, _args: recorded.output,
)


def _states(value: Any) -> Iterator[Hashable]:
    """Yield the shapes of a tree of several arrays, as parameters are, and of those within it.

    Their classes may differ after each call, as far as JAX tells: they hold functions.
    """
    for each in (value, *(value if isinstance(value, tuple | list) else ())):
        arrays = sys.modules["jax"].tree_util.tree_leaves(each)
        shapes = tuple(tuple(getattr(array, "shape", ())) for array in arrays)
        if len(shapes) > 1 and any(len(shape) > 1 for shape in shapes):
            yield shapes
        if each is not value and isinstance(each, tuple | list):
            yield from _states(each)
