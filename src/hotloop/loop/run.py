"""The raw record of one execution, saved so that every report can be drawn from it again.

A run file is a zip archive: `run.json` (what kind of run, target, resolved settings, machine
facts, small tables) and one `.npy` file for each array of raw samples. It is written whole under
another name and then renamed, so a file of the right name is complete.
"""

import io
import json
import re
import zipfile
import zlib
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from hotloop.errors import RunError
from hotloop.loop.files import atomic_output
from hotloop.loop.host import host_facts

FORMAT = 2
FOLDER = Path(".hotloop")
_HEADER = "run.json"
_PARTS: dict[str, type] = {
    "verb": str,
    "target": str,
    "settings": dict,
    "facts": dict,
    "host": dict,
    "complete": bool,
}
# The largest unpacked size that is read: no measurement writes as much.
MAX_BYTES = 4 << 30
_DAMAGES = (
    *(ValueError, KeyError, EOFError, TypeError, OSError, MemoryError, RuntimeError),
    zlib.error,
)


@dataclass
class Run:
    """One execution: raw samples in `arrays`, everything else in `facts`, JSON-ready."""

    verb: str  # "benchmark", "simplify", "train"
    target: str
    settings: dict[str, Any]
    facts: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    host: dict[str, Any] = field(default_factory=host_facts)
    complete: bool = True

    def save(self, path: Path | None = None) -> Path:
        """Write the run to `path`, or under `.hotloop/` by date and target; return the path.

        Raises: RunError if it cannot be written; what stood there before stays as it was.
        """
        path = path or self._default_path()
        if not path.name:
            raise RunError(
                f"the run could not be saved as {path}, a folder; name a file with --save"
            )
        header = {
            "hotloop_run": FORMAT,
            "verb": self.verb,
            "target": self.target,
            "complete": self.complete,
            "settings": self.settings,
            "host": self.host,
            "facts": self.facts,
        }
        with (
            atomic_output(path, "the run could not be saved", "--save") as scratch,
            zipfile.ZipFile(scratch, "w", zipfile.ZIP_DEFLATED) as archive,
        ):
            archive.writestr(_HEADER, json.dumps(header, default=_plain))
            for name, array in self.arrays.items():
                buffer = io.BytesIO()
                np.save(buffer, array, allow_pickle=False)
                archive.writestr(f"{name}.npy", buffer.getvalue())
        return path

    def _default_path(self) -> Path:
        stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
        target = re.sub(r"[^\w.-]+", "-", self.target).strip("-")[-100:]
        path = FOLDER / f"{stamp}-{self.verb}-{target}.run"
        number = 1
        while path.exists():
            number += 1
            path = FOLDER / f"{stamp}-{self.verb}-{target}-{number}.run"
        return path


def load(path: Path) -> Run:
    """Read a saved run.

    Raises: RunError, in one sentence, for a file that does not exist, is no run, is incomplete, or
    was written by a newer version.
    """
    try:
        header, arrays = _read(path)
    except (FileNotFoundError, NotADirectoryError):
        raise RunError(f"{path}: no such run; `ls {FOLDER}` shows the saved ones") from None
    except IsADirectoryError:
        raise RunError(f"{path} is a folder; name one of the runs in it") from None
    except zipfile.BadZipFile:
        raise RunError(
            f"{path} {'was cut short or damaged' if _starts_as_zip(path) else 'is no hotloop run'}"
        ) from None
    except _DAMAGES as error:
        raise RunError(f"{path} was cut short or damaged ({error})") from None
    for name, kind in _PARTS.items():
        if name not in header:
            raise RunError(f"{path} was cut short or damaged (no {name!r})")
        if not isinstance(header[name], kind):
            raise RunError(
                f"{path} was edited or damaged: {name}: expected a {kind.__name__}, got "
                f"{type(header[name]).__name__}"
            )
    return Run(**{name: header[name] for name in _PARTS}, arrays=arrays)


def _read(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The header and the arrays of a run file."""
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        size = sum(entry.file_size for entry in archive.infolist())
        if size > MAX_BYTES:
            raise RunError(
                f"{path} unpacks to {size / 2**30:.1f} GiB: expected at most "
                f"{MAX_BYTES / 2**30:.0f}, as no run is larger"
            )
        if _HEADER not in names:
            raise RunError(f"{path} is an archive, but not a hotloop run")
        header = json.loads(archive.read(_HEADER))
        if not isinstance(header, dict) or "hotloop_run" not in header:
            raise RunError(f"{path} is an archive, but not a hotloop run")
        if header["hotloop_run"] > FORMAT:
            raise RunError(
                f"{path} was written by a newer hotloop (format {header['hotloop_run']}; "
                f"this one reads up to {FORMAT}); install the newer one to read it"
            )
        arrays = {
            name.removesuffix(".npy"): np.load(io.BytesIO(archive.read(name)), allow_pickle=False)
            for name in names
            if name.endswith(".npy")
        }
    return header, arrays


def _starts_as_zip(path: Path) -> bool:
    with open(path, "rb") as file:
        return file.read(2) == b"PK"


def _plain(value: object) -> object:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value).__qualname__} cannot be saved in a run")
