"""A shard of a replay, what it is asked for and what it answers: the same wherever it lies.

A shard is a replay of its own. It numbers its transitions from the first that it was given, and
knows of no other shard.
"""

from typing import NamedTuple, Protocol

import numpy as np

from hotloop.rollout.replay import Array, Doubles, Found, Ints, PrioritisedReplay, Transitions
from hotloop.rollout.worker import Failure


class Add(NamedTuple):
    """Add transitions; error: (n,), the first of each."""

    transitions: Transitions
    error: Array


class Restore(NamedTuple):
    """Add transitions whose priorities, (n,), are known."""

    transitions: Transitions
    priority: Doubles


class SetErrors(NamedTuple):
    """Set the errors of transitions; number, error: (n,)."""

    number: Ints
    error: Array


class Draw(NamedTuple):
    """Return the transitions at which the sum of priorities passes these shares of it, (n,)."""

    uniform: Doubles


class ByAge(NamedTuple):
    """Return transitions by their age, the oldest is 0."""

    start: int
    stop: int


Request = Add | Restore | SetErrors | Draw | ByAge


class ShardSettings(NamedTuple):
    """What all shards of a replay have in common. nbytes: memory that each takes at most."""

    capacity: int
    exponent: float
    nbytes: int


class Answer(NamedTuple):
    """What a message asked for, if anything. total: of the shard's priorities, afterwards."""

    total: float
    result: Found | Failure | None


class Answered(NamedTuple):
    """A shard has started, or has answered the oldest message that it had not yet answered."""

    shard: int
    answer: Answer


class Died(NamedTuple):
    """A shard has died, and what it held with it."""

    shard: int
    reason: str


Event = Answered | Died


class ShardPool(Protocol):
    """Shards by number. Messages to one are answered in their order; only `wait` blocks."""

    def start(self, shard: int) -> None:
        """Start an empty shard; its first answer says that it is there."""
        ...

    def send(self, shard: int, requests: tuple[Request, ...]) -> None:
        """Send a message; a dead shard is noticed by `wait`."""
        ...

    def wait(self, timeout_s: float | None) -> list[Event]:
        """Return the next events; empty after the timeout."""
        ...

    def end(self, shard: int) -> None:
        """End a shard at once."""
        ...

    def close(self) -> None:
        """End all shards. Idempotent."""
        ...


class Shard:
    """The shard itself, for whoever brings it requests and takes its answers away."""

    def __init__(self, settings: ShardSettings) -> None:
        self.replay = PrioritisedReplay(settings.capacity, exponent=settings.exponent)

    def begin(self) -> Answer:
        """Say that it is there."""
        return Answer(self.replay.total, None)

    def answer(self, requests: tuple[Request, ...]) -> Answer:
        """Do what a message asks for; the answer is what its last request finds, or its failure."""
        result: Found | Failure | None = None
        try:
            for request in requests:
                result = self._do(request)
        except Exception as error:
            result = Failure.of(error)
        return Answer(self.replay.total, result)

    def _do(self, request: Request) -> Found | None:
        match request:
            case Add(transitions, error):
                self.replay.add(transitions, error)
            case Restore(transitions, priority):
                self.replay.restore(transitions, priority)
            case SetErrors(number, error):
                self.replay.set_errors(number, error)
            case Draw(uniform):
                # Arrays that Ray brings are read-only, for which the kernel would be compiled anew.
                return self.replay.find(np.array(uniform))
            case ByAge(start, stop):
                return self.replay.by_age(start, stop)
        return None
