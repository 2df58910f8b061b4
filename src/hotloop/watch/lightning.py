"""Watching `fit` of Lightning, under either of its names.

Trainer(callbacks=[WatchCallback(run="fit.run")]).fit(model, data)
"""

from typing import TYPE_CHECKING, Any

from hotloop.watch.fit import Fit, missing

if TYPE_CHECKING:
    Callback = object
else:
    try:
        from lightning.pytorch import Callback
    except ModuleNotFoundError:
        try:
            from pytorch_lightning import Callback
        except ModuleNotFoundError as error:
            raise missing("lightning", "lightning") from error


class WatchCallback(Callback):
    """Watches a fit from its start to its end, also if an error ends it.

    Takes the settings of `hotloop.watch`; of several ranks only the first shows and saves what it
    sees. Raises: SettingError.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.fit = Fit(settings)

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
        """Begin to watch."""
        if trainer.is_global_zero:
            self.fit.begin()

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
        """End the watch."""
        self.fit.end()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:  # noqa: ARG002
        """End the watch of a fit that an error or an interrupt ended."""
        self.fit.end(exception)
