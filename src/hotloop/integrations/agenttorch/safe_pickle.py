"""Read columns from untrusted pickles without running anything that the pickle names.

A pickle is a program: loaded the usual way it can call any function. Here every name in it is
replaced by a class that only stores its arguments, and only the few pandas and numpy names that a
column of plain values needs are admitted; any other name ends the reading. The values are then
taken from the stored arguments. Neither pandas nor its version matters, and no numpy object is
restored by the pickle's own instructions (a forged dtype could corrupt memory). A forged file can
still claim more memory than there is.
"""

import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hotloop.errors import PopulationError

_NULLABLE = {
    f"pandas.core.arrays.{module}.{name}"
    for module, names in (
        ("integer", ["IntegerArray"]),
        ("floating", ["FloatingArray"]),
        ("boolean", ["BooleanArray"]),
    )
    for name in names
}
_NULLABLE_TYPES = {
    f"pandas.core.arrays.{module}.{name}Dtype"
    for module, names in (
        ("integer", [f"{sign}Int{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64)]),
        ("floating", ["Float32", "Float64"]),
        ("boolean", ["Boolean"]),
    )
    for name in names
}
_RECONSTRUCT = {f"numpy.{core}.multiarray._reconstruct" for core in ("core", "_core")}
_FROM_BUFFER = {f"numpy.{core}.numeric._frombuffer" for core in ("core", "_core")}
_SCALAR = {f"numpy.{core}.multiarray.scalar" for core in ("core", "_core")}
_ENCODE = "_codecs.encode"  # how old protocols write bytes
_SERIES = "pandas.core.series.Series"
_MISSING = "pandas._libs.missing.NA"
_BACKED = "pandas._libs.arrays.__pyx_unpickle_NDArrayBacked"
_CATEGORICAL = "pandas.core.arrays.categorical.Categorical"
_CATEGORICAL_TYPE = "pandas.core.dtypes.dtypes.CategoricalDtype"
_STRINGS = "pandas.core.arrays.string_.StringArray"
_TABLE = "pandas.core.frame.DataFrame"

ADMITTED = frozenset(
    {
        *_RECONSTRUCT,
        *_FROM_BUFFER,
        *_SCALAR,
        *_NULLABLE,
        *_NULLABLE_TYPES,
        _ENCODE,
        _SERIES,
        _MISSING,
        _BACKED,
        _CATEGORICAL,
        _CATEGORICAL_TYPE,
        _STRINGS,
        "__builtin__.bytes",
        "__builtin__.slice",
        "builtins.bytes",
        "builtins.slice",
        "numpy.dtype",
        "numpy.ndarray",
        "pandas._libs.internals._unpickle_block",
        "pandas.core.arrays.string_.StringDtype",
        "pandas.core.indexes.base.Index",
        "pandas.core.indexes.base._new_Index",
        "pandas.core.indexes.numeric.Float64Index",
        "pandas.core.indexes.numeric.Int64Index",
        "pandas.core.indexes.numeric.UInt64Index",
        "pandas.core.indexes.range.RangeIndex",
        "pandas.core.internals.managers.SingleBlockManager",
    }
)
"""Every name that a pickle may hold. None of them is ever called."""

# What damaged pickles can raise, in the unpickler or while their values are read.
_DAMAGED = (
    pickle.UnpicklingError,
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    MemoryError,
    RecursionError,
    TypeError,
    ValueError,
)


def read_column(path: Path) -> NDArray[Any] | None:
    """Read the values of a pickled pandas Series or numpy array, as stored; None for a table.

    Shapes: (N,). Categories come as their labels, nullable numbers with a value missing as
    floats with NaN, missing text as None. The index is ignored: row r is agent r. A pickle is a
    table, a pandas DataFrame, if that is the first name in it that is not admitted; nothing after
    that name is read.
    Raises: PopulationError for anything but plain values: code, dates, damaged files.
    """
    try:
        with path.open("rb") as file:
            values = _values(_Reader(file).load())
        if values.ndim != 1:
            raise ValueError(f"an array of shape {values.shape}")
    except OSError as error:
        raise PopulationError(f"{path}: cannot be read: {error}") from error
    except _Refusal as refusal:
        if str(refusal) == _TABLE:
            return None
        raise PopulationError(
            f"{path}: the pickle asks for {refusal}, and pickles can run code: only pandas and "
            "numpy columns of numbers, text or categories are read from one. Nothing of it was "
            "run. If you trust the file, convert it to parquet"
        ) from None
    except _DAMAGED as error:
        raise PopulationError(
            f"{path}: expected a pickled pandas Series or numpy array of plain values, and it is "
            f"damaged or something else ({type(error).__name__}: {error}); write the file anew, "
            "or convert it to parquet"
        ) from error
    return values


class _Refusal(Exception):
    """A name in a pickle that no column needs."""


class _Note:
    """Replaces whatever a pickle names: stores its arguments and state, and does nothing.

    One subclass for each name and each pickle, so that no pickle can affect another.
    """

    name: str
    state: Any = None

    def __init__(self, *args: Any) -> None:
        self.args = args

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        full = f"{module}.{name}"
        if full not in ADMITTED:
            raise _Refusal(full)
        return type("_Named", (_Note,), {"name": full})

    def persistent_load(self, pid: Any) -> Any:
        raise _Refusal(f"a persistent object {pid!r}")


def _values(thing: Any) -> NDArray[Any]:
    """Make the array that a note describes."""
    name = _name(thing)
    if name == _SERIES:
        manager = thing.state["_mgr"]
        # Either (axes, blocks' values, ...) as state, or blocks made by a call.
        stored = manager.state[1][0] if manager.state else manager.args[0][0].args[0]
        return _values(stored)
    if name in _RECONSTRUCT:
        _version, shape, dtype, by_column, data = thing.state
        return _array(data, dtype, shape, "F" if by_column else "C")
    if name in _FROM_BUFFER:
        return _array(*thing.args)
    if name in _NULLABLE:
        data, mask = _values(thing.state["_data"]), _values(thing.state["_mask"])
        return np.where(mask, np.nan, data.astype(np.float64)) if mask.any() else data
    if name == _BACKED:
        kind = thing.args[0].name
        parts = [part for part in thing.state if _name(part) in _RECONSTRUCT | _FROM_BUFFER]
        if kind == _STRINGS:
            return _values(parts[0])
        if kind == _CATEGORICAL:
            dtypes = [part for part in thing.state if _name(part) == _CATEGORICAL_TYPE]
            return _labels(_values(parts[0]), dtypes[0].state["categories"])
    raise ValueError(name or type(thing).__name__)


def _labels(codes: NDArray[Any], index: _Note) -> NDArray[Any]:
    """Replace codes by categories; code -1 is a missing value."""
    details = index.args[1]  # of _new_Index(class, {"data": ...})
    if "data" not in details:
        raise ValueError("a range as categories")  # may claim to be endless
    categories = _values(details["data"])
    if (codes < -1).any() or (codes >= categories.size).any():
        raise ValueError("a category that is not there")
    if (codes == -1).any():
        categories = np.append(categories.astype(object), [None])
    full: NDArray[Any] = categories[codes]
    return full


def _array(data: Any, dtype: Any, shape: Any, order: str = "C") -> NDArray[Any]:
    kind = _dtype(dtype)
    if kind == np.dtype(object):
        if not isinstance(data, list):
            raise ValueError("objects without their list")
        array: NDArray[Any] = np.empty(len(data), object)
        array[:] = [_plain(item) for item in data]
        return array.reshape(shape, order="F" if order == "F" else "C")
    raw = data.args[0].encode("latin1") if _name(data) == _ENCODE else data
    if _name(raw) in ("builtins.bytes", "__builtin__.bytes"):
        raw = b""
    array = np.frombuffer(raw, kind).astype(kind.newbyteorder("="))  # a copy, in our byte order
    return array.reshape(shape, order="F" if order == "F" else "C")


def _dtype(note: Any) -> np.dtype[Any]:
    """Make a plain dtype from its code and byte order; the rest of the state is not used."""
    code = note.args[0]
    if _name(note) != "numpy.dtype" or not re.fullmatch(r"[biu][1248]|f[248]|O8|[US]\d{1,6}", code):
        raise ValueError(f"values of the type {code!r}")
    order = note.state[1] if note.state else "|"
    return np.dtype(f"{order}{code}" if order in ("<", ">") else code)


def _plain(item: Any) -> Any:
    """Convert an entry of a column of objects: a number, text, or None."""
    if item is None or isinstance(item, (str, int, float)):
        return item
    if _name(item) == _MISSING:
        return None
    if _name(item) in _SCALAR:
        return _array(item.args[1], item.args[0], (1,))[0]
    raise ValueError(f"an entry of the type {_name(item) or type(item).__name__}")


def _name(thing: Any) -> str:
    """Return the name that a note, or its class, replaces; empty for anything else."""
    named = thing if isinstance(thing, type) else type(thing)
    return named.name if issubclass(named, _Note) else ""
