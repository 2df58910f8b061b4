"""The steps of several fragments side by side, as a learner takes them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hotloop.data.fragment import Fragment
from hotloop.data.layout import Tree, tree_map

Array = NDArray[Any]


@dataclass(frozen=True)
class Steps:
    """The steps of one or several fragments side by side: B envs of all together.

    Named as in `Fragment`. all_obs: tree of (T + 1, B, ...). action: tree of (T, B, ...). reward,
    terminated, truncated, valid: (T, B). extras: arrays (T, B, ...) by name. final_t, final_b:
    (F,), where episodes ended; final_obs: tree of (F, ...).
    """

    all_obs: Tree
    action: Tree
    reward: Array
    terminated: Array
    truncated: Array
    valid: Array
    extras: Mapping[str, Array]
    final_t: Array
    final_b: Array
    final_obs: Tree

    @classmethod
    def of(cls, fragments: Sequence[Fragment]) -> "Steps":
        """Put fragments of equal length side by side; of a single one, nothing is copied."""

        def beside(*trees: Tree) -> Tree:
            return tree_map(_beside, *trees)

        first = np.cumsum([0, *(f.spec.envs for f in fragments)])
        return cls(
            all_obs=beside(*(f.all_obs for f in fragments)),
            action=beside(*(f.action for f in fragments)),
            reward=beside(*(f.reward for f in fragments)),
            terminated=beside(*(f.terminated for f in fragments)),
            truncated=beside(*(f.truncated for f in fragments)),
            valid=beside(*(f.valid for f in fragments)),
            extras=beside(*(dict(f.extras) for f in fragments)),
            final_t=np.concatenate([f.final_t for f in fragments]),
            final_b=np.concatenate(
                [f.final_b + start for f, start in zip(fragments, first, strict=False)]
            ),
            final_obs=tree_map(
                lambda *parts: np.concatenate(parts), *(f.final_obs for f in fragments)
            ),
        )

    @property
    def obs(self) -> Tree:
        """Tree of (T, B, ...): what the policy saw."""
        return tree_map(lambda rows: rows[:-1], self.all_obs)

    @property
    def last_obs(self) -> Tree:
        """Tree of (B, ...): the observations after the last step."""
        return tree_map(lambda rows: rows[-1], self.all_obs)


def _beside(*parts: Array) -> Array:
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
