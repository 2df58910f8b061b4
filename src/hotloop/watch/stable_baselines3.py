"""Watching `learn` of Stable-Baselines3.

model.learn(100_000, callback=WatchCallback(run="ppo.run"))
"""

from typing import Any

from hotloop.watch.fit import Fit, missing

try:
    from stable_baselines3.common.callbacks import BaseCallback
except ModuleNotFoundError as error:
    raise missing("stable_baselines3", "stable-baselines3") from error

# What `learn` calls: an error of the training goes through one of these.
_CALLED_BY_LEARN = ("collect_rollouts", "train", "dump_logs", "_dump_logs")


class WatchCallback(BaseCallback):
    """Watches the training from its start to its end, also if an error ends it.

    Takes the settings of `hotloop.watch`. Raises: SettingError.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.fit = Fit(settings)

    def _on_training_start(self) -> None:
        self.fit.begin(self.model, _CALLED_BY_LEARN)

    def _on_step(self) -> bool:
        return True

    def _on_training_end(self) -> None:
        self.fit.end()
