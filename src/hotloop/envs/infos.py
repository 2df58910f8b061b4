"""Vector infos, Gymnasium's dict of arrays with a `_key` mask beside each key, made by columns.

Gymnasium adds one env's info at a time; with 64 envs of three integers each that costs more than
stepping 64 cheap envs. Here a key becomes a column at once. What is rare or malformed (keys that
clash with masks, values that are sometimes dicts, errors) is left to Gymnasium's own rule.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from hotloop.errors import ShapeError

Infos = dict[str, Any]
Pair = tuple[int, dict[str, Any]]
Mask = NDArray[np.bool_]
Piece = tuple[int, int, Any, Mask | None]  # first env, number of envs, column, mask
Form = tuple[str, tuple[int, ...]]  # a column's type and shape
_ALIGNED_BYTES = 16


@dataclass(frozen=True)
class Columns:
    """Infos of `num_envs` consecutive envs as their vector env gave them.

    They stay columns on their way from a worker: four keys of 64 envs take 0.05 ms there and back,
    and 1.4 ms as a dict for each env.
    """

    num_envs: int
    infos: Infos

    @classmethod
    def of(cls, infos: Infos, num_envs: int) -> "Columns":
        """The infos of a vector env. Raises: ShapeError for a column without one row an env."""
        _expect_columns(infos, num_envs)
        return cls(num_envs, infos)

    def __reduce__(self) -> tuple[Any, ...]:
        # Array by array, pickling takes twice as long.
        forms: list[Form | None] = []
        parts: list[bytes] = []
        others: list[Any] = []
        for column in self.infos.values():
            if isinstance(column, np.ndarray) and not column.dtype.hasobject:
                forms.append((column.dtype.str, column.shape))
                data = column.tobytes()
                parts += [data, bytes(-len(data) % _ALIGNED_BYTES)]
            else:
                forms.append(None)
                others.append(column)
        return _unpickled, (self.num_envs, list(self.infos), forms, bytearray().join(parts), others)


def _unpickled(
    num_envs: int,
    keys: list[str],
    forms: list["Form | None"],
    data: bytearray,
    others: list[Any],
) -> Columns:
    infos: Infos = {}
    rest, at = iter(others), 0
    for key, form in zip(keys, forms, strict=True):
        if form is None:
            infos[key] = next(rest)
            continue
        kind, shape = form
        infos[key] = column = np.ndarray(shape, kind, data, at)
        at += column.nbytes + -column.nbytes % _ALIGNED_BYTES
    return Columns(num_envs, infos)


# Infos in the order of their arrival: a row with its info, or the first row of a vector env with
# its columns.
AnyInfo = tuple[int, dict[str, Any] | Columns]
AnyInfos = Sequence[AnyInfo]

# A column of one of these types is the same whether filled at once or value by value.
_SIZED = "int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64"
_NUMBERS: frozenset[type] = frozenset(
    [int, float, bool, *(np.dtype(name).type for name in _SIZED.split())]
)
_FEW = 8  # fewer infos than this are added faster one by one


class _Gymnasium(VectorEnv[Any, Any, Any]):
    """Carries the number of envs to Gymnasium's own rule."""

    def __init__(self, num_envs: int) -> None:
        self.num_envs = num_envs

    def add(self, pairs: Sequence[Pair]) -> Infos:
        infos: Infos = {}
        for env, info in pairs:
            infos = self._add_info(infos, info, env)
        return infos


def merge_infos(num_envs: int, pairs: Sequence[Pair]) -> Infos:
    """Vector infos of `num_envs` envs from (env, info) pairs, in the order given.

    Equal to Gymnasium's `VectorEnv._add_info` called for the pairs in turn: keys and their order,
    types, values, masks. An env may come twice. The type of a column is that of its first value;
    raises what NumPy raises where a later value does not fit it (arrays of differing shapes).
    """
    if not any(map(itemgetter(1), pairs)):
        return {}
    if len(pairs) < _FEW:
        return _Gymnasium(num_envs).add(pairs)
    try:
        merged = _from_rows(num_envs, pairs)
        if merged is None:
            merged = _from_keys(num_envs, pairs)
    except Exception:  # the order of the pairs decides which error is raised: Gymnasium raises it
        merged = None
    return _Gymnasium(num_envs).add(pairs) if merged is None else merged


