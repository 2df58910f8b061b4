"""Read nested values by path: "agents/people/wealth" as a whole, or name by name."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol


class ByPath(Protocol):
    """An object that is read by path: a state, a view of one, a snapshot."""

    def __getitem__(self, path: str) -> Any: ...

    def below(self, path: str) -> list[str]:
        """List the names right below a path."""
        ...


class Branch(Mapping[str, Any]):
    """The values below one path of a state, of a view of it, or of a snapshot."""

    def __init__(self, owner: ByPath, path: str) -> None:
        self._owner, self._path = owner, path

    def __getitem__(self, name: str) -> Any:
        return self._owner[f"{self._path}/{name}"]

    def __iter__(self) -> Iterator[str]:
        return iter(self._owner.below(self._path))

    def __len__(self) -> int:
        return len(self._owner.below(self._path))

    def __repr__(self) -> str:
        return f"{self._path}: {', '.join(self)}"


def names_below(path: str, paths: Iterable[str]) -> list[str]:
    """List the names right below `path` among `paths`, each once, in their order."""
    start = f"{path}/"
    return list(
        dict.fromkeys(p[len(start) :].partition("/")[0] for p in paths if p.startswith(start))
    )
