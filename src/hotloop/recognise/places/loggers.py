"""Loggers of training libraries. What they write is thrown away."""

from collections.abc import Mapping
from types import ModuleType

from hotloop.recognise.place_stage import Replay
from hotloop.recognise.places import LOG
from hotloop.recognise.places.checkpoints import nothing
from hotloop.recognise.recognition import Recognition

_WRITER = (
    "add_scalar",
    "add_scalars",
    "add_histogram",
    "add_image",
    "add_images",
    "add_figure",
    "add_text",
    "add_video",
    "flush",
)
_CLASSES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "torch.utils.tensorboard.writer": ("SummaryWriter", _WRITER),
    "tensorboardX.writer": ("SummaryWriter", _WRITER),
    "wandb.sdk.wandb_run": ("Run", ("log",)),
    "stable_baselines3.common.logger": ("Logger", ("dump",)),
    "lightning.pytorch.loggers.logger": ("Logger", ("log_metrics",)),
    "pytorch_lightning.loggers.logger": ("Logger", ("log_metrics",)),
}
_FUNCTIONS: Mapping[str, tuple[str, ...]] = {
    "mlflow.tracking.fluent": ("log_metric", "log_metrics", "log_artifact"),
}


def install(recognition: Recognition, library: ModuleType) -> None:
    """Make logging a stage, which is left out where it is replaced."""
    log = recognition.stage(LOG, effect="pure", kind="io")
    replay = Replay(instead=nothing)
    if library.__name__ in _CLASSES:
        name, methods = _CLASSES[library.__name__]
        for method in methods:
            make = recognition.method(log, key=lambda _self, _args, _kwargs: LOG, replay=replay)
            recognition.patches.family(getattr(library, name), method, make)
    for function in _FUNCTIONS.get(library.__name__, ()):
        recognition.patches.function(library, function, recognition.function(log, replay=replay))