def split_infos(infos: Infos, num_envs: int) -> list[dict[str, Any]]:
    """One info per env from vector infos; a key that an env does not have is not in its info.

    Integers, floats and bools of NumPy's default width come back as Python's, other numbers as
    NumPy scalars, arrays as views of the column's rows. A key without a mask belongs to every env.
    Raises: ShapeError for a column that has not one row per env.
    """
    split: list[dict[str, Any]] = [{} for _ in range(num_envs)]
    for key, column, mask in _columns(infos, num_envs):
        values = split_infos(column, num_envs) if isinstance(column, dict) else _values(column)
        for env in range(num_envs) if mask is None else mask.nonzero()[0].tolist():
            split[env][key] = values[env]
    return split


def take_infos(infos: Infos, rows: NDArray[np.integer[Any]]) -> Infos:
    """Infos of the envs `rows`, shape (K,), in that order; keys that none of them has are left out.

    Arrays are copies. Raises: IndexError for a row that does not exist; ShapeError.
    """
    if rows.ndim != 1 or rows.dtype.kind not in "iu":
        raise ShapeError(
            f"take_infos: rows: expected env numbers, integers of shape (K,), got {rows.dtype} "
            f"of shape {rows.shape}; make a mask into numbers with np.flatnonzero"
        )
    taken: Infos = {}
    for key, column, mask in _columns(infos, None):
        taken_mask = None if mask is None else mask[rows]
        if taken_mask is not None and not taken_mask.any():
            continue
        taken[key] = take_infos(column, rows) if isinstance(column, dict) else column[rows]
        if taken_mask is not None:
            taken[f"_{key}"] = taken_mask
    return taken


def concat_infos(parts: Sequence[tuple[int, Infos]]) -> Infos:
    """Infos of vector envs side by side, from (number of envs, infos) parts, in their order.

    Equal to merging the infos of all the envs, as far as the parts still hold them: every key of
    the result has a mask, and one that no env has is left out.
    """
    total = sum(count for count, _ in parts)
    if len(parts) == 1 and (copied := _copied(total, parts[0][1])) is not None:
        return copied
    found: dict[str, list[Piece]] = {}
    start = 0
    for count, infos in parts:
        for key, column, mask in _columns(infos, count):
            found.setdefault(key, []).append((start, count, column, mask))
        start += count
    joined: Infos = {}
    for key, pieces in found.items():
        if _alike(key, [column for _, _, column, _ in pieces]):
            whole = np.zeros(total, np.bool_)
            for first, count, _, mask in pieces:
                whole[first : first + count] = True if mask is None else mask
            if whole.any():
                joined[key], joined[f"_{key}"] = _join(total, pieces), whole
        else:
            joined.update(merge_infos(total, _pairs(key, pieces)))
    return joined


def _copied(num_envs: int, infos: Infos) -> Infos | None:
    """A copy in which every key has a mask; None where that is not all there is to do."""
    copied: Infos = {}
    for key, column, mask in _columns(infos, num_envs):
        if isinstance(column, dict) or key == "final_obs":
            return None
        if mask is None:
            copied[key], copied[f"_{key}"] = column.copy(), np.ones(num_envs, np.bool_)
        elif mask.any():
            copied[key], copied[f"_{key}"] = column.copy(), mask.copy()
    return copied


def _from_rows(num_envs: int, pairs: Sequence[Pair]) -> Infos | None:
    """The columns where every env comes once, in order, with the same keys; otherwise None."""
    if len(pairs) != num_envs:
        return None
    envs, infos = zip(*pairs, strict=True)
    keys = list(infos[0])
    # Types first: to look a missing key up in a defaultdict would add it.
    if envs != tuple(range(num_envs)) or set(map(type, infos)) != {dict}:
        return None
    if set(map(len, infos)) != {len(keys)} or not _plain_keys(infos[0]):
        return None
    try:
        rows = list(map(itemgetter(*keys), infos))
    except KeyError:
        return None
    columns = zip(*rows, strict=True) if len(keys) > 1 else [rows]
    merged: Infos = {}
    for key, values in zip(keys, columns, strict=True):
        merged.update(_column(num_envs, key, None, values))
    return merged


def _from_keys(num_envs: int, pairs: Sequence[Pair]) -> Infos | None:
    """The columns in the order of their keys' first coming; None if keys and masks clash."""
    found: dict[str, tuple[list[int], list[Any]]] = {}
    for env, info in pairs:
        for key, value in info.items():
            column = found.get(key)
            if column is None:
                column = found[key] = [], []
            column[0].append(env)
            column[1].append(value)
    if not _plain_keys(found):
        return None
    merged: Infos = {}
    for key, (envs, values) in found.items():
        merged.update(_column(num_envs, key, envs, values))
    return merged


def _plain_keys(keys: Collection[Any]) -> bool:
    """Whether all are strings (1 and True: one key, two masks) and none is another's mask."""
    return set(map(type, keys)) == {str} and not any(f"_{key}" in keys for key in keys)


