"""Where workers run: their cores, and how many threads their libraries may start."""

import os
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from hotloop.loop.host import THREAD_VARIABLES, usable_cpus

_MEASURABLE_S = 0.1  # the kernel counts in hundredths of a second
_NODES = Path("/sys/devices/system/node")


def place(num_workers: int, nodes: Sequence[frozenset[int]]) -> list[frozenset[int] | None]:
    """The cores of each worker, on one memory node; None for any.

    A worker keeps to one core where every worker can have one, else to its node: the rows that it
    writes are in that node's memory, for it is the first to touch them. On a single node that
    holds only where there are as many workers as cores. Left to itself the scheduler then puts two
    of them on the core that the driver does not look busy on: 0.9 instead of 1.6 times the speed
    of one process, on two cores, for some 60 ms after each pause.
    """
    nodes = [node for node in nodes if node]
    if len(nodes) < 2:
        cores = sorted(nodes[0]) if nodes else []
        if len(cores) != num_workers:
            return [None] * num_workers
        return [frozenset([core]) for core in cores]
    placed: list[frozenset[int] | None] = []
    for number, node in enumerate(nodes):
        part = share(num_workers, len(nodes), number)
        here = part.stop - part.start
        cores = sorted(node)
        placed += [
            frozenset([cores[k]]) if num_workers <= sum(map(len, nodes)) and here <= len(cores)
            else node
            for k in range(here)
        ]  # fmt: skip
    return placed


def memory_nodes() -> list[frozenset[int]]:
    """The usable cores of each memory node of this machine."""
    usable = usable_cpus()
    nodes = []
    for path in sorted(_NODES.glob("node[0-9]*/cpulist")):
        nodes.append(usable & parse_cores(path.read_text()))
    return nodes or [usable]


def parse_cores(text: str) -> set[int]:
    """The cores of a list such as `0-3,8`."""
    cores: set[int] = set()
    for first, last in re.findall(r"(\d+)(?:-(\d+))?", text):
        cores.update(range(int(first), int(last or first) + 1))
    return cores


class OtherPrograms:
    """The load of other programs on this machine, from now on."""

    def __init__(self) -> None:
        self._begin = _used()

    def busy_cores(self) -> float:
        """How many of the usable cores they have kept busy, on average; NaN if too little passed.

        Of the processes that this one has started, those that have ended count as its own.
        """
        passed_s, used_s, own_s = (
            end - begin for begin, end in zip(self._begin, _used(), strict=True)
        )
        if passed_s < _MEASURABLE_S:
            return float("nan")
        return max(0.0, (used_s - own_s) / passed_s)


def _used() -> tuple[float, float, float]:
    """The clock, what the usable cores have computed, and what this process has, in s."""
    usable = usable_cpus()
    cores = [t for k, t in enumerate(psutil.cpu_times(percpu=True)) if k in usable]
    used = sum(t.user + t.nice + t.system + getattr(t, "irq", 0) for t in cores)
    own = os.times()
    return time.monotonic(), used, sum(own[:4])


class CorePinning:
    """The cores that this process is pinned to, while no other program computes on them.

    cores: of `place`; None for any. Beside another program a pinned process gets every second
    time slice; one that may run anywhere in its memory node finds a free core sooner: 0.52 ms
    instead of 0.69 for a step of 16 envs of 10 µs beside one busy process.
    """

    def __init__(self, cores: frozenset[int] | None) -> None:
        self.own = self.node = cores
        if cores is not None:
            self.node = next((node for node in memory_nodes() if cores <= node), cores)
            self.pin(True)

    def pin(self, alone: bool) -> None:
        """Run on the own cores; where they are shared, anywhere on their memory node."""
        cores = self.own if alone else self.node
        if cores is not None:
            os.sched_setaffinity(0, cores)


def limit_threads(threads: int) -> None:
    """Let numerical libraries use so many threads in this process: workers share the cores.

    Those loaded later read the environment; torch and OpenCV, where loaded, are set.
    """
    for name in THREAD_VARIABLES:
        os.environ[name] = str(threads)
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(threads)
    if (cv2 := sys.modules.get("cv2")) is not None:
        cv2.setNumThreads(threads)


def share(num: int, workers: int, worker: int) -> slice:
    """A worker's part of `num` things; the first have one more where it does not divide."""
    size, more = divmod(num, workers)
    start = worker * size + min(worker, more)
    return slice(start, start + size + (worker < more))
