"""Functions of libraries that open files beside Python, in compiled code.

Each is a line of one table: the argument that is a path, and how the file is opened. The library
is given the path to which the script's own leads.
"""

import functools
import os
import posix
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hotloop.errors import RedirectError
from hotloop.redirect.operations import place_to_open
from hotloop.redirect.overlay import Overlay
from hotloop.redirect.replacing import Function, Replacements

READ = os.O_RDONLY
WRITE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
UPDATE = os.O_RDWR | os.O_CREAT
OF_ARROW = {"r": READ, "rb": READ, "w": WRITE, "wb": WRITE, "a": UPDATE, "ab": UPDATE}
OF_ARROW_MAP = {"r": READ, "rb": READ, "w": UPDATE, "wb": UPDATE, "r+": UPDATE, "r+b": UPDATE}
OF_TORCH = {False: READ, True: UPDATE}  # by whether the memory is shared with the file
_IN_HDF5 = {0: READ, 1: os.O_RDWR, 2: WRITE, 4: WRITE | os.O_EXCL}


@dataclass(frozen=True)
class Call:
    """A function that opens the file which one of its arguments names."""

    module: str
    name: str  # in the module; with a dot, of a class
    argument: str
    position: int
    flags: int | Callable[[Any], int]
    """How it is opened, as `os.open` says it; or how to know that from the argument after it."""
    next_argument: tuple[str, Any] = ("", None)
    """The name and the default of the argument after it."""

    def flags_of(self, arguments: Sequence[Any], named: Mapping[str, Any]) -> int:
        """How the file is opened by a call with these arguments."""
        if isinstance(self.flags, int):
            return self.flags
        name, value = self.next_argument
        if len(arguments) > self.position + 1:
            value = arguments[self.position + 1]
        return self.flags(named.get(name, value))


def _by_flags(flags: int) -> int:
    return _IN_HDF5[flags & 7]


CALLS = (
    Call("torch._C", "PyTorchFileWriter", "filename", 0, WRITE),
    Call("torch.serialization", "save", "f", 1, WRITE),
    Call("torch.serialization", "load", "f", 0, READ),
    Call("torch.jit._serialization", "save", "f", 1, WRITE),
    Call("torch.jit._serialization", "load", "f", 0, READ),
    Call("torch.jit._script", "RecursiveScriptModule.save", "f", 1, WRITE),
    Call("torch.jit._script", "ScriptModule.save", "f", 1, WRITE),
    Call("torch", "from_file", "filename", 0, OF_TORCH.__getitem__, ("shared", False)),
    Call(
        "torch.storage",
        "UntypedStorage.from_file",
        "filename",
        0,
        OF_TORCH.__getitem__,
        ("shared", False),
    ),
    Call("safetensors", "serialize_file", "filename", 1, WRITE),
    Call("safetensors", "safe_open", "filename", 0, READ),
    Call("h5py.h5f", "create", "name", 0, _by_flags, ("flags", 2)),
    Call("h5py.h5f", "open", "name", 0, _by_flags, ("flags", 1)),
    Call("pyarrow", "OSFile", "path", 0, OF_ARROW.__getitem__, ("mode", "r")),
    Call("pyarrow", "memory_map", "path", 0, OF_ARROW_MAP.__getitem__, ("mode", "r")),
    Call("pyarrow", "create_memory_map", "path", 0, WRITE),
    Call("pyarrow", "output_stream", "source", 0, WRITE),
    Call("pyarrow", "input_stream", "source", 0, READ),
    Call("pyarrow.csv", "write_csv", "output_file", 1, WRITE),
    Call("pyarrow.csv", "CSVWriter", "sink", 0, WRITE),
    Call("pyarrow.csv", "read_csv", "input_file", 0, READ),
    Call("pyarrow.feather", "write_feather", "dest", 1, WRITE),
    Call("pyarrow.feather", "read_table", "source", 0, READ),
    Call("pyarrow.parquet.core", "ParquetWriter.__init__", "where", 1, WRITE),
    Call("pyarrow.parquet.core", "ParquetFile.__init__", "source", 1, READ),
    Call("pyarrow.parquet.core", "ParquetDataset.__init__", "path_or_paths", 1, READ),
    Call("pyarrow.parquet.core", "read_table", "source", 0, READ),
    Call("pyarrow.dataset", "dataset", "source", 0, READ),
    Call("pyarrow.dataset", "write_dataset", "base_dir", 1, os.O_DIRECTORY),
    Call("cv2", "imwrite", "filename", 0, WRITE),
    Call("cv2", "imread", "filename", 0, READ),
    Call("cv2", "VideoWriter", "filename", 0, WRITE),
    Call("cv2", "VideoCapture", "filename", 0, READ),
    Call(
        "tensorboard.summary.writer.event_file_writer",
        "EventFileWriter.__init__",
        "logdir",
        1,
        os.O_DIRECTORY,
    ),
)


def redirect_libraries(overlay: Overlay, replacements: Replacements) -> None:
    """Lead the calls of libraries through an overlay, of each from when it is imported."""
    for call in CALLS:
        replacements.add(call.module, call.name, functools.partial(_led, overlay, call))


def _led(overlay: Overlay, call: Call, old: Function) -> Function:
    @functools.wraps(old)
    def led(*arguments: Any, **named: Any) -> Any:
        flags, at = call.flags_of(arguments, named), call.position
        if call.argument in named:
            named[call.argument] = place_of(overlay, named[call.argument], flags)
        elif len(arguments) > at:
            place = place_of(overlay, arguments[at], flags)
            arguments = (*arguments[:at], place, *arguments[at + 1 :])
        return old(*arguments, **named)

    return led


def place_of(overlay: Overlay, path: Any, flags: int) -> Any:
    """Return the path at which a library opens a file; anything else stays as it is.

    Raises: OSError as opening it would; RedirectError for an address to write to.
    """
    if not isinstance(path, str | bytes | os.PathLike):
        return path
    text = os.fsdecode(path)
    if "://" in text:
        if flags != READ:
            raise RedirectError(
                f"{text}: a throw-away run writes to no other machine; expected a path of this one"
            )
        return path
    absolute = overlay.absolute(text)
    if flags == os.O_DIRECTORY:
        place = _folder(overlay, absolute)
    elif flags & os.O_CREAT:
        place = place_to_open(overlay, absolute, flags)
    else:
        place = _existing(overlay, absolute, flags)
    return os.fsencode(place) if isinstance(path, bytes) else place


def _existing(overlay: Overlay, absolute: str, flags: int) -> str:
    try:
        canonical = overlay.canonical(absolute)
        place = place_to_open(overlay, absolute, flags)
    except FileNotFoundError:
        return f"{overlay.upper}{absolute}"  # where nothing is: the library says so
    if place != canonical and stat.S_ISDIR(posix.stat(place).st_mode):
        return overlay.bring_tree(canonical)
    return place


def _folder(overlay: Overlay, absolute: str) -> str:
    os.makedirs(absolute, exist_ok=True)  # noqa: PTH103
    canonical = overlay.canonical(absolute)
    place = overlay.bring_tree(canonical)
    if place != canonical:
        overlay.hide(canonical)  # so that what the library deletes there stays deleted
    return place
