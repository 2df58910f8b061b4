"""What can go wrong, one class per thing a caller may want to tell apart.

A message says where, what was expected, what came, and what to do.
"""

import difflib
from collections.abc import Iterable


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


class NetworkError(HotloopError):
    """A network that cannot be: edges to agents that do not exist, sizes that differ."""


class WorkerError(HotloopError):
    """A worker that died, hung, or failed in a way that cannot be sent home as it was."""


class RunError(HotloopError):
    """A run file that cannot be read or written."""


class RefusedError(HotloopError):
    """A measurement that would not support a verdict; says what would."""


class ConfigError(HotloopError):
    """A model whose parts do not fit: a field, path, dtype or generator that does not exist."""


class PathError(HotloopError, KeyError):
    """A path of a state, a parameter or a snapshot that leads nowhere."""

    def __str__(self) -> str:
        return str(self.args[0])  # a KeyError would show its message in quotes


class SubstepError(HotloopError):
    """A substep that does not keep to what it declares."""


class ParameterError(HotloopError):
    """A tensor that cannot be what a parameter is set to."""


class DeviceError(HotloopError):
    """A device that is not there."""


class CapacityError(HotloopError):
    """More memory needed than there is; says how much, and what to reduce."""


class RunnerError(HotloopError):
    """A runner asked for what it cannot do now: before init, after the end, after a broken step."""


class RecordError(HotloopError):
    """A part of a trajectory that was not kept."""


class PopulationError(HotloopError):
    """A population that cannot be: a bad column, an edge to nobody, a file cut short."""


def expect_positive(name: str, value: float | None) -> None:
    """Refuse a setting that is not a finite number above 0; None is not set, and fine.

    Raises: SettingError.
    """
    if value is not None and not 0 < value < float("inf"):
        raise SettingError(f"{name}: expected a number above 0, got {value}")


def expect_whole(name: str, value: object, least: int, most: int | None = None) -> None:
    """Refuse a setting that is no whole number from `least` to `most`; None is not set, and fine.

    Raises: SettingError.
    """
    # NumPy's integers count as well, flags do not.
    whole = hasattr(value, "__index__") and not isinstance(value, bool)
    if value is None or (whole and least <= value and (most is None or value <= most)):  # type: ignore[operator]
        return
    span = f"of {least} or more" if most is None else f"from {least} to {most}"
    raise SettingError(f"{name}: expected a whole number {span}, got {value!r}")


def nearest(name: str, options: Iterable[str]) -> str:
    """How an error about an unknown name ends: its nearest neighbour, or else all there are."""
    known = list(options)
    near = difflib.get_close_matches(name, known, n=1)
    if near:
        return f"; did you mean {near[0]!r}?"
    return f"; there is {', '.join(map(repr, known))}" if 0 < len(known) <= 12 else ""
