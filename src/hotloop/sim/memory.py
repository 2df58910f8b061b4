"""Estimate how much memory a run needs before any of it is allocated."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import psutil
import torch
from torch import Tensor

from hotloop.errors import CapacityError
from hotloop.sim.model import Column, FromColumn, FromEdges, Model, Series
from hotloop.sim.network import Network, PeriodicNetwork, RandomContacts
from hotloop.sim.record import Record
from hotloop.sim.settings import Settings

# Estimates of what a step needs beside the state, in bytes an agent and replicate: a draw and its
# intermediate results are several 64-bit columns, 60 bytes at most in the models here; a program
# keeps lists of agents. Substeps gather a message an edge, on a card for all replicates at once.
SUBSTEPS_WORK, PROGRAM_WORK, MESSAGE_BYTES = 64, 16, 4
EDGE_BYTES, ROW_BYTES, UNKNOWN_ITEM = 8, 16, 4


@dataclass
class Need:
    """Bytes that a run takes, by purpose, on the device and on the host."""

    device: dict[str, int] = field(default_factory=dict)
    host: dict[str, int] = field(default_factory=dict)


def estimate(
    model: Model,
    data: Any,
    settings: Settings,
    sizes: Mapping[str, int],
    record: Record,
    num_steps: int,
) -> Need:
    """Estimate what a run of `model` needs.

    data: the loaded population or None. sizes: agents of each population.
    """
    runs, need = settings.replicates or 1, Need()
    on_card = settings.device.type == "cuda"
    # A model's program is for the CPU; on a card its substeps run.
    fused = settings.fused and model.program is not None and not on_card
    written = {path for substep in model.substeps for path in substep.writes}
    state = snapshots = 0
    for population, columns in model.populations.items():
        for name, initialiser in columns.items():
            path = f"agents/{population}/{name}"
            column = _item_bytes(initialiser, data) * sizes[population]
            # What is written has a home and a spare in every replicate, and its first values.
            state += column * (1 + (runs * (1 if fused else 2) if path in written else 0))
            if record.keeps(path):
                snapshots += column * (runs if path in written else 0)
    agents = sum(sizes.values()) * runs
    need.device["the state of all agents"] = state
    work = agents * (PROGRAM_WORK if fused else SUBSTEPS_WORK)
    if not fused:
        edges = max((_edges(n, data) for n in model.networks.values()), default=0)
        work += MESSAGE_BYTES * edges * (runs if on_card else 1)
    need.device["the work of a step"] = work
    networks = sum(_network_bytes(n, data, max(sizes.values())) for n in model.networks.values())
    need.host["networks"] = networks
    if on_card:
        need.device["networks"] = networks
    need.host["snapshots of agents"] = snapshots * (1 + -(-num_steps // record.every))
    series = sum(isinstance(value, Series) for value in model.environment.values())
    need.device["the record of sums"] = 4 * series * num_steps * runs
    return need


def refuse_if_too_large(need: Need, settings: Settings) -> None:
    """Refuse a run that needs more memory than is free.

    Raises: CapacityError, saying how much is needed, for what, how much is free, what to reduce.
    """
    host_free = psutil.virtual_memory().available
    if settings.device.type == "cuda":
        _refuse(need.device, free_on(settings.device), settings)
        _refuse(need.host, host_free, settings, "this machine")
    else:
        both = {k: need.device.get(k, 0) + need.host.get(k, 0) for k in need.device | need.host}
        _refuse(both, host_free, settings)


def free_on(device: torch.device) -> int:
    """Count the bytes available on a card: free ones, and those that torch holds unused."""
    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int(torch.cuda.mem_get_info(device)[0]) + unused


def _refuse(
    parts: Mapping[str, int], free: int, settings: Settings, place: str | None = None
) -> None:
    total = sum(parts.values())
    if total <= free:
        return
    reduce = ["fewer agents", "smaller dtypes"]
    if parts.get("snapshots of agents"):
        reduce.insert(0, "no snapshots of agents, or a larger `every`")
    if settings.replicates is not None and settings.replicates > 1:
        fitting = max(1, settings.replicates * free // total)
        reduce.insert(0, f"fewer replicates (about {fitting} of {settings.replicates} would fit)")
    by_size = sorted(parts.items(), key=lambda part: -part[1])
    raise CapacityError(
        f"out of memory: this run needs about {_size(total)} and {place or settings.device} has "
        f"{_size(free)} free. It needs "
        + ", ".join(f"{_size(count)} for {what}" for what, count in by_size if count)
        + f". Reduce it by {', '.join(reduce)}"
    )


def _item_bytes(initialiser: Any, data: Any) -> int:
    """Estimate the bytes an agent without making the column."""
    if isinstance(initialiser, Column):
        if initialiser.dtype is not None:
            return initialiser.dtype.itemsize
        return _item_bytes(initialiser.values, data)
    if isinstance(initialiser, FromColumn) and data is not None:
        initialiser = data.columns.get(initialiser.name)
    if isinstance(initialiser, bool):
        return 1
    if isinstance(initialiser, np.ndarray | Tensor) and initialiser.ndim:
        width = int(np.prod(initialiser.shape[1:]))
        return min(initialiser.dtype.itemsize, UNKNOWN_ITEM) * width
    return UNKNOWN_ITEM


def _edges(network: Any, data: Any) -> int:
    """Count the edges of a step."""
    if isinstance(network, PeriodicNetwork):
        return max(each.num_edges for each in network.networks)
    if isinstance(network, Network | RandomContacts):
        return network.num_edges
    if isinstance(network, FromEdges) or callable(network):
        network = None if data is None else data.edges
    return 0 if network is None else len(network)


def _network_bytes(network: Any, data: Any, agents: int) -> int:
    if isinstance(network, Network | PeriodicNetwork | RandomContacts):
        return network.nbytes
    if isinstance(network, FromEdges) or callable(network):
        network = None if data is None else data.edges
    return 0 if network is None else EDGE_BYTES * len(network) + ROW_BYTES * agents


def _size(count: int) -> str:
    amount = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.3g} {unit}"
        amount /= 1000
    return f"{amount:,.3g} TB" if amount < 1000 else f"{amount:,.0f} TB"
