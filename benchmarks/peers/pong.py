"""Pong from pixels, as every system plays it: `pong:PongPixels-v0`.

Atari's usual preprocessing: a decision every four frames, the brighter of the last two, in grey,
and four of these side by side; up to 30 idle frames before a game. The screen is 42 by 42 pixels, a
quarter of the usual ones: the network then costs a ninth, and learning fits a processor.
"""

from typing import Any

import ale_py  # which registers its envs
import gymnasium
import numpy as np
from gymnasium import wrappers

FRAMES, SCREEN = 4, 42


class ArrayObservation(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Lazy frames, as Gymnasium below 1.0 stacks them, as the array that they stand for."""

    def observation(self, observation: Any) -> Any:
        """Return the array."""
        return np.asarray(observation)


def pong(**kwargs: Any) -> gymnasium.Env[Any, Any]:
    """Make the env; observations are uint8, (FRAMES, SCREEN, SCREEN)."""
    raw = gymnasium.make("ALE/Pong-v5", frameskip=1, **kwargs)
    frames = wrappers.AtariPreprocessing(raw, screen_size=SCREEN)
    if gymnasium.__version__ < "1":
        return ArrayObservation(wrappers.FrameStack(frames, FRAMES))
    return wrappers.FrameStackObservation(frames, FRAMES)


gymnasium.register("PongPixels-v0", pong)
if hasattr(gymnasium, "register_envs"):  # so that nobody takes the import for unused
    gymnasium.register_envs(ale_py)
