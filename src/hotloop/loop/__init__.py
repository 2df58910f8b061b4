"""What the method and the engines have in common: stages, loops, arms, time, and runs.

On another system than Linux, importing it is refused: it stands on what Linux shows of processes.
"""

from hotloop.errors import expect_linux

expect_linux()  # before anything that would fail there in a way of its own

from hotloop.loop.arm import BURN, DELAY, FREE, PAD, REAL, WAIT, Arm, Mode
from hotloop.loop.clock import Clock, RealClock
from hotloop.loop.conduct import Block, Conductor, Request, drive
from hotloop.loop.control import SharedControl
from hotloop.loop.lever import Lever
from hotloop.loop.loop import Loop
from hotloop.loop.run import Run, load
from hotloop.loop.scripts.session import iterations, state
from hotloop.loop.stage import Stage, stage

__all__ = [
    "BURN",
    "DELAY",
    "FREE",
    "PAD",
    "REAL",
    "WAIT",
    "Arm",
    "Block",
    "Clock",
    "Conductor",
    "Lever",
    "Loop",
    "Mode",
    "RealClock",
    "Request",
    "Run",
    "SharedControl",
    "Stage",
    "drive",
    "iterations",
    "load",
    "stage",
    "state",
]
