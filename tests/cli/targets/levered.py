"""Loops whose levers make them faster, slower, or break them, and a script with a slow loader."""

import os
import sys
import time
from pathlib import Path

import numpy as np

import hotloop
from hotloop import Lever

MODES = ("plain", "refused", "killed", "other")


class Work:
    """A loop that sleeps; its result grows by one an iteration."""

    def __init__(self) -> None:
        self.chunk = 1
        self.mode = "plain"
        self.held = np.zeros(0)
        self.x = np.zeros(4)

    def set_chunk(self, chunk: int) -> None:
        self.chunk = chunk
        Path("tried").touch()

    def set_mode(self, mode: str) -> None:
        if mode == "refused":
            raise ValueError("no such mode here")
        self.mode = mode

    def set_held(self, gigabytes: int) -> None:
        self.held = np.ones(gigabytes * 125_000_000)

    def iterate(self) -> int:
        if self.mode == "killed":
            os._exit(7)
        time.sleep(0.01 / self.chunk / (2 if self.mode == "other" else 1))
        self.x += 2 if self.mode == "other" else 1
        return 8


def make() -> hotloop.Loop:
    work = Work()
    return hotloop.Loop(
        work.iterate,
        unit="samples",
        name="levered",
        state=[work],
        result=lambda: work.x,
        levers=[
            Lever("chunk", (1, 4), now=1, apply=work.set_chunk),
            Lever(
                "mode", ("plain", "refused", "killed", "other"), now="plain", apply=work.set_mode
            ),
            Lever("held_gb", (0, 10_000), now=0, apply=work.set_held, area="memory"),
        ],
    )


def noted() -> hotloop.Loop:
    """A loop that leaves a file when its lever is set, named by whose process that was."""

    def set_quick(quick: bool) -> None:
        Path(f"set-{os.environ.get('SIDE', 'alone')}").touch()

    def iterate() -> int:
        time.sleep(0.001)
        return 1

    levers = [Lever("quick", (False, True), now=False, apply=set_quick)]
    return hotloop.Loop(iterate, unit="calls", name="noted", levers=levers)


def made(size: int = 1) -> hotloop.Loop:
    """A loop that is made with the option of its lever."""
    if size == 3:
        print("no such size", file=sys.stderr)
        sys.exit(3)

    def iterate() -> int:
        time.sleep(0.02 / size)
        return 1

    levers = [Lever("size", (1, 3, 4), now=size)]
    return hotloop.Loop(
        iterate, unit="calls", name="made", levers=levers, result=lambda: [size > 0]
    )


def without() -> hotloop.Loop:
    return hotloop.Loop(lambda: time.sleep(0.001) or 1, unit="calls", name="without")
