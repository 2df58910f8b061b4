"""Stacked frames without copies: every frame of a fragment once, and an index of the stacks.

An observation that stacks the last k frames repeats all but its newest one from the step before.
Here the frames are in a pool, in order of arrival, and an observation is k numbers. A rebuilt
observation is equal bit for bit, because a stack that does not continue the one before it is
refused instead of stored.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hotloop.data.layout import Layout
from hotloop.errors import SettingError, TargetError

Array = NDArray[Any]


def check_stackable(obs: Layout, frame_stack: int) -> None:
    """Refuse observations that cannot be stacks of `frame_stack` frames along their first axis.

    Raises: SettingError.
    """
    fits = obs.is_leaf and not obs.dtype.hasobject and len(obs.shape) > 1
    if frame_stack < 2 or not fits or obs.shape[0] != frame_stack:
        got = f"shape {obs.shape}" if obs.is_leaf else "a dict or tuple"
        raise SettingError(
            f"frame_stack={frame_stack}: expected observations that are one array whose first axis "
            f"holds the {frame_stack} frames (at least 2), got {got}; set frame_stack to the length"
            " of that axis, or to 0"
        )


def pool_rows(steps: int, envs: int, frame_stack: int) -> int:
    """Frames at most: a stack for each env, then a new frame, a final one and a new stack a step.

    Memory that is never written is never allocated by the system, so the worst case costs nothing.
    """
    return envs * frame_stack + steps * envs * (frame_stack + 1)


class FramePool:
    """The observations of one fragment as frames (rows, ...) and an index (T + 1, B, k) into them.

    used: an array of one number, the rows filled.
    """

    def __init__(self, frames: Array, index: NDArray[np.int32], used: NDArray[np.int64]) -> None:
        self.frames, self.index, self._used = frames, index, used

    def begin(self, obs: Array) -> None:
        """Start anew, with the present stacks (B, k, ...) of all envs."""
        self._used[0] = 0
        self._add_stacks(0, np.arange(len(obs)), obs)

    def write(self, t: int, columns: Any, obs: Array, started: NDArray[np.bool_]) -> None:
        """Write the stacks (b, k, ...) after step t; `started` (b,) begin a new episode.

        Raises: TargetError for a stack that does not continue the one before it.
        """
        if not started.any():
            self.index[t + 1, columns] = self._continued(t, columns, obs)
            return
        envs = np.arange(self.index.shape[1])[columns]
        going = envs[~started]
        if len(going):
            self.index[t + 1, going] = self._continued(t, going, obs[~started])
        self._add_stacks(t + 1, envs[started], obs[started])

    def final(self, t: int, b: int, obs: Array) -> NDArray[np.int32]:
        """The index (k,) of the stack that env b ended with in step t.

        Raises: TargetError for a stack that does not continue the one before it.
        """
        here: NDArray[np.int32] = np.array(self.index[t, b])
        if np.array_equal(self.rebuilt(here), obs):
            return here  # the step was never made: the worker died
        there: NDArray[np.int32] = self._continued(t, np.array([b]), np.asarray(obs)[None])[0]
        return there

    def rebuilt(self, index: NDArray[np.int32]) -> Array:
        """The stacks (..., k, ...) of an index (..., k)."""
        stacks: Array = self.frames[index]
        return stacks

    def _continued(self, t: int, columns: Any, obs: Array) -> NDArray[np.int32]:
        before = self.index[t, columns][:, 1:]
        if not np.array_equal(self.frames[before], obs[:, :-1]):
            same = (self.frames[before] == obs[:, :-1]).reshape(len(obs), -1).all(1)
            env = np.arange(self.index.shape[1])[columns][~same][0]
            raise TargetError(
                f"frame_stack={self.index.shape[2]}: step {t}, column {env}: expected the newest "
                f"{self.index.shape[2] - 1} frames of the observation before, followed by a new "
                "one along axis 0, got other frames; set frame_stack=0, or stack whole frames "
                "along axis 0, the newest last"
            )
        new = self._add(obs[:, -1])
        return np.concatenate((before, new[:, None]), axis=1, dtype=np.int32)

    def _add_stacks(self, row: int, envs: NDArray[np.int64], obs: Array) -> None:
        for env, stack in zip(envs.tolist(), obs, strict=True):
            # A first stack repeats the first frame, or zeros: once is enough.
            place = self.index[row, env]
            place[0] = self._add(stack[:1])[0]
            for j in range(1, len(stack)):
                repeated = np.array_equal(stack[j], stack[j - 1])
                place[j] = place[j - 1] if repeated else self._add(stack[j : j + 1])[0]

    def _add(self, frames: Array) -> NDArray[np.int64]:
        start = int(self._used[0])
        self._used[0] = end = start + len(frames)
        self.frames[start:end] = frames
        return np.arange(start, end)
