"""Timed calls of stages, and the lane each ran on: what does one thing at a time."""

import asyncio
import itertools
import threading
import weakref
from typing import Any, NamedTuple

MAX_STAGES = 256
MAX_PID = 1 << 22  # Linux has no higher process number
GPU_LANE = -1  # the lane of events read off the GPU's clock


class Event(NamedTuple):
    """One timed call of a stage.

    A lane is what does one thing at a time: a thread of one process (positive), an asyncio task
    (below `GPU_LANE`), or the GPU's stream (`GPU_LANE`).
    """

    stage: int
    start_ns: int
    end_ns: int
    lane: int


def lane_apart(lane: int, process: int) -> int:
    """Return a lane's number with its process in it: those of forked processes are the same."""
    apart = process * 1_000_003
    return (lane + apart) % (1 << 62) if lane > GPU_LANE else lane - apart


def current_lane() -> int:
    """Return the lane of the caller: its asyncio task if there is one, else its thread.

    A thread's number is positive; tasks count down from below `GPU_LANE`, each with its own number
    for as long as it lives, because the addresses of ended ones are used again.
    """
    if running_loop() is None:
        return threading.get_ident()
    task = asyncio.current_task()
    if task is None:
        return threading.get_ident()
    lane = _task_lanes.get(task)
    if lane is None:
        lane = _task_lanes[task] = next(_new_lanes)
    return lane


# The event loop of this thread, or None: a tenth of what it costs to ask for the current task.
running_loop = asyncio._get_running_loop
_task_lanes: "weakref.WeakKeyDictionary[asyncio.Task[Any], int]" = weakref.WeakKeyDictionary()
_new_lanes = itertools.count(GPU_LANE - 1, -1)
