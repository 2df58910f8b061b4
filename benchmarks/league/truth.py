"""What a fix really gains: the old and the new version of a loop take turns in long blocks.

Each version runs in processes of its own, forked from one parent so that they start alike, and
stopped by a signal while another has its turn: whatever threads and workers a version has, they
take nothing from the others. A block is a whole number of the loop's periods, and its first part
is not timed. No stage is measured meanwhile: it is the loop as it runs for its user. How much of
the stage's time a fix has left, where half of the work need not be half of the time, is measured
after that, by a benchmark in each process.
"""

import ctypes
import importlib
import math
import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from hotloop.errors import TargetError
from hotloop.loop.figures import student_quantile
from league.entry import Draws, Entry, Fixes
from league.prediction import benchmark_share

# Processes of each version: where memory lies, and which core a thread is on, differs from process
# to process for as long as it lives.
REPLICAS = 4
BLOCK_S = 0.12  # at least
DRAIN_S = 0.025  # at least
WARM_UP_S = 0.4
SHARE_S = 1.0
MIN_PAIRS = 3 * REPLICAS
ANSWER_S = 60.0
# A restless machine gets up to twice the time, until half of the interval is this small; what is
# known much better than any prediction takes no more than half of it.
GOOD_HALF_WIDTH, MOST_TIME = 0.015, 2.0
FINE_HALF_WIDTH, LEAST_TIME = 0.003, 0.5


@dataclass(frozen=True)
class Truth:
    """The gain of a fix, 1 − new/old of the mean time a unit, with its 95% interval."""

    value: float
    low: float
    high: float
    pairs: int
    seconds: float
    old_s: float  # a unit takes, on average
    new_s: float
    old_iteration_s: float
    seed: int
    left_by_clock: float | None  # of the stage's time; None where that was not measured
    left_half_width: float  # of the 95% interval of that, by t over the processes


Taken = tuple[float, float, int]  # a block's seconds, units and iterations


def measure(entry: Entry, stage: str, left: float, seconds: float) -> dict[str, Any]:
    """Make both versions and let them take turns for so long; returns a `Truth` as a mapping."""
    for module in entry.needs:
        importlib.import_module(module)
    seed = int.from_bytes(os.urandom(4), "little")
    if entry.compiles:
        with entry.make(Fixes(), Draws(seed)) as loop:
            loop.body()
    begin = time.perf_counter()
    with ExitStack() as open_versions:
        old, new = [], []
        for k in range(REPLICAS):
            # The same random numbers for both: what chance brings to one it brings to the other.
            old.append(open_versions.enter_context(_version(entry, Fixes(), seed + k)))
            new.append(open_versions.enter_context(_version(entry, Fixes({stage: left}), seed + k)))
        rng = np.random.default_rng(seed)
        rows: list[tuple[Taken, Taken]] = []
        start = time.perf_counter()
        while not _enough(rows, time.perf_counter() - start, seconds * entry.slow):
            both = (old[len(rows) % REPLICAS], new[len(rows) % REPLICAS])
            first = int(rng.integers(2))
            taken = {first: both[first].block()}
            taken[1 - first] = both[1 - first].block()
            rows.append((taken[0], taken[1]))
        shares = []
        if left and entry.in_sequence:
            shares = [[version.share(stage) for version in versions] for versions in (old, new)]
    left_by_clock, left_half_width = _left(np.array(shares)) if shares else (None, 0.0)
    table = np.array(rows)
    per_unit = _per_unit(rows)
    value, half = gain_of_replicas(per_unit)
    old_s, new_s = per_unit.mean(axis=0)
    iteration_s = float(table[:, 0, 0].sum() / table[:, 0, 2].sum())
    taken_s = time.perf_counter() - begin
    return asdict(
        Truth(
            value,
            value - half,
            value + half,
            len(rows),
            taken_s,
            float(old_s),
            float(new_s),
            iteration_s,
            seed,
            left_by_clock,
            left_half_width,
        )
    )


def _left(shares: np.ndarray) -> tuple[float, float]:
    """What is left of a stage's time, by its share in both versions (old and new, REPLICAS).

    Against the rest of the iteration, so that a machine that was faster meanwhile changes nothing.
    Returns it with half of its 95% interval, by t over the pairs of processes.
    """
    old, new = shares / (1 - shares)
    error = float(np.std(new / old, ddof=1)) / math.sqrt(REPLICAS)
    return float(new.mean() / old.mean()), student_quantile(0.975, REPLICAS - 1) * error


def _per_unit(rows: list[tuple[Taken, Taken]]) -> np.ndarray:
    """Seconds a unit in each block: (pairs, old and new)."""
    table = np.array(rows)
    return table[:, :, 0] / table[:, :, 1]  # type: ignore[no-any-return]


