"""What each stage does in a block: the conditions that an experiment compares."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum


class Kind(IntEnum):
    """What a stage does when it is called; the byte on the board."""

    OFF = 0  # nothing is measured: straight through
    REAL = 1  # runs, and is timed
    FREE = 2  # replays a recorded output
    PAD = 3  # replays, then waits the recorded duration
    BURN = 4  # replays, then keeps the processor busy for the recorded duration / k
    WAIT = 5  # replays, then waits the recorded duration / k
    DELAY = 6  # runs, then waits d seconds more
    RECORD = 7  # runs, and its output, duration and processor time go onto the tape


SUBSTITUTES = frozenset({Kind.FREE, Kind.PAD, Kind.BURN, Kind.WAIT})


@dataclass(frozen=True)
class Mode:
    """A kind and its number: k for BURN and WAIT, seconds a call for DELAY."""

    kind: Kind
    amount: float = 0.0

    def __str__(self) -> str:
        if self.kind in (Kind.BURN, Kind.WAIT):
            return f"{self.kind.name}({self.amount:g})"
        if self.kind is Kind.DELAY:
            return f"DELAY({self.amount * 1e3:.3g} ms)"
        return self.kind.name


OFF, REAL, FREE, PAD, RECORD = (
    Mode(k) for k in (Kind.OFF, Kind.REAL, Kind.FREE, Kind.PAD, Kind.RECORD)
)


def BURN(k: float) -> Mode:
    """Replay, then compute for 1/k of the recorded duration."""
    return Mode(Kind.BURN, k)


def WAIT(k: float) -> Mode:
    """Replay, then wait for 1/k of the recorded duration."""
    return Mode(Kind.WAIT, k)


def DELAY(seconds: float) -> Mode:
    """Run, then wait `seconds` more at every call."""
    return Mode(Kind.DELAY, seconds)


@dataclass(frozen=True)
class Arm:
    """One condition of an experiment: the mode of each named stage, `rest` for all others."""

    name: str
    modes: Mapping[str, Mode] = field(default_factory=dict)
    rest: Mode = REAL

    def mode(self, stage: str) -> Mode:
        """What the stage of this name does in this arm."""
        return self.modes.get(stage, self.rest)
