"""Where choices run: what a search asks of a loop of this process, of processes, of trainings."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from hotloop.errors import HotloopError
from hotloop.optimize.space import Choice


class TrialError(HotloopError):
    """A choice that cannot be tried; the message says why."""


class LoopEnded(TrialError):
    """A choice whose loop has come to its end."""


class Entrant(Protocol):
    """A choice that can run."""

    @property
    def granularity(self) -> float:
        """How much its mean rate may be off, as a share, by where its turns have begun and ended.

        See `Stretch`; 0 where every turn is a whole.
        """
        ...

    def turn(self) -> float:
        """Run for a moment. Returns units a second. Raises: TrialError."""
        ...

    def close(self) -> None:
        """End it."""
        ...


class Bench(Protocol):
    """Where choices run.

    places: how many may be open at once, beside the fastest so far. same_work: whether all turns of
    a choice do equally much, so that their times are what is summed; else turns last equally long,
    and work is. usual_noise: how much two turns of one choice usually differ, as
    the standard deviation of the logarithm of a rate. warm_rounds: turns of the start
    alone, which show how much its turns differ; least_rounds: before any choice drops out;
    final_rounds: of the winner against the start, at least.
    judging_share: of the budget, for the winner against the start. free: names of levers that are
    set in an open choice at once, where opening another one takes long.
    """

    places: int
    same_work: bool
    usual_noise: float
    warm_rounds: int
    least_rounds: int
    final_rounds: int
    judging_share: float

    @property
    def free(self) -> Collection[str]:
        """See above."""
        ...

    def begin(self, choices: Sequence[Choice]) -> None:
        """Say what is opened next: what takes long may begin for all of them at once."""
        ...

    def open(self, choice: Choice, *, checked: bool = False) -> Entrant:
        """Make a choice ready to run.

        checked: whether it must be known that it keeps what the loop computes.
        Raises: TrialError.
        """
        ...

    def next_round(self) -> None:
        """A round begins; what all its turns share, such as a seed, may change."""
        ...


@dataclass
class Stretch:
    """What a choice has run so far, one turn after the other: iterations, their time, the longest.

    Where a long iteration comes now and then, as when a loader starts its workers for a new pass,
    a stretch may hold one more of such, or one less, than its share of the time.
    """

    iterations: int = 0
    total_ns: float = 0.0
    longest_ns: float = 0.0

    def add(self, iterations: int, total_ns: float, longest_ns: float) -> None:
        """Count a turn."""
        self.iterations += iterations
        self.total_ns += total_ns
        self.longest_ns = max(self.longest_ns, longest_ns)

    @property
    def granularity(self) -> float:
        """By how much the longest iteration exceeds the mean one, as a share of all the time."""
        if not self.total_ns:
            return 0.0
        return max(0.0, self.longest_ns / self.total_ns - 1 / self.iterations)
