"""What a stage declares, and how the shared control and the measurements see it."""

from collections.abc import Callable
from typing import Any, Literal, Protocol

from hotloop.loop.arm import Kind
from hotloop.loop.tape import Buffers, Tape

StageKind = Literal["cpu", "gpu", "io", "network"]
Effect = Literal["pure", "stateful", "effectful"]


class StageView(Protocol):
    """A stage for those that measure it: its declaration, its tape, what was seen of its calls."""

    name: str
    made: int  # in which order the stages of a process were made
    kind: StageKind
    effect: Effect
    writes: Buffers
    bytes_per_call: int | None
    index: int
    tape: Tape
    is_block: bool
    is_iterable: bool
    reads_ahead: int
    effect_is_known: bool  # whether its calls need not be compared with its effect
    cannot_replace: str | None  # why its calls are never replaced, whatever its effect
    part_of: str | None  # what it is a part of, and is also judged in together with others
    is_whole: bool  # whether its calls are all calls of other stages too
    delayed_ns: int

    @property
    def function(self) -> Callable[..., Any] | None:
        """What a call of the stage calls, as long as the loop holds it; None for no function."""

    def obey(self, kind: Kind) -> None:
        """Know what its calls do from now on, where looking it up at each would take too long."""

    def rebind(self) -> None:
        """Take what depends on the process from the shared control: called again after a fork."""


class IterablePass:
    """One pass over an iterable: what the iterators of stages are."""

    def __init__(self, iterable: Any) -> None:
        self.iterable = iterable
