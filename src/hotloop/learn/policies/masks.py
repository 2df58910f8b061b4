"""Action masks: the entry "action_mask" of a Dict observation says which choices are allowed.

A forbidden choice gets a logit so low that its probability is exactly 0 in single precision. The
logit is finite, for with −∞ the entropy would be 0 · ∞, not a number.
"""

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from hotloop.data.layout import Tree
from hotloop.errors import TargetError
from hotloop.learn.policies.distributions import Distribution, Floats

KEY = "action_mask"
FORBIDDEN = -1e30
"""The logit of a forbidden choice. Sums of thousands of them are still finite."""

Flags = NDArray[np.bool_]
_ADVICE = (
    f"make {KEY!r} a Box, MultiBinary or MultiDiscrete with one entry for each choice: the n of a "
    "Discrete; those of every entry of a MultiDiscrete, one after the other; two for each entry of "
    "a MultiBinary"
)


@dataclass(frozen=True)
class ActionMask:
    """Where the mask lies in an observation, and the choices that it is about.

    sizes: options of each choice. dimensions: of one mask as the env gives it. alone: the key of
    the observation, where one entry is left beside the mask.
    """

    sizes: tuple[int, ...]
    dimensions: int
    alone: str | None

    def split(self, obs: Mapping[str, Tree]) -> tuple[Tree, Flags]:
        """Return the observation without its mask, and what is allowed, (..., logits)."""
        mask = np.asarray(obs[KEY])
        allowed = mask.reshape(*mask.shape[: mask.ndim - self.dimensions], sum(self.sizes)) != 0
        if self.alone is not None:
            return obs[self.alone], allowed
        return {key: part for key, part in obs.items() if key != KEY}, allowed

    def apply(self, outputs: Floats, allowed: Flags) -> Floats:
        """Return the logits (B, logits) with those of forbidden choices lowered."""
        return np.where(allowed, outputs, np.float32(FORBIDDEN))

    def expect_options(self, outputs: Floats) -> None:
        """Refuse masked logits (B, logits) of a choice without an allowed option.

        Raises: TargetError, with the env's row.
        """
        starts = [0, *itertools.accumulate(self.sizes[:-1])]
        nothing = np.maximum.reduceat(outputs, starts, axis=1) == np.float32(FORBIDDEN)
        if nothing.any():
            row, choice = np.argwhere(nothing)[0]
            which = "" if len(self.sizes) == 1 else f" of choice {choice}"
            raise TargetError(
                f"policy: {KEY}: env in row {row} of this batch: expected at least one allowed "
                f"option{which}, got none; allow one. If this is the last observation of an "
                "episode, make the envs with autoreset_mode='same_step', in which no action is "
                "asked for it"
            )


def split_space(
    space: gymnasium.Space[Any], distribution: Distribution
) -> tuple[gymnasium.Space[Any], ActionMask | None]:
    """Return the space of the observations without their mask, and the mask if there is one.

    Raises: TargetError for a mask that does not fit the actions, or without an observation.
    """
    if not isinstance(space, spaces.Dict) or KEY not in space.spaces:
        return space, None
    sizes = tuple(choice.size for choice in distribution.choices)
    if not sizes:
        raise TargetError(
            f"policy: {KEY}: expected a mask for actions that are choices only, got one for a Box "
            "of actions; rename the entry, or leave it out"
        )
    mask = space.spaces[KEY]
    fits = isinstance(mask, spaces.Box | spaces.MultiBinary | spaces.MultiDiscrete)
    if not fits or math.prod(mask.shape or ()) != sum(sizes):
        raise TargetError(
            f"policy: {KEY}: expected {sum(sizes)} entries, one for each choice of the actions, "
            f"got {mask}; {_ADVICE}"
        )
    rest = {key: part for key, part in space.spaces.items() if key != KEY}
    if not rest:
        raise TargetError(
            f"policy: observations: expected an entry beside {KEY!r}, got none; add what the "
            "policy is to see"
        )
    alone = next(iter(rest)) if len(rest) == 1 else None
    dimensions = len(mask.shape or ())
    without = spaces.Dict(rest) if alone is None else rest[alone]
    return without, ActionMask(sizes, dimensions, alone)
