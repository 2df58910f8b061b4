"""What a runner did and how long it took: steps, time by stage, and the report of all counters."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from hotloop.sim.program import Program
from hotloop.sim.record import Recorder
from hotloop.sim.settings import Settings
from hotloop.sim.traffic import Traffic

# Pairs of CUDA events that may wait to be read; beyond, those that are over are added up.
PENDING_EVENTS = 512


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

    def count_snapshots(self, recorder: Recorder) -> None:
        """Add what a recorder has copied, at the end of its episode."""
        self.snapshots += recorder.snapshots
        self.snapshot_bytes += recorder.snapshot_bytes

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Add the block's time to a stage: of the host, or on CUDA between two events."""
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
        """Return the seconds of each stage; on CUDA, wait for running work first."""
        if self._events:
            torch.cuda.synchronize(self.device)
            self._read_events()
        return dict(self.stage_seconds)

    def _read_events(self) -> None:
        # Events complete in their order: the first incomplete one ends the search.
        while self._events and self._events[0][2].query():
            stage, begin, end = self._events.pop(0)
            self._add(stage, begin.elapsed_time(end) / 1000)

    def _add(self, stage: str, seconds: float) -> None:
        self.stage_seconds[stage] = self.stage_seconds.get(stage, 0.0) + seconds


def report(
    stats: Stats,
    traffic: Traffic,
    settings: Settings,
    program: Program | None,
    recorder: Recorder | None,
) -> dict[str, Any]:
    """Report all counters, as `Runner.get_performance_stats` returns them.

    program: "substeps", or the name of the program. device, precision, replicates: of
    the run. steps, agent_steps (of all replicates), seconds in `step` (on CUDA until all was
    launched), agent_steps_per_s; seconds_<stage>: of each substep, or of "step" in a program.
    allocations, allocated_bytes, reuses: of the state's tensors. transfers, transfer_bytes: to the
    device. active_share: part of the agent steps whose agents may change or make others change; a
    program without an active set visits all. edges, edges_per_s: read by a program; 0 where none
    counts them. snapshots, snapshot_bytes: values copied for the record. program_<counter>: what a
    program counts beside these.
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
