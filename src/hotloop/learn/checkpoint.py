"""A training as a file: what a learner needs to go on, and what makes its policy again.

A checkpoint is a zip archive: `checkpoint.json` (algorithm, settings, clock, versions, the state
without its arrays) and one `.npy` file for each array. It is written whole under another name and
then renamed. Nothing in it is code, and reading one trusts nothing: sizes are checked before
anything is unpacked, and every value before it is used.
"""

import json
import math
import warnings
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, NoReturn, get_type_hints

import numpy as np
from numpy.typing import NDArray
from typeguard import TypeCheckError, check_type

from hotloop.errors import CheckpointError, HotloopError, nearest
from hotloop.learn.algorithms import ALGORITHMS, learner_type
from hotloop.learn.settings import LearnerSettings
from hotloop.loop.files import atomic_path
from hotloop.loop.host import host_facts

FORMAT = 1
# The largest unpacked sizes that are read: of an archive that unpacks to more than its own size,
# as one from here never does, and of the JSON.
MAX_BYTES, MAX_HEADER_BYTES = 4 << 30, 16 << 20
_CHUNK_BYTES = 16 << 20
_LARGEST = 2**62  # of the numbers among settings and counts
# What was fixed before it became a setting: checkpoints of then do not name it.
_ONCE_FIXED: Mapping[str, Any] = {"activation": "tanh", "initial_std": 1.0}
_HEADER = "checkpoint.json"
_ARRAY = "npy"  # a dict with this key alone stands for an array: the name of its entry
_CURVE: Mapping[str, Any] = {
    "env_steps": np.int64,
    "seconds": np.float64,
    "mean_return": np.float64,
}
_DAMAGES = (
    *(ValueError, KeyError, EOFError, TypeError, OSError, MemoryError, RuntimeError),
    *(RecursionError, OverflowError, SyntaxError, Warning, zlib.error, zipfile.BadZipFile),
)
Array = NDArray[Any]


@dataclass(frozen=True)
class Checkpoint:
    """A training at the end of an iteration.

    state: `state_dict` of the learner, which counts in `progress` what it has learned from.
    curve: env_steps, seconds and mean_return of the greedy evaluations so far, (K,) each.
    seconds: of training, without evaluations. wall_s: with everything. every: env steps between
    two checkpoints. versions: of the packages, by name.
    """

    settings: LearnerSettings
    state: Mapping[str, Any]
    curve: Mapping[str, Array]
    seconds: float
    wall_s: float
    every: int
    versions: Mapping[str, str]

    @property
    def target(self) -> str:
        """The target of the command line, such as `ppo:CartPole-v1`."""
        return f"{self.settings.algorithm}:{self.settings.env_id}"

    @property
    def env_steps(self) -> int:
        """Env steps that were learned from so far."""
        steps: int = self.state["progress"]["env_steps"]
        return steps


def package_versions() -> dict[str, str]:
    """Versions of the packages on which the bits of a training depend, by name."""
    versions: dict[str, str] = host_facts()["packages"]
    return versions


# --- writing -------------------------------------------------------------------------------------


def save_checkpoint(checkpoint: Checkpoint, path: Path) -> None:
    """Write a checkpoint; what stood at `path` before stays until the new one is whole.

    Raises: CheckpointError if it cannot be written, or holds a number that is not finite.
    """
    arrays: dict[str, Array] = {}
    header = {
        "hotloop_checkpoint": FORMAT,
        "algorithm": checkpoint.settings.algorithm,
        "settings": {
            name: None if isinstance(value, float) and math.isnan(value) else value
            for name, value in asdict(checkpoint.settings).items()
        },
        "seconds": checkpoint.seconds,
        "wall_s": checkpoint.wall_s,
        "every": checkpoint.every,
        "versions": dict(checkpoint.versions),
        "curve": _without_arrays(checkpoint.curve, "curve", arrays),
        "state": _without_arrays(checkpoint.state, "state", arrays),
    }
    try:
        text = json.dumps(header, allow_nan=False)
        with atomic_path(path) as scratch, zipfile.ZipFile(scratch, "w") as archive:
            archive.writestr(_HEADER, text)
            for name, array in arrays.items():
                # Piece by piece: a replay may be larger than what memory has left.
                with archive.open(name, "w", force_zip64=True) as entry:
                    np.lib.format.write_array(entry, array, (1, 0), allow_pickle=False)
    except ValueError as error:
        raise CheckpointError(
            f"{path}: expected finite numbers to save, got others ({error}); the checkpoint before "
            "stays as it was"
        ) from None
    except OSError as error:
        raise CheckpointError(
            f"the checkpoint could not be written as {path}: {error.strerror or error}. Free some "
            "room or name another place with --checkpoint"
        ) from error


