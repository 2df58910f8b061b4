"""From the observations of a space to the arrays that a network takes, with NumPy alone.

Apart from the networks, for actors in worker processes put observations together without torch.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from hotloop.data.layout import Layout, Tree, tree_map
from hotloop.errors import TargetError
from hotloop.learn.policies.distributions import Floats

Array = NDArray[Any]
_BYTE = np.float32(1 / 255)


@dataclass(frozen=True)
class Entry:
    """One leaf of an observation space.

    shape, dtype: of one value as the env gives it. choices: for Discrete and MultiDiscrete, number
    and first value of the options of each entry, which become one-hot vectors.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    choices: tuple[tuple[int, int], ...] | None = None

    @property
    def is_image(self) -> bool:
        """Whether it is a Box of three dimensions, of uint8 or floats."""
        pixels = self.dtype == np.uint8 or np.issubdtype(self.dtype, np.floating)
        return self.choices is None and len(self.shape) == 3 and pixels

    @property
    def channels_first(self) -> bool:
        """Whether an image's channels are its first axis: the smaller one of first and last."""
        return self.shape[0] <= self.shape[-1]

    @cached_property
    def size(self) -> int:
        """Numbers of this entry in the flat vector."""
        if self.choices is None:
            return math.prod(self.shape)
        return sum(n for n, _ in self.choices)

    def flat(self, array: Array) -> Floats:
        """Return values (..., *shape) as vectors (..., size).

        Images of uint8 are scaled to 0 to 1, as they are in the networks for images.
        """
        if array.dtype == np.float32 and len(self.shape) == 1 and self.choices is None:
            return array
        leading = array.shape[: array.ndim - len(self.shape)]
        if self.choices is not None:
            numbers = array.reshape(*leading, len(self.choices))
            repeated = np.repeat(numbers, [n for n, _ in self.choices], -1)
            return np.asarray(repeated == self._options, np.float32)
        vectors = array.reshape(*leading, self.size)
        if self.is_image and self.dtype == np.uint8:
            scaled: Floats = np.multiply(vectors, _BYTE, dtype=np.float32)
            return scaled
        return vectors.astype(np.float32, copy=False)

    @cached_property
    def _options(self) -> NDArray[np.int64]:
        """The value of the env that each number of the one-hot vectors stands for."""
        return np.concatenate([start + np.arange(n) for n, start in self.choices or ()])


@dataclass(frozen=True)
class Observations:
    """The observations of one space (without a mask), and the forms in which networks take them.

    Leading dimensions may be any: (B,), (T, B) or none.
    """

    layout: Layout
    entries: tuple[Entry, ...]

    @classmethod
    def of(cls, space: gymnasium.Space[Any]) -> "Observations":
        """Read a space. Raises: TargetError for one that cannot be taken."""
        entries = tuple(_entries(space, "observations"))
        if not sum(entry.size for entry in entries):
            raise TargetError(
                f"policy: observations: expected at least one number, got {space}; add what the "
                "policy is to see"
            )
        return cls(Layout.of(space), entries)

    @property
    def inputs(self) -> int:
        """Numbers of the flat vector."""
        return sum(entry.size for entry in self.entries)

    @property
    def images(self) -> list[Entry]:
        """The entries that are images."""
        return [entry for entry in self.entries if entry.is_image]

    @property
    def stored_dtype(self) -> np.dtype[Any] | None:
        """The type in which observations are stored; None stores them as the env gives them.

        Single precision, where all entries are floats and none is an image. Other types hold less
        than float32 (bytes), or more (large integers).
        """
        floats = all(
            np.issubdtype(entry.dtype, np.floating) and not entry.is_image for entry in self.entries
        )
        return np.dtype(np.float32) if floats else None

    @cached_property
    def _only(self) -> Entry | None:
        return self.entries[0] if self.layout.is_leaf else None

    def vector(self, obs: Tree) -> Floats:
        """Return all entries as one flat vector an observation, (..., inputs)."""
        if self._only is not None:
            return self._only.flat(np.asarray(obs))
        return _joined(self.entries, self.layout.arrays(obs))

    def images_and_vector(self, obs: Tree) -> tuple[Array, ...]:
        """Return the images as they are, then, if there are others, the flat vector of these."""
        arrays = list(zip(self.entries, self.layout.arrays(obs), strict=True))
        images = tuple(array for entry, array in arrays if entry.is_image)
        others = [(entry, array) for entry, array in arrays if not entry.is_image]
        if not others:
            return images
        return *images, _joined([e for e, _ in others], [a for _, a in others])

    def as_given(self, obs: Tree) -> Tree:
        """Return the observations as they are stored; floats become single precision."""
        return tree_map(_single, obs)


def _joined(entries: Sequence[Entry], arrays: Sequence[Array]) -> Floats:
    parts = [entry.flat(array) for entry, array in zip(entries, arrays, strict=True)]
    return np.concatenate(parts, -1)


def _single(leaf: Any) -> Array:
    array = np.asarray(leaf)
    floats = np.issubdtype(array.dtype, np.floating)
    return array.astype(np.float32, copy=False) if floats else array


def _entries(space: gymnasium.Space[Any], where: str) -> Iterator[Entry]:
    match space:
        case spaces.Dict():
            for key, part in space.spaces.items():
                yield from _entries(part, f"{where}[{key!r}]")
        case spaces.Tuple():
            for index, part in enumerate(space.spaces):
                yield from _entries(part, f"{where}[{index}]")
        case spaces.Box() | spaces.MultiBinary():
            yield Entry(tuple(space.shape), np.dtype(space.dtype))
        case spaces.Discrete():
            options = ((int(space.n), int(space.start)),)
            yield Entry((), np.dtype(space.dtype), options)
        case spaces.MultiDiscrete():
            starts = np.broadcast_to(space.start, space.nvec.shape)
            pairs = zip(space.nvec.ravel().tolist(), starts.ravel().tolist(), strict=True)
            yield Entry(tuple(space.nvec.shape), np.dtype(space.dtype), tuple(pairs))
        case _:
            raise TargetError(
                f"policy: {where}: expected a Box, Discrete, MultiDiscrete or MultiBinary, or a "
                f"Dict or Tuple of them, got {space}; wrap the env, for instance with "
                "gymnasium.wrappers.TransformObservation, so that it gives arrays of fixed shape"
            )
