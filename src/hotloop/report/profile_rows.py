"""What the tables of all profiles are made of: rows, and places in files."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

MOST_ROWS = 15


@dataclass(frozen=True)
class Rows:
    """A table. columns: name and "left" or "right"; notes: sentences below it."""

    title: str
    columns: Sequence[tuple[str, str]]
    rows: Sequence[Sequence[str]]
    notes: list[str] = field(default_factory=list)


def place(file: str, line: int) -> str:
    """A place in a file, as short as it is still found: relative to here, or its last parts."""
    if not file:
        return "native code"
    path = Path(file)
    if path.is_relative_to(Path.cwd()):
        path = path.relative_to(Path.cwd())
    elif len(path.parts) > 3:
        path = Path("…", *path.parts[-3:])
    return f"{path}:{line}" if line else str(path)
