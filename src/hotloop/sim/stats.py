"""What a runner did and how long it took: memory, transfers, time by stage."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from hotloop.sim.program import Program
    from hotloop.sim.record import Recorder
    from hotloop.sim.settings import Settings

# Pairs of CUDA events that may wait to be read; beyond, those that are over are added up.
PENDING_EVENTS = 512


@dataclass
class Traffic:
    """What happened to memory: the state's tensors, and what crossed to another device."""

    allocations: int = 0
    allocated_bytes: int = 0
    reuses: int = 0
    transfers: int = 0
    transfer_bytes: int = 0

    def allocated(self, tensor: Tensor) -> Tensor:
        """`tensor`, counted as new."""
        self.allocations += 1
        self.allocated_bytes += tensor.numel() * tensor.element_size()
        return tensor

    def moved(self, tensor: Tensor, device: torch.device) -> Tensor:
        """`tensor` on `device`, counted where it has to travel."""
        if tensor.device == device:
            return tensor
        self.transfers += 1
        self.transfer_bytes += tensor.numel() * tensor.element_size()
        return tensor.to(device)


@dataclass
class Stats:
    """Counters of one runner since its `init`."""

    device: torch.device
    steps: int = 0
    agent_steps: int = 0
    seconds: float = 0.0  # in `step`; on CUDA until everything was launched
    snapshots: int = 0  # copies of values, of episodes that are over
    snapshot_bytes: int = 0
    stage_seconds: dict[str, float] = field(default_factory=dict)
    _events: list[tuple[str, Any, Any]] = field(default_factory=list)

    def count_snapshots(self, recorder: "Recorder") -> None:
        """Take over what a recorder has copied: its episode is over."""
        self.snapshots += recorder.snapshots
        self.snapshot_bytes += recorder.snapshot_bytes

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Add the block's time to a stage's: of the host, or on CUDA between two events."""
        if self.device.type == "cuda":
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record(torch.cuda.current_stream(self.device))
            yield
            end.record(torch.cuda.current_stream(self.device))
            self._events.append((stage, begin, end))
            if len(self._events) >= PENDING_EVENTS:
                self._read_events()
            return
        start = time.perf_counter()
        yield
        self._add(stage, time.perf_counter() - start)

    def read_stage_seconds(self) -> dict[str, float]:
        """Seconds of each stage; on CUDA this waits for what is still running."""
        if self._events:
            torch.cuda.synchronize(self.device)
            self._read_events()
        return dict(self.stage_seconds)

    def _read_events(self) -> None:
        # Events come to pass in their order: the first that has not ends the search.
        while self._events and self._events[0][2].query():
            stage, begin, end = self._events.pop(0)
            self._add(stage, begin.elapsed_time(end) / 1000)

    def _add(self, stage: str, seconds: float) -> None:
        self.stage_seconds[stage] = self.stage_seconds.get(stage, 0.0) + seconds


def report(
    stats: Stats,
    traffic: Traffic,
    settings: "Settings",
    program: "Program | None",
    recorder: "Recorder | None",
) -> dict[str, Any]:
    """Everything that was counted, as `Runner.get_performance_stats` returns it.

    program: "substeps", or the name of what took their place. device, precision, replicates: of
    the run. steps, agent_steps (of all replicates), seconds in `step` (on CUDA until all was
    launched), agent_steps_per_s; seconds_<stage>: of each substep, or of "step" in a program.
    allocations, allocated_bytes, reuses: of the state's tensors. transfers, transfer_bytes: to the
    device. active_share: part of the agent steps that were visited. edges, edges_per_s: read by
    a program; 0 where none counts them. snapshots, snapshot_bytes: values copied for the record.
    program_<counter>: what a program counts beside these.
    """
    counters = {} if program is None else dict(program.counters())
    edges = counters.pop("edges", 0.0)
    active = counters.pop("active_agent_steps", float(stats.agent_steps))
    now = (0, 0) if recorder is None else (recorder.snapshots, recorder.snapshot_bytes)
    seconds = max(stats.seconds, 1e-9)
    return {
        "program": "substeps" if program is None else program.name,
        "device": str(settings.device),
        "precision": settings.precision,
        "replicates": settings.replicates or 1,
        "steps": stats.steps,
        "agent_steps": stats.agent_steps,
        "seconds": stats.seconds,
        "agent_steps_per_s": stats.agent_steps / seconds,
        **{f"seconds_{name}": spent for name, spent in stats.read_stage_seconds().items()},
        **vars(traffic),
        "active_share": active / stats.agent_steps if stats.agent_steps else 0.0,
        "edges": edges,
        "edges_per_s": edges / seconds,
        "snapshots": stats.snapshots + now[0],
        "snapshot_bytes": stats.snapshot_bytes + now[1],
        **{f"program_{name}": value for name, value in counters.items()},
    }
