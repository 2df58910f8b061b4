"""Clipping of gradients: `torch.nn.utils.clip_grad_norm_` and its kin."""

from types import ModuleType

from hotloop.recognise.places import CLIP, UPDATE
from hotloop.recognise.recognition import Recognition

_FUNCTIONS = ("clip_grad_norm_", "clip_grad_value_")


def install(recognition: Recognition, clip_grad: ModuleType) -> None:
    """Make clipping a stage; clip_grad: `torch.nn.utils.clip_grad`."""
    clip = recognition.stage(CLIP, effect="stateful", part_of=UPDATE)
    for name in _FUNCTIONS:
        make = recognition.function(clip)
        recognition.patches.exported(clip_grad, name, "torch.nn.utils", make)
