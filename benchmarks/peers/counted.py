"""An env whose every step has a number: which life of which process made it, and the how-manieth.

How many steps each life has made is written down outside of the process, so that it is known of one
that was killed.
"""

import fcntl
import os
import struct
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

FOLDER = "HOTLOOP_COUNTED"  # the environment variable with the folder to write to
EPISODE_STEPS = 997


class Counted(gymnasium.Env[Any, Any]):
    """Observes (life, steps that this life has made); a reset makes none."""

    observation_space = gymnasium.spaces.Box(0, 2**24, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self) -> None:
        folder = Path(os.environ[FOLDER])
        self._life = _next_life(folder)
        # A life of its own file: a write needs no lock, and is there even after SIGKILL.
        self._made = np.memmap(folder / f"{self._life}.made", np.int64, "w+", shape=(2,))
        self._made[1] = os.getpid()
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        del options
        super().reset(seed=seed)
        return self._obs(), {}

    def step(self, action: Any) -> Any:
        del action
        self._steps += 1
        self._made[0] = self._steps
        return self._obs(), 1.0, self._steps % EPISODE_STEPS == 0, False, {}

    def _obs(self) -> Any:
        return np.array([self._life, self._steps], np.float32)


def _next_life(folder: Path) -> int:
    """The number of a new life, from 1."""
    with open(folder / "lives", "a+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        life = len(file.read()) // 8 + 1
        file.write(struct.pack("q", life))
    return life


gymnasium.register("Counted-v0", Counted)
