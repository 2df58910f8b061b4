"""What a benchmark asks of a card: its facts, its clocks, its memory, and how it runs a simulation.

`StandIn` answers the same with CPU tensors, so that a benchmark's logic is tested without a card:
a step is repeated by running it again, events are the host's clock, and no memory is counted.
"""

import gc
import subprocess
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from hotloop.loop.capture import WARM_UP_RUNS
from hotloop.sim import Runner
from hotloop.sim.copier import Copier, HostCopier
from hotloop.sim.graph import CapturedSteps

MIB = 2**20


class Card(Protocol):
    """A device that is measured."""

    device: torch.device
    clocks: str

    def facts(self) -> dict[str, str]:
        """What it is called, and what drives it."""

    def synchronize(self) -> None:
        """Return when everything that was launched is done."""

    def events_ms(self, work: Callable[[], Any], repeats: int) -> float:
        """Milliseconds of the device for one of so many runs, between two events."""

    def count_memory(self) -> None:
        """Let `peak_bytes` count from here."""

    def peak_bytes(self) -> int:
        """What was held at most beyond what was held when counting began."""

    def release(self) -> None:
        """Give back what nothing holds any more."""

    def captured(self, make: Callable[..., Runner]) -> Runner:
        """A runner whose steps are a captured graph."""

    def copier_in_stream(self) -> Copier:
        """Copies in the stream that computes."""


class CudaCard:
    """The CUDA device that is the current one."""

    clocks = (
        "Steps are timed by the host's clock, with the card synchronised before and after; probes "
        "by CUDA events around ten launches. Every way runs twice before it is timed."
    )

    def __init__(self) -> None:
        self.device = torch.device("cuda", torch.cuda.current_device())
        self._base = 0

    def facts(self) -> dict[str, str]:
        memory = torch.cuda.get_device_properties(self.device).total_memory
        return {
            "card": torch.cuda.get_device_name(self.device),
            "memory": f"{memory / 2**30:.0f} GiB",
            "driver": _driver(),
            "CUDA": str(torch.version.cuda),
            "torch": torch.__version__,
        }

    def synchronize(self) -> None:
        torch.cuda.synchronize(self.device)

    def events_ms(self, work: Callable[[], Any], repeats: int) -> float:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(repeats):
            work()
        end.record()
        self.synchronize()
        return float(begin.elapsed_time(end)) / repeats

    def count_memory(self) -> None:
        self.synchronize()
        torch.cuda.reset_peak_memory_stats(self.device)
        self._base = torch.cuda.memory_allocated(self.device)

    def peak_bytes(self) -> int:
        return int(torch.cuda.max_memory_allocated(self.device)) - self._base

    def release(self) -> None:
        gc.collect()
        torch.cuda.empty_cache()

    def captured(self, make: Callable[..., Runner]) -> Runner:
        return make(capture=True)

    def copier_in_stream(self) -> Copier:
        return InStream(self.device)


class InStream:
    """Copies to pinned memory in the computing stream: in order by itself, and nothing overlaps."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def copy(self, value: Tensor, dtype: torch.dtype) -> tuple[Tensor, Any]:
        small = value.to(dtype).contiguous()
        copied = torch.empty(small.shape, dtype=dtype, pin_memory=True)
        copied.copy_(small, non_blocking=True)
        mark = torch.cuda.Event()
        mark.record(torch.cuda.current_stream(self._device))
        return copied, mark

    def computing_waits_for(self, mark: Any) -> None:
        """The stream's order does."""

    def host_waits_for(self, mark: Any) -> None:
        mark.synchronize()


class StandIn:
    """A card of CPU tensors, for tests of a benchmark's logic; its times say nothing of a card."""

    clocks = "A stand-in of CPU tensors, timed by the host's clock: nothing here is of a card."

    def __init__(self) -> None:
        self.device = torch.device("cpu")

    def facts(self) -> dict[str, str]:
        return {"card": "no card: a stand-in of CPU tensors", "torch": torch.__version__}

    def synchronize(self) -> None:
        pass

    def events_ms(self, work: Callable[[], Any], repeats: int) -> float:
        begin = perf_counter()
        for _ in range(repeats):
            work()
        return (perf_counter() - begin) * 1e3 / repeats

    def count_memory(self) -> None:
        pass

    def peak_bytes(self) -> int:
        return 0

    def release(self) -> None:
        gc.collect()

    def captured(self, make: Callable[..., Runner]) -> Runner:
        runner = make()
        state = runner.state

        class Again:
            def __init__(self, body: Callable[[], None], warm_up: Callable[[], None]) -> None:
                self._body = body
                for _ in range(WARM_UP_RUNS):
                    warm_up()
                body()

            def replay(self) -> None:
                state.counts_on_device = True
                self._body()
                state.counts_on_device = False

        runner.program = CapturedSteps(state, runner._substeps_alone, Again)
        runner._advance = runner.program.advance
        return runner

    def copier_in_stream(self) -> Copier:
        return HostCopier()


class MovedBytes(TorchDispatchMode):
    """Count what operations read and write, each tensor in full; views move nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if not func.is_view:
            tensors = tree_leaves((args, kwargs, result))
            self.total += sum(
                leaf.numel() * leaf.element_size() for leaf in tensors if isinstance(leaf, Tensor)
            )
        return result


def _driver() -> str:
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return "not known"
    return found.stdout.strip().splitlines()[0] if found.stdout.strip() else "not known"
