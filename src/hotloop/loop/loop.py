"""A loop as hotloop runs it: a body, the unit it counts in, and the state it changes."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hotloop.errors import LoopError
from hotloop.loop.lever import Lever


@dataclass(frozen=True)
class Loop:
    """One training loop, or any loop that steps a simulator.

    body: runs one iteration and returns how many units it did.
    unit: what the body counts, in the plural ("env steps", "samples", "agent steps").
    name: the name of the loop in reports.
    state: every object that the stages declared "stateful" change, and whatever learning changes:
    policy, optimiser, env, buffers. Saved before, and put back between, the arms of an experiment;
    the random generators of Python, NumPy and torch always are.
    may_go_on: those of `state` of which each content at the end of an iteration is as good as
    another, such as an env with what steps it. They too are put back; where one cannot be, such as
    a simulator that hides its state in compiled code, it goes on from where an arm left it, and
    the stages that change it may be replaced nevertheless.
    batches: batches that one iteration feeds to an update.
    price_per_hour: what the machine costs, in any one currency.
    in_flight: for loops with queues: the most items between the first stage and the body. Not
    needed where the stages are called once an iteration; there it is observed.
    close: called once when nothing more will be run, also after an error.
    levers: changes that `hotloop optimize` may try.
    result: what the loop has computed so far, as arrays, tensors and containers of them. A change
    that keeps the result leaves it equal. None: the leaf tensors that require a gradient.
    """

    body: Callable[[], float | int | None]
    unit: str = "iterations"
    name: str = "loop"
    state: Sequence[object] = ()
    may_go_on: Sequence[object] = ()
    batches: int = 1
    price_per_hour: float | None = None
    in_flight: int = 0
    close: Callable[[], None] | None = None
    levers: Sequence[Lever] = ()
    result: Callable[[], object] | None = None

    def __post_init__(self) -> None:
        if not callable(self.body):
            raise LoopError(
                f"loop {self.name!r}: body must be a function that runs one iteration and returns "
                f"how many {self.unit} it did; got {type(self.body).__qualname__}"
            )
        if self.batches < 1 or self.in_flight < 0:
            raise LoopError(
                f"loop {self.name!r}: batches must be at least 1 and in_flight at least 0; "
                f"got {self.batches} and {self.in_flight}"
            )
        declared = {id(each) for each in self.state}
        for position, each in enumerate(self.may_go_on):
            if id(each) not in declared:
                raise LoopError(
                    f"loop {self.name!r}: may_go_on[{position}], a {type(each).__qualname__}, is "
                    "not in state; declare it in both"
                )
        names = [lever.name for lever in self.levers]
        if len(set(names)) < len(names):
            raise LoopError(f"loop {self.name!r}: levers: expected different names, got {names}")


def checked_units(units: object, name: str, unit: str) -> float:
    """Return the units of one iteration as a number.

    Raises: LoopError for None, what is no number, NaN, infinite or negative.
    """
    if units is None:
        raise LoopError(
            f"{name}: one iteration returned no units. The body must return how many {unit} it "
            "did, such as `return num_envs * num_steps`"
        )
    try:
        number = float(units)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise LoopError(
            f"{name}: one iteration returned {type(units).__qualname__}; expected the number of "
            f"{unit} it did"
        ) from None
    if not math.isfinite(number) or number < 0:
        raise LoopError(
            f"{name}: one iteration returned {number} units; expected a finite number of {unit}, "
            "zero or more"
        )
    return number
