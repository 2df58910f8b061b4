"""The GPU's own clock: events on the stream, read after a block has ended.

The timer is a small protocol so that the logic of GPU stages runs in tests with a timer made of
plain numbers; only `CudaTimer` needs a card.
"""

from typing import Any, Protocol

from hotloop.errors import StageError
from hotloop.loop.clock import Clock
from hotloop.loop.values import torch_if_loaded


class GpuTimer(Protocol):
    """The GPU's clock: marks on the stream, work that takes a known time, a barrier."""

    def mark(self) -> object:
        """Mark a point in the stream's order, without synchronising."""
        ...

    def interval_ns(self, start: object, end: object) -> tuple[int, int]:
        """Return the host times, in ns, at which the stream passed two marks.

        Only after `synchronize`.
        """
        ...

    def occupy_ns(self, duration_ns: float) -> None:
        """Keep the stream busy for a time; the host does not wait."""
        ...

    def synchronize(self) -> None:
        """Wait until the stream has done all its work."""
        ...


class CudaTimer:
    """CUDA events on the current stream."""

    def __init__(self, clock: Clock) -> None:
        torch = torch_if_loaded()
        assert torch is not None
        self._cuda: Any = torch.cuda
        self._clock = clock
        self._cycles_per_ns = 0.0
        self.synchronize()
        self._origin = self.mark()
        self.synchronize()
        self._origin_ns = clock.now_ns()

    def mark(self) -> object:
        """Record an event on the current stream."""
        event = self._cuda.Event(enable_timing=True)
        event.record()
        return event

    def interval_ns(self, start: object, end: object) -> tuple[int, int]:
        """Return the host times of two events, from their distance to the timer's first one."""
        origin: Any = self._origin
        return (
            self._origin_ns + round(origin.elapsed_time(start) * 1e6),
            self._origin_ns + round(origin.elapsed_time(end) * 1e6),
        )

    def occupy_ns(self, duration_ns: float) -> None:
        """Spin on the device; the rate is calibrated at the first use."""
        if not self._cycles_per_ns:
            cycles = 10_000_000
            self._cuda._sleep(cycles)  # the first call loads the kernel
            start = self.mark()
            self._cuda._sleep(cycles)
            end: Any = self.mark()
            self.synchronize()
            begin: Any = start
            self._cycles_per_ns = cycles / (begin.elapsed_time(end) * 1e6)
        self._cuda._sleep(max(1, int(duration_ns * self._cycles_per_ns)))

    def synchronize(self) -> None:
        """Wait for the device."""
        self._cuda.synchronize()


def cuda_available() -> bool:
    """Whether torch is loaded and sees a CUDA device."""
    torch = torch_if_loaded()
    return torch is not None and bool(torch.cuda.is_available())


def gpu_timer(clock: Clock) -> GpuTimer:
    """Make the timer for this machine. Raises: StageError if there is no CUDA device."""
    if not cuda_available():
        raise StageError(
            'a stage of kind "gpu" was called, but torch sees no CUDA device; '
            'choose its kind by where it runs, as in kind="gpu" if device.type == "cuda" else "cpu"'
        )
    return CudaTimer(clock)
