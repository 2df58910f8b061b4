"""Finds more computing threads than cores: pools of BLAS or torch, times the processes.

Linux says for each thread how long it ran, and how long it was ready and had no core. A pool is
the threads of one process that computed about as much as its busiest one.
"""

import ast
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from hotloop.loop.host import usable_cores
from hotloop.optimize.advice import Advice
from hotloop.optimize.places import Place, function_at, syntax_of
from hotloop.optimize.watched import Instrument, Phase, Watched

# A thread of a pool ran for at least this share of the time, and of its busiest neighbour.
LEAST_RUNNING, LEAST_OF_BUSIEST = 0.01, 0.25
# The threads that are too many must have waited for a core for at least this share of the time.
LEAST_WAITING = 0.05


@dataclass(frozen=True)
class Pool:
    """The threads of one process that compute. waiting: the largest share without a core."""

    process: int
    threads: int
    waiting: float


class Threads:
    """Compares what the threads of this process and its children did with the cores they have."""

    def __init__(self) -> None:
        self._pools: list[Pool] = []

    @property
    def phases(self) -> Mapping[Phase, Instrument]:
        """It takes times."""
        return {Phase.TIMES: self._watch}

    @contextmanager
    def _watch(self, watched: Watched) -> Iterator[None]:
        python = _python_threads()
        before, start = _running(), time.perf_counter()
        yield
        # Python's own threads take turns: besides the one that runs, they are of no pool. One that
        # has ended, as the one that took samples, may still be there for a moment.
        python |= _python_threads() | watched.own_threads
        seconds = time.perf_counter() - start
        for process, threads in _running().items():
            own = python if process == psutil.Process().pid else set[int]()
            known = before.get(process, {})
            shares = {
                thread: (
                    (times[0] - known.get(thread, (0, 0))[0]) * 1e-9 / seconds,
                    (times[1] - known.get(thread, (0, 0))[1]) * 1e-9 / seconds,
                )
                for thread, times in threads.items()
                if thread not in own
            }
            pool = _pool(process, shares)
            if pool is not None:
                self._pools.append(pool)

    def advice(self, watched: Watched) -> list[Advice]:
        """One piece of advice for all processes together, if there are too many threads."""
        cores = usable_cores()
        threads = sum(pool.threads for pool in self._pools)
        most = max((pool.threads for pool in self._pools), default=0)
        waiting = max((pool.waiting for pool in self._pools), default=0.0)
        lines = watched.samples.user_lines()
        if most < 2 or threads <= cores or waiting < LEAST_WAITING or not lines:
            return []
        place = _where_set({line.file for line in lines}) or max(
            lines, key=lambda line: lines[line]
        )
        return [
            watched.advice(
                "threads",
                place,
                "more threads compute than there are cores, and take the cores from each other",
                f"let all processes together have {cores:g} threads: torch.set_num_threads(n) and "
                "OMP_NUM_THREADS=n before numpy and torch are imported, with 1 in workers",
                min(1.0, waiting),
                ("computing threads", float(threads), ""),
                ("processes that compute", float(len(self._pools)), ""),
                ("threads of the largest pool", float(most), ""),
                ("cores that may be used", cores, ""),
            )
        ]


def _pool(process: int, shares: Mapping[int, tuple[float, float]]) -> Pool | None:
    # Time without a core counts as well: of many threads on one core, none runs for long.
    busiest = max((sum(each) for each in shares.values()), default=0.0)
    least = max(LEAST_RUNNING, LEAST_OF_BUSIEST * busiest)
    busy = [each for each in shares.values() if sum(each) >= least and each[0] >= LEAST_RUNNING]
    if not busy:
        return None
    return Pool(process, len(busy), max(waiting for _, waiting in busy))


def _running() -> dict[int, dict[int, tuple[int, int]]]:
    """How long each thread of this process and its children ran, and waited for a core, in ns."""
    here = psutil.Process()
    found: dict[int, dict[int, tuple[int, int]]] = {}
    for process in (here, *here.children(recursive=True)):
        folder = Path(f"/proc/{process.pid}/task")
        times: dict[int, tuple[int, int]] = {}
        try:
            for thread in folder.iterdir():
                ran, waited = (thread / "schedstat").read_text().split()[:2]
                times[int(thread.name)] = (int(ran), int(waited))
        except (OSError, ValueError):
            continue  # it has ended, or this is not Linux
        found[process.pid] = times
    return found


def _python_threads() -> set[int]:
    """The numbers of this process's Python threads but the one that runs the loop."""
    here = threading.get_native_id()
    return {
        thread.native_id
        for thread in threading.enumerate()
        if thread.native_id is not None and thread.native_id != here
    }


def _where_set(files: set[str]) -> Place | None:
    """The line that sets the number of threads, if one of the loop's own files does."""
    for file in sorted(files):
        for node in ast.walk(syntax_of(file)):
            if isinstance(node, ast.Call) and _called(node).endswith("set_num_threads"):
                return Place(file, node.lineno, function_at(file, node.lineno))
    return None


def _called(call: ast.Call) -> str:
    function = call.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""
