"""Spatial messages on tensors of any device, equal to those of `UniformGrid` to the last bit.

Agents are sorted by cell; each has up to six runs of candidates (three rows of cells, and their
other ends across a periodic edge). The pairs are listed in blocks of bounded size, and messages are
added as integers, so that the order of atomic additions on a GPU changes nothing.
"""

import torch
from torch import Tensor

from hotloop.errors import ShapeError
from hotloop.sim.grid import Message
from hotloop.sim.grid_kernels import LIMIT_BITS, Space

_RUNS = 6
_LIMIT = float(2**LIMIT_BITS)


def neighbour_sums(
    space: Space,
    columns: tuple[Tensor, ...],
    message: Message,
    params: tuple[float, ...] = (),
    *,
    pairs: int | None = None,
) -> Tensor:
    """Sum what every agent hears; row 0 counts the neighbours, the others are in quanta.

    columns: x, y and what the message reads, float32, each (N,), or (R, N) for R boxes.
    pairs: most pairs listed at once, about 100 bytes each, but at least all candidates of one
    agent; None takes 2**22 on a GPU, and 2**16 on a CPU, where lists in cache are 1.6 times faster.

    Returns: int64 (1 + channels, N) or (1 + channels, R, N).
    Raises: ShapeError where the columns' shapes differ.
    """
    shape = columns[0].shape
    for line, column in enumerate(columns):
        if column.shape != shape:
            raise ShapeError(
                f"neighbour_sums: column {line}: expected the shape of the first, "
                f"{tuple(shape)}, got {tuple(column.shape)}"
            )
    unsorted = torch.stack([column.reshape(-1) for column in columns])
    box = torch.arange(unsorted.shape[1], device=unsorted.device) // shape[-1]
    column, row = _cell_of(space, unsorted)
    cell = (box * space.rows + row) * space.columns + column
    cell, order = torch.sort(cell, stable=True)
    boxes = unsorted.shape[1] // shape[-1]
    cells = torch.arange(boxes * space.rows * space.columns + 1, device=cell.device)
    starts = torch.searchsorted(cell, cells)
    agents = unsorted[:, order]
    sums = torch.zeros(
        (1 + len(message.bounds), agents.shape[1]), dtype=torch.int64, device=cell.device
    )
    runs = _runs(space, cell, starts)
    if pairs is None:
        pairs = 1 << (16 if cell.device.type == "cpu" else 22)
    for low, high in _blocks(runs[1], pairs):
        _add_block(space, agents, low, high, runs, message, params, sums)
    by_id = torch.empty_like(sums)
    by_id[:, order] = sums
    return by_id.view(-1, *shape)


def _cell_of(space: Space, agents: Tensor) -> tuple[Tensor, Tensor]:
    column = (agents[0] * float(space.per_x)).to(torch.int64).clamp(0, space.columns - 1)
    row = (agents[1] * float(space.per_y)).to(torch.int64).clamp(0, space.rows - 1)
    return column, row


def _runs(space: Space, cell: Tensor, starts: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Find where each agent's runs of candidates begin, their lengths and shifts; (6, N)."""
    columns, rows = space.columns, space.rows
    column, line = cell % columns, cell // columns
    row, base = line % rows, line // rows * rows
    begins, lengths, shifts_x, shifts_y = [], [], [], []
    for offset in (-1, 0, 1):
        near = row + offset
        outside = (near < 0) | (near >= rows)
        first = (base + near % rows) * columns
        shift_y = outside * (offset * float(space.height))
        for end in range(2):
            if end == 0:
                left, right = (column - 1).clamp(min=0), (column + 1).clamp(max=columns - 1)
                there = torch.ones_like(outside)
                shift_x = torch.zeros_like(shift_y)
            else:
                at_left, at_right = column == 0, column == columns - 1
                left = right = torch.where(at_left, columns - 1, 0)
                there = (at_left | at_right) & space.periodic
                shift_x = (at_right.to(torch.int8) - at_left.to(torch.int8)) * float(space.width)
            there = there & (space.periodic | ~outside)
            begin = starts[first + left]
            begins.append(begin)
            lengths.append((starts[first + right + 1] - begin) * there)
            shifts_x.append(shift_x.to(torch.float32))
            shifts_y.append(shift_y.to(torch.float32))
    return (
        torch.stack(begins), torch.stack(lengths), torch.stack(shifts_x), torch.stack(shifts_y)
    )  # fmt: skip


def _blocks(lengths: Tensor, pairs: int) -> list[tuple[int, int]]:
    """Cut the agents so that the candidates of each block are at most `pairs`, or of one agent."""
    total = lengths.sum(0).cumsum(0)
    size, blocks, low, done = len(total), [], 0, 0
    whole = int(total[-1])
    while low < size:
        high = size
        if whole - done > pairs:
            high = max(int(torch.searchsorted(total, done + pairs, right=True)), low + 1)
        blocks.append((low, high))
        low, done = high, int(total[high - 1]) if high < size else whole
    return blocks


def _add_block(
    space: Space,
    agents: Tensor,
    low: int,
    high: int,
    runs: tuple[Tensor, Tensor, Tensor, Tensor],
    message: Message,
    params: tuple[float, ...],
    sums: Tensor,
) -> None:
    begins, lengths, shifts_x, shifts_y = (run[:, low:high].T.reshape(-1) for run in runs)
    run = torch.repeat_interleave(torch.arange(len(lengths), device=lengths.device), lengths)
    before = lengths.cumsum(0) - lengths
    k = begins[run] + torch.arange(len(run), device=run.device) - before[run]
    i = run // _RUNS + low
    dx = (agents[0, k] - agents[0, i]) + shifts_x[run]
    dy = (agents[1, k] - agents[1, i]) + shifts_y[run]
    d2 = dx * dx + dy * dy
    inside = (d2 <= float(space.radius2)) & (k != i)
    i, k, dx, dy, d2 = i[inside], k[inside], dx[inside], dy[inside], d2[inside]
    hear = message.tensors or message.hear
    values = hear(dx, dy, d2, agents, i, agents, k, params)
    # Pairs are in the order of i: sums are differences of running sums, exact in integers.
    ends = torch.searchsorted(i, torch.arange(low, high + 1, device=i.device))
    sums[0, low:high] = ends.diff()
    for channel, (value, scale) in enumerate(zip(values, message.scales, strict=True), start=1):
        whole = (value * float(scale)).clamp(-_LIMIT, _LIMIT).to(torch.int64)
        running = torch.nn.functional.pad(whole.cumsum(0), (1, 0))
        sums[channel, low:high] = running[ends].diff()
