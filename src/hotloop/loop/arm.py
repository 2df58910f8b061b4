"""What each stage does in a block: the conditions that an experiment compares."""

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum


class Kind(IntEnum):
    """What a stage does when it is called: one byte of the shared control."""

    OFF = 0  # nothing is measured: straight through
    REAL = 1  # runs, and is timed
    FREE = 2  # replays a recorded output
    PAD = 3  # replays, then waits the recorded duration
    BURN = 4  # replays, then keeps the processor busy for the recorded duration / k
    WAIT = 5  # replays, then waits the recorded duration / k
    DELAY = 6  # runs, then waits d seconds more
    RECORD = 7  # runs, and its output, duration and processor time go onto the tape
    CHECK = 8  # runs, and is compared with what it declares of its effects
    WORK = 9  # replays, then computes for the recorded processor time / k
    NAMED = 10  # runs within a frame that has the stage's name: profilers see it
    COUNTED = 11  # runs, and a recognised call is only counted; any other is as with REAL


SUBSTITUTES = frozenset({Kind.FREE, Kind.PAD, Kind.BURN, Kind.WAIT, Kind.WORK})


@dataclass(frozen=True)
class Mode:
    """A kind and its number: k for BURN, WORK and WAIT, seconds a call for DELAY."""

    kind: Kind
    amount: float = 0.0

    def __str__(self) -> str:
        if self.kind in (Kind.BURN, Kind.WORK, Kind.WAIT):
            return f"{self.kind.name}({self.amount:g})"
        if self.kind is Kind.DELAY:
            return f"DELAY({self.amount * 1e3:.3g} ms)"
        return self.kind.name


OFF, REAL, FREE, PAD = (Mode(k) for k in (Kind.OFF, Kind.REAL, Kind.FREE, Kind.PAD))
RECORD, CHECK, NAMED, COUNTED = (
    Mode(k) for k in (Kind.RECORD, Kind.CHECK, Kind.NAMED, Kind.COUNTED)
)

_EPOCHS = 1 << 24
_AS_FLOAT, _AS_BITS = struct.Struct("f"), struct.Struct("I")


def packed(mode: Mode, epoch: int) -> int:
    """Pack a mode and its epoch into one 64-bit word: written and read as a whole, never half.

    Bits 0 to 7 hold the kind, 8 to 31 the epoch, 32 to 63 the amount as a 32-bit float. OFF is 0.
    """
    if mode.kind is Kind.OFF:
        return 0
    bits: int = _AS_BITS.unpack(_AS_FLOAT.pack(mode.amount))[0]
    return int(mode.kind) | (epoch % _EPOCHS) << 8 | bits << 32


def kind_of(word: int) -> int:
    """Return the kind in a packed word, as a plain integer."""
    return word & 0xFF


def epoch_of(word: int) -> int:
    """Return the epoch in a packed word, modulo 2²⁴."""
    return word >> 8 & _EPOCHS - 1


def amount_of(word: int) -> float:
    """Return the amount in a packed word."""
    amount: float = _AS_FLOAT.unpack(_AS_BITS.pack(word >> 32 & 0xFFFFFFFF))[0]
    return amount


def BURN(k: float) -> Mode:
    """Replay, then compute for 1/k of the recorded duration."""
    return Mode(Kind.BURN, k)


def WORK(k: float) -> Mode:
    """Replay, then compute until 1/k of the recorded processor time is used.

    Beside other threads a stage takes longer than it computes: only its processor time is taken
    from them.
    """
    return Mode(Kind.WORK, k)


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
