"""Which thread of control a call ran on: what tells stages side by side from one inside another."""

import asyncio
import itertools
import threading
import weakref
from typing import Any

from hotloop.loop.board import GPU_LANE


def current_lane() -> int:
    """What runs one thing at a time: the asyncio task if there is one, else the thread.

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