def _without_arrays(value: Any, path: str, arrays: dict[str, Array]) -> Any:
    """The value as JSON, with each array moved to `arrays` and its name left in its place."""
    if isinstance(value, Mapping):
        assert _ARRAY not in value, path
        return {k: _without_arrays(part, f"{path}.{k}", arrays) for k, part in value.items()}
    if isinstance(value, list | tuple):
        return [_without_arrays(part, f"{path}.{k}", arrays) for k, part in enumerate(value)]
    if isinstance(value, np.ndarray):
        name = f"{path}.npy"
        arrays[name] = np.array(value, order="C")
        return {_ARRAY: name}
    return value.item() if isinstance(value, np.generic) else value


# --- reading -------------------------------------------------------------------------------------


def load_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint.

    Raises: CheckpointError, in one sentence, for a file that does not exist, is no checkpoint, was
    cut short, edited, or written by a newer version. Whether its state fits a learner is for
    `Learner.load_state_dict` to say.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            header, arrays = _read(path, archive)
        return _checkpoint(header, arrays)
    except (FileNotFoundError, NotADirectoryError):
        raise CheckpointError(f"{path}: no such checkpoint{_near_file(path)}") from None
    except IsADirectoryError:
        raise CheckpointError(f"{path} is a folder; name a checkpoint in it") from None
    except CheckpointError as error:
        message = str(error)
        raise CheckpointError(
            message if message.startswith(str(path)) else f"{path} was edited or damaged: {message}"
        ) from None
    except PermissionError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from None
    except zipfile.BadZipFile:
        raise CheckpointError(_no_archive(path)) from None
    except _DAMAGES as error:
        why = " ".join(str(error).split())[:200] or type(error).__name__
        raise CheckpointError(f"{path} was cut short or damaged ({why})") from None


def _read(path: Path, archive: zipfile.ZipFile) -> tuple[dict[str, Any], dict[str, Array]]:
    """The header and the arrays of a checkpoint file."""
    entries = {entry.filename: entry for entry in archive.infolist()}
    if _HEADER not in entries:
        raise CheckpointError(f"{path} is an archive, but no hotloop checkpoint")
    if len(entries) != len(archive.infolist()):
        raise CheckpointError("expected each entry once, got one twice")
    size = sum(entry.file_size for entry in entries.values())
    most = max(MAX_BYTES, path.stat().st_size)
    if size > most or entries[_HEADER].file_size > MAX_HEADER_BYTES:
        raise CheckpointError(
            f"{path} unpacks to {size / 2**30:.1f} GiB: expected at most {most / 2**30:.0f}, "
            f"and {MAX_HEADER_BYTES >> 20} MiB of JSON"
        )
    if any(
        e.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for e in entries.values()
    ):
        raise CheckpointError("expected entries that are stored or deflated, got others")
    header = json.loads(
        archive.read(_HEADER), object_pairs_hook=_once, parse_constant=_refuse_constant
    )
    number = header.get("hotloop_checkpoint") if isinstance(header, dict) else None
    if type(number) is not int or number < 1:
        raise CheckpointError(f"{path} is an archive, but no hotloop checkpoint")
    if number > FORMAT:
        raise CheckpointError(
            f"{path} was written by a newer hotloop (format {number}; this one reads up to "
            f"{FORMAT}); install the newer one to use it"
        )
    arrays = {name: _array(archive, entries[name]) for name in entries if name != _HEADER}
    return header, arrays


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise CheckpointError("expected each name once, got one twice")
    return found


def _refuse_constant(text: str) -> NoReturn:
    raise CheckpointError(f"expected finite numbers, got {text}")


