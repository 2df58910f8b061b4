"""The recorded outputs of a stage, which a later block can replay.

A tape belongs to one stage in one process: a worker replays its own, so that FREE is not charged
with moving data between processes. Each entry keeps a pristine copy, which is never returned,
beside the working copy that replays return, so that a consumer's writes into it are noticed and
undone.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hotloop.loop.values import (
    ATOMS,
    NotCopyableError,
    count_bytes,
    count_items,
    fingerprint,
    independent_copy,
    write_into,
)

# A stage whose outputs differ needs at least this many to be replaced by them.
MIN_OUTPUTS = 16
# One that always returns the same needs no more than this; of large outputs so few are kept.
FEW_OUTPUTS = 4
MAX_OUTPUTS = 4096
# So many are recorded where there is time for it: rare outputs must be among them too.
WANTED_OUTPUTS = 64
# A new output lies in the cache when its consumer reads it; so should a replayed one. A
# tape whose outputs are all of one size ends here: two thirds of a common level 2 cache.
MAX_BYTES = 640 << 10
# Where sizes vary, the consumer's time varies too: outputs are recorded until the mean size is
# known this well, and no more than so many bytes.
SIZE_ERROR = 0.02
MAX_VARIED_BYTES = 64 << 20
# Two groups whose means explain more than this share of the variance of log durations are two
# modes. Cutting a normal distribution at its mean explains 0.64, a uniform one 0.75.
MODES_EXPLAIN = 0.88
MODES_RATIO = 1.5

# Faults of a tape, as a worker reports them to the owner of the control.
PROBLEM, MUTATED, MISSED = 1, 2, 4


# One recorded call: the working copy, what it wrote into declared buffers, the pristine copy, and a
# fingerprint of the working one. A plain tuple: where its parts are plain values or arrays the
# garbage collector skips it, and collections in the loop take no longer because of a tape.
Entry = tuple[Any, tuple[Any, ...], Any, tuple[object, ...]]


class Tape:
    """The recorded calls of one stage, replayed in order, again and again."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.problem: str | None = None
        self.limited = False  # memory ended before there were as many outputs as are wanted
        self.mutated = False
        self.missed = 0
        self.bytes = 0
        self.own_cpu_ns = 0
        self.other_cpu_ns = 0  # of the process's other threads, during the recorded calls
        self.beside_ns = 0  # processor time beyond the calls' duration: what ran at once
        self._kept_ns = 0  # of the calls among the entries whose processor time has a meaning
        self._kept_cpu_ns = 0
        self._moved_bytes = 0
        self._durations: list[int] = []
        self._cpus: list[int] = []  # processor times, one for each duration
        self._sizes: list[int] = []
        self._cursor = 0
        self._replayed = 0  # entries handed out since the last rewind
        self._duration_cursor = 0
        self._target: object = None

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def wanted(self) -> int:
        """How many outputs should stand for the stage: more where their sizes vary."""
        if len(self._sizes) < FEW_OUTPUTS:
            return MIN_OUTPUTS
        sizes = np.array(self._sizes, float)
        mean = float(sizes.mean())
        spread = float(sizes.std()) / mean if mean else 0.0
        needed = math.ceil((spread / SIZE_ERROR) ** 2)
        return min(max(MIN_OUTPUTS, needed), MAX_OUTPUTS // 4)

    @property
    def full(self) -> bool:
        """Whether another output is not wanted."""
        count = len(self.entries)
        if count >= MAX_OUTPUTS or (self.bytes >= MAX_VARIED_BYTES and count >= MIN_OUTPUTS):
            return True
        return self.bytes >= MAX_BYTES and count >= self.wanted

    @property
    def needed(self) -> int:
        """The fewest outputs that may stand for the stage: few if they are all alike."""
        outputs = [pristine for _, _, pristine, _ in self.entries]
        alike = all(isinstance(one, ATOMS) and one == outputs[0] for one in outputs)
        return FEW_OUTPUTS if self.limited or alike else MIN_OUTPUTS

    @property
    def releases_lock(self) -> bool:
        """Whether other threads computed during the recorded calls as if there were no lock."""
        together = min(self.own_cpu_ns, self.other_cpu_ns)
        return together > 0 and self.beside_ns > 0.25 * together

    @property
    def faults(self) -> int:
        """PROBLEM, MUTATED and MISSED, added up."""
        return (
            PROBLEM * (self.problem is not None)
            + MUTATED * self.mutated
            + MISSED * bool(self.missed)
        )

    def clear(self) -> None:
        """Forget everything recorded."""
        self.__init__()  # type: ignore[misc]  # back to the state of a new tape, in place

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
        """Record one call. If it cannot be recorded, `problem` says why.

        cpu_ns: -1 where a processor time has no meaning, as of coroutines. process_cpu_ns: of all
        threads during the call, this one's included, and without those that help it.
        most_bytes: what the tape may hold, its copies included.
        """
        if self.problem is not None:
            return
        if self._target is None:
            self._target = target
        elif self._target != target:
            self.problem = "two functions are called under its name; give each a name of its own"
            return
        self.note_times(duration_ns, cpu_ns, process_cpu_ns)
        if not self.full and not self.limited:
            self._keep_output(arguments, output, buffers, duration_ns, cpu_ns, most_bytes)

    def note_times(self, duration_ns: int, cpu_ns: int, process_cpu_ns: int) -> None:
        """Note how long a call took, in time and in processor time."""
        if len(self._durations) < MAX_OUTPUTS:  # they are small: more of them than of outputs
            self._durations.append(duration_ns)
            self._cpus.append(cpu_ns if cpu_ns >= 0 else duration_ns)
        if cpu_ns >= 0 and process_cpu_ns:
            self.own_cpu_ns += cpu_ns
            self.other_cpu_ns += max(0, process_cpu_ns - cpu_ns)
            self.beside_ns += max(0, process_cpu_ns - duration_ns)

    def _keep_output(
        self,
        arguments: object,
        output: Any,
        buffers: Sequence[Any],
        duration_ns: int,
        cpu_ns: int,
        most_bytes: int,
    ) -> None:
        size = count_bytes(output)
        held = 2 * (size + count_bytes(buffers))  # an entry keeps two copies
        if 2 * self.bytes + held > most_bytes:
            if len(self.entries) >= FEW_OUTPUTS:
                self.limited = True
            else:
                self.problem = (
                    f"an output takes {size / 2**20:.0f} MiB, and {FEW_OUTPUTS} of them with a "
                    f"copy each do not fit into the {most_bytes / 2**20:.0f} MiB that its tape may "
                    "take; give a larger --tape-memory"
                )
                self.entries.clear()
            return
        try:
            pristine = independent_copy(output)
            working = independent_copy(output)
            writes = tuple(independent_copy(buffer) for buffer in buffers)
        except NotCopyableError as error:
            self.problem = str(error)
            return
        self._sizes.append(count_items(output))
        self.entries.append((working, writes, pristine, fingerprint(working)))
        self.note_kept(arguments, output, writes, duration_ns, cpu_ns)

    def note_kept(
        self, arguments: object, output: Any, writes: object, duration_ns: int, cpu_ns: int
    ) -> None:
        """Note what a kept output holds, and how long its call took."""
        size = count_bytes(output)
        self.bytes += size + count_bytes(writes)
        self._moved_bytes += size + count_bytes(arguments)
        if cpu_ns >= 0:
            self._kept_ns += duration_ns
            self._kept_cpu_ns += cpu_ns

    def next(self) -> Entry | None:
        """Return the next recorded call, or None if nothing is recorded."""
        if not self.entries:
            self.missed += 1
            return None
        return self.following()

    def following(self) -> Entry:
        """Return the next recorded call of a tape that is not empty."""
        entries, cursor = self.entries, self._cursor
        # Another thread may read the same cursor: it replays the same entry, which is harmless.
        self._cursor = cursor + 1 if cursor + 1 < len(entries) else 0
        self._replayed += 1
        return entries[cursor]

    def next_duration_ns(self, on_cpu: bool = False) -> int:
        """Return the next recorded duration, or processor time, in order, again and again."""
        cursor = self._duration_cursor
        self._duration_cursor = cursor + 1 if cursor + 1 < len(self._durations) else 0
        return (self._cpus if on_cpu else self._durations)[cursor]

    def rewind(self, phase: float = 0.0) -> None:
        """Undo consumers' writes, and start the next block at a share `phase` of the tape.

        Every arm of a round starts at the same output; rounds start at others, so that all are
        replayed equally often. Sets `mutated` if any working copy had been written into.
        """
        count = len(self.entries)
        for back in range(min(self._replayed, count)):
            at = self._cursor - 1 - back
            working, writes, pristine, was = self.entries[at]
            if fingerprint(working) != was:
                self.mutated = True
                working = independent_copy(pristine)
                self.entries[at] = (working, writes, pristine, fingerprint(working))
        self._replayed = 0
        self._cursor = int(phase * count) if count else 0
        self._duration_cursor = int(phase * len(self._durations))

    def durations_ns(self) -> np.ndarray:
        """Return the recorded durations, in the order of the calls."""
        return np.array(self._durations, dtype=np.int64)

    def cpu_share(self) -> float | None:
        """Return processor time over wall time of the recorded calls; None without a meaning."""
        return min(1.0, self._kept_cpu_ns / self._kept_ns) if self._kept_ns else None

    def bytes_per_call(self) -> float | None:
        """Return the mean array bytes in and out of a call; None where no arrays were seen."""
        return self._moved_bytes / len(self.entries) or None if self.entries else None


def replay_writes(writes: Sequence[Any], buffers: Sequence[Any]) -> None:
    """Write into the declared buffers what the recorded call had written."""
    for buffer, content in zip(buffers, writes, strict=True):
        write_into(buffer, content)


def modes_of(durations_ns: np.ndarray) -> tuple[float, float] | None:
    """Return the centres of two modes in ns if the durations have two, else None.

    Log durations are cut where the two groups explain most variance; they are two modes if that is
    at least `MODES_EXPLAIN`, each holds 5% of the calls, and the centres are 1.5-fold apart.
    """
    if len(durations_ns) < MIN_OUTPUTS:
        return None
    values = np.sort(np.log(np.maximum(durations_ns, 1).astype(float)))
    count = len(values)
    total = float(values.var()) * count
    if total == 0:
        return None
    sums = np.cumsum(values)
    left = np.arange(1, count)
    right = count - left
    left_mean = sums[:-1] / left
    right_mean = (sums[-1] - sums[:-1]) / right
    between = left * right / count * (left_mean - right_mean) ** 2
    smallest = max(1, round(0.05 * count))
    between[: smallest - 1] = 0
    between[count - smallest :] = 0
    cut = int(between.argmax())
    if between[cut] / total < MODES_EXPLAIN or right_mean[cut] - left_mean[cut] < np.log(
        MODES_RATIO
    ):
        return None
    return float(np.exp(left_mean[cut])), float(np.exp(right_mean[cut]))


Buffers = Sequence[Any] | Callable[[], Sequence[Any]]
