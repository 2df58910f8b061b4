"""Counting the arithmetic of an iteration: FLOPs and bytes of torch operations, by stage.

An operation is counted if torch has a formula for it (matrix products, convolutions, attention).
One without a formula is listed as not counted, never silently taken as zero. Counting makes a step
almost twice as slow, so it is done for a few iterations on their own, outside every timing.
"""

import bisect
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hotloop.loop.arm import REAL, Arm
from hotloop.loop.clock import Clock
from hotloop.loop.conduct import Measurement, Request
from hotloop.loop.control import SharedControl
from hotloop.loop.event import Event
from hotloop.loop.values import arrays_in, torch_if_loaded


@dataclass
class Work:
    """The arithmetic of one iteration.

    flops, moved_bytes: of all stages and the rest together; by_stage: the same for each stage by
    name, inner ones included. moved_bytes is what the operations read and wrote, each on its own.
    """

    flops: float = 0.0
    moved_bytes: float = 0.0
    by_stage: dict[str, tuple[float, float]] = field(default_factory=dict)
    counted_calls: int = 0
    uncounted: dict[str, int] = field(default_factory=dict)

    @property
    def coverage(self) -> float:
        """The calls of operations with a formula, over all calls that compute something."""
        calls = self.counted_calls + sum(self.uncounted.values())
        return self.counted_calls / calls if calls else 0.0


class WorkCounter:
    """Counts between `start` and `stop`, on the thread that runs the iterations."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._operations: list[tuple[int, float, float]] = []
        self._counted = 0
        self._uncounted: Counter[str] = Counter()
        self._mode: Any = None

    @staticmethod
    def available() -> bool:
        """Whether the loop has loaded torch: nothing else can be counted."""
        return torch_if_loaded() is not None

    def start(self) -> None:
        """Begin to count."""
        self._mode = _counting_mode(self)
        self._mode.__enter__()

    def stop(self) -> None:
        """End counting; may be called twice."""
        if self._mode is not None:
            self._mode.__exit__(None, None, None)
            self._mode = None

    def work(self, events: Sequence[Event], names: Sequence[str], iterations: int) -> Work:
        """Return the counts of an iteration, given the events of the same time."""
        result = Work(counted_calls=self._counted, uncounted=dict(self._uncounted))
        intervals: dict[str, list[tuple[int, int]]] = {}
        for event in events:
            intervals.setdefault(names[event.stage], []).append((event.start_ns, event.end_ns))
        totals = {name: [0.0, 0.0] for name in intervals}
        starts = {name: sorted(pairs) for name, pairs in intervals.items()}
        for at, flops, moved in self._operations:
            result.flops += flops / iterations
            result.moved_bytes += moved / iterations
            for name, pairs in starts.items():
                position = bisect.bisect_right(pairs, (at, 1 << 62)) - 1
                if position >= 0 and at <= pairs[position][1]:
                    totals[name][0] += flops / iterations
                    totals[name][1] += moved / iterations
        result.by_stage = {name: (pair[0], pair[1]) for name, pair in totals.items()}
        return result

    def note(self, name: str, flops: float | None, moved: float) -> None:
        """Note that an operation has run; flops: None if there is no formula for it."""
        if flops is None:
            self._uncounted[name] += 1
        else:
            self._counted += 1
        self._operations.append((self._clock.now_ns(), flops or 0.0, moved))


def count_work(control: SharedControl) -> Measurement[Work]:
    """Count one iteration, which is not timed, after one that is not counted."""
    counter = WorkCounter(control.clock)
    try:
        block = yield Request(
            Arm("counting", rest=REAL),
            iterations=1,
            drain=1,
            before=counter.start,
            phase="counting operations",
        )
    finally:
        counter.stop()
    return counter.work(block.events, control.names(), 1)


def _counting_mode(counter: WorkCounter) -> Any:
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils.flop_counter import flop_registry

    class CountingMode(TorchDispatchMode):
        def __torch_dispatch__(  # type: ignore[no-untyped-def]  # torch's own has none
            self, func, types, args=(), kwargs=None
        ):
            kwargs = kwargs or {}
            output = func(*args, **kwargs)
            if not func.is_view and _computes(func):
                formula = flop_registry.get(func._overloadpacket)
                moved = float(
                    sum(a.nbytes for a in arrays_in(args))
                    + sum(a.nbytes for a in arrays_in(output))
                )
                flops = None if formula is None else float(formula(*args, **kwargs, out_val=output))
                counter.note(str(func._overloadpacket), flops, moved)
            return output

    return CountingMode()  # type: ignore[no-untyped-call]  # as its parent


def _computes(func: Any) -> bool:
    """Whether an operation does more than allocate or describe memory."""
    name = func._overloadpacket.__name__
    return name not in {
        "detach",
        "empty",
        "empty_like",
        "empty_strided",
        "new_empty",
        "_local_scalar_dense",
        "lift_fresh",
        "set_",
        "resize_",
    }
