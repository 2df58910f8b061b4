"""What can go wrong, one class per thing a caller may want to tell apart.

A message says where, what was expected, what came, and what to do.
"""


class HotloopError(Exception):
    """Root of every error raised on purpose; the command line prints it and exits 1."""


class SettingError(HotloopError):
    """A setting outside of what it can be; the command line exits with 2, as for wrong usage."""


class TargetError(HotloopError):
    """A target that does not exist, cannot be imported, or is not a loop."""


class LoopError(HotloopError):
    """A loop that breaks its contract: no units, NaN units, an end before the measurement's."""


class StageError(HotloopError):
    """A stage that was declared in a way that cannot hold."""


class StateError(HotloopError):
    """State that was declared but cannot be saved and put back."""


class ShapeError(HotloopError):
    """An array whose shape does not fit the others."""


class WorkerError(HotloopError):
    """A worker that died, hung, or failed in a way that cannot be sent home as it was."""


class RunError(HotloopError):
    """A run file that cannot be read or written."""


class RefusedError(HotloopError):
    """A measurement that would not support a verdict; says what would."""


def expect_positive(name: str, value: float | None) -> None:
    """Refuse a setting that is not a finite number above 0; None is not set, and fine.

    Raises: SettingError.
    """
    if value is not None and not 0 < value < float("inf"):
        raise SettingError(f"{name}: expected a number above 0, got {value}")
