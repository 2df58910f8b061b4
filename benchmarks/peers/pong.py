"""Pong from pixels, as every system plays it: `pong:PongPixels-v0`.

Atari's usual preprocessing: a decision every four frames, the brighter of the last two, in grey,
and four of these side by side; up to 30 idle frames before a game. The screen is 42 by 42 pixels, a
quarter of the usual ones: the network then costs a ninth, and learning fits a processor.
"""

from typing import Any

import ale_py
import gymnasium
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation

FRAMES, SCREEN = 4, 42


def pong(**kwargs: Any) -> gymnasium.Env[Any, Any]:
    """Make the env; observations are uint8, (FRAMES, SCREEN, SCREEN)."""
    raw = gymnasium.make("ALE/Pong-v5", frameskip=1, **kwargs)
    return FrameStackObservation(AtariPreprocessing(raw, screen_size=SCREEN), FRAMES)


gymnasium.register_envs(ale_py)
gymnasium.register("PongPixels-v0", pong)
