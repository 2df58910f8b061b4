"""Watching `train` of the Trainer of transformers.

Trainer(model, args, train_dataset=data, callbacks=[WatchCallback(run="train.run")]).train()
"""

import sys
from types import FrameType
from typing import TYPE_CHECKING, Any

from hotloop.watch.fit import Fit, missing

if TYPE_CHECKING:
    Trainer = object
    TrainerCallback = object
else:
    try:
        from transformers import Trainer, TrainerCallback
    except ModuleNotFoundError as error:
        raise missing("transformers", "transformers") from error

# What a training calls: an error of it goes through one of these, in this version or another.
_CALLED_BY_TRAIN = (
    *("_run_epoch", "get_batch_samples", "training_step", "_maybe_log_save_evaluate", "evaluate"),
    "_finalize_training",
)


class WatchCallback(TrainerCallback):
    """Watches a training from its start to its end, also if an error ends it.

    Takes the settings of `hotloop.watch`; of several ranks only the first shows and saves what it
    sees. Raises: SettingError.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.fit = Fit(settings)

    def on_train_begin(self, args: Any, state: Any, control: Any, **_others: Any) -> None:  # noqa: ARG002
        """Begin to watch."""
        if state.is_world_process_zero:
            self.fit.begin(_calling_trainer(), _CALLED_BY_TRAIN)

    def on_train_end(self, args: Any, state: Any, control: Any, **_others: Any) -> None:  # noqa: ARG002
        """End the watch."""
        self.fit.end()


def _calling_trainer() -> Any:
    """The trainer that calls the callback, which is not among what it hands over."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        caller = frame.f_locals.get("self")
        if isinstance(caller, Trainer):
            return caller
        frame = frame.f_back
    return None
