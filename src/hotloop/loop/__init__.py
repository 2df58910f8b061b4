"""The ground that the method and the engines share: stages, loops, arms, time, and runs."""

from hotloop.loop.arm import BURN, DELAY, FREE, PAD, REAL, WAIT, Arm, Mode
from hotloop.loop.board import Board
from hotloop.loop.clock import Clock, RealClock
from hotloop.loop.conduct import Block, Conductor, Request, drive
from hotloop.loop.loop import Loop
from hotloop.loop.run import Run, load
from hotloop.loop.script import iterations, state
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
    "Board",
    "Clock",
    "Conductor",
    "Loop",
    "Mode",
    "RealClock",
    "Request",
    "Run",
    "Stage",
    "drive",
    "iterations",
    "load",
    "stage",
    "state",
]
