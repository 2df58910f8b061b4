"""A program: many steps of a model in one call, without Python between its substeps.

A model may bring one beside its substeps. The substeps define a step; the program does the same
faster, in place, on the same columns.
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
    """The parts of a runner from which a program is made: live objects, not copies.

    Parameters are read from `substeps[i].learnable` at each `advance`, as they may be exchanged.
    """

    state: State
    substeps: Sequence[Substep]
    settings: Settings


class Program(Protocol):
    """Advances a state in place; made by `Model.program(parts)`, once for each runner.

    One that acts on settings (see `Settings.refuse_idle`) has their names in a frozenset `acts_on`.
    It may hold the state's tensors: they hold the state's values whenever it is asked to advance.
    """

    name: str
    """Shown in performance figures, such as "fused cpu"."""

    def advance(self, first_step: int, steps: int) -> None:
        """Do `steps` steps of the episode, the first of them step number `first_step`.

        Columns are changed in place; sums of step t go to entry t of the state's series. The
        runner, not the program, counts `state.step`.
        """

    def columns_changed(self) -> None:
        """Note that the columns were changed from outside (reset, restored, other substeps)."""

    def counters(self) -> Mapping[str, float]:
        """Return totals since it was made: "active_agent_steps", "edges" (read), and its own."""

    def close(self) -> None:
        """End its threads."""


class Differentiator(Protocol):
    """Gives counts of a run a gradient by the parameters; made by `Model.gradient(parts)`.

    Without one, a run with a gradient goes through the substeps, differentiated as they are.
    """

    controls: frozenset[str]
    """Paths of values by which it also gives a gradient, where they are set and require one."""

    def begin(self, first_step: int) -> None:
        """Start a gradient window at step `first_step`, with the present columns."""

    def counts(self, steps: int) -> Mapping[str, Tensor]:
        """Return, by path, the window's entries so far of each series that has a gradient.

        Called after every `step`, so that it sees values that change between two calls.

        Shapes: (steps,) or (R, steps), the numbers that the series holds.
        """

    def facts(self) -> Mapping[str, Any]:
        """Return what performance figures show as gradient_<name>: which estimator, and why."""
