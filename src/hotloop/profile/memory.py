"""Which lines allocate, what each stage holds at the peak, and what grows: by memray.

Two windows are tracked. In the long one every allocation of the process is followed until it is
freed, so that growth is told from turnover: what a line has allocated and not freed, iteration by
iteration. In the short one Python's own small objects are counted too, one by one.
"""

import importlib
import shutil
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from hotloop.loop.arm import NAMED, Arm
from hotloop.loop.conduct import Measurement, Request
from hotloop.loop.control import SharedControl
from hotloop.loop.figures import Interval
from hotloop.profile.gpu_memory import GpuMemory, profile_gpu
from hotloop.profile.growth import GrowingLine, Growth, mean_of
from hotloop.profile.heap import Heap
from hotloop.profile.holders import Holder, Holders
from hotloop.profile.places import Site, site_of
from hotloop.profile.settings import ProfileSettings
from hotloop.profile.tool import Overhead, expect_module
from hotloop.profile.turns import Turns, in_turns

TURNS = 4
COUNTED_S, COUNTED_ITERATIONS = 0.5, 20
MOST_LINES = 20
LEAST_BYTES = 1024  # an iteration; a line that allocates or keeps less is not named
NAME = "memray"
_FREES = ("FREE", "MUNMAP", "PYMALLOC_FREE")


@dataclass(frozen=True)
class AllocatingLine:
    """A line of a stage, with the bytes and allocations of an iteration, freed or not."""

    stage: str
    function: str
    file: str
    line: int
    bytes_per_iteration: float
    allocations_per_iteration: float


@dataclass(frozen=True)
class StageMemory:
    """What a stage allocates in an iteration, and what it holds when the loop holds the most."""

    stage: str
    bytes_per_iteration: float
    allocations_per_iteration: float
    at_peak_bytes: float


@dataclass
class MemoryProfile:
    """What memray has seen.

    growth_bytes: of the whole loop, an iteration; None with too few iterations. replaced_bytes:
    what is kept in an iteration in place of memory that was there before. peak_bytes: the
    most that was held at once of what the loop has allocated meanwhile; resident_bytes: of the
    whole process.
    """

    overhead: Overhead
    resident_bytes: float
    peak_bytes: float
    growth_bytes: Interval | None
    replaced_bytes: float = 0.0
    stages: list[StageMemory] = field(default_factory=list)
    allocating: list[AllocatingLine] = field(default_factory=list)
    growing: list[GrowingLine] = field(default_factory=list)
    holders: list[Holder] = field(default_factory=list)
    gpu: GpuMemory | None = None


def profile_memory(control: SharedControl, settings: ProfileSettings) -> Measurement[MemoryProfile]:
    """Follow the loop's allocations. Raises: ToolError where memray is not installed."""
    expect_module("memray", NAME)
    importlib.import_module("memray")  # before anything is counted: it makes hundreds of classes
    gpu = yield from profile_gpu()
    folder = Path(tempfile.mkdtemp(prefix="hotloop-memray-"))
    try:
        window, holders, heap = _Window(folder, control), Holders(), Heap.usable()

        def start() -> None:
            if len(window.files) == TURNS // 2:
                holders.look()
            window.start()

        with holders:
            turns = yield from in_turns(
                settings.seconds,
                start,
                window.stop,
                phase="profiling memory (memray)",
                turns=TURNS,
                gauge=(lambda: 0.0) if heap is None else heap.in_use_bytes,
            )
        held = holders.growing(turns.all_iterations)
        counted = _Window(folder, control, python=True)
        iterations = _counted_iterations(turns)
        counted.start()
        try:
            yield Request(
                Arm("counting", rest=NAMED),
                iterations=iterations,
                phase="counting allocations (memray)",
            )
        finally:
            counted.stop()
        net = None if heap is None else mean_of(turns.growth)
        found = _found(window, counted, turns, iterations, net)
        found.holders, found.gpu = held, gpu
        return found
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _Window:
    """What memray writes between `start` and `stop`, one file for each time."""

    def __init__(self, folder: Path, control: SharedControl, *, python: bool = False) -> None:
        self.files: list[Path] = []
        self.begun: list[tuple[float, int]] = []  # by the clock of memray, in ms, and by ours
        self._folder, self._control, self._python = folder, control, python
        self._tracker: Any = None

    def start(self) -> None:
        """Begin to track this process."""
        import memray

        kind = "python" if self._python else "native"
        self.files.append(self._folder / f"{kind}-{len(self.files)}.bin")
        self._tracker = memray.Tracker(
            self.files[-1], trace_python_allocators=self._python, memory_interval_ms=5
        )
        # By another thread: memray leaves out as many outer frames of the thread that starts it as
        # there are then, and the loop's iterations run with fewer.
        starting = threading.Thread(target=self._tracker.__enter__, name="hotloop-memray")
        starting.start()
        starting.join()
        self.begun.append((time.time() * 1e3, self._control.clock.now_ns()))

    def stop(self) -> None:
        """End tracking; may be called twice."""
        tracker, self._tracker = self._tracker, None
        if tracker is not None:
            tracker.__exit__(None, None, None)


