"""A program: many steps of a model in one call, with nothing of Python between its substeps.

A model may bring one beside its substeps. The substeps say what a step means; the program does the
same faster, in place, on the same columns.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from hotloop.sim.settings import Settings
from hotloop.sim.state import State
from hotloop.sim.substep import Substep


@dataclass(frozen=True)
class Parts:
    """What a program is made from: live objects of one runner, not copies.

    Parameters are read from `substeps[i].learnable` at each `advance`: they may be exchanged.
    """

    state: State
    substeps: Sequence[Substep]
    settings: Settings


class Program(Protocol):
    """Advances a state in place; made by `Model.program(parts)`, once for each runner.

    One that acts on settings of `Settings.asked` has their names in a frozenset `acts_on`.
    It may hold the state's tensors: those that it was made with stay the state's, and hold its
    values whenever the program is asked to advance.
    """

    name: str
    """How performance figures call it, such as "fused cpu"."""

    def advance(self, first_step: int, steps: int) -> None:
        """Do `steps` steps of the episode, the first of them step number `first_step`.

        Columns are changed in place; sums of step t go to entry t of the state's series. The
        runner, not the program, counts `state.step`.
        """

    def columns_changed(self) -> None:
        """Say that the columns were changed from outside (reset, restored, other substeps)."""

    def counters(self) -> Mapping[str, float]:
        """Totals since it was made: "active_agent_steps", "edges" (read), and others of its own."""

    def close(self) -> None:
        """End what it runs beside this thread."""


class Differentiator(Protocol):
    """Gives counts of a run a gradient by the parameters; made by `Model.gradient(parts)`.

    Without one, a run with a gradient goes through the substeps, differentiated as they are.
    """

    controls: frozenset[str]
    """Paths of values by which it gives a gradient as well, where one is set that requires it."""

    def begin(self, first_step: int) -> None:
        """A differentiable span starts at step `first_step`, with the columns as they are."""

    def counts(self, steps: int) -> Mapping[str, Tensor]:
        """By path, the span's entries so far of each series it can give a gradient.

        Asked after every call of `step`, so that it sees values that change between two of them.

        Shapes: (steps,) or (R, steps), the numbers that the series holds.
        """

    def facts(self) -> Mapping[str, Any]:
        """What performance figures say of it, as gradient_<name>: which estimator, and why."""
