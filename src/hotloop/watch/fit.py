"""The watch of one fit of a training library, which begins it and ends it by a callback."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hotloop.errors import SettingError
from hotloop.loop.target import settings_of
from hotloop.recognise.patches import Patches
from hotloop.watch.settings import WatchSettings
from hotloop.watch.watching import Watch


class Fit:
    """Watches a fit between `begin` and `end`; the same again for each further fit.

    watched: the watch of the last fit, or None before the first.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        """settings: of `hotloop.watch`. Raises: SettingError."""
        self.watched: Watch | None = None
        self._settings: WatchSettings = settings_of(WatchSettings, settings)
        self._guards = Patches()

    def begin(self, trainer: object = None, methods: Sequence[str] = ()) -> None:
        """Begin to watch; a fit before that has not ended yet ends now.

        trainer, methods: what an error of the training goes through, where the library tells no
        callback of errors: these methods of this object.
        """
        self.end()
        self.watched = Watch(self._settings)
        self.watched.__enter__()
        for name in methods:
            owner = next((kind for kind in type(trainer).__mro__ if name in vars(kind)), None)
            if owner is not None:
                self._guards.function(owner, name, self._guard(trainer))

    def end(self, error: BaseException | None = None) -> None:
        """End the watch, and take what was put around methods away. Idempotent."""
        self._guards.undo()
        if self.watched is not None:
            trace = None if error is None else error.__traceback__
            self.watched.__exit__(None if error is None else type(error), error, trace)

    def _guard(self, trainer: object) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def make(method: Callable[..., Any]) -> Callable[..., Any]:
            def guarded(self_: Any, *args: Any, **kwargs: Any) -> Any:
                try:
                    return method(self_, *args, **kwargs)
                except BaseException as error:
                    if self_ is trainer:
                        self.end(error)
                    raise

            return guarded

        return make


def missing(library: str, package: str) -> SettingError:
    """The error for a callback whose library is not there."""
    return SettingError(
        f"hotloop.watch.{library} needs {package}, which is not installed: pip install {package}"
    )