def _counted_iterations(turns: Turns) -> int:
    fit = int(COUNTED_S * 1e9 / turns.ns_per_iteration)
    return max(1, min(fit, COUNTED_ITERATIONS))


def _found(
    window: _Window, counted: _Window, turns: Turns, iterations: int, net: Interval | None
) -> MemoryProfile:
    """net: by how much the heap grows, an iteration; None where nothing counts it."""
    from memray import FileReader

    growth = Growth()
    for file, begun, block in zip(window.files, window.begun, turns.profiled, strict=True):
        growth.add(FileReader(str(file)), begun, np.array(block.start_ns, np.float64), _sites)
    reader = FileReader(str(window.files[-1]))
    held: Counter[str] = Counter()
    for site, record in _sites(reader.get_high_watermark_allocation_records(merge_threads=True)):
        held[site.stage] += record.size
    lines, stages = _allocated(FileReader(str(counted.files[0])))
    return MemoryProfile(
        overhead=Overhead(NAME, turns.slowdown, turns.iterations),
        resident_bytes=float(psutil.Process().memory_info().rss),
        peak_bytes=float(sum(held.values())),
        growth_bytes=growth.whole(net),
        replaced_bytes=growth.replaced(net),
        stages=[
            StageMemory(
                stage,
                float(stages[stage][0]) / iterations,
                float(stages[stage][1]) / iterations,
                float(held[stage]),
            )
            for stage in sorted({*stages, *held}, key=lambda name: -held[name])
        ],
        allocating=[
            AllocatingLine(
                site.stage,
                site.function,
                site.file,
                site.line,
                size / iterations,
                count / iterations,
            )
            for site, (size, count) in sorted(lines.items(), key=lambda item: -item[1][0])
            if size >= LEAST_BYTES * iterations
        ][:MOST_LINES],
        growing=growth.lines(net)[:MOST_LINES],
    )


def _sites(records: Any) -> Iterator[tuple[Site, Any]]:
    """The records with the place that each is of, without hotloop's own."""
    for record in records:
        site = site_of(record.stack_trace())
        if site is not None:
            yield site, record


def _allocated(
    reader: Any,
) -> tuple[dict[Site, tuple[int, int]], dict[str, tuple[int, int]]]:
    """The bytes and the number of what was allocated, freed or not: by place and by stage."""
    from memray import AllocatorType

    frees = {int(kind) for kind in AllocatorType if kind.name in _FREES}
    lines: dict[Site, tuple[int, int]] = {}
    stages: dict[str, tuple[int, int]] = {}
    sites: dict[int, Site | None] = {}
    for record in reader.get_allocation_records():
        if record.allocator in frees:
            continue
        if record.stack_id not in sites:
            sites[record.stack_id] = site_of(record.stack_trace())
        site = sites[record.stack_id]
        if site is None:
            continue
        size, count = lines.get(site, (0, 0))
        lines[site] = size + record.size, count + record.n_allocations
    for place, (size, count) in lines.items():
        stage_size, stage_count = stages.get(place.stage, (0, 0))
        stages[place.stage] = stage_size + size, stage_count + count
    return lines, stages
