"""The memory of a card by stage and line, from torch's own record of its allocations."""

from dataclasses import dataclass, field
from typing import Any

from hotloop.loop.arm import NAMED, Arm
from hotloop.loop.conduct import Measurement, Request
from hotloop.loop.values import torch_if_loaded
from hotloop.profile.places import Site, site_of

ITERATIONS, MOST_ENTRIES, MOST_LINES = 3, 200_000, 20


@dataclass(frozen=True)
class GpuLine:
    """A line of a stage, with the bytes of its allocations that were in use at the end."""

    stage: str
    function: str
    file: str
    line: int
    bytes: float


@dataclass
class GpuMemory:
    """What torch has recorded: peaks of the card, and what is in use by line."""

    peak_bytes: float
    reserved_bytes: float
    lines: list[GpuLine] = field(default_factory=list)


def profile_gpu() -> Measurement[GpuMemory | None]:
    """Record a few iterations on the card; None where the loop has used none."""
    torch: Any = torch_if_loaded()
    if torch is None or not torch.cuda.is_available() or not torch.cuda.is_initialized():
        return None
    torch.cuda.reset_peak_memory_stats()
    try:
        yield Request(
            Arm("card", rest=NAMED),
            iterations=ITERATIONS,
            drain=1,
            at_start=lambda: torch.cuda.memory._record_memory_history(max_entries=MOST_ENTRIES),
            phase="profiling the memory of the card",
        )
        snapshot = torch.cuda.memory._snapshot()
    finally:
        torch.cuda.memory._record_memory_history(enabled=None)
    return GpuMemory(
        float(torch.cuda.max_memory_allocated()),
        float(torch.cuda.max_memory_reserved()),
        lines_of(snapshot),
    )


def lines_of(snapshot: Any) -> list[GpuLine]:
    """The lines that hold memory in a snapshot of torch, the largest first."""
    held: dict[Site, float] = {}
    for segment in snapshot["segments"]:
        for block in segment["blocks"]:
            if block["state"] != "active_allocated":
                continue
            frames = [(f["name"], f["filename"], f["line"]) for f in block.get("frames", [])]
            site = site_of(frames)
            if site is not None:
                held[site] = held.get(site, 0.0) + block["size"]
    found = [GpuLine(*site, size) for site, size in held.items()]
    return sorted(found, key=lambda line: -line.bytes)[:MOST_LINES]
