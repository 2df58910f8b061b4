"""Adapt an env that keeps only a part of Gymnasium's contract to backends that keep arrays.

Tianshou asks little of an env: spaces may differ from env to env or be missing, observations may
differ from their space, rewards may be vectors. Values that fit an array go there; the others
travel in the infos, see `LooseResult`. Apart from `tianshou`: a worker loads no torch for it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from hotloop.data.layout import Layout
from hotloop.errors import ShapeError

RESULT = "loose_result"  # the key in the infos
_MANY = 2**62
_NUMBERS = (float, int, np.floating, np.integer, np.bool_)


class InArray:
    """Stands for a value that is in the array."""


@dataclass
class LooseResult:
    """The results of one step or reset that no array holds."""

    info: dict[str, Any] = field(default_factory=dict)
    obs: Any = InArray  # where it does not fit its space
    reward: Any = InArray  # where it is not a number


class OpaqueSpace(spaces.Space[Any]):
    """A space of all values, kept as objects."""

    @property
    def is_np_flattenable(self) -> bool:
        """Never."""
        return False

    def contains(self, x: Any) -> bool:  # noqa: ARG002  # Gymnasium's signature
        """Always."""
        return True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OpaqueSpace)

    __hash__ = None  # type: ignore[assignment]  # as of every space that says what equals it


class LooseEnv(gymnasium.Env[Any, Any]):
    """One env, its spaces reduced to shapes and types.

    number: of the env among all. casts: whether observations become their space's type. opaque:
    whether no shapes are expected, because other envs have others.
    """

    def __init__(self, env_fn: Callable[[], Any], number: int, casts: bool, opaque: bool) -> None:
        self.env = env_fn()
        self.number = number
        self._casts = casts
        own = getattr(self.env, "observation_space", None)
        self.observation_space = OpaqueSpace() if opaque else plain_space(own)
        self.action_space = (
            OpaqueSpace() if opaque else plain_space(self._attribute("action_space"))
        )
        self._layout = Layout.of(self.observation_space)
        self._blank = self._layout.row(self._layout.empty(1), 0)
        self.render_mode = getattr(self.env, "render_mode", None)
        self.metadata = dict(getattr(self.env, "metadata", None) or {})
        self.spec = getattr(self.env, "spec", None)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """`options["kwargs"]` are the env's own arguments; without, it is seeded, if with a seed.

        Raises: AssertionError for an env that does not give a pair with an info.
        """
        kwargs = {"seed": seed} if options is None else options["kwargs"]
        got = self.env.reset(**kwargs)
        if not (isinstance(got, tuple | list) and len(got) == 2 and isinstance(got[1], dict)):
            raise AssertionError("The environment does not adhere to the Gymnasium's API.")
        obs, info = got
        if isinstance(obs, tuple):
            raise TypeError(
                "Tuple observation space is not supported. ",
                "Please change it to array or dict space",
            )
        result = LooseResult(info)
        return self._fitted(obs, result), self._infos(result)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """One step."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        if not info and type(reward) is float and _fits(self._layout, obs):
            return obs, reward, terminated, truncated, info
        result = LooseResult(info)
        if not isinstance(reward, _NUMBERS):
            result.reward, reward = reward, 0.0
        return self._fitted(obs, result), reward, terminated, truncated, self._infos(result)

    def seed_as(self, seeds: list[int | None]) -> int | None:
        """Seed the action space, and the env by its own `seed` if it has one, else by a reset."""
        seed = seeds[self.number]
        space = self._attribute("action_space")
        if space is not None:
            space.seed(seed)
        if hasattr(self.env, "seed"):
            self.env.seed(seed)
        else:
            self.env.reset(seed=seed)
        return seed

    def read(self, name: str) -> Any:
        """An attribute of the outermost wrapper that has it; None without one."""
        return self._attribute(name)

    def write(self, name: str, value: Any, numbers: list[int]) -> None:
        """Set an attribute of the env inside of all wrappers, if this env is meant."""
        if self.number in numbers:
            setattr(getattr(self.env, "unwrapped", self.env), name, value)

    def draw(self, **kwargs: Any) -> Any:
        """What the env renders; None if it does not."""
        return self.env.render(**kwargs) if hasattr(self.env, "render") else None

    def close(self) -> None:
        """Close the env."""
        self.env.close()

    def _attribute(self, name: str) -> Any:
        if isinstance(self.env, gymnasium.Env):
            return self.env.get_wrapper_attr(name) if self.env.has_wrapper_attr(name) else None
        return getattr(self.env, name, None)

    def _fitted(self, obs: Any, result: LooseResult) -> Any:
        if _fits(self._layout, obs):
            return obs
        if self._casts and not self._layout.has_objects:
            return _cast(self._layout, obs, f"env {self.number}: observation")
        result.obs = obs
        return self._blank

    def _infos(self, result: LooseResult) -> dict[str, Any]:
        if not result.info and result.obs is InArray and result.reward is InArray:
            return {}
        return {RESULT: result}


def plain_space(space: Any) -> spaces.Space[Any]:
    """The space reduced to shape and type: equal for spaces whose values fit the same array."""
    if isinstance(space, spaces.Dict):
        return spaces.Dict({key: plain_space(child) for key, child in space.spaces.items()})
    if isinstance(space, spaces.Tuple):
        return spaces.Tuple([plain_space(child) for child in space.spaces])
    if not isinstance(space, spaces.Space) or (layout := Layout.of(space)).dtype.hasobject:
        return OpaqueSpace()
    kind = layout.dtype
    if isinstance(space, spaces.Discrete) and kind == np.int64:
        return spaces.Discrete(_MANY)  # its actions become Python's integers, as everywhere here
    if kind.kind == "f":
        return spaces.Box(-np.inf, np.inf, layout.shape, kind.type)
    limits = np.iinfo(kind) if kind.kind in "iu" else np.iinfo(np.int8)
    return spaces.Box(limits.min, limits.max, layout.shape, kind.type)


def _fits(layout: Layout, value: Any) -> bool:
    """Whether an array with this layout holds the value as it is."""
    if layout.children is None:
        if type(value) is np.ndarray or isinstance(value, np.generic):
            return value.dtype == layout.dtype and value.shape == layout.shape
        return type(value) is int and layout.shape == () and layout.dtype == np.int64
    if layout.keys is None:
        return (
            type(value) is tuple
            and len(value) == len(layout.children)
            and all(map(_fits, layout.children, value))
        )
    return (
        type(value) is dict
        and value.keys() == set(layout.keys)
        and all(
            _fits(child, value[key])
            for key, child in zip(layout.keys, layout.children, strict=True)
        )
    )


def _cast(layout: Layout, value: Any, where: str) -> Any:
    """The value in its space's types.

    Raises: ShapeError for one of another shape.
    """
    if layout.children is None:
        array = np.asarray(value, layout.dtype)
        if array.size != int(np.prod(layout.shape)):
            raise ShapeError(f"{where}: expected shape {layout.shape}, got {array.shape}")
        return array.reshape(layout.shape)
    if layout.keys is None:
        return tuple(
            _cast(child, part, f"{where}[{i}]")
            for i, (child, part) in enumerate(zip(layout.children, value, strict=True))
        )
    return {
        key: _cast(child, value[key], f"{where}[{key!r}]")
        for key, child in zip(layout.keys, layout.children, strict=True)
    }