def _array(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> Array:
    """Read a `.npy` entry. Its header is trusted only where the data have the size it promises."""
    name = entry.filename
    with archive.open(entry) as file:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            if np.lib.format.read_magic(file) != (1, 0):
                raise CheckpointError(f"{name}: expected an array of format 1.0, got another")
            shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
        size, left = math.prod(shape) * dtype.itemsize, entry.file_size - file.tell()
        if dtype.kind not in "biuf" or not dtype.isnative or fortran or dtype.subdtype is not None:
            raise CheckpointError(f"{name}: expected plain numbers, got {dtype}")
        if min(shape, default=0) < 0 or left != size:
            raise CheckpointError(f"{name}: expected {size} bytes, got {left}")
        data = np.empty(size, np.uint8)
        at = 0
        # To the end of the entry, where its checksum is compared.
        while piece := file.read(_CHUNK_BYTES):
            data[at : at + len(piece)] = np.frombuffer(piece, np.uint8)
            at += len(piece)
    if at != size:
        raise CheckpointError(f"{name}: expected {size} bytes, got {at}")
    return data.view(dtype).reshape(shape)


def _checkpoint(header: dict[str, Any], arrays: dict[str, Array]) -> Checkpoint:
    """Check what was read, part by part."""
    names = ("hotloop_checkpoint", "algorithm", *_PARTS)
    for name in names:
        if name not in header:
            raise CheckpointError(f"it has no {name!r}")
    for name in header:
        if name not in names:
            raise CheckpointError(f"unknown part {name!r}")
    for name, kind in _PARTS.items():
        if type(header[name]) not in kind:
            raise CheckpointError(f"{name}: expected another type, got {header[name]!r:.60}")
    state = _with_arrays(header["state"], arrays)
    curve = _with_arrays(header["curve"], arrays)
    if arrays:
        raise CheckpointError(f"unknown entry {next(iter(arrays))!r:.60}")
    for name in ("seconds", "wall_s", "every"):
        if not 0 <= header[name] < _LARGEST:
            raise CheckpointError(f"{name}: expected 0 or more, got {header[name]!r:.60}")
    progress = state.get("progress")
    steps = progress.get("env_steps") if isinstance(progress, dict) else None
    if type(steps) is not int or not 0 <= steps < _LARGEST:
        raise CheckpointError(f"state: env_steps: expected 0 or more, got {steps!r:.60}")
    if not all(type(version) is str for version in header["versions"].values()):
        raise CheckpointError("versions: expected texts, got others")
    return Checkpoint(
        settings=_settings(header["algorithm"], header["settings"]),
        state=state,
        curve=_checked_curve(curve),
        seconds=float(header["seconds"]),
        wall_s=float(header["wall_s"]),
        every=header["every"],
        versions=header["versions"],
    )


_PARTS: Mapping[str, tuple[type, ...]] = {
    "settings": (dict,),
    "seconds": (int, float),
    "wall_s": (int, float),
    "every": (int,),
    "versions": (dict,),
    "curve": (dict,),
    "state": (dict,),
}


def _with_arrays(value: Any, arrays: dict[str, Array]) -> Any:
    """Put the arrays back into a value of JSON; those that were used are taken out of `arrays`."""
    if isinstance(value, dict):
        if set(value) == {_ARRAY}:
            name = value[_ARRAY]
            if type(name) is not str or name not in arrays:
                raise CheckpointError(f"it has no array {name!r:.60}")
            return arrays.pop(name)
        return {name: _with_arrays(part, arrays) for name, part in value.items()}
    if isinstance(value, list):
        return [_with_arrays(part, arrays) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        raise CheckpointError("expected finite numbers, got one that is not")
    return value


def _settings(algorithm: Any, given: dict[str, Any]) -> LearnerSettings:
    if type(algorithm) is not str or algorithm not in ALGORITHMS:
        raise CheckpointError(
            f"algorithm: expected one of {', '.join(ALGORITHMS)}, got {algorithm!r:.60}"
        )
    kind = learner_type(algorithm).settings_type
    known = {field.name: get_type_hints(kind)[field.name] for field in fields(kind)}
    for name in given:
        if name not in known:
            raise CheckpointError(f"settings: unknown name {name!r:.60}{nearest(name, known)}")
    given = {**_ONCE_FIXED, **given}
    values: dict[str, Any] = {}
    for name, hint in known.items():
        if name not in given:
            raise CheckpointError(f"settings: it has no {name!r}")
        # JSON has no NaN, which as a setting means "not set".
        values[name] = math.nan if hint is float and given[name] is None else given[name]
        _expect_type(name, values[name], hint)
    try:
        return kind(**values)
    except HotloopError as error:
        raise CheckpointError(f"settings: {error}") from None


def _expect_type(name: str, value: Any, hint: Any) -> None:
    try:
        check_type(value, hint)
        fits = isinstance(value, bool) == (hint is bool)
    except TypeCheckError:
        fits = False
    if isinstance(value, int | float) and abs(value) >= _LARGEST:
        fits = False
    if not fits:
        raise CheckpointError(
            f"settings: {name}: expected {getattr(hint, '__name__', hint)}, got {value!r:.60}"
        )


def _checked_curve(curve: dict[str, Any]) -> dict[str, Array]:
    """Check the evaluations so far: arrays of one length, in the order of env steps and time."""
    if list(curve) != list(_CURVE):
        raise CheckpointError(f"curve: expected {', '.join(_CURVE)}, got {', '.join(curve)[:60]}")
    for name, dtype in _CURVE.items():
        array = curve[name]
        fits = isinstance(array, np.ndarray) and array.dtype == dtype and array.ndim == 1
        if not fits or len(array) != len(curve["env_steps"]):
            raise CheckpointError(f"curve: {name}: expected one number for each evaluation")
    for name in ("env_steps", "seconds"):
        array = curve[name]
        if not np.isfinite(array).all() or (np.diff(array, prepend=0) < 0).any():
            raise CheckpointError(f"curve: {name}: expected numbers that rise")
    return curve


def _no_archive(path: Path) -> str:
    try:
        with open(path, "rb") as file:
            begins_as_one = file.read(2) == b"PK"
    except OSError:
        begins_as_one = False
    return f"{path} {'was cut short or damaged' if begins_as_one else 'is no hotloop checkpoint'}"


def _near_file(path: Path) -> str:
    folder = path.parent if path.parent.is_dir() else Path()
    found = nearest(path.name, [p.name for p in folder.glob("*.checkpoint")])
    return found or "; name one that `hotloop train` has written"
