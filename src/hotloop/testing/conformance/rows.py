"""Batches as rows: from what a vector env takes and returns to one env's part of it."""

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import Space
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate
from numpy.typing import NDArray

from hotloop.testing.conformance.subject import AnyVectorEnv


def rows(env: AnyVectorEnv, obs: Any, count: int | None = None) -> list[Any]:
    """The observations of the envs, one by one; `count` for a batch of fewer than all."""
    space = batch_space(env.single_observation_space, count) if count else env.observation_space
    return list(iterate(space, obs))


def action_rows(env: AnyVectorEnv, actions: Any) -> list[Any]:
    """The actions of the envs, one by one."""
    return list(iterate(env.action_space, actions))


def stacked(space: Space[Any], items: Sequence[Any]) -> Any:
    """`items` of `space` as a vector env of so many envs takes them."""
    empty: Any = create_empty_array(space, n=len(items), fn=np.zeros)
    return copy.deepcopy(concatenate(space, items, empty))


def ended_rows(moved: Sequence[Any]) -> NDArray[np.bool_]:
    """Which envs' episodes ended with the step."""
    return np.asarray(moved[2], np.bool_) | np.asarray(moved[3], np.bool_)


def step_on(env: AnyVectorEnv, actions: Any) -> tuple[Any, ...]:
    """A step, and in the disabled mode the reset of the envs that ended."""
    moved = env.step(actions)
    ended = ended_rows(moved)
    if env.metadata.get("autoreset_mode") == AutoresetMode.DISABLED and ended.any():
        moved = copy.deepcopy(moved)
        env.reset(options={"reset_mask": ended})
    return moved
