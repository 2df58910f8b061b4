"""What the model computes: FLOPs, bytes and time by stage, operation and module, and its roofs.

FLOPs and bytes are counted in a few iterations on their own, times are torch.profiler's in others,
in turns with iterations without it.
"""

import os
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from hotloop.benchmark.peaks import measure_peaks
from hotloop.benchmark.work import WorkCounter
from hotloop.loop.arm import NAMED, Arm
from hotloop.loop.conduct import Block, Measurement, Request
from hotloop.loop.control import SharedControl
from hotloop.loop.event import running_loop
from hotloop.loop.named_call import frame_name
from hotloop.loop.values import torch_if_loaded
from hotloop.profile.model_costs import ModelProfile
from hotloop.profile.model_join import Counts, Join
from hotloop.profile.origins import Origins
from hotloop.profile.parts import Part, Parts
from hotloop.profile.settings import ProfileSettings
from hotloop.profile.tool import Overhead, ToolError
from hotloop.profile.trace import TraceTimes, part_range, read_trace
from hotloop.profile.turns import TURNS, in_turns
from hotloop.profile.under_way import UnderWay

NAME = "torch.profiler"
COUNTED_ITERATIONS, COUNTED_S = 20, 1.0
# A trace holds every operation of its time: a second of small ones takes about 100 MB.
TRACE_S = 0.25
# What traces says on the terminal that it does, unless this says otherwise when it starts first.
_LOUDNESS, _QUIET = "KINETO_LOG_LEVEL", "6"


def profile_model(control: SharedControl, settings: ProfileSettings) -> Measurement[ModelProfile]:
    """Count, then trace. Raises: ToolError where the loop has not loaded torch."""
    if torch_if_loaded() is None:
        raise ToolError(
            "the loop has not loaded torch, and torch.profiler sees nothing else; profile a loop "
            "that computes with torch, or ask for --time"
        )
    counts, block = yield from _count(control)
    peaks = measure_peaks()
    window = _Window(control, TraceTimes({each.name for each in counts.operations}))
    turns = yield from in_turns(
        settings.seconds,
        window.start,
        window.stop,
        phase=f"profiling the model ({NAME})",
        turns=_turns(settings.seconds, block),
    )
    join = Join(counts, window.times.spent, turns, control.names(), control.main_thread)
    return ModelProfile(
        overhead=Overhead(NAME, turns.slowdown, turns.iterations),
        peaks=peaks,
        whole=join.whole(),
        call_coverage=join.call_coverage(),
        time_coverage=join.time_coverage(),
        on_card=join.on_card,
        stages=join.stages(),
        operations=join.operations(),
        modules=join.modules(),
        uncounted=join.uncounted(),
    )


def _turns(seconds: float, counted: Block) -> int:
    """So many that no trace gets long, but no more than usual where an iteration is."""
    if counted.ns_per_iteration * 1e-9 > TRACE_S:
        return TURNS
    return max(TURNS, round(seconds / (2 * TRACE_S)))


def _count(control: SharedControl) -> Measurement[tuple[Counts, Block]]:
    """Count the operations of a few iterations, with where they come from."""
    origins = Origins()
    counter = WorkCounter(control.clock, origins)
    parts = Parts(origins.entered, origins.left)

    def start() -> None:
        control.annotate = UnderWay
        origins.start()
        parts.start()
        counter.start()

    try:
        block = yield Request(
            Arm("counting", rest=NAMED),
            iterations=COUNTED_ITERATIONS,
            seconds=COUNTED_S,
            drain=1,
            before=start,
            phase="counting operations",
        )
    finally:
        counter.stop()
        parts.stop()
        control.annotate = None
    return Counts(counter.operations, len(block.duration_ns)), block


class _Window:
    """What torch.profiler traces between `start` and `stop`, each time."""

    def __init__(self, control: SharedControl, times: TraceTimes) -> None:
        self.times = times
        self._control = control
        self._profiler: Any = None
        self._ranges: dict[Part, list[AbstractContextManager[object]]] = defaultdict(list)
        self._parts = Parts(self._entered, self._left)

    def start(self) -> None:
        """Begin to trace the thread that runs the loop. Raises: ToolError."""
        import torch
        from torch.profiler import ProfilerActivity, profile

        activities = [ProfilerActivity.CPU]
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            activities.append(ProfilerActivity.CUDA)
        profiler = profile(activities=activities)
        try:
            with _quiet():
                profiler.start()
        except RuntimeError as problem:
            raise ToolError(
                f"{NAME} does not start: {problem}; end other profilers of torch before"
            ) from None
        self._profiler = profiler
        self._control.annotate = _stage_range
        self._parts.start()

    def stop(self) -> None:
        """End tracing and add up; may be called twice."""
        profiler, self._profiler = self._profiler, None
        if profiler is None:
            return
        self._parts.stop()
        self._ranges.clear()
        self._control.annotate = None
        profiler.stop()
        self.times.add(*read_trace(profiler.profiler.kineto_results))

    def _entered(self, part: Part) -> None:
        if threading.get_ident() == self._control.main_thread:
            entered = _range(part_range(part))
            entered.__enter__()
            self._ranges[part].append(entered)

    def _left(self, part: Part) -> None:
        if threading.get_ident() == self._control.main_thread and self._ranges[part]:
            self._ranges[part].pop().__exit__(None, None, None)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep what traces from saying that it does."""
    if _LOUDNESS in os.environ:
        yield
        return
    os.environ[_LOUDNESS] = _QUIET
    try:
        yield
    finally:
        del os.environ[_LOUDNESS]


def _stage_range(stage: str) -> AbstractContextManager[object]:
    """A range around a call of a stage; asyncio tasks, which take turns, would cross theirs."""
    return nullcontext() if running_loop() is not None else _range(frame_name(stage))


def _range(name: str) -> AbstractContextManager[object]:
    from torch.profiler import record_function

    entered: AbstractContextManager[object] = record_function(name)
    return entered