def _column(num_envs: int, key: str, envs: list[int] | None, values: Sequence[Any]) -> Infos:
    """One key's column and mask; `envs` None: all of them, in order."""
    kinds = set(map(type, values))
    number = type(values[0]) if len(kinds) == 1 and kinds <= _NUMBERS else None
    if key == "final_obs":
        number, nested = None, 0
    else:
        nested = sum(issubclass(kind, dict) for kind in kinds)
    if number is not None and envs is None:
        return {key: np.array(values, number), f"_{key}": np.ones(num_envs, np.bool_)}
    if envs is None:
        envs = list(range(num_envs))
    if 0 < nested < len(kinds):  # Gymnasium writes into whichever came first, dict or array
        pairs = [(env, {key: value}) for env, value in zip(envs, values, strict=True)]
        return _Gymnasium(num_envs).add(pairs)
    column: Any
    if nested:
        column = merge_infos(num_envs, list(zip(envs, values, strict=True)))
    else:
        column = _empty(num_envs, key, values[0])
        if number is not None:
            column[envs] = np.array(values, number)
        else:
            for env, value in zip(envs, values, strict=True):
                column[env] = value
    mask = np.zeros(num_envs, np.bool_)
    mask[envs] = True
    return {key: column, f"_{key}": mask}


def _empty(num_envs: int, key: str, first: Any) -> NDArray[Any]:
    """The column that Gymnasium makes for a first value."""
    if key != "final_obs":
        if isinstance(first, np.ndarray):
            return np.zeros((num_envs, *first.shape), first.dtype)
        if type(first) in (int, float, bool) or isinstance(first, np.number):
            return np.zeros(num_envs, type(first))
    return np.full(num_envs, None, object)


def _columns(infos: Infos, num_envs: int | None) -> list[tuple[str, Any, Mask | None]]:
    """Every key with its column and mask; a mask follows its key, so it is never a key."""
    masks: set[str] = set()
    columns = []
    for key, column in infos.items():
        if key in masks:
            continue
        masks.add(f"_{key}")
        mask = infos.get(f"_{key}")
        if not isinstance(column, dict):
            _expect_rows(key, column, num_envs)
        if mask is not None:
            _expect_rows(f"_{key}", mask, num_envs)
        columns.append((key, column, mask))
    return columns


def _expect_columns(infos: Infos, num_envs: int) -> None:
    for _, column, _ in _columns(infos, num_envs):
        if isinstance(column, dict):
            _expect_columns(column, num_envs)


def _expect_rows(key: str, column: Any, num_envs: int | None) -> None:
    is_array = isinstance(column, np.ndarray) and column.ndim > 0
    if is_array and num_envs in (None, len(column)):
        return
    expected = "one row per env" if num_envs is None else f"{num_envs} rows, one per env"
    got = f"shape {column.shape}" if is_array else type(column).__name__
    raise ShapeError(
        f"infos[{key!r}]: expected an array with {expected}, got {got}; "
        "give every env a row, or leave the key out"
    )


def _values(column: NDArray[Any]) -> Sequence[Any]:
    """A column's values as they most likely went in."""
    if column.ndim == 1 and column.dtype in (np.dtype(int), np.dtype(float), np.dtype(bool)):
        values: list[Any] = column.tolist()
        return values
    return list(column)


def _alike(key: str, columns: list[Any]) -> bool:
    """Whether columns can be laid side by side without a change of any value."""
    if all(isinstance(column, dict) for column in columns):
        return key != "final_obs"
    if any(isinstance(column, dict) for column in columns):
        return False
    first = columns[0]
    if key == "final_obs" and (first.dtype != object or first.ndim > 1):
        return False
    return all(c.dtype == first.dtype and c.shape[1:] == first.shape[1:] for c in columns)


def _join(total: int, pieces: list[Piece]) -> Any:
    first = pieces[0][2]
    if isinstance(first, dict):
        parts, reached = [], 0
        for start, count, column, _ in pieces:
            parts += [(start - reached, {}), (count, column)]
            reached = start + count
        return concat_infos([*parts, (total - reached, {})])
    fill = None if first.dtype == object and first.ndim == 1 else 0
    joined = np.full((total, *first.shape[1:]), fill, first.dtype)
    for start, count, column, _ in pieces:
        joined[start : start + count] = column
    return joined


def _pairs(key: str, pieces: list[Piece]) -> list[Pair]:
    """(env, info) pairs of one key, from columns that differ in type."""
    pairs = []
    for start, count, column, mask in pieces:
        one = {key: column} if mask is None else {key: column, f"_{key}": mask}
        pairs += [(start + i, info) for i, info in enumerate(split_infos(one, count)) if info]
    return pairs
