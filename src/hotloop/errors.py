"""The errors that hotloop raises on purpose: one class for each that a caller may want to catch.

A message says where, what was expected, what was got, and what to do.
"""

import difflib
import sys
from collections.abc import Iterable


class HotloopError(Exception):
    """Root of every error raised on purpose; the command line prints it and exits 1."""


class SettingError(HotloopError):
    """A setting with an impossible value; the command line exits with 2, as for wrong usage."""


class TargetError(HotloopError):
    """A target that does not exist, cannot be imported, or is not a loop."""


class LoopError(HotloopError):
    """A loop that breaks its contract: no units, NaN units, an end before the measurement ends."""


class StageError(HotloopError):
    """A stage with an impossible declaration, or one that cannot be used as it is."""


class StateError(HotloopError):
    """State that was declared but cannot be saved and put back."""


class ShapeError(HotloopError):
    """An array whose shape does not fit the others."""


class NetworkError(HotloopError):
    """A network whose data are inconsistent: edges to missing agents, sizes that differ."""


class WorkerError(HotloopError):
    """A worker that died, hung, or raised an exception that cannot be sent to its parent."""


class RunError(HotloopError):
    """A run file that cannot be read or written."""


class CheckpointError(HotloopError):
    """A checkpoint that cannot be read, written, or used for what was asked."""


class JournalError(HotloopError):
    """A journal that cannot be read or written."""


class SideError(HotloopError):
    """One side of a comparison that crashed, ended early, or counts in another unit."""


class RefusedError(HotloopError):
    """A measurement that does not support a verdict; the message says what would."""


class ConfigError(HotloopError):
    """A model whose parts do not fit: a field, path, dtype or generator that does not exist."""


class RedirectError(HotloopError, PermissionError):
    """A change to the user's own files, or to another machine, that a throw-away run refuses."""


class PathError(HotloopError, KeyError):
    """A path in a state, a parameter or a snapshot that does not exist."""

    def __str__(self) -> str:
        return str(self.args[0])  # a KeyError would show its message in quotes


class SubstepError(HotloopError):
    """A substep that does something other than it declares."""


class ParameterError(HotloopError):
    """A tensor that a parameter cannot be set to."""


class DeviceError(HotloopError):
    """A device that does not exist."""


class CaptureError(HotloopError):
    """Work of a card that runs, and cannot be captured as a graph."""


class CapacityError(HotloopError):
    """Too little memory; the message says how much is needed, and what to reduce."""


class RunnerError(HotloopError):
    """A runner used at the wrong time: before init, after the end, after a failed step."""


class RecordError(HotloopError):
    """A part of a trajectory that was not kept."""


class PopulationError(HotloopError):
    """A population whose data are inconsistent: a bad column, an edge to a missing agent."""


class PlatformError(HotloopError, ImportError):
    """An operating system on which nothing of hotloop is tested."""


def expect_linux() -> None:
    """Refuse any other system than Linux. Raises: PlatformError."""
    if sys.platform != "linux":
        system = {"darwin": "macOS", "win32": "Windows"}.get(sys.platform, sys.platform)
        raise PlatformError(
            f"expected Linux, got {system}, where nothing of hotloop is tested: use a machine, a "
            "virtual machine or a container with Linux (docker/cpu.Dockerfile)"
        )


def expect_positive(name: str, value: float | None) -> None:
    """Refuse a setting that is not a finite number above 0; None means not set.

    Raises: SettingError.
    """
    if value is not None and not 0 < value < float("inf"):
        raise SettingError(f"{name}: expected a number above 0, got {value}")


def expect_whole(name: str, value: object, least: int, most: int | None = None) -> None:
    """Refuse a setting that is no whole number from `least` to `most`; None means not set.

    Raises: SettingError.
    """
    # NumPy's integers count as well, flags do not.
    whole = hasattr(value, "__index__") and not isinstance(value, bool)
    if value is None or (whole and least <= value and (most is None or value <= most)):  # type: ignore[operator]
        return
    limits = f"of {least} or more" if most is None else f"from {least} to {most}"
    raise SettingError(f"{name}: expected a whole number {limits}, got {value!r}")


def parsed_share(name: str, text: str) -> float:
    """Read a setting that is a share: "3%" and "0.03" are the same.

    Raises: SettingError for what is neither, and for 0 or less. A share of 1 or more must be
    written with its sign: who writes 3 means 3%.
    """
    percent = text.strip().endswith("%")
    try:
        number = float(text.strip().removesuffix("%")) / (100 if percent else 1)
    except ValueError:
        number = 0.0
    if 0 < number < (float("inf") if percent else 1):
        return number
    raise SettingError(f"{name}: expected a share above 0, such as 3% or 0.03, got {text!r}")


def most_like(name: str, options: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the option that is most like a name, or None. cutoff: how like, from 0 to 1."""
    return next(iter(difflib.get_close_matches(name, list(options), n=1, cutoff=cutoff)), None)


def did_you_mean(name: str, options: Iterable[str], cutoff: float = 0.6) -> str:
    """Return how an error about an unknown name ends: with the option most like it, if any is."""
    near = most_like(name, options, cutoff)
    return "" if near is None else f"; did you mean {near!r}?"


def nearest(name: str, options: Iterable[str]) -> str:
    """Return how an error about an unknown name ends: with the most like option, or else all."""
    known = list(options)
    hint = did_you_mean(name, known)
    if hint:
        return hint
    return f"; there is {', '.join(map(repr, known))}" if 0 < len(known) <= 16 else ""
