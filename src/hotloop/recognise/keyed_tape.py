"""The recorded outputs of a stage whose calls are of several kinds."""

from collections.abc import Hashable, Sequence
from typing import Any

from hotloop.loop.tape import FEW_OUTPUTS, MAX_OUTPUTS, MIN_OUTPUTS, Entry, Tape

# So many kinds of calls are told apart; a stage with more of them replays what it knows.
MOST_KINDS = 256


class KeyedTape(Tape):
    """A tape for each kind of call, such as a module and the shapes of what it is called with.

    A replayed call returns what a call of its own kind returned. As a whole it reads like one tape.
    """

    def __init__(self) -> None:
        super().__init__()
        self.kinds: dict[Hashable, Tape] = {}

    @property
    def full(self) -> bool:
        """Whether another output is not wanted."""
        return len(self.entries) >= MAX_OUTPUTS or (
            len(self.entries) >= MIN_OUTPUTS and all(kind.full for kind in self.kinds.values())
        )

    @property
    def needed(self) -> int:
        """The fewest outputs that may stand for the stage: few if each kind's are all alike."""
        if all(kind.needed == FEW_OUTPUTS for kind in self.kinds.values()):
            return FEW_OUTPUTS
        return MIN_OUTPUTS

    def record(
        self,
        target: object,
        arguments: object,
        output: Any,
        buffers: Sequence[Any],
        duration_ns: int,
        cpu_ns: int,
        *,
        process_cpu_ns: int = 0,
        most_bytes: int = 1 << 30,
    ) -> None:
        """Record one call of the kind `target`. If it cannot be recorded, `problem` says why."""
        kind = self.kinds.get(target)
        if kind is None:
            if len(self.kinds) == MOST_KINDS:
                return
            kind = self.kinds[target] = Tape()
        before = len(kind.entries)
        kind.record(
            target,
            arguments,
            output,
            buffers,
            duration_ns,
            cpu_ns,
            process_cpu_ns=process_cpu_ns,
            most_bytes=max(0, most_bytes - self.bytes),
        )
        self.note_times(duration_ns, cpu_ns, process_cpu_ns)
        self.problem = self.problem or kind.problem
        self.limited = self.limited or kind.limited
        if len(kind.entries) > before:
            self.entries.append(kind.entries[-1])
            self.note_kept(arguments, output, buffers, duration_ns, cpu_ns)

    def next_of(self, kind: Hashable) -> Entry | None:
        """Return the next recorded call of this kind, or None if there is none."""
        tape = self.kinds.get(kind)
        if tape is None or not tape.entries:
            self.missed += 1
            return None
        return tape.following()

    def rewind(self, phase: float = 0.0) -> None:
        """Undo consumers' writes, and start the next block at a share `phase` of each kind."""
        super().rewind(phase)
        for kind in self.kinds.values():
            kind.rewind(phase)
            self.mutated = self.mutated or kind.mutated
