"""Counting the arithmetic of an iteration: FLOPs and bytes of torch operations, by stage.

An operation is counted if there is a rule for it (`hotloop.benchmark.flops`): torch's formulas of
products, and a convention for what is element-wise, a reduction, a norm or a step of an optimiser.
One without a rule is listed as not counted, never silently taken as zero. Counting makes a step
more than twice as slow, so it is done for a few iterations on their own, outside every timing.
"""

import bisect
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hotloop.benchmark.flops import count_flops, is_product
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
    product_flops: of matrix products, convolutions and attention alone, which an MFU is about.
    """

    flops: float = 0.0
    moved_bytes: float = 0.0
    by_stage: dict[str, tuple[float, float]] = field(default_factory=dict)
    counted_calls: int = 0
    uncounted: dict[str, int] = field(default_factory=dict)
    product_flops: float = 0.0

    @property
    def coverage(self) -> float:
        """The calls of operations with a rule, over all calls that compute something."""
        calls = self.counted_calls + sum(self.uncounted.values())
        return self.counted_calls / calls if calls else 0.0


class Operation(NamedTuple):
    """One call of an operation.

    flops: None where there is no rule; moved_bytes: read and written; is_product: of matrices, a
    convolution or attention; origin: where it came from, as the counter was told to note it.
    """

    at_ns: int
    name: str
    flops: float | None
    moved_bytes: float
    is_product: bool
    origin: Any


class WorkCounter:
    """Counts between `start` and `stop`, on the thread that runs the iterations.

    origin: called after each operation; what it returns is noted with it.
    """

    def __init__(self, clock: Clock, origin: Callable[[], object] = lambda: None) -> None:
        self.operations: list[Operation] = []
        self._clock = clock
        self._origin = origin
        self._mode: Any = None

    @staticmethod
    def available() -> bool:
        """Whether the loop has loaded torch: nothing else can be counted."""
        return torch_if_loaded() is not None

    def start(self) -> None:
        """Begin to count; not within inference mode.

        Its end would put back what torch had before it, without this mode or with it for ever.
        """
        import torch

        if torch.is_inference_mode_enabled():
            return
        self._mode = _counting_mode(self)
        self._mode.__enter__()

    def stop(self) -> None:
        """End counting; may be called twice."""
        if self._mode is not None:
            self._mode.__exit__(None, None, None)
            self._mode = None

    def work(self, events: Sequence[Event], names: Sequence[str], iterations: int) -> Work:
        """Return the counts of an iteration, given the events of the same time."""
        result = Work(
            counted_calls=sum(each.flops is not None for each in self.operations),
            uncounted=dict(Counter(each.name for each in self.operations if each.flops is None)),
        )
        intervals: dict[str, list[tuple[int, int]]] = {}
        for event in events:
            intervals.setdefault(names[event.stage], []).append((event.start_ns, event.end_ns))
        totals = {name: [0.0, 0.0] for name in intervals}
        starts = {name: sorted(pairs) for name, pairs in intervals.items()}
        for at, _name, counted, moved, product, _origin in self.operations:
            flops = counted or 0.0
            result.flops += flops / iterations
            result.product_flops += product * flops / iterations
            result.moved_bytes += moved / iterations
            for name, pairs in starts.items():
                position = bisect.bisect_right(pairs, (at, 1 << 62)) - 1
                if position >= 0 and at <= pairs[position][1]:
                    totals[name][0] += flops / iterations
                    totals[name][1] += moved / iterations
        result.by_stage = {name: (pair[0], pair[1]) for name, pair in totals.items()}
        return result

    def note(self, name: str, flops: float | None, moved: float, is_product: bool) -> None:
        """Note that an operation has run; flops: None if there is no rule for it."""
        at = self._clock.now_ns()
        self.operations.append(Operation(at, name, flops, moved, is_product, self._origin()))


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
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class CountingMode(TorchDispatchMode):
        def __torch_dispatch__(  # type: ignore[no-untyped-def]  # torch's own has none
            self, func, types, args=(), kwargs=None
        ):
            kwargs = kwargs or {}
            if torch.is_inference_mode_enabled():
                # Here a layer comes as one operation, and elsewhere as those it is made of.
                with self:
                    output = func.decompose(*args, **kwargs)
                if output is not NotImplemented:
                    return output
            output = func(*args, **kwargs)
            if not func.is_view and _computes(func):
                counter.note(
                    str(func._overloadpacket),
                    count_flops(func, args, kwargs, output),
                    _moved_bytes(func, args, kwargs, output),
                    is_product(func),
                )
            return output

    return CountingMode()  # type: ignore[no-untyped-call]  # as its parent


def _moved_bytes(
    func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], output: object
) -> float:
    """What an operation reads and writes: all that it is given, and all that it returns.

    Operations on lists change what they are given, and return nothing.
    """
    written = output
    if output is None:
        named = func._schema.arguments
        changed = [each.alias_info is not None and each.alias_info.is_write for each in named]
        written = [value for value, is_written in zip(args, changed, strict=False) if is_written]
    return float(sum(_nbytes(array) for array in arrays_in([*args, kwargs, written])))


def _nbytes(array: Any) -> int:
    """The bytes of an array or tensor; of a sparse one, those of its values."""
    if getattr(array, "is_sparse", False):
        array = array._values()
    return int(array.nbytes)


def _computes(func: Any) -> bool:
    """Whether an operation does more than allocate or describe memory."""
    return func.namespace != "profiler" and func._overloadpacket.__name__ not in {
        "detach",
        "empty",
        "empty_like",
        "empty_strided",
        "new_empty",
        "new_empty_strided",
        "_local_scalar_dense",
        "lift_fresh",
        "set_",
        "resize_",
    }
