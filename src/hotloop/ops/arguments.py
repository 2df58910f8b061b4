"""The checks of arguments that all kernels share: shapes, number types, ranges.

They also limit what is compiled. A kernel sees contiguous, writable arrays whose floats are all of
one type, so that it has two compiled forms, float32 and float64. Other arrays, such as the
read-only views of a fragment that was sent by Ray, are copied: the copy of a 128 x 64 array takes
about a microsecond, one more compiled form half a second in the middle of a run.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hotloop.errors import SettingError, ShapeError

Floats = NDArray[np.floating[Any]]
Flags = NDArray[np.bool_]

_SINGLE, _DOUBLE, _BOOL = np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.bool_)


def time_major_floats(function: str, **arrays: Floats) -> tuple[np.dtype[Any], list[Floats]]:
    """Return the type of the first array, and all arrays as a kernel takes them.

    Where their types differ, all are taken as float64; the caller converts the results.
    Shapes: every array (T, B), time first.
    Raises: ShapeError, naming the argument, for another shape or type.
    """
    taken: list[Floats] = []
    for name, given in arrays.items():
        array = np.asarray(given)
        if array.dtype != _SINGLE and array.dtype != _DOUBLE:
            raise ShapeError(
                f"{function}: {name}: expected float32 or float64, got {array.dtype}; convert it "
                "with .astype(np.float32)"
            )
        if not taken and array.ndim != 2:
            raise ShapeError(
                f"{function}: {name}: expected shape (T, B), got {array.shape}; a single env is a "
                "column, [:, None]"
            )
        if taken and array.shape != taken[0].shape:
            raise _other_shape(function, name, taken[0].shape, array.shape)
        taken.append(_contiguous(array))
    dtype = taken[0].dtype
    if any(array.dtype != dtype for array in taken):
        taken = [array.astype(_DOUBLE, copy=False) for array in taken]
    return dtype, taken


def time_major_flags(function: str, shape: tuple[int, ...], **arrays: Flags | None) -> list[Flags]:
    """Return flags as a kernel takes them; None stands for flags that are all set.

    Shapes: every array `shape`, which is the one of r_t.
    Raises: ShapeError, naming the argument, for another shape or type.
    """
    taken: list[Flags] = []
    for name, given in arrays.items():
        if given is None:
            taken.append(np.ones(shape, np.bool_))
            continue
        array = np.asarray(given)
        if array.shape != shape:
            raise _other_shape(function, name, shape, array.shape)
        if array.dtype != _BOOL:
            raise ShapeError(
                f"{function}: {name}: expected bool flags, got {array.dtype}; compare it, such as "
                "with != 0"
            )
        taken.append(_contiguous(array))
    return taken


def from_0_to_1(function: str, **settings: float) -> list[float]:
    """Return settings as Python floats.

    Raises: SettingError, naming the setting, for one that is not a number from 0 to 1.
    """
    for name, value in settings.items():
        if not 0 <= value <= 1:
            raise SettingError(f"{function}: {name}: expected a number from 0 to 1, got {value}")
    # A whole number would have the kernel compiled again.
    return [float(value) for value in settings.values()]


def above_0(function: str, **settings: float) -> list[float]:
    """Return settings as Python floats; infinity is allowed.

    Raises: SettingError, naming the setting, for one that is not a number above 0.
    """
    for name, value in settings.items():
        if not value > 0:
            raise SettingError(
                f"{function}: {name}: expected a number above 0, or math.inf for no limit, "
                f"got {value}"
            )
    return [float(value) for value in settings.values()]


def _contiguous(array: NDArray[Any]) -> NDArray[Any]:
    """Return the array itself where it is contiguous, aligned and writable, else a copy."""
    return array if array.flags.carray else array.copy()


def _other_shape(
    function: str, name: str, expected: tuple[int, ...], got: tuple[int, ...]
) -> ShapeError:
    return ShapeError(
        f"{function}: {name}: expected the shape of r_t, {expected}, got {got}; give one value for "
        "each step of each env"
    )