def _enough(rows: list[tuple[Taken, Taken]], spent_s: float, planned_s: float) -> bool:
    if len(rows) < MIN_PAIRS or spent_s < LEAST_TIME * planned_s:
        return False
    _, half = gain_of_replicas(_per_unit(rows))
    if spent_s < planned_s:
        return half <= FINE_HALF_WIDTH
    return half <= GOOD_HALF_WIDTH or spent_s >= MOST_TIME * planned_s


def paired_gain(old: np.ndarray, new: np.ndarray) -> tuple[float, float]:
    """1 − mean(new)/mean(old) of pairs (n,), and half of its 95% interval: t over the pairs."""
    ratio = new.mean() / old.mean()
    # To first order the ratio errs as the mean of these, over the mean of the old.
    rest = new - ratio * old
    error = rest.std(ddof=1) / (old.mean() * math.sqrt(len(old)))
    return float(1 - ratio), float(student_quantile(0.975, len(old) - 1) * error)


def gain_of_replicas(per_unit: np.ndarray) -> tuple[float, float]:
    """The gain and half of its interval by pairs (n, old and new) that replicas took in turn.

    The interval is that of the pairs, or by t over the replicas' own gains where that is wider:
    blocks of one process are no independent witnesses of how processes differ.
    """
    value, half = paired_gain(per_unit[:, 0], per_unit[:, 1])
    own = [paired_gain(*per_unit[k::REPLICAS].T)[0] for k in range(REPLICAS)]
    between = (
        student_quantile(0.975, REPLICAS - 1) * float(np.std(own, ddof=1)) / math.sqrt(REPLICAS)
    )
    return value, max(half, between)


class _Version:
    """One version of a loop in a process group of its own, stopped but for its blocks."""

    def __init__(self, process: Any, pipe: Connection, entry: Entry) -> None:
        self.process, self.pipe = process, pipe
        self._entry = entry
        self._answer()  # it is made
        seconds, _, count = self._ask(0, 0, WARM_UP_S)
        self._stop()
        per_iteration = seconds / count
        periods = math.ceil(BLOCK_S / (per_iteration * entry.period))
        self.iterations = max(1, periods) * entry.period
        self.drain = max(entry.drain, math.ceil(DRAIN_S / per_iteration))

    def block(self) -> Taken:
        """Run one block: its seconds, units and iterations."""
        os.killpg(self.process.pid, signal.SIGCONT)
        answer = self._ask(self.drain, self.iterations, 0.0)
        self._stop()
        return answer

    def share(self, stage: str) -> float:
        """The stage's share of the time, by a benchmark."""
        os.killpg(self.process.pid, signal.SIGCONT)
        self.pipe.send(stage)
        answer = self._answer()
        self._stop()
        return answer  # type: ignore[no-any-return]

    def _ask(self, drain: int, iterations: int, seconds: float) -> Taken:
        self.pipe.send((drain, iterations, seconds))
        return self._answer()  # type: ignore[no-any-return]

    def _answer(self) -> Any:
        if not self.pipe.poll(ANSWER_S):
            raise TargetError(f"a version of the loop gave no answer within {ANSWER_S:g} s")
        answer = self.pipe.recv()
        if isinstance(answer, str):
            raise TargetError(f"a version of the loop failed: {answer}")
        return answer

    def _stop(self) -> None:
        os.killpg(self.process.pid, signal.SIGSTOP)


@contextmanager
def _version(entry: Entry, fixes: Fixes, seed: int) -> Iterator[_Version]:
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(entry, fixes, seed, theirs))
    process.start()
    theirs.close()
    try:
        yield _Version(process, ours, entry)
    finally:
        try:
            os.killpg(process.pid, signal.SIGCONT)
            ours.send(None)
            process.join(3)
        except OSError:
            pass  # it has ended, or never got so far
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.join()


def _serve(entry: Entry, fixes: Fixes, seed: int, pipe: Connection) -> None:
    """Make the loop, then run what is asked for until there is nothing more."""
    os.setpgid(0, 0)
    _die_with(os.getppid())
    try:
        with entry.make(fixes, Draws(seed, entry.period if entry.period > 1 else 0)) as loop:
            pipe.send(None)
            body = loop.body
            while (asked := pipe.recv()) is not None:
                if isinstance(asked, str):
                    pipe.send(benchmark_share(loop, asked, SHARE_S))
                    continue
                drain, iterations, seconds = asked
                for _ in range(drain):
                    body()
                units, count = 0.0, 0
                start = time.perf_counter()
                while count < iterations or time.perf_counter() - start < seconds:
                    units += body()  # type: ignore[operator]
                    count += 1
                pipe.send((time.perf_counter() - start, units, count))
    except Exception as error:
        pipe.send(f"{type(error).__name__}: {error}")


def _die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent ends: stopped, it could not see that."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # 1: PR_SET_PDEATHSIG
    if os.getppid() != parent:
        os._exit(1)
