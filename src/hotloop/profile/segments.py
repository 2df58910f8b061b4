"""Memory that this process shares with others: no call shows what moves through it."""

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

_MAPS = Path("/proc/self/smaps")
_OWN = "memfd:hotloop-control"  # what tells stages what to do is no part of the loop
_MOST = 12


@dataclass(frozen=True)
class Segment:
    """Shared mappings of one name. resident_bytes: what of them was touched here."""

    name: str
    mappings: int
    size_bytes: float
    resident_bytes: float


def shared_segments() -> list[Segment]:
    """The shared mappings of this process that others can write into, the largest first."""
    try:
        lines = _MAPS.read_text().splitlines()
    except OSError:
        return []
    found: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    name: str | None = None
    for line in lines:
        head, *rest = line.split(maxsplit=5)
        if not head.endswith(":"):
            name = _segment_name(rest)
            if name is not None:
                found[name][0] += 1
        elif name is not None and head in ("Size:", "Rss:"):
            found[name][1 if head == "Size:" else 2] += int(rest[0]) * 1024
    segments = [Segment(name, count, size, rss) for name, (count, size, rss) in found.items()]
    return sorted(segments, key=lambda each: -each.size_bytes)[:_MOST]


def _segment_name(fields: list[str]) -> str | None:
    """The name of a mapping that is shared and writable, without what numbers it."""
    rights, path = fields[0], fields[4] if len(fields) > 4 else ""
    if rights[1] != "w" or rights[3] != "s" or _OWN in path or path.startswith("anon_inode"):
        return None
    return path.removesuffix(" (deleted)").removeprefix("/") or "without a name"
