"""Pong from pixels, as every system plays it: `pong:PongPixels-v0`.

ALE's Pong of Gymnasium, with its sticky actions: a decision every four frames, the four latest
screens side by side. Of a screen one sees the field, without the score above it; what is not its
background is white on black, in 42 by 42 pixels. A network then costs a ninth of what it does for
the usual 84 by 84, and learning fits a processor. In plain grey the ball, of two by four pixels in
160, all but vanishes when it is made so small: nothing that was tried learned in 500,000 steps.
"""

import math
from typing import Any

import ale_py  # which registers its envs
import cv2
import gymnasium
import numpy as np
from gymnasium import wrappers

SCREENS, SIDE = 4, 42
FIELD = slice(34, 194)  # rows of the screen
BACKGROUND = 87  # in grey
STRIDED_CHANNELS, FEATURES = (16, 32, 32), 256  # of the network for these images


class Field(gymnasium.ObservationWrapper[Any, Any, Any]):
    """The field, (SIDE, SIDE), uint8: how much of a pixel paddles and ball cover."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self.observation_space = gymnasium.spaces.Box(0, 255, (SIDE, SIDE), np.uint8)

    def observation(self, observation: Any) -> Any:
        """Return the field of a grey screen (210, 160)."""
        things = np.where(observation[FIELD] == BACKGROUND, 0, 255).astype(np.uint8)
        return cv2.resize(things, (SIDE, SIDE), interpolation=cv2.INTER_AREA)


class ArrayObservation(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Lazy frames, as Gymnasium below 1.0 stacks them, as the array that they stand for."""

    def observation(self, observation: Any) -> Any:
        """Return the array."""
        return np.asarray(observation)


def pong(**kwargs: Any) -> gymnasium.Env[Any, Any]:
    """Make the env; observations are uint8, (SCREENS, SIDE, SIDE)."""
    field = Field(gymnasium.make("ALE/Pong-v5", obs_type="grayscale", **kwargs))
    if gymnasium.__version__ < "1":
        return ArrayObservation(wrappers.FrameStack(field, SCREENS))
    return wrappers.FrameStackObservation(field, SCREENS)


def strided(space: gymnasium.spaces.Box) -> Any:
    """Features of such images: three 3 by 3 convolutions with stride 2, then a layer.

    Of 42 by 42 pixels they leave 6 by 6 with 32 channels, so that it is known where the ball is;
    the Nature CNN, whose kernels are for 84 by 84, leaves one with 64.
    """
    return _strided(space)


def strided_layer_norm(space: gymnasium.spaces.Box) -> Any:
    """As `strided`, with the features normalised before they are cut at 0."""
    from torch import nn

    return _strided(space, nn.LayerNorm(FEATURES))


def _strided(space: gymnasium.spaces.Box, *norm: Any) -> Any:
    import torch  # which not every peer has
    from torch import nn

    class Strided(nn.Module):
        def __init__(self, channels: int, side: int) -> None:
            super().__init__()
            layers: list[nn.Module] = []
            for width in STRIDED_CHANNELS:
                layers += [nn.Conv2d(channels, width, 3, 2, 1), nn.ReLU()]
                channels, side = width, math.ceil(side / 2)
            layers += [nn.Flatten(), nn.Linear(channels * side * side, FEATURES), *norm, nn.ReLU()]
            for layer in layers:
                if isinstance(layer, nn.Conv2d | nn.Linear):
                    nn.init.orthogonal_(layer.weight, math.sqrt(2))
                    nn.init.zeros_(layer.bias)
            self.layers = nn.Sequential(*layers)

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            # A processor is faster with channels last.
            images = images.contiguous(memory_format=torch.channels_last)
            return self.layers(images.float() / 255)  # type: ignore[no-any-return]

    return Strided(space.shape[0], space.shape[1])


gymnasium.register("PongPixels-v0", pong)
if hasattr(gymnasium, "register_envs"):  # so that nobody takes the import for unused
    gymnasium.register_envs(ale_py)
