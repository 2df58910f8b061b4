"""The trajectory of a run: one list for the start and one for each step, a snapshot a substep.

`trajectory[0] == [start]`; `trajectory[-1][-1]["environment"]["total_wealth"]` is the present
value. Snapshots are made when they are read, and every tensor returned is a copy.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, overload

from hotloop.errors import PathError, RecordError, nearest
from hotloop.sim.paths import Branch, names_below
from hotloop.sim.record import Recorder
from hotloop.sim.state import COUNTERS, SECTIONS


class Snapshot(Mapping[str, Any]):
    """The kept values of one moment, by path or nested, as in a state.

    Raises: RecordError for a value that the record does not keep.
    """

    def __init__(self, recorder: Recorder, moment: int) -> None:
        self._recorder, self._moment = recorder, moment

    def __getitem__(self, path: str) -> Any:
        """Return the tensor at a path, or a mapping of the values below it."""
        recorder = self._recorder
        if path in COUNTERS:
            return self._counter(path)
        if path in recorder.paths:
            return recorder.value(path, self._moment)
        if self.below(path):
            return Branch(self, path)
        if path in SECTIONS or recorder.state.below(path) or path in recorder.state.slots:
            kept = ", ".join(recorder.record.keep) or "nothing"
            raise RecordError(
                f"{path!r} is not kept in this trajectory, which keeps {kept}; "
                f"give the executor record=Record(keep=(…, {path!r}))"
            )
        raise PathError(f"a snapshot has no {path!r}{nearest(path, recorder.paths)}")

    def __iter__(self) -> Iterator[str]:
        found = dict.fromkeys(path.partition("/")[0] for path in self._recorder.paths)
        return iter((*found, *COUNTERS))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __repr__(self) -> str:
        step, substep = (self._counter(name) for name in COUNTERS)
        return (
            f"Snapshot(step={step}, substep={substep!r}, keeps={', '.join(self._recorder.paths)})"
        )

    def below(self, path: str) -> list[str]:
        """List the kept names right below a path."""
        return names_below(path, self._recorder.paths)

    def _counter(self, name: str) -> Any:
        if self._moment == 0:
            return 0 if name == "current_step" else ""
        step, index = divmod(self._moment - 1, len(self._recorder.names))
        return step if name == "current_step" else self._recorder.names[index]


class Trajectory(Sequence[list[Snapshot]]):
    """The start and every step so far; it grows with its runner until the runner is reset."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def __len__(self) -> int:
        return 1 + self._recorder.steps

    @overload
    def __getitem__(self, index: int) -> list[Snapshot]: ...
    @overload
    def __getitem__(self, index: slice) -> list[list[Snapshot]]: ...
    def __getitem__(self, index: int | slice) -> list[Snapshot] | list[list[Snapshot]]:
        """Return the snapshots of step `index - 1`; of the start for 0."""
        if isinstance(index, slice):
            return [self._snapshots(i) for i in range(*index.indices(len(self)))]
        place = index + len(self) if index < 0 else index
        if not 0 <= place < len(self):
            raise IndexError(f"trajectory of {len(self) - 1} steps and its start has no [{index}]")
        return self._snapshots(place)

    def __repr__(self) -> str:
        return f"Trajectory({len(self) - 1} steps, {len(self._recorder.names)} substeps each)"

    def _snapshots(self, place: int) -> list[Snapshot]:
        count = len(self._recorder.names)
        first = 1 + (place - 1) * count
        moments = range(first, first + count) if place else (0,)
        return [Snapshot(self._recorder, moment) for moment in moments]
