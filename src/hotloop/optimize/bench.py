"""Where choices run: what a search asks of a loop of this process, of processes, of trainings."""

from typing import Protocol

from hotloop.errors import HotloopError
from hotloop.optimize.space import Choice


class TrialError(HotloopError):
    """A choice that cannot be tried; the message says why."""


class Entrant(Protocol):
    """A choice that can run."""

    def turn(self) -> float:
        """Run for a moment. Returns units a second. Raises: TrialError."""
        ...

    def close(self) -> None:
        """End it."""
        ...


class Bench(Protocol):
    """Where choices run.

    places: how many may be open at once, beside the fastest so far. same_work: whether all turns do
    the same work, as trainings to a target do, so that their times are what is summed; else turns
    last equally long, and work is. usual_noise: how much two turns of one choice usually differ, as
    the standard deviation of the logarithm of a rate. warm_rounds: turns of the start
    alone, which show how much its turns differ; final_rounds: of the winner against it, at least.
    """

    places: int
    same_work: bool
    usual_noise: float
    warm_rounds: int
    final_rounds: int

    def open(self, choice: Choice, *, checked: bool = False) -> Entrant:
        """Make a choice ready to run.

        checked: whether it must be known that it keeps what the loop computes.
        Raises: TrialError.
        """
        ...

    def next_round(self) -> None:
        """A round begins; what all its turns share, such as a seed, may change."""
        ...
