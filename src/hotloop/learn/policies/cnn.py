"""Convolutional networks for images, and how they join several entries of an observation.

An image is a Box of three dimensions, of uint8 or floats. Its channels are its first or its last
axis, whichever is smaller (the first one if they are equal). Images of uint8 are scaled by 1/255
here, so that they are stored and moved as bytes; floats are taken as they are.
"""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from hotloop.errors import TargetError
from hotloop.learn.policies.observations import Entry

_NATURE = ((32, 8, 4), (64, 4, 2), (64, 3, 1))  # channels, kernel, stride
_NATURE_FEATURES = 512
_IMPALA = (16, 32, 32)  # channels
_IMPALA_FEATURES = 256


class ImageLayout(nn.Module):
    """Images as the env gives them, (N, *shape), as floats with channels first.

    In memory the channels are last where a gradient is computed: convolutions and their gradients
    then take 0.7 to 0.85 of the time on a processor. For a few images, as they are acted on, the
    copy costs more than it gains.
    """

    def __init__(self, image: Entry) -> None:
        super().__init__()
        self._first = image.channels_first

    def forward(self, image: Tensor) -> Tensor:
        """Return (N, channels, height, width), single precision."""
        first = self._first
        if first and torch.is_grad_enabled():
            # Faster than `contiguous(memory_format=torch.channels_last)`, by a third for bytes.
            image, first = torch.stack(image.unbind(1), -1), False
        scaled = image.float() / 255 if image.dtype == torch.uint8 else image.float()
        return scaled if first else scaled.movedim(-1, 1)


def channels_height_width(image: Entry) -> tuple[int, int, int]:
    """Return an image's shape with the channels first."""
    first, middle, last = image.shape
    return (first, middle, last) if image.channels_first else (last, first, middle)


def nature_cnn(
    image: Entry, *, name: str = "nature_cnn", normalised: bool = False
) -> tuple[nn.Module, int]:
    """Make the CNN of DQN: 32 8x8 stride 4, 64 4x4 stride 2, 64 3x3 stride 1, 512 features.

    Weights are orthogonal with gain √2, biases 0.
    normalised: whether what each layer gives is shifted and scaled, image by image, to mean 0 and
    variance 1, and then by learned factors, before its ReLU.
    Returns: the network, and its features.
    Raises: TargetError for an image that is too small.
    Source: Mnih et al. 2015, Human-level control through deep reinforcement learning; layer
    normalisation: Ba et al. 2016, in such a network Gallici et al. 2024.
    """
    channels, height, width = channels_height_width(image)
    least = 1
    for _, kernel, stride in reversed(_NATURE):
        least = (least - 1) * stride + kernel
    if min(height, width) < least:
        raise TargetError(
            f"policy: network {name!r}: expected images of at least {least} x {least} pixels, "
            f"got {height} x {width} (shape {image.shape}); enlarge them, or take network "
            "'impala_cnn', which takes any size, or 'mlp'"
        )

    def activation(*shape: int) -> list[nn.Module]:
        return [nn.LayerNorm(shape), nn.ReLU()] if normalised else [nn.ReLU()]

    layers: list[nn.Module] = [ImageLayout(image)]
    for outputs, kernel, stride in _NATURE:
        height, width = ((side - kernel) // stride + 1 for side in (height, width))
        layers += [_orthogonal(nn.Conv2d(channels, outputs, kernel, stride))]
        layers += activation(outputs, height, width)
        channels = outputs
    layers += [nn.Flatten()]
    layers += [_orthogonal(nn.Linear(channels * height * width, _NATURE_FEATURES))]
    layers += activation(_NATURE_FEATURES)
    return nn.Sequential(*layers), _NATURE_FEATURES


def impala_cnn(image: Entry) -> tuple[nn.Module, int]:
    """Make the residual CNN of IMPALA: three parts of 16, 32 and 32 channels, 256 features.

    Each part is a 3x3 convolution, a 3x3 max pool with stride 2, and two residual blocks. Images
    may have any size. The source names no first weights: they are those of torch's layers.
    Returns: the network, and its features.
    Source: Espeholt et al. 2018, figure 3, right.
    """
    channels, height, width = channels_height_width(image)
    layers: list[nn.Module] = [ImageLayout(image)]
    for outputs in _IMPALA:
        layers += [
            nn.Conv2d(channels, outputs, 3, padding=1),
            nn.MaxPool2d(3, 2, padding=1),
            ResidualBlock(outputs),
            ResidualBlock(outputs),
        ]
        height, width = (math.ceil(side / 2) for side in (height, width))
        channels = outputs
    linear = nn.Linear(channels * height * width, _IMPALA_FEATURES)
    return nn.Sequential(*layers, nn.ReLU(), nn.Flatten(), linear, nn.ReLU()), _IMPALA_FEATURES


class ResidualBlock(nn.Module):
    """x + conv(relu(conv(relu(x)))), 3x3, with as many channels out as in."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """Return the same shape, (N, channels, height, width)."""
        inner: Tensor = self.second(torch.relu(self.first(torch.relu(x))))
        return x + inner


class ImagesAndVector(nn.Module):
    """A CNN of its own for each image, and the rest of the observation joined to their features.

    Takes what `Observations.images_and_vector` gives; `width` is the number of its features.
    """

    def __init__(
        self,
        images: Sequence[Entry],
        vector: int,
        cnn: Callable[[Entry], tuple[nn.Module, int]],
    ) -> None:
        super().__init__()
        made = [cnn(image) for image in images]
        self.cnns = nn.ModuleList(network for network, _ in made)
        self.width = sum(width for _, width in made) + vector

    def forward(self, obs: tuple[Tensor, ...]) -> Tensor:
        """Return features (N, width)."""
        count = len(self.cnns)
        features = [cnn(image) for cnn, image in zip(self.cnns, obs[:count], strict=True)]
        return torch.cat([*features, *obs[count:]], 1)


def _orthogonal(layer: nn.Conv2d | nn.Linear) -> nn.Module:
    nn.init.orthogonal_(layer.weight, math.sqrt(2))
    assert layer.bias is not None
    nn.init.zeros_(layer.bias)
    return layer
