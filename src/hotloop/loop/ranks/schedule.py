"""The memory that the ranks of one job share: how far each has come, and what all do next.

The ranks are the processes that a launcher such as `torchrun` starts. Rank 0 measures; the others
follow: at the start of each iteration they note its number, and wait where the next arm begins.
"""

import mmap
import os
import pickle
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from hotloop.loop.control import ArmMessage
from hotloop.loop.memory import FileLock

# So long a rank sleeps before it looks again whether it may go on.
LOOK_S = 50e-6
MAX_RANKS = 256

_FIELDS = 8  # of 8 bytes each
_LIMIT, _FINISHED = range(2)  # fields of the header
_PID, _REACHED, _BEAT, _ENDED, _COLLECTIVES = range(5)  # fields of a rank
_TEXT_BYTES = 1 << 16  # at most, for what is sent as an object; its length comes first
_RANK_BYTES = _FIELDS * 8 + _TEXT_BYTES
_RULE = _FIELDS * 8
_MESSAGE = _RULE + _TEXT_BYTES
_RANKS = _MESSAGE + _TEXT_BYTES


class Meeting(NamedTuple):
    """What all ranks do from one iteration on.

    operations: what is done first with the state of the loop: "take", "keep" or "restore".
    """

    arm: ArmMessage
    operations: tuple[str, ...]


class Reply(NamedTuple):
    """What a rank says where it waits: outputs and faults of its tapes, by the name of a stage."""

    tapes: dict[str, tuple[int, int]]


class RankSchedule:
    """One file that all ranks of a job map; whoever makes it says how many they are."""

    def __init__(self, path: Path, ranks: int) -> None:
        self.ranks = ranks
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        size = _RANKS + ranks * _RANK_BYTES
        if os.fstat(self._fd).st_size < size:
            os.ftruncate(self._fd, size)
        self._view = memoryview(mmap.mmap(self._fd, size))
        self._header = self._view[: _FIELDS * 8].cast("q")
        self._of_rank = [
            self._view[at : at + _FIELDS * 8].cast("q")
            for at in range(_RANKS, _RANKS + ranks * _RANK_BYTES, _RANK_BYTES)
        ]
        self._lock = FileLock(self._fd)

    def close(self) -> None:
        """Give the file's descriptor back; what was read stays readable."""
        os.close(self._fd)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock of all ranks."""
        with self._lock.held():
            yield

    # --- what rank 0 writes ----------------------------------------------------------------------

    @property
    def limit(self) -> int:
        """The iteration that no rank begins before rank 0 says more; 0: there is none yet."""
        return self._header[_LIMIT]

    @limit.setter
    def limit(self, iteration: int) -> None:
        self._header[_LIMIT] = iteration

    @property
    def finished(self) -> bool:
        """Whether the measurement has what it needs."""
        return bool(self._header[_FINISHED])

    def finish(self) -> None:
        """Let all other ranks end."""
        self._header[_FINISHED] = 1

    @property
    def rule(self) -> Any:
        """How the iterations are told, once rank 0 has found them; else None."""
        return self._read(_RULE)

    @rule.setter
    def rule(self, rule: Any) -> None:
        self._write(_RULE, rule)

    @property
    def meeting(self) -> Meeting:
        """What all do now. Rank 0 changes it only while all others wait."""
        meeting: Meeting = self._read(_MESSAGE)
        return meeting

    @meeting.setter
    def meeting(self, meeting: Meeting) -> None:
        self._write(_MESSAGE, meeting)

    # --- what each rank writes -------------------------------------------------------------------

    def join(self, rank: int) -> None:
        """Note that this process is a rank."""
        self._of_rank[rank][_REACHED] = -1
        self._of_rank[rank][_PID] = os.getpid()

    def reach(self, rank: int, iteration: int, collectives: int) -> None:
        """Note that a rank is at the start of an iteration; their numbers count from 1.

        collectives: those that it has called by then, since its script began. Where both must be
        read together, the lock is held.
        """
        self._of_rank[rank][_COLLECTIVES] = collectives
        self._of_rank[rank][_REACHED] = iteration
        self._of_rank[rank][_BEAT] = time.monotonic_ns()

    def reply(self, rank: int, reply: Reply) -> None:
        """Say what rank 0 must know, before the iteration is noted at which this rank waits."""
        self._write(_RANKS + rank * _RANK_BYTES + _FIELDS * 8, reply)

    def end(self, rank: int) -> None:
        """Note that the script of a rank has ended."""
        self._of_rank[rank][_ENDED] = 1

    # --- what is read of each rank ---------------------------------------------------------------

    def reached(self, rank: int) -> int:
        """The iteration that a rank has begun; -1: it does not know them yet."""
        return self._of_rank[rank][_REACHED] if self._of_rank[rank][_PID] else -1

    def collectives(self, rank: int) -> int:
        """The collectives that a rank had called when it began that iteration."""
        return self._of_rank[rank][_COLLECTIVES]

    def ended(self, rank: int) -> bool:
        """Whether the script of a rank has ended."""
        return bool(self._of_rank[rank][_ENDED])

    def reply_of(self, rank: int) -> Reply | None:
        """What a rank has said last."""
        reply: Reply | None = self._read(_RANKS + rank * _RANK_BYTES + _FIELDS * 8)
        return reply

    def pids(self) -> list[int]:
        """The processes of all ranks that have joined."""
        return [pid for each in self._of_rank if (pid := each[_PID])]

    def last_beat_ns(self) -> int:
        """When a rank began an iteration last, on the system's monotonic clock; 0: none has."""
        return max(each[_BEAT] for each in self._of_rank)

    # --- objects ---------------------------------------------------------------------------------

    def _write(self, at: int, value: Any) -> None:
        text = pickle.dumps(value)
        if len(text) > _TEXT_BYTES - 4:
            raise ValueError(f"{len(text)} bytes for the ranks of a job; at most {_TEXT_BYTES - 4}")
        self._view[at + 4 : at + 4 + len(text)] = text
        struct.pack_into("I", self._view, at, len(text))  # last: others look at it

    def _read(self, at: int) -> Any:
        (length,) = struct.unpack_from("I", self._view, at)
        return pickle.loads(self._view[at + 4 : at + 4 + length]) if length else None
